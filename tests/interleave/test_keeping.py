"""A keeper's work beside every other operation: it speaks of all jobs, so each schedule has a store to itself.

To verify and to rebuild take many statements, so of their schedules those with few preemptions are played; with
LEFTFOLD_INTERLEAVE=all one more, beside all operations and batches, and BEGIN is a statement of its own.
"""

import pytest
from tests.interleave.operations import BATCHES, KEEPING, OPERATIONS, Operation
from tests.interleave.world import EVERYTHING, USUAL, Pair, play_all, world_on

from leftfold.testing.postgres import Server

#: What is played with all of KEEPING; with the first of them everything is.
FEW = {
    "enqueue, return the holder", "claim next", "claim by id", "complete", "heartbeat", "heartbeat under a request",
    "release", "stall as the keeper", "signal otherwise", "expire", "cancel hard", "fold the counters",
}  # fmt: skip


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("left", KEEPING, ids=str)
def test_a_keeper_and_another_end_as_one_behind_the_other(left: Operation, postgres: Server) -> None:
    others = [*KEEPING, *(operation for operation in OPERATIONS if "the other" not in operation.name)]
    others += BATCHES if EVERYTHING else ()
    if left is not KEEPING[0] and not EVERYTHING:
        others = [operation for operation in others if operation in KEEPING or operation.name in FEW]
    if left.state.startswith("drifted"):  # there, what these two say that they found is no one moment's
        others = [operation for operation in others if operation.name not in {"verify", "rebuild"}]
    with world_on(postgres, alone=True) as world:
        pairs = [Pair(left, right, left.state) for right in others]
        schedules = play_all(world, pairs, bound=USUAL + 1 if EVERYTHING else USUAL)
        world.check_whole()
    assert schedules > len(pairs)
