"""How a failed attempt is counted, retried or closed, and what a release and a reopening do to the counts."""

import pytest
from tests.unit.scene import APPROVAL, BROKEN, CLIENT, FLAKY, JOB, KEEPER, NOW, OPERATOR, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import (
    JobEndedError,
    LimitExceededError,
    NotPermittedError,
    ValidationError,
)
from leftfold.core.lifecycle import State
from leftfold.core.limits import DAY, EVENTS_PER_JOB_MAX, MINUTE, SECOND
from leftfold.core.retry import NEVER_RETRIED, QUALITY_ALLOWANCES, Backoff, Policy
from leftfold.core.values import Failure

PLAIN = Policy(max_failures=3, backoff=Backoff(base=SECOND, jitter=False))


def test_an_attempt_counts_claims_and_the_budget_counts_failures() -> None:
    scene = Scene(policy=PLAIN)
    counts = []
    for step in ("release", "fail", "suspend", "fail", "fail"):
        scene.now = max(scene.now, scene.job.due or 0)
        owner = scene.run()
        if step == "release":
            scene.do(c.Release(by=owner))
        elif step == "suspend":
            scene.do(c.Suspend(by=owner, wait=APPROVAL))
            scene.do(c.Signal(by=CLIENT, key=APPROVAL.key))
        else:
            scene.do(c.Fail(by=owner, error=FLAKY))
        counts.append((scene.job.attempt, scene.job.failures, scene.job.state.value))
    assert counts == [
        (1, 0, "queued"),
        (2, 1, "retrying"),
        (3, 1, "queued"),
        (4, 2, "retrying"),
        (5, 3, "dead_lettered"),
    ]


@pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
def test_a_failure_is_retried_after_the_backoff(state: State) -> None:
    scene = Scene.at(state, PLAIN)
    assert scene.do(c.Fail(by=scene.owner, error=FLAKY)) == ["retried"]
    job = scene.job
    assert (job.state, job.due, job.error, job.last_error, job.failures) == (
        State.RETRYING, NOW + SECOND, FLAKY, FLAKY, 1,
    )  # fmt: skip
    scene.now = NOW + SECOND
    assert scene.fail(BROKEN) == ["retried"]
    assert (scene.job.due, scene.job.error) == (NOW + 3 * SECOND, BROKEN)


def test_the_error_is_gone_from_a_job_that_runs_again_and_remembered_as_the_last_one() -> None:
    scene = Scene.at(State.RETRYING)
    scene.run()
    assert (scene.job.error, scene.job.last_error) == (None, FLAKY)


@pytest.mark.parametrize(("asked", "waited"), [(None, SECOND), (0, SECOND), (5 * MINUTE, 5 * MINUTE)])
def test_an_asked_delay_is_the_least(asked: int | None, waited: int) -> None:
    scene = Scene.at(State.RUNNING, PLAIN)
    scene.do(c.Fail(by=scene.owner, error=FLAKY, delay=asked))
    assert scene.job.due == NOW + waited


def test_the_jitter_comes_from_the_job_and_the_number_of_the_failure() -> None:
    scene = Scene()
    scene.fail()
    assert scene.job.due == NOW + Backoff().delay(1, JOB)


@pytest.mark.parametrize(("policy", "event"), [(Policy(), "dead_lettered"), (Policy(on_exhausted="fail"), "failed")])
@pytest.mark.parametrize("code", sorted(NEVER_RETRIED))
def test_an_error_that_stays_is_not_retried(policy: Policy, event: str, code: str) -> None:
    by_code, by_word = Scene.at(State.RUNNING, policy), Scene.at(State.RUNNING, policy)
    assert by_code.do(c.Fail(by=by_code.owner, error=Failure(code=code))) == [event]
    assert by_word.do(c.Fail(by=by_word.owner, error=FLAKY, permanent=True)) == [event]
    assert by_code.job.failures == by_word.job.failures == 1
    assert by_word.job.error == by_word.job.last_error == FLAKY


