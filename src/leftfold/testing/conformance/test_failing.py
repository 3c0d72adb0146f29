"""How attempts end that do not succeed: fail, fail_many, dead_letter."""

from datetime import timedelta
from typing import Any, Final

import pytest

from leftfold import Allowance, Backoff, Failure, NewJob, Policy, Receipt
from leftfold.core import events as e
from leftfold.core.errors import (
    JobNotFoundError,
    LeaseConflictError,
    LimitExceededError,
    PermanentError,
    TransientError,
    ValidationError,
)
from leftfold.core.letters import Reason, Stage, incident_of
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import BROKEN, FLAKY, KIND, NOBODY, Scene, forged, shown

STEADY: Final = Backoff(base=SECOND, factor=2.0, cap=MINUTE, jitter=False)


class TestFail:
    """An attempt ends with an error; the policy says what becomes of the job."""

    @pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
    def test_the_job_is_tried_again_later(self, scene: Scene, state: State) -> None:
        claim = scene.reach(state, policy=Policy(backoff=STEADY)).claim
        receipt = scene.engine.fail(claim, FLAKY)
        assert (receipt.state, receipt.attempt, receipt.until) == (State.RETRYING, 1, None)
        job = scene.job(claim.job_id)
        assert (job.failures, job.error, job.last_error, job.due) == (1, FLAKY, FLAKY, START + SECOND)
        assert scene.last(claim.job_id).event == e.Retried(error=FLAKY, due=START + SECOND)

    def test_the_delay_grows_with_the_failures(self, scene: Scene) -> None:
        job_id = scene.enqueued(policy=Policy(max_failures=9, backoff=STEADY))
        delays = []
        for _ in range(8):
            scene.engine.fail(scene.started(job_id), FLAKY)
            due = scene.job(job_id).due or 0
            delays.append((due - scene.clock.now) // SECOND)
            scene.clock.now = due
        assert delays == [1, 2, 4, 8, 16, 32, 60, 60]

    @pytest.mark.parametrize(("delay", "due"), [(0, 1), (0.5, 1), (30, 30), (timedelta(hours=1), 3600)])
    def test_the_owner_may_ask_for_a_longer_delay(self, scene: Scene, delay: Any, due: int) -> None:
        claim = scene.started(policy=Policy(backoff=STEADY))
        scene.engine.fail(claim, FLAKY, delay=delay)
        assert scene.job(claim.job_id).due == START + due * SECOND

    @pytest.mark.parametrize(
        ("policy", "state", "wire"),
        [
            (Policy(max_failures=2), State.DEAD_LETTERED, "dead_lettered"),
            (Policy(max_failures=2, on_exhausted="fail"), State.FAILED, "failed"),
        ],
    )
    def test_a_spent_budget_closes_the_job(self, scene: Scene, policy: Policy, state: State, wire: str) -> None:
        job_id = scene.enqueued(policy=policy)
        scene.engine.fail(scene.started(job_id), FLAKY)
        scene.clock.advance(60)
        receipt = scene.engine.fail(scene.started(job_id), BROKEN)
        assert receipt.state is state
        assert scene.wires(job_id)[-1] == wire
        job = scene.job(job_id)
        assert (job.failures, job.attempt, job.error, job.last_error) == (2, 2, BROKEN, BROKEN)

    def test_a_class_of_errors_may_have_a_budget_of_its_own(self, scene: Scene) -> None:
        network = Failure(code="network")
        own = {"network": Allowance(max_failures=2, delays=(5 * SECOND,))}
        job_id = scene.enqueued(policy=Policy(max_failures=2, by_error=own, backoff=STEADY))
        for error, due in ((FLAKY, 1), (network, 5)):
            scene.engine.fail(scene.started(job_id), error)
            assert scene.job(job_id).due == scene.clock.now + due * SECOND
            scene.clock.advance(60)
        assert scene.job(job_id).failures == 2
        assert scene.engine.fail(scene.started(job_id), network).state is State.DEAD_LETTERED

    @pytest.mark.parametrize("code", ["validation_failed", "limit_exceeded", "permanent"])
    def test_what_will_not_pass_is_not_tried_again(self, scene: Scene, code: str) -> None:
        claim = scene.started()
        assert scene.engine.fail(claim, Failure(code=code)).state is State.DEAD_LETTERED

    @pytest.mark.parametrize("reason", [None, *Reason])
    def test_a_dead_letter_tells_reason_and_stage(self, scene: Scene, reason: Reason | None) -> None:
        claim = scene.started()
        scene.engine.fail(claim, FLAKY, permanent=True, stage="commit", reason_code=reason)
        letter = scene.last(claim.job_id).event
        assert isinstance(letter, e.DeadLettered)
        assert (letter.stage, letter.reason_code) == (Stage.COMMIT, reason or Reason.POLICY_VIOLATION)

    def test_an_exhausted_budget_is_a_reason(self, scene: Scene) -> None:
        claim = scene.started(policy=Policy(max_failures=1))
        scene.engine.fail(claim, FLAKY)
        letter = scene.last(claim.job_id).event
        assert isinstance(letter, e.DeadLettered)
        assert letter.reason_code is Reason.EXHAUSTED_RETRIES

    def test_a_request_to_cancel_is_heeded_and_the_error_kept(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.cancel(claim.job_id)
        assert scene.engine.fail(claim, FLAKY).state is State.CANCELLED
        job = scene.job(claim.job_id)
        assert (job.error, job.last_error) == (None, FLAKY)

    @pytest.mark.parametrize(
        ("error", "kept"),
        [
            ("no luck", Failure(code="error", message="no luck")),
            (ValueError("no luck"), Failure(code="error", message="no luck", type="ValueError")),
            (TransientError("so"), Failure(code="transient", message="so", type="leftfold.core.errors.TransientError")),
            (Failure(code="x", message="Zoë 😀 '\"\\", type="T", traceback="a\nb"), None),
            ("nul \x00 and half \ud800", Failure(code="error", message="nul ␀ and half \\ud800")),
        ],
        ids=["text", "exception", "coded", "failure", "unprintable"],
    )
    def test_an_error_is_kept_printable(self, scene: Scene, error: Any, kept: Failure | None) -> None:
        claim = scene.started()
        scene.engine.fail(claim, error)
        assert scene.job(claim.job_id).error == (kept or error)

    def test_an_exception_that_was_raised_brings_its_traceback(self, scene: Scene) -> None:
        claim = scene.started()
        with pytest.raises(PermanentError) as raised:
            raise PermanentError("no " + "luck" * 20_000)
        scene.engine.fail(claim, raised.value)
        error = scene.job(claim.job_id).error
        assert error is not None
        assert error.traceback is not None
        assert len(error.message) == len(error.traceback) == 64 * 1024

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"error": Failure(code="no name")}, ValidationError),
            ({"error": Failure(code="x", message="\x00")}, ValidationError),
            ({"error": Failure(code="x", message="x" * 65_537)}, LimitExceededError),
            ({"stage": "nowhere"}, ValidationError),
            ({"reason_code": "because"}, ValidationError),
            ({"delay": -1}, LimitExceededError),
            ({"delay": float("nan")}, ValidationError),
        ],
        ids=shown,
    )
    def test_what_cannot_be_meant_is_refused(
        self, scene: Scene, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        claim = scene.started()
        with scene.refuses(error):
            scene.engine.fail(**{"claim": claim, "error": FLAKY, **arguments})


class TestFailMany:
    """Many attempts end, each with its error."""

    def test_each_job_has_an_error_of_its_own(self, scene: Scene) -> None:
        claims = [scene.started() for _ in range(3)]
        outcomes = scene.engine.fail_many(zip(claims, ("a", FLAKY, PermanentError("c")), strict=True))
        states = [outcome.state for outcome in outcomes if isinstance(outcome, Receipt)]
        assert states == ["retrying", "retrying", "dead_lettered"]
        errors = [scene.job(claim.job_id).error for claim in claims]
        assert [error and error.message for error in errors] == ["a", "try again", "c"]

    def test_one_refusal_does_not_stop_the_others(self, scene: Scene) -> None:
        first, second = scene.started(), scene.started()
        outcomes = scene.engine.fail_many([(forged(first.job_id), FLAKY), (second, FLAKY), (forged(NOBODY), FLAKY)])
        assert [type(outcome) for outcome in outcomes] == [LeaseConflictError, Receipt, JobNotFoundError]

    def test_of_two_errors_for_one_job_the_first_counts(self, scene: Scene) -> None:
        claim = scene.started()
        outcomes = scene.engine.fail_many([(claim, FLAKY), (claim, BROKEN), (claim, FLAKY)])
        assert [type(outcome) for outcome in outcomes] == [Receipt, LeaseConflictError, Receipt]
        assert scene.job(claim.job_id).failures == 1

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.fail_many([]) == []


class TestDeadLetter:
    """A job set aside, with everything that its incident needs."""

    def test_a_letter_by_the_owner_charges_and_tells_all(self, scene: Scene) -> None:
        claim = scene.started(correlation_id="order-7")
        scene.engine.heartbeat(claim, lease=90)
        receipt = scene.engine.dead_letter(claim, BROKEN, reason_code=Reason.TIMEOUT, stage=Stage.FETCH)
        assert receipt.state is State.DEAD_LETTERED
        assert scene.last(claim.job_id).event == e.DeadLettered(
            error=BROKEN, reason_code=Reason.TIMEOUT, stage=Stage.FETCH, last_error=BROKEN, attempts=1,
            last_owner="worker-1", last_lease_expires_at=START + 90 * SECOND, correlation_id="order-7",
            incident=incident_of(KIND, Reason.TIMEOUT, Stage.FETCH, BROKEN),
        )  # fmt: skip
        assert scene.job(claim.job_id).failures == 1

    def test_a_letter_by_an_operator_charges_nothing_and_keeps_the_last_error(self, scene: Scene) -> None:
        job_id = scene.reach(State.RETRYING).job_id
        scene.engine.dead_letter(job_id, BROKEN)
        job, letter = scene.job(job_id), scene.last(job_id)
        assert (job.failures, job.error, job.last_error) == (1, BROKEN, FLAKY)
        assert letter.who is Who.OPERATOR
        assert isinstance(letter.event, e.DeadLettered)
        assert (letter.event.attempts, letter.event.last_owner) == (1, "worker-1")

    def test_a_letter_about_a_job_that_never_ran_has_empty_places(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        scene.engine.dead_letter(job_id, BROKEN)
        assert scene.last(job_id).event == e.DeadLettered(
            error=BROKEN, reason_code=Reason.POLICY_VIOLATION, stage=Stage.EXEC, last_error=None, attempts=0,
            last_owner=None, last_lease_expires_at=None, correlation_id=None,
            incident=incident_of(KIND, Reason.POLICY_VIOLATION, Stage.EXEC, BROKEN),
        )  # fmt: skip

    @pytest.mark.parametrize("stage", Stage)
    def test_it_may_be_set_aside_at_any_stage(self, scene: Scene, stage: Stage) -> None:
        job_id = scene.enqueued()
        scene.engine.dead_letter(job_id, BROKEN, stage=stage.value)
        letter = scene.last(job_id).event
        assert isinstance(letter, e.DeadLettered)
        assert letter.stage is stage

    def test_a_name_is_enough_for_an_operator(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        scene.engine.dead_letter(job_id, BROKEN, by="olga")
        record = scene.last(job_id)
        assert (record.who, record.actor) == (Who.OPERATOR, "olga")

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"job": NOBODY}, JobNotFoundError),
            ({"job": "no id"}, ValidationError),
            ({"reason_code": "because"}, ValidationError),
            ({"stage": "nowhere"}, ValidationError),
            ({"error": Failure(code="")}, ValidationError),
        ],
        ids=shown,
    )
    def test_what_cannot_be_meant_is_refused(
        self, scene: Scene, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        job_id = scene.enqueued()
        with scene.refuses(error):
            scene.engine.dead_letter(**{"job": job_id, "error": BROKEN, **arguments})

    def test_a_batch_is_counted_like_single_ones(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob(KIND)] * 3)
        for job in scene.everything():
            scene.engine.dead_letter(job.id, BROKEN)
        (count,) = scene.engine.counts()
        assert (count.state, count.jobs) == (State.DEAD_LETTERED, 3)
