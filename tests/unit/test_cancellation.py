"""Soft cancellation asks, hard cancellation takes; a request once heard outweighs everything but success."""

import pytest
from tests.unit.scene import APPROVAL, CLIENT, FLAKY, KEEPER, OPERATOR, TIMER, WORKER, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import (
    DialectRefusedError,
    JobEndedError,
    LeaseConflictError,
    NotPermittedError,
)
from leftfold.core.lifecycle import ENDED, LEASED, Edge, State
from leftfold.core.limits import DAY, EVENTS_PER_JOB_MAX
from leftfold.core.retry import Policy
from leftfold.core.values import CancelMode, Failure

HARD = CancelMode.HARD
LIVE = [state for state in State if state not in ENDED]


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("mode", CancelMode)
def test_an_ended_job_is_not_cancelled(state: State, mode: CancelMode) -> None:
    scene = Scene.at(state)
    for by in (CLIENT, OPERATOR, KEEPER):
        scene.refuse(c.Cancel(by=by, mode=mode), JobEndedError)


@pytest.mark.parametrize("state", LIVE)
@pytest.mark.parametrize("by", [CLIENT, OPERATOR], ids=["client", "operator"])
def test_a_hard_cancellation_ends_any_live_job_at_once(state: State, by: c.Actor) -> None:
    scene = Scene.at(state)
    owner, leased = scene.owner, state in LEASED
    assert scene.do(c.Cancel(by=by, mode=HARD, reason="stop")) == ["cancelled"]
    assert scene.log[-1].event == e.Cancelled(mode=HARD, reason="stop")
    assert scene.job.state is State.CANCELLED
    assert (scene.job.lease, scene.job.due, scene.job.wait, scene.job.error) == (None, None, None, None)
    if leased:
        scene.refuse(c.Complete(by=owner), LeaseConflictError)
        scene.refuse(c.Heartbeat(by=owner), LeaseConflictError)


@pytest.mark.parametrize("state", LIVE)
def test_a_soft_cancellation_asks_an_owner_and_ends_a_job_without_one(state: State) -> None:
    scene = Scene.at(state)
    written = scene.do(c.Cancel(by=CLIENT, reason="stop"))
    if state in LEASED:
        assert written == ["cancel_requested"]
        assert scene.log[-1].event == e.CancelRequested(reason="stop")
        assert (scene.job.state, scene.job.cancel_requested_at) == (state, scene.now)
        version = scene.job.version
        assert scene.do(c.Cancel(by=OPERATOR)) == []  # asked already
        assert scene.job.version == version
    else:
        assert written == ["cancelled"]
        assert scene.job.state is State.CANCELLED


@pytest.mark.parametrize("state", LIVE)
def test_a_keeper_cancels_only_what_nobody_holds(state: State) -> None:
    for mode in CancelMode:
        scene = Scene.at(state)
        if state in LEASED:
            scene.refuse(c.Cancel(by=KEEPER, mode=mode), NotPermittedError)
        else:
            assert scene.do(c.Cancel(by=KEEPER, mode=mode)) == ["cancelled"]
        Scene.at(state).refuse(c.Cancel(by=WORKER, mode=mode), NotPermittedError)


@pytest.mark.parametrize("state", sorted(LEASED))
def test_the_owner_says_that_the_request_was_heeded(state: State) -> None:
    scene = Scene.at(state)
    scene.ask_to_stop()
    assert scene.do(c.Cancel(by=scene.owner)) == ["cancelled"]
    assert scene.job.failures == 0


def _stall_by_keeper(scene: Scene) -> list[str]:
    scene.now += DAY
    return scene.do(c.Stall(by=KEEPER))


def test_once_asked_a_retry_ends_the_job_and_keeps_its_error() -> None:
    scene = Scene.at(State.RUNNING)
    scene.ask_to_stop()
    assert scene.do(c.Fail(by=scene.owner, error=FLAKY)) == ["cancelled"]
    assert scene.log[-1].event == e.Cancelled(mode=CancelMode.SOFT, error=FLAKY)
    assert (scene.job.last_error, scene.job.error) == (FLAKY, None)


