"""Which event answers a command: all policy, no I/O.

`decide` gives the facts to write. No facts mean that what was asked is so already: a repeated request, a
duplicate signal, an owner's call whose reply was lost. A command that may not happen raises.

Each command is answered by paths of events, best first (`answers.py`). A path may be taken if the table has
every step, if the caller may say it, and if no enforced dialect forbids it; the first such path is. So an
attempt that an enforced dialect will not let retry fails the job instead, without a special case.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.answers import creation, paths, repeats
from leftfold.core.endings import Path
from leftfold.core.errors import (
    DialectRefusedError,
    IllegalTransitionError,
    JobEndedError,
    JobExistsError,
    JobNotFoundError,
    LeaseConflictError,
    LeftfoldError,
    LimitExceededError,
    NotPermittedError,
    RequestReusedError,
    RevisionConflictError,
)
from leftfold.core.job import Job, evolve, renew
from leftfold.core.lifecycle import CLOSED, ENDED, Edge, Who, rule_for
from leftfold.core.limits import EVENTS_PER_JOB_MAX
from leftfold.core.record import Record, encode

#: Moves that a dialect forbids; the empty set is the full lifecycle.
Forbidden = frozenset[Edge]
NOTHING_FORBIDDEN: Final[Forbidden] = frozenset()

#: What an owner or keeper does not do any more past the limit of events, so that the job comes to its end.
_GOES_ON: Final = (e.Retried, e.Released, e.Suspended, e.Parked, e.Requeued, e.Note)


class Applied(NamedTuple):
    """What a command did: the job after it and the records to append, none if it was so already."""

    job: Job
    records: tuple[Record, ...]


def apply(job: Job | None, command: c.AnyCommand, now: int, forbidden: Forbidden = NOTHING_FORBIDDEN) -> Applied:
    """Decide, and give the job and its new records as they then are."""
    records: list[Record] = []
    for fact in decide(job, command, now, forbidden):
        if isinstance(fact, e.Renewed):
            job = renew(_there(job, command), fact)
        else:
            records.append(_record(job, command, fact, now, first=not records))
            job = evolve(job, records[-1])
    return Applied(_there(job, command), tuple(records))


def decide(
    job: Job | None, command: c.AnyCommand, now: int, forbidden: Forbidden = NOTHING_FORBIDDEN
) -> tuple[e.AnyEvent | e.Renewed, ...]:
    """Give the facts that answer the command, or raise why none may."""
    if isinstance(command, c.Creation):
        if job is None:
            return _choose(None, command, [creation(command, now)], forbidden)
        if is_replay(job, command):
            return ()
        raise JobExistsError(f"job {job.id} exists already")
    job = _there(job, command)
    if is_replay(job, command):
        return ()
    if command.by.who is Who.OWNER:
        if repeats(job, command):
            return ()
        _check_fence(job, command)
    else:
        _check_caller(job, command)
    return _choose(job, command, paths(job, command, now), forbidden)


def is_replay(job: Job, command: c.AnyCommand) -> bool:
    """Tell whether this very request was answered before; the same id for another request raises."""
    if command.request_id is None:
        return False
    asked = job.requests.get(command.request_id) or job.renewed_under.get(command.request_id)
    if asked is None:
        return False
    if asked != c.fingerprint(command):
        raise RequestReusedError(f"request_id {command.request_id!r} was used for something else on job {job.id}")
    if isinstance(command, c.Claim) and (job.lease is None or job.lease.token != c.digest(command.token)):
        raise LeaseConflictError(f"the claim of job {job.id} under this request is over, or had another token")
    return True


def _there(job: Job | None, command: c.AnyCommand) -> Job:
    if job is None:
        raise JobNotFoundError(f"there is no such job to {command.wire}")
    return job


def _check_fence(job: Job, command: c.AnyCommand) -> None:
    by = command.by
    if job.lease is None or by.attempt != job.attempt or c.digest(by.token) != job.lease.token:
        raise LeaseConflictError(
            f"{by.name} does not hold job {job.id}: it showed attempt {by.attempt}, "
            f"the job is {job.state} in attempt {job.attempt}; stop working on it"
        )


def _check_caller(job: Job, command: c.AnyCommand) -> None:
    """Hold everybody but the owner to what is not the owner's alone, and to the rev that was read."""
    if isinstance(command, c.OwnerCommand) or (isinstance(command, c.Note) and isinstance(command.note, e.OwnersNote)):
        raise NotPermittedError(f"only the owner of a job may {command.wire} so")
    if isinstance(command, c.SharedCommand) and command.expected_rev is not None and command.expected_rev != job.rev:
        raise RevisionConflictError(f"job {job.id} is at rev {job.rev}, not {command.expected_rev}: read it again")


def _choose(job: Job | None, command: c.AnyCommand, options: Sequence[Path], forbidden: Forbidden) -> Path:
    refusals = []
    for path in options:
        refusal = _refusal(job, command, path, forbidden)
        if refusal is None:
            return path
        refusals.append(refusal)
    raise refusals[0]


def _refusal(job: Job | None, command: c.AnyCommand, path: Path, forbidden: Forbidden) -> LeftfoldError | None:
    state = job.state if job else None
    for fact in path:
        if isinstance(fact, e.Renewed):
            continue
        if job is not None and job.version >= EVENTS_PER_JOB_MAX and _goes_on(fact, command.by.who):
            return LimitExceededError(f"job {job.id} has {job.version} events: end it")
        if isinstance(fact, e.Note) and not isinstance(fact, e.CancelRequested):
            if state in ENDED and not (state in CLOSED and command.by.who is Who.OPERATOR):
                return JobEndedError(f"a job that is {state} takes no note from a {command.by.who}")
            continue
        # A request to cancel that could never be heeded is refused like the cancellation itself.
        move = e.Cancelled if isinstance(fact, e.CancelRequested) else type(fact)
        rule = rule_for(state, move)
        if rule is None:
            kind = JobEndedError if state in ENDED else IllegalTransitionError
            return kind(f"a job that is {state} cannot be {move.wire}: {command.wire} is refused")
        if command.by.who not in rule.who:
            return NotPermittedError(f"{move.wire!r} is not for a {command.by.who}, it is for {' or '.join(rule.who)}")
        if Edge(state, move, rule.target) in forbidden:
            return DialectRefusedError(f"the enforced dialect has no {Edge(state, move, rule.target)}")
        state = rule.target
    return None


def _goes_on(fact: e.AnyEvent, who: Who) -> bool:
    return isinstance(fact, _GOES_ON) and who is not Who.OPERATOR and not isinstance(fact, e.CancelRequested)


def _record(job: Job | None, command: c.AnyCommand, event: e.AnyEvent, now: int, *, first: bool) -> Record:
    # Only the first record of a command carries its request_id: a unique index then holds it to one effect.
    asked = command.request_id if first else None
    return Record(
        job_id=command.job_id if isinstance(command, c.Creation) else _there(job, command).id,
        version=1 if job is None else job.version + 1,
        at=now if job is None else max(now, job.updated_at),
        who=command.by.who,
        actor=command.by.name,
        event=event,
        data=encode(event),
        request_id=asked,
        request_hash=None if asked is None else c.fingerprint(command),
    )
