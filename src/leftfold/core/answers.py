"""What answers each command: paths of events, best first, before anybody asks whether they may happen.

The path that holds nothing is an answer too: what was asked is so already.
"""

from typing import assert_never

from msgspec.structs import replace

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.endings import Path, bringing_back, dead_letter, due_of, failing, releasing, stalling, suspending
from leftfold.core.errors import (
    IllegalTransitionError,
    JobEndedError,
    LimitExceededError,
    NotDueError,
    SignalConflictError,
    ValidationError,
)
from leftfold.core.job import Job
from leftfold.core.lifecycle import CLOSED, ENDED, LEASED, State, Who, rule_for
from leftfold.core.limits import SIGNALS_PER_JOB_MAX
from leftfold.core.values import AFTER, Answer, CancelMode, Wait, WaitFor

NOTHING_TO_DO: Path = ()


def creation(command: c.Receive | c.Enqueue, now: int) -> Path:
    """Answer a command that makes its job."""
    if isinstance(command, c.Receive):
        return (e.Received(spec=command.spec),)
    if command.job_id in command.after:
        raise ValidationError(f"job {command.job_id} cannot wait for itself")
    enqueued = e.Enqueued(due=_later(command, now), policy=command.policy, spec=command.spec)
    if not command.after:
        return (enqueued,)
    wait = Wait(until=WaitFor.JOBS, key=AFTER, jobs=command.after, not_before=due_of(command, now))
    return enqueued, e.Suspended(wait=wait)


def _later(command: c.Enqueue | c.Admit, now: int) -> int | None:
    due = due_of(command, now)
    return due if due > now else None


def paths(job: Job, command: c.AnyCommand, now: int) -> list[Path]:  # noqa: C901 - one arm per command
    """Answer a command about a job that is there."""
    match command:
        case c.Admit(policy=policy, spec=spec):
            return [(e.Enqueued(due=_later(command, now), policy=policy, spec=spec),)]
        case c.Claim():
            return [_claim(job, command, now)]
        case c.Start():
            return [NOTHING_TO_DO if job.state is State.RUNNING else (e.Started(),)]
        case c.Heartbeat(lease=lease):
            # A clock that was set back must not shorten what the owner was promised.
            until = max(now + (lease or job.policy.lease), job.lease.until if job.lease else 0)
            asked = None if command.request_id is None else c.fingerprint(command)
            return [(e.Renewed(until=until, request_id=command.request_id, request_hash=asked),)]
        case c.Complete(result=result):
            return [(e.Succeeded(result=result),)]
        case c.Fail():
            return failing(job, command, now)
        case c.Release():
            return releasing(job, command, now)
        case c.Suspend():
            return suspending(job, command, now)
        case c.Note(note=e.Resolved() as note):
            return [_resolve(job, command, note)]
        case c.Note(note=note):
            return [(note,)]
        case c.Signal():
            return [_signal(job, command)]
        case c.Expire():
            return [_expire(job, now)]
        case c.Resume():
            return [_resume(job, command)]
        case c.Stall():
            return stalling(job, command, now)
        case c.Requeue():
            return _requeue(job, command, now)
        case c.Cancel():
            return [_cancel(job, command)]
        case c.DeadLetter(error=error, reason_code=reason, stage=stage):
            last_error = error if command.by.who is Who.OWNER else job.last_error
            return [(dead_letter(job, error, reason, stage, last_error),)]
        case c.Receive() | c.Enqueue():
            raise TypeError("a creation is answered by creation()")
        case _ as unheard_of:
            assert_never(unheard_of)


def repeats(job: Job, command: c.AnyCommand) -> bool:
    """Tell whether this owner ended its lease with this very call before, and only the reply was lost."""
    last, by = job.last_lease, command.by
    if job.lease is not None or last is None or not last.ended_by_owner:
        return False
    if by.attempt != job.attempt or c.digest(by.token) != last.token:
        return False
    match command, last.ended_by:
        case c.Complete(result=asked), e.Succeeded(result=done):
            return asked == done
        case c.Fail(permanent=True), e.Retried():
            return False
        case c.Fail(error=asked), e.Retried(error=done) | e.Failed(error=done) | e.DeadLettered(error=done):
            return asked == done
        case c.Fail(error=asked), e.Cancelled(error=done):
            return asked == done
        case c.DeadLetter(error=asked, reason_code=reason), e.DeadLettered(error=done, reason_code=given):
            return (asked, reason) == (done, given)
        case c.Release(due=asked, reason=reason), e.Released(due=done, reason=given):
            return asked in {None, done} and reason == given
        case c.Suspend(wait=asked, timeout=timeout), e.Suspended(wait=done) | e.Parked(wait=done):
            # What a timeout came to is known from the first call alone.
            if timeout is None or done.deadline is None:
                return asked == done and timeout is None
            return asked == replace(done, deadline=None)
        case ((c.Cancel() | c.Release() | c.Suspend()), e.Cancelled(error=None)):
            return True
        case _:
            return False


