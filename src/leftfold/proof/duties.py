"""What must happen, not only what must not: who may say what, how an attempt ends, what is charged, what is heard.

A rule that refuses too much is as wrong as one that allows too much, and no invariant about accepted moves would
notice. Like the invariants, the duties are spelled out a second time. An enforced dialect may excuse from them.
"""

from typing import Final

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.job import Job
from leftfold.core.lifecycle import State, Who
from leftfold.core.values import CancelMode, WaitFor
from leftfold.proof.invariants import Problem, Step, Taken

S = State
_LEASED: Final = {S.CLAIMED, S.RUNNING}
_BLOCKED: Final = {S.WAITING, S.PARKED}
_CLOSED: Final = {S.FAILED, S.DEAD_LETTERED}
_OVER: Final = {S.SUCCEEDED, S.CANCELLED, *_CLOSED}

#: Who may say it of a job that somebody holds, and of one that nobody holds.
_SPEAKERS: Final[dict[type[e.Event], tuple[str, str]]] = {
    e.Received: ("", "client"),
    e.Enqueued: ("", "client"),
    e.Claimed: ("", "worker"),
    e.Started: ("owner", ""),
    e.Suspended: ("owner", "client"),
    e.Parked: ("owner", ""),
    e.Resumed: ("", "client keeper"),
    e.Succeeded: ("owner", ""),
    e.Retried: ("owner", ""),
    e.Released: ("owner", ""),
    e.Stalled: ("keeper operator", ""),
    e.Requeued: ("", "keeper operator"),
    e.Failed: ("owner", "keeper"),
    e.DeadLettered: ("owner operator", "keeper operator"),
    e.Cancelled: ("owner client operator", "client keeper operator"),
}


def the_right_one_speaks(step: Step) -> Problem:
    """Every transition is said by one who may say it."""
    before, record, _ = step
    if not isinstance(record.event, e.Transition):
        return None
    held, free = _SPEAKERS[type(record.event)]
    may = (held if before is not None and before.lease is not None else free).split()
    if isinstance(record.event, e.DeadLettered) and before is not None and before.state is S.INBOX:
        may.append("client")
    return None if record.who in may else f"{record.event.wire} by a {record.who}"


def failures_are_charged(step: Step) -> Problem:
    """A failure costs one, a lost owner one if it ran, a reopening forgives; nothing else costs anything."""
    before, record, after = step
    if before is None:
        return None
    charged = isinstance(record.event, e.Retried) or (
        record.who is Who.OWNER and isinstance(record.event, e.Failed | e.DeadLettered)
    )
    lost = isinstance(record.event, e.Stalled) and before.state is S.RUNNING
    expected = (
        0 if before.state in _CLOSED and isinstance(record.event, e.Requeued) else before.failures + charged + lost
    )
    return None if after.failures == expected else f"{record.event.wire}: {before.failures} became {after.failures}"


def leases_last(move: Taken) -> Problem:
    """A claim or a renewal lasts as long as the policy says."""
    lease, asked = move.after.lease, move.command
    if not isinstance(asked, c.Claim | c.Heartbeat) or lease is None or move.after == move.before:
        return None
    length = asked.lease or move.after.policy.lease
    return None if lease.until == move.now + length else f"a lease of {length} ends after {lease.until - move.now}"


def attempts_end_as_the_policy_says(move: Taken) -> Problem:
    """Where a failure or a stall leads: cancelled if asked for, else back while the budget lasts, else closed."""
    before, command = move.before, move.command
    if before is None or not move.steps or not isinstance(command, c.Fail | c.Stall):
        return None
    end = S.DEAD_LETTERED if before.policy.on_exhausted == "dead_letter" else S.FAILED
    charged = isinstance(command, c.Fail) or before.state is S.RUNNING
    spent = before.failures + charged >= before.policy.max_failures
    expected = end if spent else S.RETRYING if isinstance(command, c.Fail) else S.QUEUED
    if isinstance(command, c.Fail):
        if command.error.code == "permanent":
            expected = end
        elif before.cancel_requested_at is not None and not spent:
            expected = S.CANCELLED
    elif before.cancel_requested_at is not None:
        expected = S.CANCELLED
    elif command.by.who is Who.OPERATOR or (before.policy.hold_stalled and not spent):
        expected = S.STALLED
    return None if move.after.state is expected else f"{command.wire} led to {move.after.state}, not to {expected}"


