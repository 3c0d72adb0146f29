"""A job, and the left fold that makes it: `fold(records)` is `evolve` from nothing to now.

The table picks the state, the match picks the fields, the shape closes the loop: whatever the new state
forbids is dropped, and what it requires must be there. A log that breaks the table, a shape or its own order is
never guessed at; it raises `CorruptLogError`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, assert_never

import msgspec
from msgspec import Raw, field
from msgspec.structs import replace

from leftfold.core import events as e
from leftfold.core.errors import CorruptLogError
from leftfold.core.frozen import Frozen
from leftfold.core.letters import incident_of, is_incident
from leftfold.core.lifecycle import CLOSED, ENDED, SHAPE, Shape, State, Who, rule_for
from leftfold.core.record import Record
from leftfold.core.retry import DEFAULT_POLICY, Policy
from leftfold.core.values import Answer, Failure, Spec, Wait, WaitFor


class Lease(Frozen):
    """The right of one attempt: its owner, the digest of its token, and until when it is safe."""

    owner: str
    token: str
    until: int


class LastLease(Frozen):
    """What is remembered of a lease that ended, so that its owner's repeated call is known again."""

    owner: str
    token: str
    until: int
    ended_by: e.AnyTransition
    ended_by_owner: bool


class Job(Frozen):
    """A job as it is now."""

    id: str
    state: State
    version: int
    spec: Spec
    created_at: int
    updated_at: int
    ended_at: int | None = None
    policy: Policy = DEFAULT_POLICY
    attempt: int = 0  # claims so far; only grows, and fences every owner's write
    failures: int = 0  # how much of the retry budget is used
    tally: Mapping[str, int] = field(default_factory=dict)  # failures of the classes with an allowance of their own

    # Present or absent as SHAPE says.
    due: int | None = None
    lease: Lease | None = None
    wait: Wait | None = None
    result: Raw | None = None
    error: Failure | None = None

    # Outside of the shapes, in any state.
    last_error: Failure | None = None
    last_lease: LastLease | None = None
    incident: str | None = None  # of a dead letter: which one, and since when it is settled
    resolved_at: int | None = None
    cancel_requested_at: int | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)  # request_id → what was asked, as a hash
    renewals: int = 0  # not on the log, and neither is
    renewed_under: Mapping[str, str] = field(default_factory=dict)  # the request of the last renewal

    @property
    def rev(self) -> int:
        """Give what everybody but the owner compares on: it moves with every event and every renewal."""
        return self.version + self.renewals

    @property
    def payload(self) -> Any:
        """Give the payload as Python values."""
        return msgspec.json.decode(self.spec.payload)

    @property
    def output(self) -> Any:
        """Give the result as Python values; None while there is none."""
        return None if self.result is None else msgspec.json.decode(self.result)

    def failures_of(self, error_code: str) -> int:
        """Give the failures so far that count against the same budget as this class of errors."""
        if self.policy.has_own_allowance(error_code):
            return self.tally.get(error_code, 0)
        return self.failures - sum(self.tally.values())


def fold(records: Iterable[Record]) -> Job | None:
    """Give the job that this log describes, or None for an empty one."""
    job: Job | None = None
    for record in records:
        job = evolve(job, record)
    return job


def evolve(job: Job | None, record: Record) -> Job:
    """Give the job after one more record."""
    if job is None:
        return _born(record)
    _check_follows(job, record)
    changes: dict[str, Any] = {"version": record.version, "updated_at": record.at}
    if record.request_id is not None:
        changes["requests"] = {**job.requests, record.request_id: record.request_hash}
    if isinstance(record.event, e.Transition):
        _move(job, record, record.event, changes)
    else:
        _note(job, record, changes)
    return replace(job, **changes)


def renew(job: Job, fact: e.Renewed) -> Job:
    """Give the job after a renewal: another lease end, another rev, the same version."""
    if job.lease is None:
        raise CorruptLogError(f"job {job.id} has no lease to renew")
    under = {} if fact.request_id is None else {fact.request_id: fact.request_hash or ""}
    lease = replace(job.lease, until=fact.until)
    return replace(job, lease=lease, renewals=job.renewals + 1, renewed_under=under)


