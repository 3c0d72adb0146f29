"""Races: many callers at once, of whom one wins. Whoever it is, everything adds up."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pytest

from leftfold import NewJob, Receipt
from leftfold.core import events as e
from leftfold.core.errors import KeyTakenError, LeftfoldError
from leftfold.core.lifecycle import State
from leftfold.testing.conformance.scene import KIND, Scene

T = TypeVar("T")
CALLERS: Final = 8


def at_once(act: Callable[[int], T]) -> list[T | LeftfoldError]:
    """Let some callers act at the same time, and give what became of each."""

    def outcome(number: int) -> T | LeftfoldError:
        try:
            return act(number)
        except LeftfoldError as refused:
            return refused

    with ThreadPoolExecutor(CALLERS) as pool:
        return list(pool.map(outcome, range(CALLERS)))


def changed(outcomes: list[Receipt | LeftfoldError]) -> int:
    """Tell how many of them changed something."""
    return sum(isinstance(outcome, Receipt) and outcome.changed for outcome in outcomes)


class TestRaces:
    """Eight callers of one engine."""

    def test_no_job_is_given_twice(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(KIND, priority=number % 3) for number in range(40))
        taken = at_once(lambda number: scene.engine.claim(f"worker-{number}", limit=7))
        given = [claim.job_id for claims in taken if isinstance(claims, list) for claim in claims]
        given += [claim.job_id for claim in scene.engine.claim("last", limit=40)]
        assert len(given) == len(set(given)) == 40

    def test_one_very_job_has_one_owner(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        taken = at_once(lambda number: scene.engine.claim(f"worker-{number}", job_id=job_id))
        assert sum(isinstance(claims, list) for claims in taken) == 1
        assert scene.job(job_id).attempt == 1

    @pytest.mark.parametrize("on_conflict", ["return", "raise"])
    def test_a_key_has_one_job(self, scene: Scene, on_conflict: str) -> None:
        outcomes = at_once(
            lambda number: scene.engine.enqueue(KIND, number, key="k", on_conflict=on_conflict)  # type: ignore[call-overload]
        )
        assert changed(outcomes) == 1
        assert len(scene.everything()) == 1
        assert {type(outcome) for outcome in outcomes} <= {Receipt, KeyTakenError}

    def test_of_many_that_replace_each_other_one_stands(self, scene: Scene) -> None:
        outcomes = at_once(lambda number: scene.engine.enqueue(KIND, number, key="k", on_conflict="replace"))
        assert changed(outcomes) == CALLERS
        assert len(scene.engine.list(states="queued").jobs) == 1

    def test_a_request_is_carried_out_once(self, scene: Scene) -> None:
        outcomes = at_once(lambda number: scene.engine.enqueue(KIND, request_id="r"))
        assert len({outcome.job_id for outcome in outcomes if isinstance(outcome, Receipt)}) == 1
        assert len(scene.everything()) == 1

    def test_a_request_to_claim_is_carried_out_once(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob(KIND)] * 20)
        taken = at_once(lambda number: scene.engine.claim("worker-1", limit=2, request_id="r"))
        assert all(claims == taken[0] for claims in taken)
        assert len(scene.engine.list(states="claimed").jobs) == 2

    def test_a_job_has_one_end(self, scene: Scene) -> None:
        claim = scene.started()
        ends: list[Callable[[], Receipt]] = [
            lambda: scene.engine.complete(claim, 1),
            lambda: scene.engine.complete(claim, 2),
            lambda: scene.engine.fail(claim, "broken", permanent=True),
            lambda: scene.engine.cancel(claim.job_id, mode="hard"),
        ]
        outcomes = at_once(lambda number: ends[number % len(ends)]())
        assert changed(outcomes) == 1
        assert len(scene.engine.history(claim.job_id)) == 4

    def test_a_wait_is_answered_once(self, scene: Scene) -> None:
        job_id = scene.reach(State.PARKED).job_id
        outcomes = at_once(lambda number: scene.engine.signal(job_id, "approved", number))
        assert changed(outcomes) == 1
        assert scene.wires(job_id).count("resumed") == 1

    def test_no_note_is_lost(self, scene: Scene) -> None:
        claim = scene.started()
        outcomes = at_once(lambda number: scene.engine.note(claim, e.Custom(name=f"n{number}")))
        assert changed(outcomes) == CALLERS
        assert {outcome.version for outcome in outcomes if isinstance(outcome, Receipt)} == set(range(4, 4 + CALLERS))
