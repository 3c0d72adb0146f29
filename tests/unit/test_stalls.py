"""Owners that are no longer trusted: who says so, when, and what becomes of the job."""

import pytest
from tests.unit.scene import BROKEN, CLIENT, KEEPER, NOW, OPERATOR, WORKER, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import IllegalTransitionError, JobEndedError, NotDueError, NotPermittedError
from leftfold.core.job import LastLease, fold
from leftfold.core.lifecycle import ENDED, LEASED, State
from leftfold.core.limits import DAY, MINUTE
from leftfold.core.retry import Allowance, Policy
from leftfold.core.values import Failure

HOLD = Policy(hold_stalled=True)
LOST = Failure(code="lease_expired", message="worker-1 is no longer trusted")


def expired(state: State, policy: Policy | None = None) -> Scene:
    scene = Scene.at(state, policy)
    scene.now = NOW + MINUTE
    return scene


@pytest.mark.parametrize("state", sorted(LEASED))
def test_a_keeper_waits_for_the_end_of_the_lease(state: State) -> None:
    scene = Scene.at(state)
    scene.now = NOW + MINUTE - 1
    scene.refuse(c.Stall(by=KEEPER), NotDueError, "runs for another 1 µs")
    scene.now += 1
    assert scene.do(c.Stall(by=KEEPER)) == ["stalled", "requeued"]
    assert scene.log[-2].event == e.Stalled(owner="worker-1", lease_until=NOW + MINUTE)
    assert (scene.job.state, scene.job.due) == (State.QUEUED, NOW + MINUTE)


@pytest.mark.parametrize(("state", "charged"), [(State.CLAIMED, 0), (State.RUNNING, 1)])
@pytest.mark.parametrize("by", [KEEPER, OPERATOR], ids=["keeper", "operator"])
def test_a_stall_is_charged_to_the_handler_only_if_it_was_entered(state: State, charged: int, by: c.Actor) -> None:
    scene = expired(state)
    scene.do(c.Stall(by=by))
    assert (scene.job.failures, scene.job.attempt, scene.job.last_error) == (charged, 1, LOST)


def test_a_stall_remembers_the_owner_and_the_renewed_end_of_its_lease() -> None:
    scene = Scene.at(State.RUNNING)
    scene.now += MINUTE // 2
    scene.do(c.Heartbeat(by=scene.owner))
    scene.now += DAY
    scene.do(c.Stall(by=KEEPER))
    token, until = c.digest(scene.owner.token), NOW + MINUTE + MINUTE // 2
    stalled = next(record.event for record in scene.log if isinstance(record.event, e.Stalled))
    last_lease = LastLease(owner="worker-1", token=token, until=until, ended_by=stalled, ended_by_owner=False)
    assert scene.job.last_lease == last_lease
    refolded = fold(scene.log)  # the renewal is not on the log, what the stall says of it is
    assert refolded is not None
    assert refolded.last_lease == last_lease


def test_the_reason_of_a_stall_is_the_message_of_its_error() -> None:
    scene = Scene.at(State.RUNNING)
    assert scene.do(c.Stall(by=OPERATOR, reason="on fire")) == ["stalled"]
    assert scene.job.last_error == Failure(code="lease_expired", message="on fire")


@pytest.mark.parametrize("state", sorted(LEASED))
def test_an_operator_takes_a_job_away_at_once_and_says_himself_what_follows(state: State) -> None:
    for policy in (Policy(), HOLD, Policy(max_failures=1)):
        scene = Scene.at(state, policy)
        assert scene.do(c.Stall(by=OPERATOR)) == ["stalled"]
        assert (scene.job.state, scene.job.lease) == (State.STALLED, None)
        assert scene.do(c.Requeue(by=OPERATOR)) == ["requeued"]


def test_nobody_else_says_that_an_owner_is_lost() -> None:
    for by in (CLIENT, WORKER):
        expired(State.RUNNING).refuse(c.Stall(by=by), NotPermittedError)


@pytest.mark.parametrize("state", [state for state in State if state not in LEASED])
def test_a_job_that_nobody_holds_does_not_stall(state: State) -> None:
    error = JobEndedError if state in ENDED else IllegalTransitionError
    for by in (KEEPER, OPERATOR):
        Scene.at(state).refuse(c.Stall(by=by), error, "nobody holds it")


