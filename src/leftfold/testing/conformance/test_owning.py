"""What owners say of their jobs: start, heartbeat, complete, release, one by one and in batches."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from leftfold import Claim, NewJob, Policy, Receipt
from leftfold.core import events as e
from leftfold.core.errors import (
    IllegalTransitionError,
    JobNotFoundError,
    LeaseConflictError,
    LimitExceededError,
    ValidationError,
)
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import KIND, NOBODY, Scene, forged, refused, shown

RESULTS: Final[list[Any]] = [
    None, True, 0, 2**63 - 1, -(2**63), 1.5, "", "Zoë 😀 \" \\ %s :now", [], {}, {"a": [1, None]},
]  # fmt: skip


def batch(scene: Scene, size: int = 4) -> list[Claim]:
    """Claim some jobs in one call."""
    scene.engine.enqueue_many([NewJob(KIND)] * size)
    return scene.engine.claim("worker-1", limit=size)


def running(scene: Scene, size: int = 4) -> list[Claim]:
    """Claim and start some jobs."""
    claims = batch(scene, size)
    scene.engine.start_many(claims)
    return claims


def claims_apart(scene: Scene) -> list[Claim]:
    """Claim some jobs, each by an owner of its own."""
    scene.engine.enqueue_many([NewJob(KIND)] * 4)
    return [scene.engine.claim(f"worker-{number}")[0] for number in range(4)]


class TestStart:
    """The handler is entered."""

    def test_a_started_job_runs(self, scene: Scene) -> None:
        claim = scene.held()
        receipt = scene.engine.start(claim)
        assert receipt == Receipt(
            job_id=claim.job_id, state=State.RUNNING, version=3, rev=3, attempt=1, until=START + MINUTE
        )
        assert scene.wires(claim.job_id) == ["enqueued", "claimed", "started"]
        record = scene.last(claim.job_id)
        assert (record.who, record.actor, record.event) == (Who.OWNER, "worker-1", e.Started())

    def test_to_start_again_changes_nothing(self, scene: Scene) -> None:
        claim = scene.started()
        with scene.unchanged():
            receipt = scene.engine.start(claim)
        assert (receipt.state, receipt.version, receipt.changed) == (State.RUNNING, 3, False)

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.start(forged(NOBODY))


class TestStartMany:
    """Many at once, each with an outcome of its own."""

    def test_all_of_them_run(self, scene: Scene) -> None:
        claims = batch(scene)
        outcomes = scene.engine.start_many(claims)
        assert [outcome.job_id for outcome in outcomes if isinstance(outcome, Receipt)] == [c.job_id for c in claims]
        assert {scene.job(claim.job_id).state for claim in claims} == {State.RUNNING}

    def test_one_refusal_does_not_stop_the_others(self, scene: Scene) -> None:
        first, second, third = batch(scene, 3)
        scene.engine.stall(second.job_id)
        outcomes = scene.engine.start_many([first, second, forged(NOBODY), third])
        assert [type(outcome) for outcome in outcomes] == [Receipt, LeaseConflictError, JobNotFoundError, Receipt]
        assert scene.job(second.job_id).state is State.STALLED

    def test_a_claim_that_stands_twice_is_started_once(self, scene: Scene) -> None:
        claim = scene.held()
        first, second = scene.engine.start_many([claim, claim])
        assert isinstance(first, Receipt)
        assert isinstance(second, Receipt)
        assert (first.changed, second.changed) == (True, False)
        assert scene.wires(claim.job_id) == ["enqueued", "claimed", "started"]

    def test_none_are_none(self, scene: Scene) -> None:
        with scene.unchanged():
            assert scene.engine.start_many([]) == []

    def test_a_batch_has_a_bound(self, scene: Scene) -> None:
        with scene.refuses(LimitExceededError):
            scene.engine.start_many([forged(NOBODY)] * 10_001)


class TestMixedBatches:
    """A batch may have nothing in common: owners, tokens and attempts are each job's own."""

    def test_claims_of_several_owners(self, scene: Scene) -> None:
        claims = claims_apart(scene)
        assert len({(claim.token, claim.actor.name) for claim in claims}) == 4
        scene.clock.advance(40)
        renewed = scene.engine.heartbeat_many(claims)
        assert [outcome.until for outcome in renewed if isinstance(outcome, Receipt)] == [START + 100 * SECOND] * 4
        scene.engine.start_many(claims)
        scene.engine.complete_many((claim, place) for place, claim in enumerate(claims))
        assert [scene.job(claim.job_id).output for claim in claims] == [0, 1, 2, 3]
        actors = [scene.last(claim.job_id).actor for claim in claims]
        assert actors == ["worker-0", "worker-1", "worker-2", "worker-3"]

    def test_claims_of_several_attempts(self, scene: Scene) -> None:
        first, stale = batch(scene, 2)
        scene.engine.release(stale)
        (second,) = scene.engine.claim("worker-1")
        assert second.attempt == 2
        outcomes = scene.engine.start_many([first, second, stale])
        assert [type(outcome) for outcome in outcomes] == [Receipt, Receipt, LeaseConflictError]
        assert [scene.last(claim.job_id).event for claim in (first, second)] == [e.Started()] * 2

    def test_the_right_token_of_another_job_opens_nothing(self, scene: Scene) -> None:
        first, second, third, fourth = claims_apart(scene)
        swapped = [replace(first, token=second.token), replace(second, token=first.token), third, fourth]
        for call in (scene.engine.heartbeat_many, scene.engine.start_many):
            outcomes = call(swapped)
            assert [type(outcome) for outcome in outcomes] == [LeaseConflictError] * 2 + [Receipt] * 2


