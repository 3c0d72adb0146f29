"""From what callers say to commands: names, defaults, units. Everything is checked before a store is touched.

Of a large batch, the later parts are checked while the first are written: what is refused then takes all of them back.
"""

import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar, get_args
from uuid import UUID

from msgspec.structs import replace

from leftfold.core import commands as c
from leftfold.core import limits
from leftfold.core.errors import JobError, ValidationError
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import State, Who
from leftfold.core.payload import NULL, check_payload, to_payload
from leftfold.core.retry import DEFAULT_POLICY, Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor
from leftfold.store.claiming import Wanted
from leftfold.store.creating import Mold, OnConflict, mold_of
from leftfold.store.ops import Ask
from leftfold.store.replies import Claim, Summary
from leftfold.store.views import Filter, LetterFilter
from leftfold.times import Moment, Span, microseconds, split

#: The priorities with names; any whole number will do, and more is sooner.
PRIORITIES: Final[Mapping[str, int]] = {"P0": 30, "P1": 20, "P2": 10, "P3": 0}
BATCH_MAX: Final = 10_000
PAGE_MAX: Final = 1_000
ON_CONFLICT: Final[tuple[str, ...]] = get_args(OnConflict)
_ANY_ID: Final = "00000000-0000-7000-8000-000000000000"
#: A job that is only received replaces nothing yet, and there is always a receipt for it.
ON_CONFLICT_RECEIVED: Final = ("return", "raise")

E = TypeVar("E", bound=StrEnum)
Shared = c.Requeue | c.Note


class NewJob(NamedTuple):
    """A job to be enqueued with others."""

    kind: str
    payload: Any = None
    queue: str = "default"
    priority: int | str = 0
    due: Moment | None = None
    key: str | None = None
    correlation_id: str | None = None
    cause: str | None = None
    tenant: str = ""
    after: Sequence[str] = ()
    policy: Policy = DEFAULT_POLICY


def spec_of(job: NewJob) -> Spec:
    """Give what a job is to do."""
    return Spec(
        kind=job.kind,
        payload=to_payload("payload", job.payload),
        queue=job.queue,
        priority=priority_of(job.priority),
        key=job.key,
        tenant=job.tenant,
        correlation_id=job.correlation_id,
        cause=job.cause,
    )


def enqueue(job: NewJob, job_id: str, by: c.Actor, request_id: str | None) -> c.Enqueue:
    """Ask for a new job."""
    due, delay = (None, None) if job.due is None else split("due", job.due)
    policy: object = job.policy
    if not isinstance(policy, Policy):
        raise ValidationError(f"policy must be a leftfold.Policy, not {policy!r}")
    return c.Enqueue(
        by=by,
        job_id=job_id,
        spec=spec_of(job),
        policy=policy,
        due=due,
        delay=delay,
        after=tuple(id_of(other) for other in job.after) if job.after else (),
        request_id=request_id,
    )


@lru_cache(maxsize=1024, typed=True)  # the same few come again and again
def _mold(kind: str, queue: str, priority: int | str, tenant: str, by: str) -> Mold:
    actor = actor_of(Who.CLIENT, by, by)
    return mold_of(enqueue(NewJob(kind, NULL, queue, priority, tenant=tenant), _ANY_ID, actor, None))


def mold(job: NewJob, by: c.Actor) -> Mold | None:
    """Give what all jobs of a kind have in common, if this one says nothing but where it belongs."""
    kind, _, queue, priority, due, key, correlation_id, cause, tenant, after, policy = job
    given = due is not None or key is not None or correlation_id is not None or cause is not None
    if given or after or policy is not DEFAULT_POLICY:
        return None
    try:
        return _mold(kind, queue, priority, tenant, by.name)
    except TypeError:  # there is a list among them, perhaps, which no cache takes
        return None


def payload_of(job: NewJob) -> str:
    """Give what a job is to work on, checked."""
    payload = to_payload("payload", job.payload)
    check_payload("payload", payload)
    return bytes(payload).decode()


