"""Forbidden moves: the next path is taken, and a command is refused only when none is left."""

import pytest
from tests.unit.scene import APPROVAL, CLIENT, FLAKY, KEEPER, OPERATOR, TIMER, WORKER, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import DialectRefusedError, NotPermittedError
from leftfold.core.lifecycle import Edge, State
from leftfold.core.limits import DAY
from leftfold.core.retry import Policy

RETRY = Edge(State.RUNNING, e.Retried, State.RETRYING)
LETTER = Edge(State.RUNNING, e.DeadLettered, State.DEAD_LETTERED)
FAIL = Edge(State.RUNNING, e.Failed, State.FAILED)
CANCEL = Edge(State.RUNNING, e.Cancelled, State.CANCELLED)
PARK = Edge(State.RUNNING, e.Parked, State.PARKED)
SUSPEND = Edge(State.RUNNING, e.Suspended, State.WAITING)
STALL = Edge(State.RUNNING, e.Stalled, State.STALLED)
REQUEUE = Edge(State.STALLED, e.Requeued, State.QUEUED)
SET_ASIDE = Edge(State.STALLED, e.DeadLettered, State.DEAD_LETTERED)
GIVE_UP = Edge(State.STALLED, e.Failed, State.FAILED)
FAILING = Policy(on_exhausted="fail")


def running(*forbidden: Edge, policy: Policy | None = None) -> Scene:
    scene = Scene.at(State.RUNNING, policy)
    scene.forbidden = frozenset(forbidden)
    return scene


@pytest.mark.parametrize(
    ("policy", "forbidden", "event"),
    [
        (Policy(), [], "retried"),
        (Policy(), [RETRY], "dead_lettered"),
        (FAILING, [RETRY], "failed"),
        (Policy(), [RETRY, LETTER], "failed"),
        (FAILING, [RETRY, FAIL], "dead_lettered"),
        (FAILING, [FAIL, LETTER], "retried"),
    ],
)
def test_a_failure_takes_the_next_path_that_is_allowed(policy: Policy, forbidden: list[Edge], event: str) -> None:
    scene = running(*forbidden, policy=policy)
    assert scene.do(c.Fail(by=scene.owner, error=FLAKY)) == [event]


def test_a_failure_with_no_path_left_is_refused_for_its_best_one() -> None:
    scene = running(RETRY, LETTER, FAIL)
    scene.refuse(c.Fail(by=scene.owner, error=FLAKY), DialectRefusedError, "running -retried-> retrying")
    scene.refuse(c.Fail(by=scene.owner, error=FLAKY, permanent=True), DialectRefusedError, "-dead_lettered->")


def test_a_request_to_stop_that_cannot_be_heeded_any_more_closes_a_failed_job() -> None:
    scene = running()
    scene.ask_to_stop()
    scene.forbidden = frozenset({CANCEL})
    assert scene.do(c.Fail(by=scene.owner, error=FLAKY)) == ["dead_lettered"]


def test_a_wait_that_cannot_be_parked_is_suspended() -> None:
    scene = running(PARK)
    assert scene.do(c.Suspend(by=scene.owner, wait=APPROVAL)) == ["suspended"]
    assert scene.job.state is State.WAITING
    assert scene.do(c.Signal(by=CLIENT, key="approved")) == ["resumed"]


def test_a_wait_with_no_path_left_is_refused() -> None:
    both, one = running(PARK, SUSPEND), running(SUSPEND)
    both.refuse(c.Suspend(by=both.owner, wait=APPROVAL), DialectRefusedError, "running -parked-> parked")
    one.refuse(c.Suspend(by=one.owner, wait=TIMER), DialectRefusedError, "running -suspended-> waiting")


@pytest.mark.parametrize(
    ("policy", "forbidden", "events"),
    [
        (Policy(), [REQUEUE], ["stalled"]),
        (Policy(max_failures=1), [SET_ASIDE], ["stalled", "failed"]),
        (Policy(max_failures=1), [SET_ASIDE, GIVE_UP], ["stalled"]),
    ],
)
def test_a_stalled_job_is_held_where_nothing_else_is_left(
    policy: Policy, forbidden: list[Edge], events: list[str]
) -> None:
    scene = running(*forbidden, policy=policy)
    scene.now += DAY
    assert scene.do(c.Stall(by=KEEPER)) == events


def test_a_stall_that_is_forbidden_is_refused() -> None:
    scene = running(STALL)
    scene.now += DAY
    for by in (KEEPER, OPERATOR):
        scene.refuse(c.Stall(by=by), DialectRefusedError)


def test_a_keeper_that_may_not_close_a_held_job_is_refused() -> None:
    scene = Scene.at(State.STALLED, Policy(max_failures=1))
    scene.forbidden = frozenset({SET_ASIDE, GIVE_UP})
    scene.refuse(c.Requeue(by=KEEPER), DialectRefusedError)


def test_who_may_comes_before_what_the_dialect_has() -> None:
    running(CANCEL).refuse(c.Cancel(by=WORKER), NotPermittedError)


def test_other_moves_are_not_touched() -> None:
    scene = running(RETRY, LETTER, FAIL, CANCEL, PARK, SUSPEND, STALL)
    assert scene.do(c.Note(by=scene.owner, note=e.Custom(name="seen"))) == ["custom"]
    assert scene.do(c.Heartbeat(by=scene.owner)) == []
    assert scene.do(c.Complete(by=scene.owner)) == ["succeeded"]