@pytest.mark.parametrize(
    "policy", [Policy(), Policy(hold_stalled=True), Policy(max_failures=1)], ids=["plain", "held", "spent"]
)
def test_once_asked_release_suspend_and_stall_end_the_job(policy: Policy) -> None:
    for command in (c.Release, c.Suspend):
        scene = Scene.at(State.RUNNING, policy)
        scene.ask_to_stop()
        ask = c.Release(by=scene.owner) if command is c.Release else c.Suspend(by=scene.owner, wait=TIMER)
        assert scene.do(ask) == ["cancelled"]
    for state in LEASED:
        stalled, by_operator = Scene.at(state, policy), Scene.at(state, policy)
        stalled.ask_to_stop()
        by_operator.ask_to_stop()
        assert _stall_by_keeper(stalled) == by_operator.do(c.Stall(by=OPERATOR)) == ["stalled", "cancelled"]


def test_a_wait_that_has_its_answer_is_still_ended_by_the_request() -> None:
    scene = Scene.at(State.RUNNING)
    scene.do(c.Signal(by=CLIENT, key=APPROVAL.key))
    scene.ask_to_stop()
    assert scene.do(c.Suspend(by=scene.owner, wait=APPROVAL)) == ["cancelled"]


def test_once_asked_success_still_wins() -> None:
    scene = Scene.at(State.RUNNING)
    scene.ask_to_stop()
    assert scene.do(c.Complete(by=scene.owner)) == ["succeeded"]


def test_a_request_does_not_hide_a_start() -> None:
    scene = Scene.at(State.CLAIMED)
    scene.ask_to_stop()
    assert scene.do(c.Start(by=scene.owner)) == ["started"]
    assert scene.job.cancel_requested_at is not None


@pytest.mark.parametrize(
    ("policy", "error", "permanent"),
    [
        (Policy(), FLAKY, True),
        (Policy(), Failure(code="permanent"), False),
        (Policy(max_failures=1), FLAKY, False),
    ],
)
def test_once_asked_a_failure_that_is_the_last_one_still_closes(
    policy: Policy, error: Failure, *, permanent: bool
) -> None:
    scene = Scene.at(State.RUNNING, policy)
    scene.ask_to_stop()
    assert scene.do(c.Fail(by=scene.owner, error=error, permanent=permanent)) == ["dead_lettered"]
    assert scene.job.error == error


def test_a_held_job_that_was_to_be_cancelled_is_not_brought_back() -> None:
    # Only a dialect that has no such end leaves a stalled job with a request behind.
    end = Edge(State.STALLED, e.Cancelled, State.CANCELLED)
    scene = Scene.at(State.RUNNING)
    scene.ask_to_stop()
    scene.forbidden = frozenset({end})
    assert _stall_by_keeper(scene) == ["stalled"]
    scene.refuse(c.Requeue(by=KEEPER), DialectRefusedError)
    scene.forbidden = frozenset()
    assert scene.do(c.Requeue(by=KEEPER)) == ["cancelled"]


@pytest.mark.parametrize("state", sorted(LEASED))
def test_a_request_that_could_never_be_heeded_is_refused(state: State) -> None:
    scene = Scene.at(state)
    scene.forbidden = frozenset({Edge(state, e.Cancelled, State.CANCELLED)})
    scene.refuse(c.Cancel(by=CLIENT), DialectRefusedError, f"{state} -cancelled-> cancelled")
    scene.refuse(c.Cancel(by=CLIENT, mode=HARD), DialectRefusedError)


def test_an_error_of_an_earlier_attempt_survives_a_cancellation() -> None:
    scene = Scene.at(State.RETRYING)
    scene.do(c.Cancel(by=CLIENT))
    assert (scene.job.last_error, scene.job.error) == (FLAKY, None)


def test_a_job_with_too_many_events_can_still_be_taken_away() -> None:
    scene = Scene.at(State.RUNNING)
    scene.pretend(version=EVENTS_PER_JOB_MAX)
    assert scene.do(c.Cancel(by=CLIENT)) == ["cancel_requested"]
    assert scene.do(c.Cancel(by=CLIENT, mode=HARD)) == ["cancelled"]