def logged(job: Job) -> Job:
    """Give what the log alone says of the job: renewals, and the lease ends that they moved, are not on it."""
    return replace(
        job,
        renewals=0,
        renewed_under={},
        lease=job.lease and replace(job.lease, until=0),
        last_lease=job.last_lease and replace(job.last_lease, until=0),
    )


def _born(record: Record) -> Job:
    event = record.event
    if not isinstance(event, e.Received | e.Enqueued) or event.spec is None or record.version != 1:
        raise CorruptLogError(f"a log cannot begin with {event.wire!r} as version {record.version}")
    rule = rule_for(None, type(event))
    if rule is None or record.who not in rule.who:
        raise CorruptLogError(f"a log cannot begin with {event.wire!r} by {record.who}")
    enqueued = event if isinstance(event, e.Enqueued) else None
    return Job(
        id=record.job_id,
        state=rule.target,
        version=1,
        spec=event.spec,
        created_at=record.at,
        updated_at=record.at,
        policy=enqueued.policy if enqueued else DEFAULT_POLICY,
        due=_due(record, enqueued) if enqueued else None,
        requests={} if record.request_id is None else {record.request_id: record.request_hash or ""},
    )


def _due(record: Record, event: e.Enqueued) -> int:
    return record.at if event.due is None else event.due


def _check_follows(job: Job, record: Record) -> None:
    if record.job_id != job.id or record.version != job.version + 1:
        raise CorruptLogError(f"version {record.version} of {record.job_id} does not follow {job.version} of {job.id}")
    if record.at < job.updated_at:
        raise CorruptLogError(f"version {record.version} of {job.id} is older than the one before it")


def _move(job: Job, record: Record, event: e.AnyTransition, changes: dict[str, Any]) -> None:
    rule = rule_for(job.state, type(event))
    if rule is None or record.who not in rule.who:
        raise CorruptLogError(f"{event.wire!r} by {record.who} is not legal for {job.id}, which is {job.state}")
    contradiction = _contradiction(job, event)
    if contradiction:
        raise CorruptLogError(f"{event.wire!r} of {record.id} {contradiction}")
    changes.update(state=rule.target, ended_at=record.at if rule.target in ENDED else None)
    _set_fields(job, record, event, changes)
    shape = SHAPE[rule.target]
    if job.lease is not None and not shape.lease:
        changes["last_lease"] = _ended(job.lease, record, event)
    for name, required in zip(Shape._fields, shape, strict=True):
        if not required:
            changes[name] = None
        elif changes.get(name, getattr(job, name)) is None:
            raise CorruptLogError(f"{job.id} cannot be {rule.target} without {name}")


def _contradiction(job: Job, event: e.AnyTransition) -> str | None:
    """Say what an event says that cannot be so of this job, though the move itself is legal."""
    match event:
        case e.Resumed(key=key) if job.wait and job.wait.key != key:
            return f"answers {key!r}, while the job waits for {job.wait.key!r}"
        case e.Stalled(owner=owner) if job.lease and job.lease.owner != owner:
            return f"names {owner}, while {job.lease.owner} holds the job"
        case e.Requeued(reason=None) if job.state in CLOSED:
            return "reopens a closed job without a reason"
        case e.DeadLettered(attempts=attempts) if attempts != job.attempt:
            return f"counts {attempts} attempts, while the job had {job.attempt}"
        case e.DeadLettered(incident=str() as incident) if not is_incident(incident):
            return "names what is no incident"
        case _:
            return None