def are_free(jobs: Iterable[NewJob]) -> bool:
    """Tell whether no other job can stand in the way of these."""
    return all(job.key is None and not job.after for job in jobs)


def are_alike(jobs: Sequence[NewJob]) -> bool:
    """Tell whether jobs differ in nothing but their payloads.

    What is equal may mean something else: True is 1, and an hour that the clocks go through twice is itself.
    """
    first = jobs[0]
    kind, common, priority, due = first.kind, first[2:], type(first.priority), first.due
    return all(
        job[0] == kind and job[2:] == common and type(job.priority) is priority and job.due is due for job in jobs
    )


def parts(asked: Sequence[tuple[NewJob, str]], by: c.Actor, size: int) -> Iterator[list[c.Enqueue]]:
    """Ask for new jobs, so many at once; for fewer at first, so that the store has something to do soon."""
    begin, end = 0, size // 4
    while begin < len(asked):
        yield [enqueue(*each, by, None) for each in asked[begin:end]]
        begin, end = end, end + size


def priority_of(given: int | str) -> int:
    """Give a priority as a number."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    if isinstance(given, str):
        if given in PRIORITIES:
            return PRIORITIES[given]
        if re.fullmatch(r"-?[0-9]{1,9}", given):
            return int(given)
    raise ValidationError(f"priority {given!r} must be P0, P1, P2, P3 or a whole number")


def id_of(job_id: object) -> str:
    """Give a job id as the store spells it."""
    try:
        return str(UUID(str(job_id)))
    except ValueError as problem:
        raise ValidationError(f"{job_id!r} is not a job id: it is a UUID") from problem


def wanted(queues: Iterable[str] | None, kinds: Iterable[str] | None, limit: int) -> Wanted:
    """Say which jobs a worker takes."""
    limits.between("limit", limit, 1, BATCH_MAX)
    return Wanted(names("queue", queues), names("kind", kinds), limit)


def check_direct(job_id: str | None, asked: Wanted, *, start: bool) -> None:
    """Refuse to look for one job by its id and for others by what they are: nobody could tell which counts."""
    if job_id is not None and start:
        raise ValidationError("a job that is claimed by its job_id is started by a call of its own")
    if job_id is not None and (asked.queues is not None or asked.kinds is not None):
        raise ValidationError("a job is claimed by its job_id, or by queues and kinds, not by both")


def check_batch(batch: Sequence[object]) -> None:
    """Refuse a batch that one statement could not carry."""
    limits.most("batch", batch, BATCH_MAX)


def check_conflict(on_conflict: str, allowed: Sequence[str] = ON_CONFLICT) -> None:
    """Refuse what nobody could do about a key that is taken."""
    if on_conflict not in allowed:
        raise ValidationError(f"on_conflict {on_conflict!r} is none of {', '.join(allowed)}")


def names(what: str, given: Iterable[str] | None) -> list[str] | None:
    """Give names as a list, checked; None means any."""
    if given is None:
        return None
    if isinstance(given, str):
        raise ValidationError(f"{what}s are a list: [{given!r}]")
    found = list(given)
    for each in found:
        limits.name(what, each)
    return found


def span(what: str, given: Span | None) -> int | None:
    """Give an optional span as microseconds."""
    return None if given is None else microseconds(what, given)


def failure_of(error: Failure | BaseException | str) -> Failure:
    """Give an error as the log keeps it: printable, and no longer than allowed."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, str):
        return Failure(code="error", message=printable(error))
    code = error.code if isinstance(error, JobError) else "error"
    told = "".join(traceback.format_exception(error)) if error.__traceback__ else None
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    return Failure(
        code=code, message=printable(_message(error)), type=printable(name), traceback=told and printable(told)
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:  # noqa: BLE001 - a broken __str__ must not hide the error itself
        return f"(the error could not be printed: {type(problem).__name__})"


#: Control characters as signs that show them; a terminal would do what they say.
_VISIBLE: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\N{SYMBOL FOR DELETE}",
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
}


