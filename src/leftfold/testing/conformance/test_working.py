"""What workers ask beside jobs: to claim and start in one breath, to settle many, to wait well, and to be seen."""

from typing import Any

import msgspec
import pytest

from leftfold import Receipt
from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import (
    DialectRefusedError,
    LeaseConflictError,
    LimitExceededError,
    RequestReusedError,
    ValidationError,
)
from leftfold.core.lifecycle import Edge, State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.dialects import DIALECTS
from leftfold.store.ops import Ask
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import FLAKY, KIND, OWNER, Scene, forged, refused


class TestClaimThatStarts:
    """Claimed and started in one breath: the very log that two calls would have written."""

    def test_the_log_is_that_of_a_claim_and_a_start(self, scene: Scene) -> None:
        first, second = scene.enqueued(), scene.enqueued()
        (claim,) = scene.engine.claim(OWNER)
        scene.engine.start(claim)
        (fused,) = scene.engine.claim(OWNER, start=True)
        assert (claim.job_id, fused.job_id) == (first, second)
        apart, together = scene.engine.history(first), scene.engine.history(second)
        for one, other in zip(apart[:1] + apart[2:], together[:1] + together[2:], strict=True):  # tokens differ
            assert (one.version, one.at, one.who, one.actor, one.data) == (
                other.version, other.at, other.who, other.actor, other.data
            )  # fmt: skip
        assert [record.who for record in together] == [Who.CLIENT, Who.WORKER, Who.OWNER]
        assert scene.wires(second) == ["enqueued", "claimed", "started"]

    def test_the_job_runs_and_its_lease_counts_from_now(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        (claim,) = scene.engine.claim(OWNER, start=True, lease=30)
        job = scene.job(job_id)
        assert (job.state, job.version, job.attempt, job.due) == (State.RUNNING, 3, 1, None)
        assert job.lease is not None
        assert (job.lease.owner, job.lease.until, claim.until) == (OWNER, START + 30 * SECOND, START + 30 * SECOND)

    def test_its_owner_goes_on_as_any_other(self, scene: Scene) -> None:
        scene.enqueued()
        (claim,) = scene.engine.claim(OWNER, start=True)
        assert scene.engine.complete(claim, 7).state is State.SUCCEEDED
        assert scene.wires(claim.job_id) == ["enqueued", "claimed", "started", "succeeded"]

    def test_to_start_it_again_changes_nothing(self, scene: Scene) -> None:
        scene.enqueued()
        (claim,) = scene.engine.claim(OWNER, start=True)
        with scene.unchanged():
            assert not scene.engine.start(claim).changed

    def test_many_at_once_are_counted_as_running(self, scene: Scene) -> None:
        for _ in range(30):
            scene.enqueued()
        claims = scene.engine.claim(OWNER, start=True, limit=20)
        assert len(claims) == 20
        counts = {count.state: count.jobs for count in scene.engine.counts()}
        assert counts == {State.QUEUED: 10, State.RUNNING: 20}
        assert scene.engine.verify().findings == ()

    def test_a_stall_of_it_is_charged(self, scene: Scene) -> None:
        """Its handler may have been entered: a claim that was never started costs nothing."""
        scene.enqueued()
        (claim,) = scene.engine.claim(OWNER, start=True)
        scene.clock.advance(61)
        scene.engine.reap()
        assert (scene.job(claim.job_id).state, scene.job(claim.job_id).failures) == (State.QUEUED, 1)

    def test_a_lost_answer_is_given_again(self, scene: Scene) -> None:
        scene.enqueued()
        first = scene.engine.claim(OWNER, start=True, request_id="r1")
        with scene.unchanged():
            assert scene.engine.claim(OWNER, start=True, request_id="r1") == first
        with scene.refuses(RequestReusedError):
            scene.engine.claim(OWNER, request_id="r1")

    @pytest.mark.parametrize("dialect", sorted(DIALECTS))
    def test_an_enforced_dialect_lets_it_or_refuses_it_whole(self, scene: Scene, dialect: str) -> None:
        job_id = scene.enqueued()
        held_to = scene.another(enforce=dialect)
        started = Edge(State.CLAIMED, e.Started, State.RUNNING) not in DIALECTS[dialect].forbidden()
        if started:
            assert [claim.job_id for claim in held_to.claim(OWNER, start=True)] == [job_id]
        else:
            with scene.refuses(DialectRefusedError):
                held_to.claim(OWNER, start=True)

    def test_a_job_that_is_claimed_by_its_id_is_started_apart(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        with scene.refuses(ValidationError):
            scene.engine.claim(OWNER, job_id=job_id, start=True)


class TestSettleMany:
    """What came of many attempts, each its own."""

    def test_each_comes_to_its_own_end(self, scene: Scene) -> None:
        claims = [scene.started() for _ in range(4)]
        good, bad, back, stopped = claims
        asks = [
            Ask(good.job_id, c.Complete(by=good.actor, result=msgspec.Raw(b"7"))),
            Ask(bad.job_id, c.Fail(by=bad.actor, error=FLAKY)),
            Ask(back.job_id, c.Release(by=back.actor)),
            Ask(stopped.job_id, c.Cancel(by=stopped.actor)),
        ]
        outcomes = scene.engine.settle_many(asks)
        assert [outcome.state for outcome in outcomes if isinstance(outcome, Receipt)] == [
            State.SUCCEEDED, State.RETRYING, State.QUEUED, State.CANCELLED
        ]  # fmt: skip
        assert [scene.job(claim.job_id).state for claim in claims] == [
            State.SUCCEEDED, State.RETRYING, State.QUEUED, State.CANCELLED
        ]  # fmt: skip

    def test_one_refusal_does_not_stop_the_others(self, scene: Scene) -> None:
        first, second, third = (scene.started() for _ in range(3))
        scene.engine.stall(second.job_id)
        outcomes = scene.engine.settle_many(
            Ask(claim.job_id, c.Complete(by=claim.actor)) for claim in (first, second, third)
        )
        assert refused(outcomes[1], LeaseConflictError)
        assert [scene.job(each.job_id).state for each in (first, second, third)] == [
            State.SUCCEEDED, State.STALLED, State.SUCCEEDED
        ]  # fmt: skip

    def test_said_again_it_is_settled_already(self, scene: Scene) -> None:
        """A worker that did not hear the answer says it again."""
        claims = [scene.started() for _ in range(2)]
        asks = [Ask(claim.job_id, c.Complete(by=claim.actor)) for claim in claims]
        scene.engine.settle_many(asks)
        with scene.unchanged():
            outcomes = scene.engine.settle_many(asks)
        assert [isinstance(each, Receipt) and each.changed for each in outcomes] == [False, False]

    def test_none_are_none(self, scene: Scene) -> None:
        with scene.unchanged():
            assert scene.engine.settle_many([]) == []

    def test_a_batch_has_a_bound(self, scene: Scene) -> None:
        claim = forged("00000000-0000-7000-8000-000000000000")
        with scene.refuses(LimitExceededError):
            scene.engine.settle_many([Ask(claim.job_id, c.Complete(by=claim.actor))] * 10_001)


class TestSettleQuietly:
    """The same without receipts of what went well."""

    def test_what_went_well_is_written_and_not_spoken_of(self, scene: Scene) -> None:
        claims = [scene.started() for _ in range(3)]
        outcomes = scene.engine.settle_quietly(Ask(claim.job_id, c.Complete(by=claim.actor)) for claim in claims)
        assert outcomes == [None] * 3
        assert {scene.job(claim.job_id).state for claim in claims} == {State.SUCCEEDED}

    def test_each_comes_to_its_own_end_and_a_refusal_is_told(self, scene: Scene) -> None:
        good, bad, gone = (scene.started() for _ in range(3))
        scene.engine.stall(gone.job_id)
        outcomes = scene.engine.settle_quietly([
            Ask(good.job_id, c.Complete(by=good.actor, result=msgspec.Raw(b"7"))),
            Ask(bad.job_id, c.Fail(by=bad.actor, error=FLAKY)),
            Ask(gone.job_id, c.Complete(by=gone.actor)),
        ])  # fmt: skip
        assert outcomes[0] is None
        assert isinstance(outcomes[1], Receipt)
        assert refused(outcomes[2], LeaseConflictError)
        assert [scene.job(each.job_id).state for each in (good, bad, gone)] == [
            State.SUCCEEDED, State.RETRYING, State.STALLED
        ]  # fmt: skip

    def test_said_again_it_is_settled_already(self, scene: Scene) -> None:
        claim = scene.started()
        asks = [Ask(claim.job_id, c.Complete(by=claim.actor))]
        scene.engine.settle_quietly(asks)
        with scene.unchanged():
            assert scene.engine.settle_quietly(asks) == [None]

    def test_none_are_none(self, scene: Scene) -> None:
        with scene.unchanged():
            assert scene.engine.settle_quietly([]) == []

    def test_a_batch_has_a_bound(self, scene: Scene) -> None:
        claim = forged("00000000-0000-7000-8000-000000000000")
        with scene.refuses(LimitExceededError):
            scene.engine.settle_quietly([Ask(claim.job_id, c.Complete(by=claim.actor))] * 10_001)


class TestNextDue:
    """How long until there is something to do."""

    def test_an_empty_store_knows_of_nothing(self, scene: Scene) -> None:
        assert scene.engine.next_due() is None

    def test_the_soonest_counts(self, scene: Scene) -> None:
        scene.enqueued(due=60, queue="a", priority=5)
        scene.enqueued(due=20, queue="a", priority=-5)
        scene.enqueued(due=40, queue="b")
        assert scene.engine.next_due() == 20
        assert scene.engine.next_due(["b"]) == 40
        assert scene.engine.next_due(["a", "b"]) == 20
        assert scene.engine.next_due(["c"]) is None

    def test_what_is_due_already_is_not_waited_for(self, scene: Scene) -> None:
        """Whoever asks has just found that nothing of it is for him."""
        scene.enqueued()
        assert scene.engine.next_due() is None
        scene.enqueued(due=5)
        assert scene.engine.next_due() == 5
        scene.clock.advance(5)
        assert scene.engine.next_due() is None

    def test_what_became_due_lately_counts_as_due_now(self, scene: Scene) -> None:
        """Else a job that becomes due between a claim and this question would be slept over."""
        scene.enqueued(due=5)
        scene.enqueued(due=60)
        scene.clock.advance(7)
        assert scene.engine.next_due(lately=3) == 0
        assert scene.engine.next_due(lately=1) == 53

    def test_a_job_that_will_be_tried_again_counts(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.fail(claim, FLAKY, delay=7)
        assert scene.engine.next_due() == 7

    def test_a_paused_queue_has_nothing_to_wait_for(self, scene: Scene) -> None:
        scene.enqueued(due=5)
        scene.engine.pause("default")
        assert scene.engine.next_due() is None

    @pytest.mark.parametrize("queues", ["default", ["no name"], ["nul\x00"]])
    def test_bad_names_are_refused(self, scene: Scene, queues: Any) -> None:
        with scene.refuses(ValidationError):
            scene.engine.next_due(queues)

    def test_it_writes_nothing(self, scene: Scene) -> None:
        scene.enqueued(kind=KIND, due=5)
        with scene.unchanged():
            scene.engine.next_due()


class TestClock:
    """The store's time."""

    def test_it_is_the_clock_that_events_are_dated_by(self, scene: Scene) -> None:
        assert scene.engine.clock() == START / SECOND
        scene.clock.advance(90)
        assert scene.engine.clock() == START / SECOND + 90


class TestBeat:
    """That a worker lives."""

    def test_what_it_tells_stands_there_with_the_time(self, scene: Scene) -> None:
        scene.engine.beat("w1", {"running": 3})
        (view,) = scene.engine.workers()
        assert (view.name, view.started_at, view.beat_at, view.age) == ("w1", START, START, 0)
        assert msgspec.json.decode(view.told) == {"running": 3}

    def test_the_last_beat_counts_and_the_first_says_since_when(self, scene: Scene) -> None:
        scene.engine.beat("w1", {"running": 3})
        scene.clock.advance(60)
        scene.engine.beat("w1", {"running": 4})
        scene.clock.advance(5)
        (view,) = scene.engine.workers()
        assert (view.started_at, view.beat_at, view.age) == (START, START + MINUTE, 5 * SECOND)
        assert msgspec.json.decode(view.told) == {"running": 4}

    @pytest.mark.parametrize("worker", ["", "tab\t", 7, "x" * 501])
    def test_a_bad_name_is_refused(self, scene: Scene, worker: Any) -> None:
        with pytest.raises(ValidationError):
            scene.engine.beat(worker, {})
        assert scene.engine.workers() == []

    def test_what_cannot_be_told_is_refused(self, scene: Scene) -> None:
        with pytest.raises(ValidationError):
            scene.engine.beat("w1", object())
        assert scene.engine.workers() == []


class TestWorkers:
    """Who lives, or died without a word."""

    def test_there_may_be_none(self, scene: Scene) -> None:
        assert scene.engine.workers() == []

    def test_the_oldest_comes_first(self, scene: Scene) -> None:
        for name in ("w2", "w1", "w3"):
            scene.engine.beat(name, None)
            scene.clock.advance(1)
        assert [view.name for view in scene.engine.workers()] == ["w2", "w1", "w3"]

    def test_who_is_silent_grows_old(self, scene: Scene) -> None:
        scene.engine.beat("w1", None)
        scene.clock.advance(3600)
        assert [view.age for view in scene.engine.workers()] == [3600 * SECOND]


class TestForgetWorker:
    """Who left is taken off the list, and so is who was silent for a day."""

    def test_the_others_stay(self, scene: Scene) -> None:
        for name in ("w1", "w2"):
            scene.engine.beat(name, None)
        scene.engine.forget_worker("w1")
        assert [view.name for view in scene.engine.workers()] == ["w2"]

    def test_one_that_nobody_knows_is_no_trouble(self, scene: Scene) -> None:
        scene.engine.forget_worker("w1")
        assert scene.engine.workers() == []

    def test_who_was_silent_for_a_day_goes_with_it(self, scene: Scene) -> None:
        scene.engine.beat("w1", None)
        scene.clock.advance(86_401)
        scene.engine.beat("w2", None)
        scene.engine.beat("w3", None)
        scene.engine.forget_worker("w3")
        assert [view.name for view in scene.engine.workers()] == ["w2"]

    def test_a_bad_name_is_refused(self, scene: Scene) -> None:
        with pytest.raises(ValidationError):
            scene.engine.forget_worker("")