def _set_fields(job: Job, record: Record, event: e.AnyTransition, changes: dict[str, Any]) -> None:  # noqa: C901 - an arm per event
    match event:
        case e.Received() | e.Started():
            pass
        case e.Enqueued(policy=policy, spec=spec):
            changes.update(due=_due(record, event), policy=policy, spec=spec or job.spec)
        case e.Claimed(token=token, lease=lease):
            lease_of = Lease(owner=record.actor, token=token, until=record.at + lease)
            changes.update(attempt=job.attempt + 1, lease=lease_of)
        case e.Suspended(wait=wait) | e.Parked(wait=wait):
            changes.update(wait=wait)
        case e.Resumed(key=key):
            wait = job.wait or Wait(until=WaitFor.SIGNAL, key=key)
            changes.update(due=max(record.at, wait.not_before), answers={**job.answers, key: event.answer(wait)})
        case e.Succeeded(result=result):
            changes.update(result=result)
        case e.Retried(error=error, due=due):
            changes.update(due=due, error=error, last_error=error, **_charged(job, error.code))
        case e.Released(due=due):
            changes.update(due=due)
        case e.Stalled():
            changes.update(last_error=event.error)
            if job.state is State.RUNNING:
                changes.update(_charged(job, e.LEASE_EXPIRED))
        case e.Requeued(due=due):
            changes.update(due=due)
            if job.state in CLOSED:
                # A wait that expired may be waited for anew; what was answered stands.
                answers = {key: answer for key, answer in job.answers.items() if not answer.expired}
                changes.update(failures=0, tally={}, cancel_requested_at=None, answers=answers)
                changes.update(incident=None, resolved_at=None)
        case e.Failed(error=error):
            changes.update(error=error, last_error=error)
            if record.who is Who.OWNER:
                changes.update(_charged(job, error.code))
        case e.DeadLettered(error=error, last_error=last_error):
            changes.update(error=error, last_error=last_error, incident=_incident(job, event))
            if record.who is Who.OWNER:
                changes.update(_charged(job, error.code))
        case e.Cancelled(error=error):
            changes.update(last_error=error or job.last_error)
        case _ as unheard_of:
            assert_never(unheard_of)


def _note(job: Job, record: Record, changes: dict[str, Any]) -> None:
    if job.state in ENDED and not (job.state in CLOSED and record.who is Who.OPERATOR):
        raise CorruptLogError(f"{record.event.wire!r} stands after the end of {job.id}, which is {job.state}")
    if job.lease is None and (record.who is Who.OWNER or isinstance(record.event, e.CancelRequested)):
        raise CorruptLogError(f"{record.event.wire!r} of {record.id} needs an owner, and nobody holds the job")
    if isinstance(record.event, e.OwnersNote) and record.who is not Who.OWNER:
        raise CorruptLogError(f"{record.event.wire!r} of {record.id} is the owner's to say, not a {record.who}'s")
    if isinstance(record.event, e.OperatorsNote) and record.who is not Who.OPERATOR:
        raise CorruptLogError(f"{record.event.wire!r} of {record.id} is an operator's to say, not a {record.who}'s")
    match record.event:
        case e.Resolved():
            if job.state is not State.DEAD_LETTERED:
                raise CorruptLogError(f"{record.event.wire!r} of {record.id} settles a job that is {job.state}")
            changes["resolved_at"] = job.resolved_at or record.at
        case e.CancelRequested():
            changes["cancel_requested_at"] = job.cancel_requested_at or record.at
        case e.Signalled(key=key, payload=payload):
            changes["answers"] = {**job.answers, key: Answer(payload=payload)}
        case _:
            pass


def _incident(job: Job, letter: e.DeadLettered) -> str:
    """Give what the letter says; those of the first versions did not say it."""
    return letter.incident or incident_of(job.spec.kind, letter.reason_code, letter.stage, letter.error)


def _charged(job: Job, error_code: str) -> dict[str, Any]:
    charged: dict[str, Any] = {"failures": job.failures + 1}
    if job.policy.has_own_allowance(error_code):
        charged["tally"] = {**job.tally, error_code: job.tally.get(error_code, 0) + 1}
    return charged


def _ended(lease: Lease, record: Record, event: e.AnyTransition) -> LastLease:
    until = event.lease_until if isinstance(event, e.Stalled) else lease.until
    by_owner = record.who is Who.OWNER
    return LastLease(owner=lease.owner, token=lease.token, until=until, ended_by=event, ended_by_owner=by_owner)