def answers_are_kept(step: Step) -> Problem:
    """A signal or the end of a wait is found under its key, as it came."""
    event = step.record.event
    if not isinstance(event, e.Resumed | e.Signalled):
        return None
    answer = step.after.answers.get(event.key)
    expired = isinstance(event, e.Resumed) and event.expired
    if answer is None or answer.expired != expired:
        return f"{event.key!r} is answered with {answer}"
    outcomes = isinstance(event, e.Resumed) and event.outcomes
    return None if outcomes or answer.payload == event.payload else f"{event.key!r} has another payload"


ON_STEPS: Final = (the_right_one_speaks, failures_are_charged, answers_are_kept)
ON_MOVES: Final = (leases_last, attempts_end_as_the_policy_says)


def check_move(move: Taken) -> Problem:
    """Give the first duty that an accepted move neglects."""
    for step in move.steps:
        for on_step in ON_STEPS:
            problem = on_step(step)
            if problem:
                return f"{on_step.__name__}: {problem}"
    for on_move in ON_MOVES:
        problem = on_move(move)
        if problem:
            return f"{on_move.__name__}: {problem}"
    return None


def check_refusal(job: Job | None, command: c.AnyCommand, now: int) -> Problem:
    """Give what is wrong with a refusal: some commands must be heard."""
    if job is None or not (_owner_is_heard(job, command) or _others_are_heard(job, command, now)):
        return None
    return f"{command.wire} by a {command.by.who} was refused on a job that is {job.state}"


def _owner_is_heard(job: Job, command: c.AnyCommand) -> bool:
    holds = job.lease is not None and command.by.who is Who.OWNER and command.by.attempt == job.attempt
    if not holds:
        return False
    match command:
        case c.Complete():
            return job.state is S.RUNNING
        case c.Suspend(wait=wait):
            answer = job.answers.get(wait.key)
            return job.state is S.RUNNING and (answer is None or answer.until is wait.until)
        case _:
            return True


def _others_are_heard(job: Job, command: c.AnyCommand, now: int) -> bool:
    by, live = command.by.who, job.state not in _OVER
    match command:
        case c.Claim(direct=direct):
            return (job.due is not None and job.due <= now) or (direct and job.state is S.STALLED)
        case c.Signal(key=key):
            waited = job.wait is None or (job.wait.until is WaitFor.SIGNAL and job.wait.key == key)
            return live and waited and key not in job.answers
        case c.Cancel(mode=mode):
            return live and by in {Who.CLIENT, Who.OPERATOR} and mode in CancelMode
        case c.DeadLetter():
            return live and by is Who.OPERATOR
        case c.Requeue(reason=reason):
            idle = job.state in {S.QUEUED, S.RETRYING, S.STALLED}
            return by is Who.OPERATOR and (idle or (job.state in _CLOSED and bool(reason)))
        case c.Stall():
            expired = job.lease is not None and job.lease.until <= now
            return job.state in _LEASED and (by is Who.OPERATOR or (by is Who.KEEPER and expired))
        case c.Expire():
            return job.wait is not None and job.wait.deadline is not None and job.wait.deadline <= now
        case c.Resume(outcomes=outcomes):
            return job.wait is not None and bool(job.wait.jobs) and set(job.wait.jobs) <= set(outcomes)
        case c.Note():
            return live and by is not Who.OWNER and not isinstance(command.note, e.OwnersNote)
        case c.Admit():
            return job.state is S.INBOX
        case _:
            return False
