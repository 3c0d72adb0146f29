"""The same with a planner that is led astray: what operations do together must not depend on the plans.

A few pairs of each kind of statement are played per setting; LEFTFOLD_INTERLEAVE=all plays every pair of single
operations, and every pair of batches. In both, each side is interrupted once at most: plans change what a statement
does, not what may happen between two.
"""

from collections.abc import Mapping
from itertools import combinations_with_replacement
from typing import Final

import pytest
from tests.interleave.operations import BATCHES, OPERATIONS
from tests.interleave.test_pairs import pairs_of
from tests.interleave.world import EVERYTHING, USUAL, Pair, play_all, world_on

from leftfold.testing.postgres import Server

NAMED = {operation.name: operation for operation in (*OPERATIONS, *BATCHES)}
#: Operations that together use every statement that writes.
FEW: Final = tuple(
    NAMED[name]
    for name in ("enqueue, replace", "claim next under a request", "claim next", "complete", "heartbeat", "fail")
)
#: A few pairs that meet in other statements.
MORE: Final = (
    Pair(NAMED["reopen"], NAMED["receive"], "dead-lettered"),
    Pair(NAMED["claim next"], NAMED["claim by id"], "both queued"),
    Pair(NAMED["enqueue under a request"], NAMED["enqueue under a request"], "queued"),
    Pair(NAMED["complete both"], NAMED["release both"], "running"),
    Pair(NAMED["claim next on its trail"], NAMED["claim next on its trail"], "both due soon"),
    Pair(NAMED["claim next on its trail"], NAMED["cancel hard"], "due soon"),
)


def off(*names: str) -> Mapping[str, str]:
    return {f"enable_{name}": "off" for name in names}


SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "no hash joins": off("hashjoin"),
    "no merge joins": off("mergejoin"),
    "nested loops, nothing kept": off("hashjoin", "mergejoin", "material", "memoize", "hashagg", "sort"),
    "no nested loops": off("nestloop"),
    "no index scans": off("indexscan", "indexonlyscan"),
    "no bitmap scans": off("bitmapscan"),
    "whole tables": off("indexscan", "indexonlyscan", "bitmapscan", "tidscan"),
    "nested loops over whole tables": off(
        "hashjoin", "mergejoin", "material", "memoize", "indexscan", "indexonlyscan", "bitmapscan", "tidscan"
    ),
    "no whole tables": off("seqscan"),
    "generic plans": {"plan_cache_mode": "force_generic_plan"},
    "generic plans, nested loops": {"plan_cache_mode": "force_generic_plan", **off("hashjoin", "mergejoin")},
    "custom plans": {"plan_cache_mode": "force_custom_plan"},
}


def pairs() -> list[Pair]:
    if EVERYTHING:
        singles = [pair for place, left in enumerate(OPERATIONS) for pair in pairs_of(left, OPERATIONS[place:])]
        return [*singles, *(pair for place, left in enumerate(BATCHES) for pair in pairs_of(left, BATCHES[place:]))]
    return [*MORE, *(Pair(left, right, left.state) for left, right in combinations_with_replacement(FEW, 2))]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("setting", SETTINGS)
def test_two_operations_end_as_one_behind_the_other_whatever_the_plans(setting: str, postgres: Server) -> None:
    with world_on(postgres, SETTINGS[setting], stops_at_begin=False) as world:
        schedules = play_all(world, pairs(), bound=USUAL)
        world.check_whole()
    assert schedules > len(pairs())
