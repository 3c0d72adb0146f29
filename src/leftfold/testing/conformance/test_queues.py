"""Queues: pause, unpause, queues."""

from typing import Any

import pytest

from leftfold import Queue
from leftfold.core.errors import LimitExceededError, QueuePausedError, ValidationError
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import Scene, shown
from leftfold.testing.conformance.worlds import ACTOR

BAD_NAMES = [("", ValidationError), ("no name", ValidationError), ("nul\x00", ValidationError),
             ("x" * 201, LimitExceededError), (7, ValidationError)]  # fmt: skip


class TestPause:
    """Nobody claims from a paused queue."""

    def test_its_jobs_stay_and_those_of_others_go(self, scene: Scene) -> None:
        scene.enqueued(queue="mail", priority="P0")
        other = scene.enqueued()
        assert scene.engine.pause("mail") is True
        assert [claim.job_id for claim in scene.engine.claim("w", limit=10)] == [other]
        assert scene.engine.claim("w", queues=["mail"], limit=10) == []

    def test_jobs_may_still_come_and_owners_go_on(self, scene: Scene) -> None:
        claim = scene.started(queue="mail")
        scene.engine.pause("mail")
        scene.enqueued(queue="mail")
        assert scene.engine.heartbeat(claim).changed
        assert scene.engine.complete(claim).state == "succeeded"

    def test_a_job_by_its_id_is_not_given_either(self, scene: Scene) -> None:
        job_id = scene.enqueued(queue="mail")
        scene.engine.pause("mail")
        with scene.refuses(QueuePausedError):
            scene.engine.claim("w", job_id=job_id)
        scene.engine.unpause("mail")
        assert [claim.job_id for claim in scene.engine.claim("w", job_id=job_id)] == [job_id]

    def test_a_claim_by_id_that_is_asked_again_is_given_again(self, scene: Scene) -> None:
        job_id = scene.enqueued(queue="mail")
        (first,) = scene.engine.claim("w", job_id=job_id, request_id="r")
        scene.engine.pause("mail")
        assert scene.engine.claim("w", job_id=job_id, request_id="r") == [first]

    def test_to_pause_again_changes_nothing(self, scene: Scene) -> None:
        scene.engine.pause("mail", reason="first", by="ann")
        scene.clock.advance(5)
        with scene.unchanged():
            assert scene.engine.pause("mail", reason="second", by="bob") is False

    @pytest.mark.parametrize(
        ("arguments", "by", "reason"),
        [
            ({}, ACTOR, None),
            ({"by": "ann"}, "ann", None),
            ({"reason": 'Zoë\'s "deploy" 😀'}, ACTOR, 'Zoë\'s "deploy" 😀'),
        ],
        ids=shown,
    )
    def test_it_is_told_who_paused_it_and_why(
        self, scene: Scene, arguments: dict[str, Any], by: str, reason: str | None
    ) -> None:
        scene.engine.pause("mail", **arguments)
        assert scene.engine.queues() == [Queue(name="mail", paused_at=START, paused_by=by, reason=reason)]

    @pytest.mark.parametrize(("name", "error"), BAD_NAMES, ids=shown)
    def test_a_bad_name_is_refused(self, scene: Scene, name: Any, error: type[Exception]) -> None:
        with scene.refuses(error):
            scene.engine.pause(name)

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"reason": "nul\x00"}, ValidationError),
            ({"reason": "half \ud800"}, ValidationError),
            ({"reason": "x" * 65_537}, LimitExceededError),
            ({"by": "nul\x00"}, ValidationError),
            ({"by": "x" * 501}, LimitExceededError),
        ],
        ids=shown,
    )
    def test_what_cannot_be_kept_is_refused(
        self, scene: Scene, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        with scene.refuses(error):
            scene.engine.pause("mail", **arguments)


class TestUnpause:
    """A queue goes on."""

    def test_its_jobs_are_claimed_again(self, scene: Scene) -> None:
        job_id = scene.enqueued(queue="mail")
        scene.engine.pause("mail")
        assert scene.engine.unpause("mail") is True
        assert [claim.job_id for claim in scene.engine.claim("w")] == [job_id]
        assert scene.engine.queues() == [Queue(name="mail")]

    @pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
    def test_a_queue_that_was_not_paused_changes_nothing(self, scene: Scene, known: bool) -> None:
        if known:
            scene.enqueued(queue="mail")
        with scene.unchanged():
            assert scene.engine.unpause("mail") is False

    def test_to_unpause_again_changes_nothing(self, scene: Scene) -> None:
        scene.engine.pause("mail")
        scene.engine.unpause("mail")
        with scene.unchanged():
            assert scene.engine.unpause("mail") is False

    def test_it_may_be_paused_again_for_another_reason(self, scene: Scene) -> None:
        scene.engine.pause("mail", reason="first")
        scene.engine.unpause("mail")
        scene.clock.advance(5)
        assert scene.engine.pause("mail", reason="second", by="bob") is True
        assert scene.engine.queues()[0] == Queue(
            name="mail", paused_at=START + 5_000_000, paused_by="bob", reason="second"
        )

    @pytest.mark.parametrize(("name", "error"), BAD_NAMES, ids=shown)
    def test_a_bad_name_is_refused(self, scene: Scene, name: Any, error: type[Exception]) -> None:
        with scene.refuses(error):
            scene.engine.unpause(name)


class TestQueues:
    """The queues that were ever used or paused."""

    def test_an_empty_world_has_none(self, scene: Scene) -> None:
        assert scene.engine.queues() == []

    def test_they_stand_in_the_order_of_their_names(self, scene: Scene) -> None:
        for name in ("b", "a", "C", "b", "_d", "0"):
            scene.enqueued(queue=name)
        scene.engine.pause("z")
        assert [queue.name for queue in scene.engine.queues()] == ["0", "C", "_d", "a", "b", "z"]

    def test_a_queue_whose_jobs_have_all_ended_is_still_one(self, scene: Scene) -> None:
        scene.engine.cancel(scene.enqueued(queue="mail"))
        assert [queue.name for queue in scene.engine.queues()] == ["mail"]