class TestHeartbeat:
    """A renewal moves the lease and the rev, and writes nothing on the log."""

    @pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
    def test_the_lease_runs_anew_and_only_the_rev_moves(self, scene: Scene, state: State) -> None:
        claim = scene.reach(state).claim
        before = scene.engine.history(claim.job_id)
        scene.clock.advance(40)
        receipt = scene.engine.heartbeat(claim)
        assert (receipt.state, receipt.until, receipt.attempt) == (state, START + 100 * SECOND, 1)
        assert (receipt.version, receipt.rev) == (len(before), len(before) + 1)
        assert scene.engine.history(claim.job_id) == before
        job = scene.job(claim.job_id)
        assert (job.rev, job.renewals) == (len(before) + 1, 1)
        assert job.lease is not None
        assert job.lease.until == START + 100 * SECOND

    @pytest.mark.parametrize(
        ("lease", "until"), [(None, 30), (90, 90), (0.5, 30), (timedelta(minutes=2), 120), (86_400, 86_400)]
    )
    def test_it_may_ask_for_more_and_never_gets_less(self, scene: Scene, lease: Any, until: int) -> None:
        claim = scene.started(policy=Policy(lease=30 * SECOND))
        assert scene.engine.heartbeat(claim, lease=lease).until == START + until * SECOND

    def test_each_one_counts(self, scene: Scene) -> None:
        claim = scene.started()
        assert [scene.engine.heartbeat(claim).rev for _ in range(3)] == [4, 5, 6]

    def test_a_lease_that_ran_out_can_be_renewed_until_somebody_takes_the_job(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.advance(3600)
        assert scene.engine.heartbeat(claim).until == START + 3660 * SECOND
        scene.engine.stall(claim.job_id)
        with scene.refuses(LeaseConflictError):
            scene.engine.heartbeat(claim)

    def test_it_tells_that_somebody_asked_the_owner_to_stop(self, scene: Scene) -> None:
        claim = scene.started()
        assert not scene.engine.heartbeat(claim).cancel_requested
        scene.engine.cancel(claim.job_id)
        assert scene.engine.heartbeat(claim).cancel_requested

    @pytest.mark.parametrize("direct", [True, False], ids=["by its id", "by its queue"])
    def test_renewals_outlive_the_attempt(self, scene: Scene, direct: bool) -> None:
        claim = scene.started()
        scene.engine.heartbeat(claim, lease=90)
        scene.engine.release(claim)
        (again,) = scene.engine.claim("worker-2", job_id=claim.job_id if direct else None)
        assert scene.job(claim.job_id).rev == 6
        assert again.until == START + MINUTE

    @pytest.mark.parametrize("lease", [0, -1, 0.01, 86_401, 10**12])
    def test_a_lease_has_bounds(self, scene: Scene, lease: Any) -> None:
        claim = scene.started()
        with scene.refuses(LimitExceededError):
            scene.engine.heartbeat(claim, lease=lease)


class TestHeartbeatMany:
    """Many leases in one statement."""

    def test_all_of_them_are_renewed(self, scene: Scene) -> None:
        claims = batch(scene)
        scene.clock.advance(30)
        outcomes = scene.engine.heartbeat_many(claims, lease=120)
        assert {outcome.until for outcome in outcomes if isinstance(outcome, Receipt)} == {START + 150 * SECOND}
        assert [outcome.rev for outcome in outcomes if isinstance(outcome, Receipt)] == [3] * 4

    def test_one_refusal_does_not_stop_the_others(self, scene: Scene) -> None:
        first, second = batch(scene, 2)
        outcomes = scene.engine.heartbeat_many([forged(first.job_id), second, forged(NOBODY)])
        assert [type(outcome) for outcome in outcomes] == [LeaseConflictError, Receipt, JobNotFoundError]
        assert scene.job(first.job_id).renewals == 0

    def test_a_claim_that_stands_twice_is_renewed_twice(self, scene: Scene) -> None:
        claim = scene.held()
        outcomes = scene.engine.heartbeat_many([claim, claim])
        assert [outcome.rev for outcome in outcomes if isinstance(outcome, Receipt)] == [3, 4]

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.heartbeat_many([]) == []


class TestComplete:
    """The end that everybody hopes for."""

    def test_a_completed_job_succeeded(self, scene: Scene) -> None:
        claim = scene.started()
        receipt = scene.engine.complete(claim, {"sent": 1})
        assert receipt == Receipt(job_id=claim.job_id, state=State.SUCCEEDED, version=4, rev=4, attempt=1)
        job = scene.job(claim.job_id)
        assert (job.output, job.lease, job.failures) == ({"sent": 1}, None, 0)
        assert scene.wires(claim.job_id) == ["enqueued", "claimed", "started", "succeeded"]

    @pytest.mark.parametrize("result", RESULTS, ids=shown)
    def test_a_result_comes_back_as_it_was_given(self, scene: Scene, result: Any) -> None:
        claim = scene.started()
        scene.engine.complete(claim, result)
        assert scene.job(claim.job_id).output == result

    @pytest.mark.parametrize("result", [2**63, float("nan"), float("inf"), "\x00", "\ud800", object()])
    def test_a_result_that_no_reader_could_trust_is_refused(self, scene: Scene, result: Any) -> None:
        claim = scene.started()
        with scene.refuses(ValidationError):
            scene.engine.complete(claim, result)

    def test_a_job_that_was_not_started_is_refused(self, scene: Scene) -> None:
        claim = scene.held()
        with scene.refuses(IllegalTransitionError):
            scene.engine.complete(claim)

    def test_it_is_not_too_late_while_nobody_took_the_job(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.advance(86_400)
        assert scene.engine.complete(claim).state is State.SUCCEEDED

    def test_success_wins_over_a_request_to_cancel(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.cancel(claim.job_id)
        assert scene.engine.complete(claim).state is State.SUCCEEDED


class TestLookMany:
    """Whether claims hold, and what was asked of their owners: nothing is written."""

    def test_a_claim_that_holds(self, scene: Scene) -> None:
        first, second = batch(scene, 2)
        scene.engine.start(second)
        with scene.unchanged():
            found = scene.engine.look_many([first, second])
        assert [each.state for each in found if isinstance(each, Receipt)] == [State.CLAIMED, State.RUNNING]
        assert [each.cancel_requested for each in found if isinstance(each, Receipt)] == [False, False]

    def test_a_request_to_stop_is_seen(self, scene: Scene) -> None:
        first, second = running(scene, 2)
        scene.engine.cancel(second.job_id)
        found = scene.engine.look_many([second, first])
        assert [each.cancel_requested for each in found if isinstance(each, Receipt)] == [True, False]

    def test_what_is_not_held_any_more_is_told_so(self, scene: Scene) -> None:
        cancelled, stalled, done, again, fine = running(scene, 5)
        scene.engine.cancel(cancelled.job_id, mode="hard")
        scene.engine.stall(stalled.job_id)
        scene.engine.complete(done)
        scene.engine.release(again)
        scene.engine.claim("worker-1", job_id=again.job_id)
        forgery = replace(fine, token="forged")
        asked = [cancelled, stalled, done, again, forgery, forged(NOBODY), fine]
        found = scene.engine.look_many(asked)
        assert [type(each) for each in found] == [LeaseConflictError] * 6 + [Receipt]

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.look_many([]) == []

    def test_a_batch_has_a_bound(self, scene: Scene) -> None:
        with scene.refuses(LimitExceededError):
            scene.engine.look_many([forged(NOBODY)] * 10_001)


class TestCompleteMany:
    """Many ends in one statement."""

    def test_each_job_has_a_result_of_its_own(self, scene: Scene) -> None:
        claims = running(scene)
        scene.engine.complete_many((claim, place) for place, claim in enumerate(claims))
        assert [scene.job(claim.job_id).output for claim in claims] == [0, 1, 2, 3]
        (count,) = scene.engine.counts()
        assert (count.state, count.jobs) == (State.SUCCEEDED, 4)

    def test_one_refusal_does_not_stop_the_others(self, scene: Scene) -> None:
        (first, second), third = running(scene, 2), scene.held()
        scene.engine.cancel(second.job_id, mode="hard")
        outcomes = scene.engine.complete_many([(first, 1), (second, 2), (third, 3), (forged(NOBODY), 4)])
        expected = [Receipt, LeaseConflictError, IllegalTransitionError, JobNotFoundError]
        assert [type(outcome) for outcome in outcomes] == expected

    def test_of_two_results_for_one_job_the_first_counts(self, scene: Scene) -> None:
        claim = scene.started()
        first, second, third = scene.engine.complete_many([(claim, "a"), (claim, "b"), (claim, "a")])
        assert isinstance(first, Receipt)
        assert refused(second, LeaseConflictError)
        assert isinstance(third, Receipt)
        assert not third.changed
        assert scene.job(claim.job_id).output == "a"

    def test_one_bad_result_keeps_all_from_being_written(self, scene: Scene) -> None:
        first, second = running(scene, 2)
        with scene.refuses(ValidationError):
            scene.engine.complete_many([(first, 1), (second, float("nan"))])

    def test_a_hundred_at_once(self, scene: Scene) -> None:
        claims = running(scene, 100)
        assert all(isinstance(done, Receipt) for done in scene.engine.complete_many((claim, 1) for claim in claims))
        assert len(scene.engine.list(states="succeeded", limit=1_000).jobs) == 100

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.complete_many([]) == []


class TestRelease:
    """A job given back, uncharged."""

    @pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
    def test_a_released_job_is_due_now_and_uncharged(self, scene: Scene, state: State) -> None:
        claim = scene.reach(state).claim
        scene.clock.advance(5)
        receipt = scene.engine.release(claim, reason="shutdown")
        assert (receipt.state, receipt.attempt, receipt.until) == (State.QUEUED, 1, None)
        job = scene.job(claim.job_id)
        assert (job.due, job.failures, job.attempt, job.lease) == (START + 5 * SECOND, 0, 1, None)
        assert scene.last(claim.job_id).event == e.Released(due=START + 5 * SECOND, reason="shutdown")

    @pytest.mark.parametrize("due", [60, timedelta(minutes=1), datetime(2023, 11, 14, 22, 14, 20, tzinfo=UTC)])
    def test_it_may_be_due_later(self, scene: Scene, due: Any) -> None:
        claim = scene.started()
        scene.engine.release(claim, due=due)
        assert scene.job(claim.job_id).due == START + MINUTE

    def test_the_next_attempt_has_the_next_number(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.release(claim)
        assert scene.held(claim.job_id).attempt == 2

    def test_a_request_to_cancel_is_heeded(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.cancel(claim.job_id)
        assert scene.engine.release(claim).state is State.CANCELLED
        assert scene.wires(claim.job_id)[-2:] == ["cancel_requested", "cancelled"]


class TestReleaseMany:
    """A worker that goes home gives everything back."""

    def test_all_of_them_are_queued(self, scene: Scene) -> None:
        claims = [*batch(scene, 2), *running(scene, 2)]
        outcomes = scene.engine.release_many(claims, due=60, reason="shutdown")
        assert [outcome.state for outcome in outcomes if isinstance(outcome, Receipt)] == ["queued"] * 4
        assert {scene.job(claim.job_id).due for claim in claims} == {START + MINUTE}

    def test_one_refusal_does_not_stop_the_others(self, scene: Scene) -> None:
        first, second = batch(scene, 2)
        outcomes = scene.engine.release_many([forged(first.job_id), second, forged(NOBODY)])
        assert [type(outcome) for outcome in outcomes] == [LeaseConflictError, Receipt, JobNotFoundError]

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.release_many([]) == []