@pytest.mark.parametrize(
    ("policy", "event", "state"),
    [
        (Policy(max_failures=1), "dead_lettered", State.DEAD_LETTERED),
        (Policy(max_failures=1, on_exhausted="fail"), "failed", State.FAILED),
        (Policy(max_failures=1, hold_stalled=True), "dead_lettered", State.DEAD_LETTERED),
        (Policy(by_error={"lease_expired": Allowance(max_failures=1)}), "dead_lettered", State.DEAD_LETTERED),
    ],
)
def test_a_stall_that_spends_the_budget_closes_the_job(policy: Policy, event: str, state: State) -> None:
    scene = expired(State.RUNNING, policy)
    assert scene.do(c.Stall(by=KEEPER)) == ["stalled", event]
    assert (scene.job.state, scene.job.error, scene.job.last_error, scene.job.failures) == (state, LOST, LOST, 1)


def test_a_stall_before_the_handler_was_entered_spends_nothing() -> None:
    scene = Scene(policy=Policy(max_failures=1))
    for _ in range(3):
        scene.claim()
        scene.now += MINUTE
        assert scene.do(c.Stall(by=KEEPER)) == ["stalled", "requeued"]
    assert (scene.job.failures, scene.job.attempt) == (0, 3)


def test_stalls_and_failures_share_the_common_budget() -> None:
    scene = Scene(policy=Policy(max_failures=2))
    assert scene.fail() == ["retried"]
    scene.now = scene.job.due or 0
    scene.run()
    scene.now += MINUTE
    assert scene.do(c.Stall(by=KEEPER)) == ["stalled", "dead_lettered"]
    assert scene.job.failures == 2


@pytest.mark.parametrize("state", sorted(LEASED))
def test_a_job_that_is_to_be_held_stays_stalled_while_it_has_a_budget(state: State) -> None:
    scene = expired(state, HOLD)
    assert scene.do(c.Stall(by=KEEPER)) == ["stalled"]
    assert scene.do(c.Requeue(by=KEEPER)) == ["requeued"]
    assert scene.job.due == scene.now


@pytest.mark.parametrize(
    ("policy", "event"),
    [(Policy(max_failures=1), "dead_lettered"), (Policy(max_failures=1, on_exhausted="fail"), "failed")],
)
def test_a_keeper_closes_a_held_job_whose_budget_is_spent(policy: Policy, event: str) -> None:
    scene = Scene.at(State.STALLED, policy)
    assert scene.job.failures == 1
    assert scene.do(c.Requeue(by=KEEPER)) == [event]
    assert scene.job.error == LOST
    assert scene.job.failures == 1  # charged when it stalled, not again


def test_a_requeue_is_due_now_or_when_given() -> None:
    for state in (State.QUEUED, State.RETRYING, State.STALLED):
        for by in (KEEPER, OPERATOR):
            for given, offset in ((None, 0), (NOW - 1, 0), (NOW + DAY, DAY)):
                scene = Scene.at(state)
                scene.now = NOW
                assert scene.do(c.Requeue(by=by, due=given)) == ["requeued"]
                assert (scene.job.due, scene.job.error) == (NOW + offset, None)


def test_a_requeue_of_a_waiting_or_leased_job_is_refused() -> None:
    for state in (State.INBOX, State.CLAIMED, State.RUNNING, State.WAITING, State.PARKED):
        Scene.at(state).refuse(c.Requeue(by=OPERATOR, reason="x"), IllegalTransitionError)
    for state in (State.SUCCEEDED, State.CANCELLED):
        Scene.at(state).refuse(c.Requeue(by=OPERATOR, reason="x"), JobEndedError)


def test_a_lost_owner_is_not_a_broken_handler() -> None:
    scene = expired(State.RUNNING, Policy(by_error={"broken": Allowance(max_failures=1)}))
    scene.do(c.Stall(by=KEEPER))
    assert scene.fail(BROKEN) == ["dead_lettered"]
    assert scene.job.tally == {"broken": 1}
    assert scene.job.failures == 2
