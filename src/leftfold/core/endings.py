"""How an attempt ends when it does not succeed: the budget, the policy, a request to cancel.

Once a cancellation is requested, whatever would bring the job back ends it instead. Success still wins.
"""

from msgspec.structs import replace

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import (
    IllegalTransitionError,
    JobEndedError,
    LimitExceededError,
    NotDueError,
    SignalConflictError,
    ValidationError,
)
from leftfold.core.job import Job
from leftfold.core.letters import Reason, Stage, incident_of, reason_for
from leftfold.core.lifecycle import ENDED, State, Who
from leftfold.core.limits import EVENTS_PER_JOB_MAX
from leftfold.core.retry import NEVER_RETRIED
from leftfold.core.values import CancelMode, Failure, WaitFor

#: Facts to be written together, in this order.
Path = tuple[e.AnyEvent | e.Renewed, ...]


def due_of(command: c.Enqueue | c.Admit | c.Release | c.Requeue, now: int) -> int:
    """Give the moment from which the job may be claimed: as given, after a delay, or now."""
    given = command.due if command.delay is None else now + command.delay
    return max(given or 0, now)


def failing(job: Job, command: c.Fail, now: int) -> list[Path]:
    """Retry while the budget lasts, then close."""
    error, failures = command.error, job.failures_of(command.error.code) + 1
    hopeless = command.permanent or error.code in NEVER_RETRIED
    reason = command.reason_code or (reason_for(error.code) if hopeless else Reason.EXHAUSTED_RETRIES)
    closing = _closing(job, dead_letter(job, error, reason, command.stage, last_error=error))
    if hopeless or not job.policy.allows_retry(error.code, failures):
        return closing
    if job.cancel_requested_at is not None:
        return [_heeded(error), *closing]
    delay = max(command.delay or 0, job.policy.delay(error.code, failures, job.id))
    return [(e.Retried(error=error, due=max(now, job.updated_at) + delay),), *closing]


def stalling(job: Job, command: c.Stall, now: int) -> list[Path]:
    """Take the job from its owner and, in the same breath, give it its next state or hold it."""
    if job.lease is None:
        kind = JobEndedError if job.state in ENDED else IllegalTransitionError
        raise kind(f"job {job.id} is {job.state}: nobody holds it")
    keeper = command.by.who is Who.KEEPER
    if keeper and job.lease.until > now:
        raise NotDueError(f"the lease of job {job.id} runs for another {job.lease.until - now} µs")
    stalled = e.Stalled(owner=job.lease.owner, lease_until=job.lease.until, reason=command.reason)
    running = job.state is State.RUNNING
    failures = job.failures_of(e.LEASE_EXPIRED) + running
    hold: Path = ()
    # What comes after an operator's stall is the operator's to say, and a job may ask to be held while it has a budget.
    held = not keeper or (job.policy.hold_stalled and job.policy.allows_retry(e.LEASE_EXPIRED, failures))
    options = [hold] if held else bringing_back(job, e.Requeued(due=now), failures, stalled.error)
    if job.cancel_requested_at is not None:
        options = [_heeded()]
    return [(stalled, *path) for path in [*options, hold]]


def bringing_back(job: Job, requeued: e.Requeued, failures: int, error: Failure) -> list[Path]:
    """Queue a job again whose owner was lost, unless its budget is spent or it is to be cancelled."""
    if job.cancel_requested_at is not None:
        return [_heeded()]
    if job.policy.allows_retry(e.LEASE_EXPIRED, failures):
        return [(requeued,), *_for_its_length(job)]
    return _closing(job, dead_letter(job, error, Reason.EXHAUSTED_RETRIES, Stage.EXEC, last_error=error))


def _for_its_length(job: Job) -> list[Path]:
    """Close a job that has more events than may be: a keeper does not bring it back, and nobody else would."""
    if job.version < EVENTS_PER_JOB_MAX:
        return []
    error = Failure(code=LimitExceededError.code, message=f"the job has {job.version} events, and was lost once more")
    return _closing(job, dead_letter(job, error, reason_for(error.code), Stage.EXEC, last_error=error))


def releasing(job: Job, command: c.Release, now: int) -> list[Path]:
    """Give the job back, unless its owner was asked to stop."""
    if job.cancel_requested_at is not None:
        return [_heeded()]
    return [(e.Released(due=due_of(command, now), reason=command.reason),)]


def suspending(job: Job, command: c.Suspend, now: int) -> list[Path]:
    """Park where there is nothing to poll, else suspend; an answer that is there needs no wait."""
    wait = command.wait if command.timeout is None else replace(command.wait, deadline=now + command.timeout)
    if job.cancel_requested_at is not None:
        return [_heeded()]
    if job.id in wait.jobs:
        raise ValidationError(f"job {job.id} cannot wait for itself")
    answer = job.answers.get(wait.key)
    if answer is not None and answer.until is not wait.until:
        raise SignalConflictError(f"{wait.key!r} of job {job.id} was answered before, by a {answer.until}")
    if answer is not None:
        return [()]
    if wait.until is WaitFor.SIGNAL and wait.deadline is None:
        return [(e.Parked(wait=wait),), (e.Suspended(wait=wait),)]
    return [(e.Suspended(wait=wait),)]


def dead_letter(job: Job, error: Failure, reason: Reason, stage: Stage, last_error: Failure | None) -> e.DeadLettered:
    """Fill in everything that an incident needs."""
    last = job.lease or job.last_lease
    return e.DeadLettered(
        error=error,
        reason_code=reason,
        stage=stage,
        last_error=last_error,
        attempts=job.attempt,
        last_owner=last.owner if last else None,
        last_lease_expires_at=last.until if last else None,
        correlation_id=job.spec.correlation_id,
        incident=incident_of(job.spec.kind, reason, stage, error),
    )


def _closing(job: Job, letter: e.DeadLettered) -> list[Path]:
    options: list[Path] = [(letter,), (e.Failed(error=letter.error),)]
    return options if job.policy.on_exhausted == "dead_letter" else options[::-1]


def _heeded(error: Failure | None = None) -> Path:
    return (e.Cancelled(mode=CancelMode.SOFT, error=error),)
