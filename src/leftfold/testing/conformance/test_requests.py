"""Requests: under one `request_id`, something happens once."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from leftfold import Claim, NewJob, Receipt
from leftfold.core import events as e
from leftfold.core.errors import KeyTakenError, RequestReusedError
from leftfold.core.lifecycle import State
from leftfold.testing.conformance.scene import BROKEN, FLAKY, KIND, Reached, Scene

ID: Final = "request-1"


class Asked(NamedTuple):
    """A request on a job that was led there, and another one for which its id may not be used again."""

    lead: Callable[[Scene], Reached]
    ask: Callable[[Scene, Reached, dict[str, Any]], Receipt]
    other: Callable[[Scene, Reached, dict[str, Any]], Receipt]
    has_rev: bool = False


def at(state: State, *, hours: int = 0) -> Callable[[Scene], Reached]:
    """Lead a job to this state, and let time pass."""

    def lead(scene: Scene) -> Reached:
        reached = scene.reach(state)
        scene.clock.advance(3600 * hours)
        return reached

    return lead


def _behind_an_ended_job(scene: Scene) -> Reached:
    first = scene.reach(State.SUCCEEDED)
    return Reached(scene.enqueued(after=[first.job_id]), first.claim)


ASKED: Final[dict[str, Asked]] = {
    "admit": Asked(
        at(State.INBOX),
        lambda scene, job, more: scene.engine.admit(job.job_id, due=60, **more),
        lambda scene, job, more: scene.engine.admit(job.job_id, due=61, **more),
        has_rev=True,
    ),
    "start": Asked(
        at(State.CLAIMED),
        lambda scene, job, more: scene.engine.start(job.claim, **more),
        lambda scene, job, more: scene.engine.complete(job.claim, **more),
    ),
    "heartbeat": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.heartbeat(job.claim, lease=90, **more),
        lambda scene, job, more: scene.engine.heartbeat(job.claim, lease=91, **more),
    ),
    "complete": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.complete(job.claim, 1, **more),
        lambda scene, job, more: scene.engine.complete(job.claim, 2, **more),
    ),
    "fail": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.fail(job.claim, FLAKY, **more),
        lambda scene, job, more: scene.engine.fail(job.claim, BROKEN, **more),
    ),
    "release": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.release(job.claim, due=60, **more),
        lambda scene, job, more: scene.engine.release(job.claim, due=61, **more),
    ),
    "suspend": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.suspend(job.claim, "approved", deadline=60, **more),
        lambda scene, job, more: scene.engine.suspend(job.claim, "approved", **more),
    ),
    "note by the owner": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.note(job.claim, e.Custom(name="a"), **more),
        lambda scene, job, more: scene.engine.note(job.claim, e.Custom(name="b"), **more),
    ),
    "note": Asked(
        at(State.QUEUED),
        lambda scene, job, more: scene.engine.note(job.job_id, e.Custom(name="a"), **more),
        lambda scene, job, more: scene.engine.note(job.job_id, e.EvidenceAdded(name="a"), **more),
        has_rev=True,
    ),
    "signal": Asked(
        at(State.PARKED),
        lambda scene, job, more: scene.engine.signal(job.job_id, "approved", 1, **more),
        lambda scene, job, more: scene.engine.signal(job.job_id, "approved", 2, **more),
        has_rev=True,
    ),
    "early signal": Asked(
        at(State.QUEUED),
        lambda scene, job, more: scene.engine.signal(job.job_id, "approved", 1, **more),
        lambda scene, job, more: scene.engine.signal(job.job_id, "other", 1, **more),
        has_rev=True,
    ),
    "cancel": Asked(
        at(State.QUEUED),
        lambda scene, job, more: scene.engine.cancel(job.job_id, **more),
        lambda scene, job, more: scene.engine.cancel(job.job_id, reason="other", **more),
        has_rev=True,
    ),
    "request to cancel": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.cancel(job.job_id, **more),
        lambda scene, job, more: scene.engine.cancel(job.job_id, mode="hard", **more),
        has_rev=True,
    ),
    "cancel_claim": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.cancel_claim(job.claim, **more),
        lambda scene, job, more: scene.engine.cancel_claim(job.claim, reason="other", **more),
    ),
    "stall": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.stall(job.job_id, **more),
        lambda scene, job, more: scene.engine.stall(job.job_id, reason="other", **more),
        has_rev=True,
    ),
    "requeue": Asked(
        at(State.DEAD_LETTERED),
        lambda scene, job, more: scene.engine.requeue(job.job_id, reason="again", **more),
        lambda scene, job, more: scene.engine.requeue(job.job_id, reason="other", **more),
        has_rev=True,
    ),
    "dead_letter": Asked(
        at(State.QUEUED),
        lambda scene, job, more: scene.engine.dead_letter(job.job_id, FLAKY, **more),
        lambda scene, job, more: scene.engine.dead_letter(job.job_id, BROKEN, **more),
        has_rev=True,
    ),
    "dead_letter by the owner": Asked(
        at(State.RUNNING),
        lambda scene, job, more: scene.engine.dead_letter(job.claim, FLAKY, **more),
        lambda scene, job, more: scene.engine.dead_letter(job.claim, BROKEN, **more),
    ),
    "expire": Asked(
        at(State.WAITING, hours=1),
        lambda scene, job, more: scene.engine.expire(job.job_id, **more),
        lambda scene, job, more: scene.engine.expire(job.job_id, by="another", **more),
    ),
    "resume": Asked(
        _behind_an_ended_job,
        lambda scene, job, more: scene.engine.resume(job.job_id, **more),
        lambda scene, job, more: scene.engine.resume(job.job_id, by="another", **more),
    ),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
class TestARequestAboutOneJob:
    """It is remembered on the job's log."""

    def test_asked_again_it_changes_nothing(self, scene: Scene, asked: Asked) -> None:
        reached = asked.lead(scene)
        first = asked.ask(scene, reached, {"request_id": ID})
        with scene.unchanged():
            second = asked.ask(scene, reached, {"request_id": ID})
        assert (first.changed, second.changed) == (True, False)
        assert replace(second, changed=True) == first

    def test_asked_again_a_day_later_it_changes_nothing(self, scene: Scene, asked: Asked) -> None:
        reached = asked.lead(scene)
        asked.ask(scene, reached, {"request_id": ID})
        scene.clock.advance(86_400)
        with scene.unchanged():
            assert not asked.ask(scene, reached, {"request_id": ID}).changed

    def test_its_id_is_not_for_another_request(self, scene: Scene, asked: Asked) -> None:
        reached = asked.lead(scene)
        asked.ask(scene, reached, {"request_id": ID})
        with scene.refuses(RequestReusedError):
            asked.other(scene, reached, {"request_id": ID})

    def test_its_id_stands_on_one_record_at_most(self, scene: Scene, asked: Asked) -> None:
        reached = asked.lead(scene)
        receipt = asked.ask(scene, reached, {"request_id": ID})
        ids = [record.request_id for record in scene.engine.history(receipt.job_id)]
        assert ids.count(ID) == (0 if asked is ASKED["heartbeat"] else 1)


