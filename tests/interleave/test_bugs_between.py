"""Test the explorer: every bug that is planted in the two sides shows in some schedule of the pair that is named.

As few preemptions do as the usual run of all pairs has: each of its layers is seen to fail at the depth that it plays.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.interleave.operations import BATCHES, KEEPING, OPERATIONS
from tests.interleave.planted import BUGS, Planted
from tests.interleave.world import USUAL, Pair, world_on

from leftfold.testing.postgres import Server

NAMED = {operation.name: operation for operation in (*OPERATIONS, *BATCHES, *KEEPING)}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_explorer_catches(bug: Planted, postgres: Server) -> None:
    @contextmanager
    def spoiled() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            if bug.code is not None:
                bug.code(patch)
            yield

    left, right, state = bug.pair
    found: list[str] = []
    with world_on(postgres, dict.fromkeys(bug.settings, "off"), bug.plant, alone=bug.alone) as world:
        world.spoiled = spoiled
        pair = Pair(NAMED[left], NAMED[right], state)
        try:
            for run, why in world.play(pair, USUAL):
                found += [str(run)] if why is not None else []
            world.check_whole()
        except AssertionError as problem:
            found.append(str(problem))
    assert found, f"no schedule of {bug.pair} shows it"
    print(f"{bug.name}: {len(found)} of {sum(world.schedules.values())}, the first {found[0]}")  # noqa: T201


def test_there_are_enough_planted_bugs_and_no_two_alike() -> None:
    assert len(BUGS) >= 6
    assert not [name for name, count in Counter(bug.name for bug in BUGS).items() if count > 1]
