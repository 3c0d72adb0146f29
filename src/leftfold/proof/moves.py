"""Everything that anybody can do to a job: every command, from everybody who might send it, in time and too late.

Owners speak with what they remember, which may be stale. One `request_id` goes round: any command may use it
once; its very repetition must then change nothing, whenever it comes.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import ENDED, State, Who
from leftfold.core.retry import Backoff, Policy
from leftfold.core.values import CancelMode, Failure, Outcomes, Spec, Wait, WaitFor
from leftfold.proof.world import TICK, Scope, World, job_id, searched

REQUEST: Final = "again"
LEASE: Final = 2 * TICK  # so that a renewal can come in time, late, and too late
SPEC: Final = Spec(kind="model")
CLIENT: Final = c.Actor(who=Who.CLIENT, name="client")
KEEPER: Final = c.Actor(who=Who.KEEPER, name="keeper")
OPERATOR: Final = c.Actor(who=Who.OPERATOR, name="operator")
PASSING: Final = Failure(code="transient")
LASTING: Final = Failure(code="permanent")
YES: Final = Raw(b"true")
NO: Final = Raw(b"false")
KEY: Final = "go"


class Move(NamedTuple):
    """One thing that somebody may try, as it is and under the one `request_id`."""

    label: str
    job: int
    command: c.AnyCommand
    requested: c.AnyCommand
    claimer: int | None = None  # the worker that will remember the claim


def moves(world: World) -> Iterator[Move]:
    """Give everything that anybody may try in this world."""
    for index in searched(world):
        job = world.jobs[index]
        if job is None:
            yield from _creations(world.scope, index)
            continue
        yield from _by_others(index)
        if KEY in job.answers:
            yield _contradiction(index)
        if job.wait is not None and job.wait.until is WaitFor.SIGNAL:
            yield _wrong_signal(index)
        if job.state is State.INBOX:
            yield _admission(world.scope, index)
        if index == 0:
            yield from _creations(world.scope, index)  # again: the job is there already
        ended = tuple((job.id, job.state.value) for job in world.jobs[:index] if job and job.state in ENDED)
        yield _resumption(index, ended)
        for worker, held in enumerate(world.held):
            if job.attempt < world.scope.attempts:
                yield _claim(index, worker, job.attempt + 1, direct=False)
                if job.state is State.STALLED:
                    yield _claim(index, worker, job.attempt + 1, direct=True)
            if held[index]:
                yield from _by_owner(index, worker, held[index], world.now)


def owner(index: int, worker: int, attempt: int, token_of: int | None = None) -> c.Actor:
    """Give a worker that shows an attempt, with the token of that attempt or of another one."""
    shown = _token(index, attempt if token_of is None else token_of)
    return c.Actor(who=Who.OWNER, name=f"worker{worker}", attempt=attempt, token=shown)


# The makers of moves are cached: a search tries a few hundred different moves some millions of times.


def _move(index: int, what: str, command: c.AnyCommand, claimer: int | None = None) -> Move:
    by = command.by
    who = f"{by.name}, attempt {by.attempt}" if by.who is Who.OWNER else by.name
    return Move(f"{who}: {what}", index, command, replace(command, request_id=REQUEST), claimer)


def _token(index: int, attempt: int) -> str:
    return f"token-{index}-{attempt}"


@cache
def _policy(scope: Scope) -> Policy:
    backoff = Backoff(base=TICK, factor=1.0, cap=TICK, jitter=False)
    return Policy(max_failures=scope.attempts, backoff=backoff, lease=LEASE)


@cache
def _creations(scope: Scope, index: int) -> tuple[Move, ...]:
    enqueue = c.Enqueue(by=CLIENT, job_id=job_id(index), spec=SPEC, policy=_policy(scope))
    if index:
        after = tuple(job_id(earlier) for earlier in range(index))
        return (_move(index, "enqueue after the others", replace(enqueue, after=after)),)
    plain = _move(index, "enqueue", enqueue)
    if scope.jobs > 1:
        return (plain,)  # how a job can come into being is searched with one job alone
    sterner = replace(enqueue.policy, on_exhausted="fail", hold_stalled=True)
    return (
        plain,
        _move(index, "enqueue, to fail and to be held when stalled", replace(enqueue, policy=sterner)),
        _move(index, "receive", c.Receive(by=CLIENT, job_id=job_id(index), spec=SPEC)),
    )


@cache
def _admission(scope: Scope, index: int) -> Move:
    return _move(index, "admit", c.Admit(by=CLIENT, policy=_policy(scope)))


@cache
def _contradiction(index: int) -> Move:
    return _move(index, "signal no", c.Signal(by=CLIENT, key=KEY, payload=NO))


@cache
def _wrong_signal(index: int) -> Move:
    return _move(index, "signal another key", c.Signal(by=CLIENT, key="other", payload=YES))


@cache
def _resumption(index: int, ended: tuple[tuple[str, str], ...]) -> Move:
    outcomes: Outcomes = dict(ended)
    return _move(index, "resume", c.Resume(by=KEEPER, outcomes=outcomes))


@cache
def _claim(index: int, worker: int, attempt: int, *, direct: bool) -> Move:
    by = c.Actor(who=Who.WORKER, name=f"worker{worker}")
    command = c.Claim(by=by, token=_token(index, attempt), lease=LEASE, direct=direct)
    return _move(index, "claim by id" if direct else "claim", command, worker)


@cache
def _by_others(index: int) -> tuple[Move, ...]:
    """Give what clients, keepers and operators may say, be it theirs to say or not."""
    anybodys = [
        _move(index, what, command)
        for by in (CLIENT, KEEPER, OPERATOR)
        for what, command in (
            ("cancel soft", c.Cancel(by=by)),
            ("cancel hard", c.Cancel(by=by, mode=CancelMode.HARD)),
            ("dead-letter", c.DeadLetter(by=by, error=LASTING, reason_code=Reason.POLICY_VIOLATION)),
            ("stall", c.Stall(by=by)),
            ("requeue", c.Requeue(by=by, reason="looked at")),
        )
    ]
    return (
        _move(index, "signal yes", c.Signal(by=CLIENT, key=KEY, payload=YES)),
        _move(index, "expire", c.Expire(by=KEEPER)),
        _move(index, "requeue without a reason", c.Requeue(by=OPERATOR)),
        _move(index, "note", c.Note(by=CLIENT, note=e.Custom(name="seen"))),
        _move(index, "note", c.Note(by=OPERATOR, note=e.Custom(name="seen"))),
        *anybodys,
    )


@cache
def _by_owner(index: int, worker: int, attempt: int, now: int) -> tuple[Move, ...]:
    """Give what a worker may say about the attempt that it believes to hold."""
    by = owner(index, worker, attempt)
    signal = Wait(until=WaitFor.SIGNAL, key=KEY)
    timer = Wait(until=WaitFor.TIMER, key=KEY, deadline=now + TICK)
    parse_error = c.DeadLetter(by=by, error=LASTING, reason_code=Reason.PARSE_ERROR, stage=Stage.INPUT)
    return (
        _move(index, "start", c.Start(by=by)),
        _move(index, "heartbeat", c.Heartbeat(by=by)),
        _move(index, "complete", c.Complete(by=by, result=YES)),
        _move(index, "complete otherwise", c.Complete(by=by, result=NO)),
        _move(index, "fail", c.Fail(by=by, error=PASSING)),
        _move(index, "fail for good", c.Fail(by=by, error=LASTING)),
        _move(index, "release", c.Release(by=by)),
        _move(index, "suspend", c.Suspend(by=by, wait=replace(signal, deadline=now + TICK))),
        _move(index, "suspend without a deadline", c.Suspend(by=by, wait=signal)),
        _move(index, "sleep", c.Suspend(by=by, wait=timer)),
        _move(index, "heed the cancellation", c.Cancel(by=by)),
        _move(index, "dead-letter", parse_error),
        _move(index, "note", c.Note(by=by, note=e.Progress(fraction=0.5))),
    )