@pytest.mark.parametrize(
    "asked",
    [asked for asked in ASKED.values() if asked.has_rev],
    ids=[name for name, asked in ASKED.items() if asked.has_rev],
)
class TestARequestWithARev:
    """The request is looked up before the rev: what happened is not refused because it happened."""

    def test_asked_again_with_the_rev_of_before_it_is_known(self, scene: Scene, asked: Asked) -> None:
        reached = asked.lead(scene)
        more = {"request_id": ID, "expected_rev": scene.job(reached.job_id).rev}
        asked.ask(scene, reached, more)
        with scene.unchanged():
            assert not asked.ask(scene, reached, more).changed


class TestARequestToRenew:
    """A lease remembers its last renewal only."""

    @pytest.mark.parametrize("between", [{}, {"request_id": "request-2"}], ids=["plain", "under a request"])
    def test_after_another_renewal_it_is_a_new_one(self, scene: Scene, between: dict[str, Any]) -> None:
        claim = scene.started()
        revs = [scene.engine.heartbeat(claim, **more).rev for more in ({"request_id": ID}, between, {"request_id": ID})]
        assert revs == [4, 5, 6]

    def test_a_renewal_of_the_attempt_before_is_known_while_none_came_behind_it(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.heartbeat(claim, request_id=ID)
        scene.engine.stall(claim.job_id)
        with scene.unchanged():
            assert not scene.engine.heartbeat(claim, request_id=ID).changed


class TestARequestThatMakesJobs:
    """enqueue, enqueue_many and receive: the answer itself is remembered."""

    @pytest.mark.parametrize("method", ["enqueue", "receive"])
    def test_asked_again_it_gives_the_same_answer(self, scene: Scene, method: str) -> None:
        call: Callable[..., Receipt] = getattr(scene.engine, method)
        first = call(KIND, {"a": 1}, request_id=ID)
        scene.clock.advance(60)
        with scene.unchanged():
            assert call(KIND, {"a": 1}, request_id=ID) == first

    def test_asked_again_when_the_job_has_moved_on_it_gives_the_same_answer(self, scene: Scene) -> None:
        first = scene.engine.enqueue(KIND, due=0, request_id=ID)
        scene.engine.complete(scene.started(first.job_id))
        with scene.unchanged():
            assert scene.engine.enqueue(KIND, due=0, request_id=ID) == first

    def test_a_batch_is_one_request(self, scene: Scene) -> None:
        scene.enqueued(key="taken")
        batch = [NewJob(KIND, 1), NewJob(KIND, 2, key="taken"), NewJob(KIND, 3, key="free")]
        first = scene.engine.enqueue_many(batch, on_conflict="skip", request_id=ID)
        with scene.unchanged():
            assert scene.engine.enqueue_many(batch, on_conflict="skip", request_id=ID) == first
        with scene.refuses(RequestReusedError):
            scene.engine.enqueue_many(batch[::-1], on_conflict="skip", request_id=ID)

    @pytest.mark.parametrize(
        "other",
        [{"payload": 2}, {"queue": "mail"}, {"priority": 1}, {"key": "k"}, {"due": 61}, {"on_conflict": "raise"},
         {"by": "ann"}],
        ids=lambda other: next(iter(other)),
    )  # fmt: skip
    def test_its_id_is_not_for_another_request(self, scene: Scene, other: dict[str, Any]) -> None:
        asked: dict[str, Any] = {"kind": KIND, "payload": 1, "due": 60, "request_id": ID}
        scene.engine.enqueue(**asked)
        with scene.refuses(RequestReusedError):
            scene.engine.enqueue(**{**asked, **other})

    def test_each_tenant_has_requests_of_its_own(self, scene: Scene) -> None:
        made = {scene.enqueued(tenant=tenant, request_id=ID) for tenant in ("", "acme", "other")}
        assert len(made) == 3

    def test_a_request_that_was_refused_is_not_remembered(self, scene: Scene) -> None:
        holder = scene.enqueued(key="taken")
        with scene.refuses(KeyTakenError):
            scene.engine.enqueue(KIND, key="taken", on_conflict="raise", request_id=ID)
        scene.engine.cancel(holder)
        assert scene.engine.enqueue(KIND, key="taken", on_conflict="raise", request_id=ID).changed


class TestARequestToClaim:
    """A claim whose answer was lost is given again."""

    def test_asked_again_it_gives_the_same_claims(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(KIND, number, priority=number) for number in range(5))
        first = scene.engine.claim("worker-1", limit=3, request_id=ID)
        with scene.unchanged():
            assert scene.engine.claim("worker-1", limit=3, request_id=ID) == first
        assert all(isinstance(outcome, Receipt) for outcome in scene.engine.start_many(first))

    def test_by_its_id_too(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        first = scene.engine.claim("worker-1", job_id=job_id, request_id=ID)
        with scene.unchanged():
            assert scene.engine.claim("worker-1", job_id=job_id, request_id=ID) == first

    def test_an_empty_claim_is_not_remembered(self, scene: Scene) -> None:
        assert scene.engine.claim("worker-1", request_id=ID) == []
        job_id = scene.enqueued()
        assert [claim.job_id for claim in scene.engine.claim("worker-1", request_id=ID)] == [job_id]

    @pytest.mark.parametrize(
        "other", [{"owner": "worker-2"}, {"limit": 2}, {"lease": 5}, {"queues": ["mail"]}, {"kinds": [KIND]}],
        ids=lambda other: next(iter(other)),
    )  # fmt: skip
    def test_its_id_is_not_for_another_request(self, scene: Scene, other: dict[str, Any]) -> None:
        scene.engine.enqueue_many([NewJob(KIND)] * 3)
        asked: dict[str, Any] = {"owner": "worker-1", "request_id": ID}
        scene.engine.claim(**asked)
        with scene.refuses(RequestReusedError):
            scene.engine.claim(**{**asked, **other})

    def test_when_the_job_is_anothers_by_now_it_is_told_by_the_attempt(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        (first,) = scene.engine.claim("worker-1", request_id=ID)
        scene.engine.release(first)
        second = scene.held(job_id, owner="worker-2")
        (again,) = scene.engine.claim("worker-1", request_id=ID)
        assert (again.attempt, again.token) == (first.attempt, first.token)
        assert second.attempt == 2

    def test_the_id_under_which_a_job_was_made_is_not_for_a_claim(self, scene: Scene) -> None:
        scene.enqueued(request_id=ID)
        with scene.refuses(RequestReusedError):
            scene.engine.claim("worker-1", request_id=ID)

    def test_a_job_on_which_the_id_is_spent_is_passed_over(self, scene: Scene) -> None:
        """Of another tenant's request, or of another command: the claim takes what is left."""
        scene.enqueued(tenant="acme", request_id=ID)
        claim: Claim = scene.started()
        scene.engine.release(claim, request_id=ID)
        other = scene.enqueued()
        assert [each.job_id for each in scene.engine.claim("worker-1", limit=9, request_id=ID)] == [other]