def test_classes_with_an_allowance_are_counted_apart() -> None:
    network, timeout, other = (Failure(code=code) for code in ("network", "timeout", "other"))
    scene = Scene(policy=Policy(max_failures=2, by_error=QUALITY_ALLOWANCES))
    delays = []
    for error in (network, timeout, network, other, network):
        at = max(scene.now, scene.job.due or 0)
        assert scene.fail(error) == ["retried"]
        delays.append((scene.job.due or 0) - at)
    assert [delays[n] // SECOND for n in (0, 1, 2, 4)] == [30, 300, 60, 120]
    assert scene.job.tally == {"network": 3, "timeout": 1}
    assert scene.job.failures == 5
    assert [scene.job.failures_of(code) for code in ("network", "timeout", "other", "unheard")] == [3, 1, 1, 1]
    assert scene.fail(network) == ["dead_lettered"]
    assert scene.job.tally == {"network": 4, "timeout": 1}


@pytest.mark.parametrize(("code", "survives"), [("network", 3), ("timeout", 1), ("dependency", 50), ("cancelled", 0)])
def test_seed_004_retries_each_class_as_often_as_it_says(code: str, survives: int) -> None:
    scene = Scene(policy=Policy(by_error=QUALITY_ALLOWANCES))
    for _ in range(survives):
        assert scene.fail(Failure(code=code)) == ["retried"]
    if code != "dependency":
        assert scene.fail(Failure(code=code)) == ["dead_lettered"]


@pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
@pytest.mark.parametrize(("given", "due"), [(None, NOW), (NOW - 1, NOW), (0, NOW), (NOW + DAY, NOW + DAY)])
def test_a_release_charges_nothing(state: State, given: int | None, due: int) -> None:
    scene = Scene.at(state)
    assert scene.do(c.Release(by=scene.owner, due=given, reason="shutdown")) == ["released"]
    assert scene.log[-1].event == e.Released(due=due, reason="shutdown")
    assert (scene.job.state, scene.job.due, scene.job.failures, scene.job.attempt) == (State.QUEUED, due, 0, 1)


@pytest.mark.parametrize("state", [State.FAILED, State.DEAD_LETTERED])
def test_an_operator_reopens_a_closed_job_with_a_reason(state: State) -> None:
    scene = Scene.at(state)
    for reason in (None, ""):
        scene.refuse(c.Requeue(by=OPERATOR, reason=reason), ValidationError, "reopening it needs a reason")
    for by in (KEEPER, CLIENT):
        scene.refuse(c.Requeue(by=by, reason="fixed"), NotPermittedError)
    attempt, version = scene.job.attempt, scene.job.version
    assert scene.do(c.Requeue(by=OPERATOR, reason="fixed")) == ["requeued"]
    assert scene.log[-1].event == e.Requeued(due=NOW, reason="fixed")
    assert (scene.job.state, scene.job.error) == (State.QUEUED, None)
    assert (scene.job.attempt, scene.job.version) == (attempt, version + 1)  # the history is kept
    assert scene.run().attempt == attempt + 1


def test_a_reopening_gives_the_whole_budget_back_and_forgets_a_request_to_stop() -> None:
    scene = Scene(policy=Policy(max_failures=1, by_error=QUALITY_ALLOWANCES))
    scene.fail(Failure(code="network"))
    scene.now = scene.job.due or 0
    owner = scene.run()
    scene.ask_to_stop()
    assert scene.do(c.Fail(by=owner, error=BROKEN)) == ["dead_lettered"]
    assert (scene.job.failures, scene.job.tally) == (2, {"network": 1})
    assert scene.job.cancel_requested_at is not None
    scene.do(c.Requeue(by=OPERATOR, reason="fixed"))
    reopened = scene.job
    assert (reopened.failures, dict(reopened.tally), reopened.cancel_requested_at) == (0, {}, None)
    assert scene.job.last_error == BROKEN
    assert scene.do(c.Release(by=scene.run())) == ["released"]


def test_a_requeue_of_a_live_job_gives_nothing_back() -> None:
    scene = Scene.at(State.RETRYING)
    scene.do(c.Requeue(by=OPERATOR))
    assert scene.job.failures == 1


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.CANCELLED])
def test_a_final_job_is_not_reopened(state: State) -> None:
    Scene.at(state).refuse(c.Requeue(by=OPERATOR, reason="please"), JobEndedError)


def test_a_job_with_too_many_events_can_only_end() -> None:
    for version, written in ((EVENTS_PER_JOB_MAX - 1, "retried"), (EVENTS_PER_JOB_MAX, "dead_lettered")):
        scene = Scene.at(State.RUNNING)
        scene.pretend(version=version)
        assert scene.do(c.Fail(by=scene.owner, error=FLAKY)) == [written]
    scene = Scene.at(State.RUNNING)
    scene.pretend(version=EVENTS_PER_JOB_MAX)
    scene.refuse(c.Release(by=scene.owner), LimitExceededError, "has 10000 events: end it")
    assert scene.do(c.Heartbeat(by=scene.owner)) == []
    assert scene.do(c.Complete(by=scene.owner)) == ["succeeded"]
    lost = Scene.at(State.RUNNING)
    lost.pretend(version=EVENTS_PER_JOB_MAX)
    lost.now += DAY
    assert lost.do(c.Stall(by=KEEPER)) == ["stalled", "dead_lettered"], "else it would stay so for ever"
    assert (lost.job.error and lost.job.error.code) == "limit_exceeded"
    assert lost.do(c.Requeue(by=OPERATOR, reason="once more")) == ["requeued"]
    held = Scene.at(State.STALLED)
    held.pretend(version=EVENTS_PER_JOB_MAX)
    assert held.do(c.Requeue(by=KEEPER)) == ["dead_lettered"]