def printable(text: str) -> str:
    """Make any text one that a store can keep; of a long one the end stays, where a traceback says what happened."""
    clean = text.replace("\r\n", "\n").translate(_VISIBLE).encode("utf-8", "backslashreplace").decode()
    if len(clean) <= limits.TEXT_CHARS_MAX:
        return clean
    mark = "[…]\n"
    return mark + clean[len(mark) - limits.TEXT_CHARS_MAX :]


def wait_of(key: str, until: WaitFor | str, deadline: Moment | None, jobs: Sequence[str]) -> tuple[Wait, int | None]:
    """Give a wait, and its timeout if its deadline counts from now."""
    at, timeout = split("deadline", deadline)
    kind = _enum("wait", WaitFor, WaitFor.JOBS if jobs else until)
    return Wait(until=kind, key=key, deadline=at, jobs=tuple(id_of(job) for job in jobs)), timeout


def actor_of(who: Who, by: c.Actor | str | None, default: str) -> c.Actor:
    """Say who speaks: a name in the usual role, or an actor in full."""
    if isinstance(by, c.Actor):
        return by
    name: Any = by or default
    if not isinstance(name, str):
        return c.Actor(who=who, name=name)
    return _actor(who, str.__str__(name))  # of an enum's member the value: what is hashed is what is stored


@lru_cache(maxsize=256)
def _actor(who: Who, name: str) -> c.Actor:
    return c.Actor(who=who, name=name)


def speaker(target: Claim | str, by: c.Actor | str | None, default: str, who: Who = Who.CLIENT) -> tuple[str, c.Actor]:
    """Say which job is meant and who speaks: the owner of a claim, or somebody else about a job."""
    if isinstance(target, Claim):
        return target.job_id, target.actor
    return id_of(target), actor_of(who, by, default)


def asks_of(jobs: Iterable[Summary | str], command: Shared) -> list[Ask]:
    """Ask the same of many jobs; of one that a list showed, only as it was shown."""
    return [
        Ask(job.id, replace(command, expected_rev=job.rev)) if isinstance(job, Summary) else Ask(id_of(job), command)
        for job in jobs
    ]


def filter_of(
    states: Iterable[State | str] | State | str | None,
    *,
    resolved: bool | None = None,
    ids: Iterable[str] | None = None,
    **others: str | None,
) -> Filter:
    """Say which jobs to list."""
    if isinstance(states, str):
        states = [states]
    given = None if states is None else [_enum("state", State, state) for state in states]
    for what, value in others.items():
        limits.text(what, value)
    named = None if ids is None else [id_of(each) for each in ids]
    limits.most("ids", named or (), PAGE_MAX)
    return Filter(states=given, resolved=resolved, ids=named, **others)


def letters_of(incident: str | None, **asked: str | None) -> LetterFilter:
    """Say which dead letters are meant."""
    for what, value in asked.items():
        limits.text(what, value)
    return LetterFilter(beginning=None if incident is None else incident_of(incident), **asked)


def incident_of(beginning: str) -> str:
    """Read the name of an incident, or the beginning of it."""
    limits.textual("incident", beginning)
    if not re.fullmatch(r"[0-9a-f]{1,12}", beginning):
        raise ValidationError(f"{beginning!r} is not an incident: `leftfold dlq incidents` tells their names")
    return beginning


def mode_of(mode: CancelMode | str) -> CancelMode:
    """Give how to cancel."""
    return _enum("mode", CancelMode, mode)


def stage_of(stage: Stage | str) -> Stage:
    """Give where in its work a job failed."""
    return _enum("stage", Stage, stage)


def reason_of(reason: Reason | str) -> Reason:
    """Give why a job is set aside."""
    return _enum("reason_code", Reason, reason)


def _enum(what: str, kind: type[E], value: str) -> E:
    try:
        return kind(value)
    except ValueError as problem:
        choices = ", ".join(member.value for member in kind)
        raise ValidationError(f"{what} {value!r} is none of {choices}") from problem
