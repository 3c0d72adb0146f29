"""Every operation, in every state, by everybody who could ask: what the lifecycle's table expects of it.

The expectation comes from the table alone. It knows which event an operation stands for and who says it, and nothing
of how the engine comes to its decision.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from leftfold.core import events as e
from leftfold.core.errors import (
    IllegalTransitionError,
    JobEndedError,
    LeaseConflictError,
    LeftfoldError,
    NotDueError,
    NotPermittedError,
)
from leftfold.core.lifecycle import BLOCKED, CLOSED, ENDED, LEASED, Edge, State, Who, rule_for
from leftfold.testing.conformance.scene import BROKEN, Reached, Scene, actor

HOUR: Final = 3600
MOVES: Final = (Who.CLIENT, Who.KEEPER, Who.OPERATOR)


class Expected(NamedTuple):
    """What is to come of an operation: a refusal, or these events. Without either, it was so already."""

    error: type[LeftfoldError] | None = None
    wires: tuple[str, ...] = ()
    edges: tuple[Edge, ...] = ()
    target: State | None = None


Act = Callable[[Scene, Reached], object]
Expect = Callable[[State, Who], Expected]


class Move(NamedTuple):
    """An operation by somebody."""

    name: str
    who: Who
    act: Act
    expect: Expect


NOTHING: Final = Expected()


def refusal(error: type[LeftfoldError]) -> Expected:
    """Expect this error."""
    return Expected(error=error)


def note(event: type[e.AnyNote]) -> Expected:
    """Expect a note: the state stays."""
    return Expected(wires=(event.wire,))


def path(state: State, who: Who, *events: type[e.AnyTransition]) -> Expected:
    """Expect these events in a row, or the refusal that the first one without a rule calls for."""
    edges = []
    at = state
    for event in events:
        rule = rule_for(at, event)
        if rule is None:
            return refusal(JobEndedError if at in ENDED else IllegalTransitionError)
        if who not in rule.who:
            return refusal(NotPermittedError)
        edges.append(Edge(at, event, rule.target))
        at = rule.target
    return Expected(wires=tuple(event.wire for event in events), edges=tuple(edges), target=at)


# --- what owners say --------------------------------------------------------------------------------------------------


def _owned(expect: Callable[[State], Expected]) -> Expect:
    """Expect that of whoever holds the job, and a lease conflict for everybody else."""
    return lambda state, _: expect(state) if state in LEASED else refusal(LeaseConflictError)


def _moves(event: type[e.AnyTransition]) -> Expect:
    return _owned(lambda state: path(state, Who.OWNER, event))


def _owners(name: str, act: Act, expect: Expect) -> Move:
    return Move(name, Who.OWNER, act, expect)


OWNERS: Final = (
    _owners(
        "start",
        lambda scene, job: scene.engine.start(job.claim),
        _owned(lambda state: NOTHING if state is State.RUNNING else path(state, Who.OWNER, e.Started)),
    ),
    _owners("heartbeat", lambda scene, job: scene.engine.heartbeat(job.claim), _owned(lambda _: NOTHING)),
    _owners("complete", lambda scene, job: scene.engine.complete(job.claim, "other"), _moves(e.Succeeded)),
    _owners("fail", lambda scene, job: scene.engine.fail(job.claim, BROKEN), _moves(e.Retried)),
    _owners(
        "fail for good", lambda scene, job: scene.engine.fail(job.claim, BROKEN, permanent=True), _moves(e.DeadLettered)
    ),
    _owners("release", lambda scene, job: scene.engine.release(job.claim, reason="shutdown"), _moves(e.Released)),
    _owners("suspend", lambda scene, job: scene.engine.suspend(job.claim, "other", deadline=HOUR), _moves(e.Suspended)),
    _owners("park", lambda scene, job: scene.engine.suspend(job.claim, "other"), _moves(e.Parked)),
    _owners("cancel_claim", lambda scene, job: scene.engine.cancel_claim(job.claim), _moves(e.Cancelled)),
    _owners("dead_letter", lambda scene, job: scene.engine.dead_letter(job.claim, BROKEN), _moves(e.DeadLettered)),
    _owners(
        "note",
        lambda scene, job: scene.engine.note(job.claim, e.Progress(fraction=0.5)),
        _owned(lambda _: note(e.Progress)),
    ),
)


# --- what others say --------------------------------------------------------------------------------------------------


def _event(event: type[e.AnyTransition]) -> Expect:
    return lambda state, who: path(state, who, event)


def _soft_cancel(state: State, who: Who) -> Expected:
    expected = path(state, who, e.Cancelled)
    return note(e.CancelRequested) if state in LEASED and expected.error is None else expected


def _stall(state: State, who: Who) -> Expected:
    """Expect a keeper to bring the job back in the same breath, and an operator to say himself what comes next."""
    return path(state, who, e.Stalled, e.Requeued) if who is Who.KEEPER else path(state, who, e.Stalled)


def _expire(state: State, who: Who) -> Expected:
    if state not in BLOCKED:
        return refusal(IllegalTransitionError)
    return refusal(NotDueError) if state is State.PARKED else path(state, who, e.Resumed)


def _resume(state: State, _: Who) -> Expected:
    return refusal(NotDueError if state in BLOCKED else IllegalTransitionError)  # no job is waited for


def _signal(state: State, who: Who) -> Expected:
    if state in BLOCKED:
        return path(state, who, e.Resumed)
    return refusal(JobEndedError) if state in ENDED else note(e.Signalled)


def _remark(state: State, who: Who) -> Expected:
    allowed = state not in ENDED or (state in CLOSED and who is Who.OPERATOR)
    return note(e.Custom) if allowed else refusal(JobEndedError)


def _by(
    name: str, act: Callable[[Scene, Reached, Who], object], expect: Expect, roles: Sequence[Who] = MOVES
) -> list[Move]:
    return [Move(name, who, lambda scene, job, who=who: act(scene, job, who), expect) for who in roles]  # type: ignore[misc]


def _after_an_hour(act: Callable[[Scene, Reached, Who], object]) -> Callable[[Scene, Reached, Who], object]:
    """Let every lease and every deadline pass first."""

    def later(scene: Scene, job: Reached, who: Who) -> object:
        scene.clock.advance(HOUR)
        return act(scene, job, who)

    return later


_OTHERS: Final = (
    *_by(
        "cancel hard",
        lambda scene, job, who: scene.engine.cancel(job.job_id, mode="hard", by=actor(who)),
        _event(e.Cancelled),
    ),
    *_by("cancel", lambda scene, job, who: scene.engine.cancel(job.job_id, by=actor(who)), _soft_cancel),
    *_by(
        "requeue",
        lambda scene, job, who: scene.engine.requeue(job.job_id, reason="again", by=actor(who)),
        _event(e.Requeued),
    ),
    *_by("stall", _after_an_hour(lambda scene, job, who: scene.engine.stall(job.job_id, by=actor(who))), _stall),
    *_by(
        "dead_letter",
        lambda scene, job, who: scene.engine.dead_letter(job.job_id, BROKEN, by=actor(who)),
        _event(e.DeadLettered),
    ),
    *_by("expire", _after_an_hour(lambda scene, job, who: scene.engine.expire(job.job_id, by=actor(who))), _expire),
    *_by("resume", lambda scene, job, who: scene.engine.resume(job.job_id, by=actor(who)), _resume, [Who.KEEPER]),
    *_by(
        "admit",
        lambda scene, job, who: scene.engine.admit(job.job_id, by=actor(who)),
        _event(e.Enqueued),
        [Who.CLIENT, Who.OPERATOR],
    ),
    *_by("signal", lambda scene, job, who: scene.engine.signal(job.job_id, "approved", by=actor(who)), _signal),
    *_by(
        "note",
        lambda scene, job, who: scene.engine.note(job.job_id, e.Custom(name="seen"), by=actor(who)),
        _remark,
        [Who.CLIENT, Who.OPERATOR],
    ),
    *_by(
        "claim",
        lambda scene, job, who: scene.engine.claim(actor(who).name, job_id=job.job_id),
        _event(e.Claimed),
        [Who.WORKER],
    ),
)

MATRIX: Final[tuple[Move, ...]] = (*OWNERS, *_OTHERS)
