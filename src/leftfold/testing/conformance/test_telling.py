"""What others than the owner say: cancel, stall, requeue; and the owner's answer to a request to stop."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leftfold import Backoff, Policy, Receipt
from leftfold.core import events as e
from leftfold.core.errors import (
    JobNotFoundError,
    LimitExceededError,
    NotDueError,
    ValidationError,
)
from leftfold.core.lifecycle import CLOSED, LEASED, State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.values import CancelMode
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import FLAKY, KEEPER, NOBODY, Scene, shown


class TestCancel:
    """Stopping a job: asked of its owner, or at once."""

    @pytest.mark.parametrize("how", list(CancelMode))
    def test_what_nobody_holds_ends_at_once(self, scene: Scene, how: CancelMode) -> None:
        job_id = scene.enqueued()
        receipt = scene.engine.cancel(job_id, mode=how, reason="not needed")
        assert receipt == Receipt(job_id=job_id, state=State.CANCELLED, version=2, rev=2, attempt=0)
        assert scene.last(job_id).event == e.Cancelled(mode=how, reason="not needed")

    @pytest.mark.parametrize("state", sorted(LEASED))
    def test_an_owner_is_asked(self, scene: Scene, state: State) -> None:
        reached = scene.reach(state)
        receipt = scene.engine.cancel(reached.job_id, reason="not needed")
        assert (receipt.state, receipt.cancel_requested) == (state, True)
        assert scene.last(reached.job_id).event == e.CancelRequested(reason="not needed")
        assert scene.job(reached.job_id).cancel_requested_at == scene.clock.now
        assert scene.everything()[0].cancel_requested

    def test_to_ask_again_changes_nothing(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.cancel(claim.job_id)
        with scene.unchanged():
            receipt = scene.engine.cancel(claim.job_id, reason="really")
        assert (receipt.changed, receipt.cancel_requested) == (False, True)

    @pytest.mark.parametrize("state", sorted(LEASED))
    def test_a_hard_one_takes_the_job_away(self, scene: Scene, state: State) -> None:
        reached = scene.reach(state)
        scene.engine.cancel(reached.job_id)
        assert scene.engine.cancel(reached.job_id, mode="hard").state is State.CANCELLED
        assert scene.job(reached.job_id).lease is None

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"job_id": NOBODY}, JobNotFoundError),
            ({"job_id": "no id"}, ValidationError),
            ({"mode": "gently"}, ValidationError),
            ({"reason": "\x00"}, ValidationError),
            ({"reason": "half \ud800"}, ValidationError),
            ({"reason": "x" * 65_537}, LimitExceededError),
            ({"by": "tab\t"}, ValidationError),
            ({"request_id": "x" * 501}, LimitExceededError),
        ],
        ids=shown,
    )
    def test_what_cannot_be_meant_is_refused(
        self, scene: Scene, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        job_id = scene.enqueued()
        with scene.refuses(error):
            scene.engine.cancel(**{"job_id": job_id, **arguments})


class TestCancelClaim:
    """The owner says that it stopped."""

    @pytest.mark.parametrize("asked", [True, False])
    @pytest.mark.parametrize("state", sorted(LEASED))
    def test_the_job_is_cancelled(self, scene: Scene, state: State, asked: bool) -> None:
        claim = scene.reach(state).claim
        if asked:
            scene.engine.cancel(claim.job_id)
        receipt = scene.engine.cancel_claim(claim, reason="stopped")
        assert (receipt.state, receipt.until) == (State.CANCELLED, None)
        record = scene.last(claim.job_id)
        assert (record.who, record.event) == (Who.OWNER, e.Cancelled(mode=CancelMode.SOFT, reason="stopped"))


class TestStall:
    """Taking a job from an owner that is no longer trusted."""

    @pytest.mark.parametrize(("state", "failures"), [(State.CLAIMED, 0), (State.RUNNING, 1)])
    def test_by_an_operator_it_is_held_and_charged_if_it_ran(self, scene: Scene, state: State, failures: int) -> None:
        reached = scene.reach(state)
        receipt = scene.engine.stall(reached.job_id, reason="switched off")
        assert (receipt.state, receipt.until) == (State.STALLED, None)
        job = scene.job(reached.job_id)
        assert (job.failures, job.lease) == (failures, None)
        assert scene.last(reached.job_id).event == e.Stalled(
            owner="worker-1", lease_until=START + MINUTE, reason="switched off"
        )

    def test_the_record_knows_the_renewed_lease(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.heartbeat(claim, lease=90)
        scene.engine.stall(claim.job_id)
        assert scene.last(claim.job_id).event == e.Stalled(owner="worker-1", lease_until=START + 90 * SECOND)
        last = scene.job(claim.job_id).last_lease
        assert last is not None
        assert last.until == START + 90 * SECOND

    def test_a_keeper_waits_for_the_end_of_the_lease(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.now = START + MINUTE - 1
        with scene.refuses(NotDueError):
            scene.engine.stall(claim.job_id, by=KEEPER)
        scene.engine.heartbeat(claim)
        scene.clock.now = START + MINUTE
        with scene.refuses(NotDueError):
            scene.engine.stall(claim.job_id, by=KEEPER)
        scene.clock.advance(60)
        assert scene.engine.stall(claim.job_id, by=KEEPER).state is State.QUEUED

    @pytest.mark.parametrize(
        ("policy", "wires", "state"),
        [
            (Policy(), ["stalled", "requeued"], State.QUEUED),
            (Policy(max_failures=1), ["stalled", "dead_lettered"], State.DEAD_LETTERED),
            (Policy(max_failures=1, on_exhausted="fail"), ["stalled", "failed"], State.FAILED),
            (Policy(hold_stalled=True), ["stalled"], State.STALLED),
            (Policy(hold_stalled=True, max_failures=1), ["stalled", "dead_lettered"], State.DEAD_LETTERED),
        ],
        ids=["again", "dead letter", "fail", "hold", "hold no more"],
    )
    def test_a_keeper_does_what_the_policy_says_in_the_same_breath(
        self, scene: Scene, policy: Policy, wires: list[str], state: State
    ) -> None:
        claim = scene.started(policy=policy)
        scene.clock.advance(60)
        receipt = scene.engine.stall(claim.job_id, by=KEEPER)
        assert (receipt.state, receipt.version) == (state, 3 + len(wires))
        assert scene.wires(claim.job_id)[3:] == wires
        assert scene.job(claim.job_id).failures == 1

    @pytest.mark.parametrize("by", [None, KEEPER], ids=["operator", "keeper"])
    def test_a_request_to_cancel_is_heeded(self, scene: Scene, by: Any) -> None:
        claim = scene.started()
        scene.engine.cancel(claim.job_id)
        scene.clock.advance(60)
        assert scene.engine.stall(claim.job_id, by=by).state is State.CANCELLED
        assert scene.wires(claim.job_id)[-2:] == ["stalled", "cancelled"]

    def test_a_name_is_enough_for_an_operator(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.stall(claim.job_id, by="olga")
        assert (scene.last(claim.job_id).who, scene.last(claim.job_id).actor) == (Who.OPERATOR, "olga")

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.stall(NOBODY)


class TestRequeue:
    """Making a job claimable again."""

    @pytest.mark.parametrize("state", [State.QUEUED, State.RETRYING, State.STALLED])
    @pytest.mark.parametrize(
        ("due", "after"),
        [(None, 0), (60, 60), (timedelta(minutes=1), 60), (datetime(1999, 1, 1, tzinfo=UTC), 0)],
        ids=["now", "seconds", "timedelta", "past"],
    )
    def test_it_is_due_now_or_then(self, scene: Scene, state: State, due: Any, after: int) -> None:
        reached = scene.reach(state)
        before = scene.job(reached.job_id)
        receipt = scene.engine.requeue(reached.job_id, due=due)
        job = scene.job(reached.job_id)
        assert (receipt.state, job.due) == (State.QUEUED, scene.clock.now + after * SECOND)
        assert (job.error, job.last_error, job.failures) == (None, before.last_error, before.failures)

    @pytest.mark.parametrize("state", sorted(CLOSED))
    def test_a_closed_job_is_reopened_with_a_reason_and_a_new_budget(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        receipt = scene.engine.requeue(job_id, reason="mended")
        job = scene.job(job_id)
        assert (receipt.state, job.failures, job.attempt, job.last_error) == (State.QUEUED, 0, 1, FLAKY)
        assert scene.last(job_id).event == e.Requeued(due=START, reason="mended")
        assert scene.held(job_id).attempt == 2

    @pytest.mark.parametrize("reason", [None, ""])
    @pytest.mark.parametrize("state", sorted(CLOSED))
    def test_a_closed_job_is_not_reopened_without_one(self, scene: Scene, state: State, reason: str | None) -> None:
        job_id = scene.reach(state).job_id
        with scene.refuses(ValidationError):
            scene.engine.requeue(job_id, reason=reason)

    def test_a_reopened_job_has_forgotten_the_request_to_cancel(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.cancel(claim.job_id)
        scene.engine.fail(claim, FLAKY, permanent=True)
        scene.engine.requeue(claim.job_id, reason="again")
        assert scene.job(claim.job_id).cancel_requested_at is None
        assert not scene.everything()[0].cancel_requested

    def test_a_reopened_job_may_wait_anew_for_what_expired(self, scene: Scene) -> None:
        reached = scene.reach(State.WAITING)
        scene.clock.advance(3600)
        scene.engine.expire(reached.job_id)
        scene.engine.dead_letter(reached.job_id, FLAKY)
        scene.engine.requeue(reached.job_id, reason="again")
        claim = scene.started(reached.job_id)
        assert scene.engine.suspend(claim, "approved").state is State.PARKED

    def test_a_keeper_closes_what_has_no_budget_left(self, scene: Scene) -> None:
        policy = Policy(max_failures=1, backoff=Backoff(jitter=False))
        job_id = scene.reach(State.STALLED, policy=policy).job_id
        assert scene.engine.requeue(job_id, by=KEEPER).state is State.DEAD_LETTERED

    def test_an_operator_gives_it_another_try_all_the_same(self, scene: Scene) -> None:
        job_id = scene.reach(State.STALLED, policy=Policy(max_failures=1)).job_id
        assert scene.engine.requeue(job_id).state is State.QUEUED

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"job_id": NOBODY}, JobNotFoundError),
            ({"due": -1}, LimitExceededError),
            ({"due": datetime(2033, 1, 1)}, ValidationError),  # noqa: DTZ001 - naive is what is to be refused
            ({"reason": "\x00"}, ValidationError),
        ],
        ids=shown,
    )
    def test_what_cannot_be_meant_is_refused(
        self, scene: Scene, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        job_id = scene.enqueued()
        with scene.refuses(error):
            scene.engine.requeue(**{"job_id": job_id, **arguments})
