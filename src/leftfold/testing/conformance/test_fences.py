"""Fences: only who holds (attempt, token) speaks as the owner, and whose reply was lost may say it again."""

from collections.abc import Callable
from typing import Final

import pytest
from msgspec.structs import replace

from leftfold import Claim, Policy, Receipt
from leftfold.core import events as e
from leftfold.core.errors import LeaseConflictError, LimitExceededError, ValidationError
from leftfold.core.lifecycle import State
from leftfold.testing.conformance.matrix import OWNERS, Move
from leftfold.testing.conformance.scene import BROKEN, FLAKY, Reached, Scene

#: A claim that is not the one, each wrong in one thing.
WRONG: Final[dict[str, Callable[[Claim], Claim]]] = {
    "another token": lambda claim: replace(claim, token=f"{claim.token}x"),
    "the next attempt": lambda claim: replace(claim, attempt=claim.attempt + 1),
    "the digest for the token": lambda claim: replace(claim, token="0" * 32),
}

Call = Callable[[Scene, Claim], Receipt]
#: What an owner may say twice, and something else that it then may not say any more.
REPEATED: Final[dict[str, tuple[Call, Call]]] = {
    "complete": (
        lambda scene, claim: scene.engine.complete(claim, {"a": 1}),
        lambda scene, claim: scene.engine.complete(claim, {"a": 2}),
    ),
    "fail": (
        lambda scene, claim: scene.engine.fail(claim, FLAKY),
        lambda scene, claim: scene.engine.fail(claim, BROKEN),
    ),
    "fail for good": (
        lambda scene, claim: scene.engine.fail(claim, FLAKY, permanent=True),
        lambda scene, claim: scene.engine.complete(claim),
    ),
    "release": (
        lambda scene, claim: scene.engine.release(claim, reason="shutdown"),
        lambda scene, claim: scene.engine.release(claim, reason="snooze"),
    ),
    "release for later": (
        lambda scene, claim: scene.engine.release(claim, due=60),
        lambda scene, claim: scene.engine.fail(claim, FLAKY),
    ),
    "suspend": (
        lambda scene, claim: scene.engine.suspend(claim, "approved", deadline=60),
        lambda scene, claim: scene.engine.suspend(claim, "other", deadline=60),
    ),
    "park": (
        lambda scene, claim: scene.engine.suspend(claim, "approved"),
        lambda scene, claim: scene.engine.suspend(claim, "other"),
    ),
    "cancel_claim": (
        lambda scene, claim: scene.engine.cancel_claim(claim),
        lambda scene, claim: scene.engine.complete(claim),
    ),
    "dead_letter": (
        lambda scene, claim: scene.engine.dead_letter(claim, BROKEN),
        lambda scene, claim: scene.engine.dead_letter(claim, FLAKY),
    ),
}


class TestTheFence:
    """Whoever shows another pair is refused and has changed nothing."""

    @pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
    @pytest.mark.parametrize("move", OWNERS, ids=lambda move: move.name)
    def test_a_wrong_claim_is_refused(self, scene: Scene, move: Move, wrong: Callable[[Claim], Claim]) -> None:
        claim = scene.started()
        with scene.refuses(LeaseConflictError):
            move.act(scene, Reached(claim.job_id, wrong(claim)))

    @pytest.mark.parametrize("move", OWNERS, ids=lambda move: move.name)
    def test_the_claim_before_this_one_is_refused(self, scene: Scene, move: Move) -> None:
        stale = scene.started()
        scene.engine.stall(stale.job_id)
        current = scene.started(stale.job_id, owner=stale.owner)
        for claim in (stale, replace(stale, attempt=current.attempt), replace(current, attempt=stale.attempt)):
            with scene.refuses(LeaseConflictError):
                move.act(scene, Reached(claim.job_id, claim))

    @pytest.mark.parametrize("move", OWNERS, ids=lambda move: move.name)
    def test_the_claim_of_another_job_is_refused(self, scene: Scene, move: Move) -> None:
        mine, other = scene.started(), scene.started()
        with scene.refuses(LeaseConflictError):
            move.act(scene, Reached(other.job_id, replace(mine, job_id=other.job_id)))

    def test_a_claim_without_a_token_is_refused(self, scene: Scene) -> None:
        claim = scene.started()
        with scene.refuses(ValidationError):
            scene.engine.heartbeat(replace(claim, token=""))

    def test_a_claim_of_attempt_nought_is_refused(self, scene: Scene) -> None:
        claim = scene.started()
        with scene.refuses(LimitExceededError):
            scene.engine.heartbeat(replace(claim, attempt=0))

    def test_the_owner_may_speak_under_another_name(self, scene: Scene) -> None:
        claim = replace(scene.started(), owner="worker-1, thread 2")
        assert scene.engine.complete(claim).state is State.SUCCEEDED
        assert scene.last(claim.job_id).actor == "worker-1, thread 2"


class TestALostReply:
    """The same owner says the same again: it is known, and changes nothing."""

    @pytest.mark.parametrize("said", REPEATED.values(), ids=REPEATED)
    def test_to_say_it_again_changes_nothing(self, scene: Scene, said: tuple[Call, Call]) -> None:
        claim, (call, _) = scene.started(), said
        first = call(scene, claim)
        with scene.unchanged():
            second = call(scene, claim)
        assert (first.changed, second.changed) == (True, False)
        assert replace(second, changed=True) == first

    @pytest.mark.parametrize("said", REPEATED.values(), ids=REPEATED)
    def test_to_say_it_again_much_later_changes_nothing(self, scene: Scene, said: tuple[Call, Call]) -> None:
        claim, (call, _) = scene.started(), said
        call(scene, claim)
        scene.clock.advance(3600)
        with scene.unchanged():
            assert not call(scene, claim).changed

    @pytest.mark.parametrize("said", REPEATED.values(), ids=REPEATED)
    def test_to_say_something_else_is_refused(self, scene: Scene, said: tuple[Call, Call]) -> None:
        claim, (call, other) = scene.started(), said
        call(scene, claim)
        with scene.refuses(LeaseConflictError):
            other(scene, claim)

    @pytest.mark.parametrize("said", REPEATED.values(), ids=REPEATED)
    def test_with_another_token_it_is_nobodys_reply(self, scene: Scene, said: tuple[Call, Call]) -> None:
        claim, (call, _) = scene.started(), said
        call(scene, claim)
        with scene.refuses(LeaseConflictError):
            call(scene, replace(claim, token="guessed"))

    @pytest.mark.parametrize("name", ["fail", "release"])
    def test_once_another_holds_the_job_it_is_too_late(self, scene: Scene, name: str) -> None:
        claim, (call, _) = scene.started(), REPEATED[name]
        call(scene, claim)
        scene.clock.advance(3600)
        scene.started(claim.job_id)
        with scene.refuses(LeaseConflictError):
            call(scene, claim)

    def test_what_was_taken_away_cannot_be_said_again(self, scene: Scene) -> None:
        claim = scene.started(policy=Policy(max_failures=1))
        scene.engine.dead_letter(claim.job_id, BROKEN)
        with scene.refuses(LeaseConflictError):
            scene.engine.dead_letter(claim, BROKEN)

    def test_a_note_said_twice_stands_twice(self, scene: Scene) -> None:
        claim = scene.started()
        for _ in range(2):
            scene.engine.note(claim, e.Progress(fraction=0.5))
        assert scene.wires(claim.job_id)[-2:] == ["progress", "progress"]