def _claim(job: Job, command: c.Claim, now: int) -> Path:
    if job.due is not None and job.due > now:
        raise NotDueError(f"job {job.id} is not due for another {job.due - now} µs")
    if job.state is State.STALLED and not command.direct:
        raise NotDueError(f"job {job.id} is stalled: requeue it, or claim it by its id")
    lease = command.lease or job.policy.lease
    return (e.Claimed(token=c.digest(command.token), lease=lease),)


def _signal(job: Job, command: c.Signal) -> Path:
    answered = job.answers.get(command.key)
    if answered == Answer(payload=command.payload):
        return NOTHING_TO_DO
    if answered is not None:
        how = "by the passing of its deadline" if answered.expired else "otherwise"
        raise SignalConflictError(f"{command.key!r} of job {job.id} was answered before, {how}")
    if job.state in ENDED:
        raise JobEndedError(f"job {job.id} is {job.state} and takes no signal")
    wait = job.wait
    if wait is not None and (wait.until is WaitFor.SIGNAL) != (wait.key == command.key):
        raise SignalConflictError(f"job {job.id} waits for {wait.until} {wait.key!r}, not for signal {command.key!r}")
    if wait is not None and wait.key == command.key:
        return (e.Resumed(key=command.key, payload=command.payload),)
    if len(job.answers) >= SIGNALS_PER_JOB_MAX:
        raise LimitExceededError(f"job {job.id} keeps {len(job.answers)} signals already, the most there may be")
    return (e.Signalled(key=command.key, payload=command.payload),)


def _expire(job: Job, now: int) -> Path:
    wait = _wait_of(job)
    if wait.deadline is None or wait.deadline > now:
        raise NotDueError(f"the wait of job {job.id} for {wait.key!r} has not run out")
    return (e.Resumed(key=wait.key, expired=True),)


def _resume(job: Job, command: c.Resume) -> Path:
    wait = _wait_of(job)
    missing = set(wait.jobs) - set(command.outcomes)
    if wait.until is not WaitFor.JOBS or missing:
        raise NotDueError(f"job {job.id} waits for {', '.join(sorted(missing)) or wait.until}")
    return (e.Resumed(key=wait.key, outcomes={job_id: command.outcomes[job_id] for job_id in wait.jobs}),)


def _wait_of(job: Job) -> Wait:
    if job.wait is None:
        raise IllegalTransitionError(f"job {job.id} is {job.state} and waits for nothing")
    return job.wait


def _requeue(job: Job, command: c.Requeue, now: int) -> list[Path]:
    if job.state in CLOSED and not command.reason:
        raise ValidationError(f"job {job.id} is {job.state}: reopening it needs a reason")
    requeued = e.Requeued(due=due_of(command, now), reason=command.reason)
    if job.state is State.STALLED and job.last_error is not None and command.by.who is Who.KEEPER:
        return bringing_back(job, requeued, job.failures_of(e.LEASE_EXPIRED), job.last_error)
    return [(requeued,)]


def _resolve(job: Job, command: c.Note, note: e.Resolved) -> Path:
    if job.state is not State.DEAD_LETTERED:
        kind = JobEndedError if job.state in ENDED else IllegalTransitionError
        raise kind(f"job {job.id} is {job.state}, not dead_lettered: there is nothing to resolve")
    # A request with an id leaves its trace, as below.
    if job.resolved_at is not None and command.request_id is None:
        return NOTHING_TO_DO
    return (note,)


def _cancel(job: Job, command: c.Cancel) -> Path:
    asked = command.mode is CancelMode.SOFT and command.by.who is not Who.OWNER and job.state in LEASED
    if not asked:
        return (e.Cancelled(mode=command.mode, reason=command.reason),)
    rule = rule_for(job.state, e.Cancelled)
    permitted = rule is not None and command.by.who in rule.who
    # A request with an id leaves its trace even if it was asked before: repeated later, it must not act anew.
    if job.cancel_requested_at is not None and permitted and command.request_id is None:
        return NOTHING_TO_DO
    return (e.CancelRequested(reason=command.reason),)
