"""`expected_rev`: who read a job may hold his command to what he read."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from leftfold import Receipt
from leftfold.core import events as e
from leftfold.core.errors import RevisionConflictError
from leftfold.core.lifecycle import State
from leftfold.testing.conformance.scene import BROKEN, Scene

Call = Callable[[Scene, str, int], Receipt]
CALLS: Final[dict[str, tuple[State, Call]]] = {
    "admit": (State.INBOX, lambda scene, job_id, rev: scene.engine.admit(job_id, expected_rev=rev)),
    "note": (
        State.QUEUED,
        lambda scene, job_id, rev: scene.engine.note(job_id, e.Custom(name="seen"), expected_rev=rev),
    ),
    "signal": (State.PARKED, lambda scene, job_id, rev: scene.engine.signal(job_id, "approved", expected_rev=rev)),
    "cancel": (State.RUNNING, lambda scene, job_id, rev: scene.engine.cancel(job_id, expected_rev=rev)),
    "cancel hard": (
        State.RUNNING,
        lambda scene, job_id, rev: scene.engine.cancel(job_id, mode="hard", expected_rev=rev),
    ),
    "stall": (State.RUNNING, lambda scene, job_id, rev: scene.engine.stall(job_id, expected_rev=rev)),
    "requeue": (State.STALLED, lambda scene, job_id, rev: scene.engine.requeue(job_id, expected_rev=rev)),
    "dead_letter": (
        State.QUEUED,
        lambda scene, job_id, rev: scene.engine.dead_letter(job_id, BROKEN, expected_rev=rev),
    ),
}


@pytest.mark.parametrize(("state", "call"), CALLS.values(), ids=CALLS)
class TestExpectedRev:
    """Everybody but the owner may name the rev that was read."""

    def test_the_rev_that_was_read_is_right(self, scene: Scene, state: State, call: Call) -> None:
        job_id = scene.reach(state).job_id
        rev = scene.job(job_id).rev
        receipt = call(scene, job_id, rev)
        assert (receipt.changed, receipt.rev) == (True, rev + 1)

    @pytest.mark.parametrize("off", [-1, 1, 2**40])
    def test_any_other_is_refused(self, scene: Scene, state: State, call: Call, off: int) -> None:
        job_id = scene.reach(state).job_id
        with scene.refuses(RevisionConflictError):
            call(scene, job_id, scene.job(job_id).rev + off)

    def test_a_rev_that_an_event_has_passed_is_refused(self, scene: Scene, state: State, call: Call) -> None:
        job_id = scene.reach(state).job_id
        rev = scene.job(job_id).rev
        scene.engine.note(job_id, e.Custom(name="meanwhile"))
        with scene.refuses(RevisionConflictError):
            call(scene, job_id, rev)


class TestRevsAndRenewals:
    """A renewal moves the rev and not the version."""

    @pytest.mark.parametrize("name", ["cancel", "cancel hard", "stall"])
    def test_a_rev_that_a_renewal_has_passed_is_refused(self, scene: Scene, name: str) -> None:
        call: Any = CALLS[name][1]
        claim = scene.started()
        rev = scene.job(claim.job_id).rev
        scene.engine.heartbeat(claim)
        with scene.refuses(RevisionConflictError):
            call(scene, claim.job_id, rev)
        assert call(scene, claim.job_id, rev + 1).version == rev + 1

    def test_a_receipt_a_summary_and_a_job_tell_the_same_rev(self, scene: Scene) -> None:
        claim = scene.started()
        receipt = scene.engine.heartbeat(claim)
        assert receipt.rev == scene.job(claim.job_id).rev == scene.everything()[0].rev == 4
