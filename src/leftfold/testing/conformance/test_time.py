"""Time: the store's clock is the only one, and whatever it does, no log runs backwards."""

from collections.abc import Callable
from typing import Final

import pytest

from leftfold import Claim
from leftfold.core import events as e
from leftfold.core.lifecycle import State
from leftfold.core.limits import MINUTE, SECOND
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import FLAKY, KEEPER, Scene

#: What may be done to a running job while the clock is set back.
DONE: Final[dict[str, Callable[[Scene, Claim], object]]] = {
    "complete": lambda scene, claim: scene.engine.complete(claim),
    "fail": lambda scene, claim: scene.engine.fail(claim, FLAKY),
    "release": lambda scene, claim: scene.engine.release(claim),
    "suspend": lambda scene, claim: scene.engine.suspend(claim, "approved", deadline=60),
    "note": lambda scene, claim: scene.engine.note(claim, e.Progress(fraction=0.5)),
    "notes": lambda scene, claim: scene.engine.note_many([(claim, e.Progress(fraction=0.5))] * 2),
    "stall": lambda scene, claim: scene.engine.stall(claim.job_id),
    "cancel": lambda scene, claim: scene.engine.cancel(claim.job_id),
    "dead_letter": lambda scene, claim: scene.engine.dead_letter(claim.job_id, FLAKY),
    "signal": lambda scene, claim: scene.engine.signal(claim.job_id, "approved"),
}


class TestAClockThatIsSetBack:
    """It happens: a virtual machine is moved, a server is replaced."""

    @pytest.mark.parametrize("act", DONE.values(), ids=DONE)
    def test_the_log_does_not_run_backwards(self, scene: Scene, act: Callable[[Scene, Claim], object]) -> None:
        claim = scene.started()
        scene.clock.advance(-3600)
        act(scene, claim)
        assert {record.at for record in scene.engine.history(claim.job_id)} == {START}
        assert scene.job(claim.job_id).updated_at == START

    def test_a_claim_and_a_start_do_not_run_backwards_either(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.advance(60)
        scene.engine.release(claim)
        scene.engine.requeue(claim.job_id)
        scene.clock.advance(-30)
        assert scene.engine.claim("worker-1") == []
        scene.clock.advance(30)
        (again,) = scene.engine.claim("worker-1")
        scene.clock.advance(-30)
        scene.engine.start(again)
        assert [record.at - START for record in scene.engine.history(claim.job_id)[-3:]] == [60_000_000] * 3

    def test_a_lease_counts_from_the_record_of_its_claim(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        scene.clock.advance(60)
        scene.engine.note(job_id, e.Custom(name="later"))
        scene.clock.advance(-60)
        (claim,) = scene.engine.claim("worker-1")
        lease = scene.job(job_id).lease
        assert lease is not None
        assert claim.until == lease.until == scene.last(job_id).at + MINUTE == START + 2 * MINUTE

    def test_a_renewal_does_not_shorten_the_lease(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.advance(-3600)
        assert scene.engine.heartbeat(claim).until == claim.until

    def test_new_jobs_still_get_ids_that_rise(self, scene: Scene) -> None:
        first = scene.enqueued()
        scene.clock.advance(-3600)
        assert scene.enqueued() > first


class TestAClockThatRuns:
    """Nothing happens because time passed, only because somebody says so."""

    @pytest.mark.parametrize("state", State)
    def test_a_year_changes_nothing_by_itself(self, scene: Scene, state: State) -> None:
        scene.reach(state)
        with scene.unchanged():
            scene.clock.advance(365 * 86_400)

    def test_an_expired_lease_is_the_owners_until_it_is_taken(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.advance(365 * 86_400)
        assert scene.engine.claim("worker-2", limit=10) == []
        scene.engine.note(claim, e.Progress(fraction=0.5))
        assert scene.engine.complete(claim).state is State.SUCCEEDED

    def test_every_record_bears_the_time_of_its_writing(self, scene: Scene) -> None:
        claim = scene.started()
        for name in ("note", "signal", "cancel", "complete"):
            scene.clock.advance(0.000001)
            DONE[name](scene, claim)
        assert [record.at - START for record in scene.engine.history(claim.job_id)] == [0, 0, 0, 1, 2, 3, 4]

    def test_two_records_of_one_breath_bear_one_time(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.advance(61)
        scene.engine.stall(claim.job_id, by=KEEPER)
        assert [record.at - START for record in scene.engine.history(claim.job_id)[-2:]] == [61 * SECOND] * 2
