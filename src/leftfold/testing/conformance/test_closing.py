"""Closing, and what the next engine finds."""

from collections.abc import Callable

import pytest

from leftfold import Claim, Engine
from leftfold.core.errors import DialectRefusedError, StoreError
from leftfold.core.lifecycle import State
from leftfold.testing.conformance.scene import FLAKY, KIND, Scene


class TestClose:
    """An engine that is closed."""

    def test_it_does_nothing_any_more(self, scene: Scene) -> None:
        engine = scene.open()
        scene.shut(engine)
        with scene.refuses(StoreError):
            engine.enqueue(KIND)
        with scene.refuses(StoreError):
            engine.list()

    def test_to_close_it_again_is_no_error(self, scene: Scene) -> None:
        engine = scene.open()
        scene.shut(engine)
        engine.close()

    def test_what_it_wrote_is_there_for_the_next_one(self, scene: Scene) -> None:
        first = scene.another()
        job_id = first.enqueue(KIND, {"a": 1}, key="order:42").job_id
        (claim,) = first.claim("worker-1")
        first.start(claim)
        first.pause("mail")
        scene.shut(first)
        assert scene.job(job_id).state is State.RUNNING
        assert scene.engine.complete(claim, "done").state is State.SUCCEEDED
        assert [queue.name for queue in scene.engine.queues()] == ["default", "mail"]

    def test_the_request_of_one_engine_is_known_to_the_next(self, scene: Scene) -> None:
        first = scene.another()
        receipt = first.enqueue(KIND, request_id="r-1")
        scene.shut(first)
        assert scene.engine.enqueue(KIND, request_id="r-1") == receipt


class TestADialectThatIsEnforced:
    """An engine that is held to a dialect refuses what that dialect does not know, in its short statements too."""

    @pytest.mark.parametrize("dialect", ["formal", "authoritative", "reliability", "contract", "quality"])
    def test_a_job_lives_its_plain_life_in_every_dialect(self, scene: Scene, dialect: str) -> None:
        engine = scene.another(dialect)
        job_id = engine.enqueue(KIND).job_id
        (claim,) = engine.claim("worker-1")
        engine.start(claim)
        assert engine.complete(claim).state is State.SUCCEEDED
        assert scene.wires(job_id) == ["enqueued", "claimed", "started", "succeeded"]

    def test_where_there_is_no_retry_an_attempt_that_failed_fails_the_job(self, scene: Scene) -> None:
        claim = scene.started()
        assert scene.another("contract").fail(claim, FLAKY).state is State.FAILED

    def test_a_job_that_may_not_be_claimed_is_not_found_by_a_claim(self, scene: Scene) -> None:
        job_id = scene.reach(State.RETRYING).job_id
        engine = scene.another("contract")
        with scene.unchanged():
            assert engine.claim("worker-2", limit=10) == []
        with scene.refuses(DialectRefusedError):
            engine.claim("worker-2", job_id=job_id)

    @pytest.mark.parametrize(
        "act",
        [
            lambda engine, claim: engine.receive(KIND),
            lambda engine, claim: engine.enqueue(KIND, after=[claim.job_id]),
            lambda engine, claim: engine.release(claim),
            lambda engine, claim: engine.suspend(claim, "approved"),
            lambda engine, claim: engine.cancel(claim.job_id, mode="hard"),
            lambda engine, claim: engine.cancel(claim.job_id),
            lambda engine, claim: engine.dead_letter(claim, FLAKY),
        ],
        ids=["receive", "after", "release", "suspend", "cancel hard", "cancel", "dead_letter"],
    )
    def test_a_move_that_it_lacks_is_refused(self, scene: Scene, act: Callable[[Engine, Claim], object]) -> None:
        claim = scene.started()
        engine = scene.another("contract")
        with scene.refuses(DialectRefusedError):
            act(engine, claim)
