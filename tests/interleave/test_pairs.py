"""All interleavings of every two operations: each ends as some serial order of the two does.

The one exception is meant: a claim of whatever is next passes over a job that somebody is at work on. It may come
back with empty hands then, and it never waits.

`pytest -s` shows how many schedules were played: those in which each side is interrupted once at most, in one state; of
batches, beside each other and a few single operations. LEFTFOLD_INTERLEAVE=all plays every order that may come to
something else, in the states that both operations are made for, batches beside all others, with BEGIN as a statement of
its own.
"""

import math

import pytest
from tests.interleave.explorer import LEFT
from tests.interleave.operations import BATCHES, OPERATIONS, Operation
from tests.interleave.outcomes import BrokenError, Outcome, check_order
from tests.interleave.world import EVERYTHING, Pair, World, play_all, world_on

from leftfold.testing.postgres import Server

NAMED = {operation.name: operation for operation in (*OPERATIONS, *BATCHES)}


def pairs_of(left: Operation, others: tuple[Operation, ...]) -> list[Pair]:
    """Pair an operation with others, in the state that it is made for; to play everything, in the other's as well."""
    found = []
    for right in others:
        states = [state for state in dict.fromkeys((left.state, right.state)) if left.can_play(state)]
        states = [state for state in states if right.can_play(state)]
        found += [Pair(left, right, state) for state in (states if EVERYTHING else states[:1])]
    return found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("left", OPERATIONS, ids=str)
def test_two_operations_on_a_job_end_as_one_behind_the_other(left: Operation, world: World) -> None:
    pairs = pairs_of(left, OPERATIONS[OPERATIONS.index(left) :])
    schedules = play_all(world, pairs)
    assert schedules >= len(pairs)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("left", BATCHES, ids=str)
def test_two_batches_in_opposite_orders_end_as_one_behind_the_other(left: Operation, world: World) -> None:
    few = tuple(NAMED[name] for name in ("cancel hard", "stall", "complete", "enqueue, replace"))
    pairs = pairs_of(left, (*BATCHES[BATCHES.index(left) :], *(OPERATIONS if EVERYTHING else few)))
    schedules = play_all(world, pairs)
    assert schedules >= len(pairs)


def deadlocks(world: World, left: str, right: str) -> int:
    """Play a pair, and give how often one of the two had to give way to a deadlock."""
    before = sum(side.gate.deadlocks for side in world.ring.sides)
    play_all(world, [Pair(NAMED[left], NAMED[right], NAMED[right].state)])
    return sum(side.gate.deadlocks for side in world.ring.sides) - before


def test_batches_that_wait_for_each_other_in_a_circle_are_run_again(world: World) -> None:
    # Each inserts one key and then the other, in two statements: nothing could put them in order.
    mixed = "enqueue two, one of them after the job"
    assert deadlocks(world, mixed, mixed) > 0


@pytest.mark.parametrize("left", ["fail both", "enqueue two, replace"])
def test_batches_that_lock_the_same_jobs_never_wait_for_each_other_in_a_circle(left: str, world: World) -> None:
    assert deadlocks(world, left, "enqueue two, replace") == 0


def test_a_claim_takes_one_of_two_jobs_and_never_the_same_as_another_claim(world: World) -> None:
    pairs = [Pair(NAMED["claim next"], NAMED[name], "both queued") for name in ("claim next", "claim by id")]
    trail = NAMED["claim next on its trail"]
    pairs += [Pair(trail, right, "both due soon") for right in (trail, NAMED["claim next"], NAMED["claim by id"])]
    assert play_all(world, pairs) > len(pairs)


def test_a_claim_on_a_trail_is_played_where_the_other_side_claims_and_where_it_does_something_else(
    world: World,
) -> None:
    for other in ("claim next on its trail", "claim next", "claim by id", "cancel hard", "pause", "fold the counters"):
        pair = Pair(NAMED["claim next on its trail"], NAMED[other], "due soon")
        runs = list(world.play(pair))
        assert [why for _, why in runs if why is not None] == []
        assert all(any(step.statement == "claim_on" for step in run.steps if step.side == LEFT) for run, _ in runs)


def test_a_consumer_that_is_told_of_a_job_backwards_or_twice_is_found_out() -> None:
    check_order("queue", [("a", 2), ("b", 1), ("a", 3), ("b", 4)])
    for wrong in ([("a", 2), ("b", 1), ("a", 1)], [("a", 2), ("a", 2)]):
        with pytest.raises(BrokenError, match="a consumer was given event"):
            check_order("queue", wrong)


@pytest.mark.parametrize(
    ("left", "right", "schedules"),
    [
        # Two that have nothing in common: 3 statements among 6, BEGIN and COMMIT with them.
        ("pause", "cancel hard", math.comb(9, 3)),
        # One statement that commits by itself, among 6.
        ("heartbeat", "pause", math.comb(4, 1)),
        # Who comes second waits for its lock: BEGIN before that, sent anywhere behind the lock of the first one.
        ("cancel hard", "signal", 2 * (3 + 4 + 5 + 6 + 7)),
    ],
)
def test_without_a_bound_there_are_as_many_schedules_as_the_statements_allow(
    left: str, right: str, schedules: int, postgres: Server
) -> None:
    with world_on(postgres, stops_at_begin=True) as world:
        pair = Pair(NAMED[left], NAMED[right], "running")
        runs = [run for run, _ in world.play(pair, bound=None, raw=True)]
        assert len({run.choices for run in runs}) == len(runs) == schedules


@pytest.mark.parametrize(
    ("left", "right", "state"),
    [
        ("cancel hard", "signal", "waiting"),
        ("cancel softly", "complete", "running"),
        ("claim by id", "pause", "queued"),
        ("claim next", "requeue", "stalled"),
        ("enqueue under a request", "enqueue under a request", "queued"),
        ("enqueue, return the holder", "cancel hard", "queued"),
        ("enqueue, raise", "reopen", "dead-lettered"),
        ("fail", "stall as the keeper", "running"),
        ("receive", "reopen", "dead-lettered"),
        ("enqueue, return the holder", "complete", "running"),
        ("enqueue, replace", "complete", "running"),
        ("claim next under a request", "fail", "queued"),
        ("admit into a paused queue", "claim by id", "inbox"),
        ("claim next on its trail", "cancel hard", "due soon"),
        ("begin to consume", "cancel hard", "queued"),
        ("consume", "complete", "followed"),
    ],
)
def test_orders_that_are_left_out_come_to_nothing_else(left: str, right: str, state: str, postgres: Server) -> None:
    pair = Pair(NAMED[left], NAMED[right], state)
    for bound in (None, 1):
        with world_on(postgres, stops_at_begin=bound is None) as world:
            play_all(world, [pair], bound)
            schedules, outcomes = world.schedules[pair], world.outcomes[pair]
            assert all(why is None for _, why in world.play(pair, bound, raw=True))
            assert world.outcomes[pair] == outcomes
            assert world.schedules[pair] >= schedules


def test_each_job_of_two_batches_is_held_to_one_order_with_what_both_were_told_about_it() -> None:
    done, refused, became = '["done","done"]', '["refused","refused"]', {"job": "succeeded", "other": "succeeded"}
    allowed = [Outcome(done, refused, became, "[]"), Outcome(refused, done, became, "[]")]
    may = frozenset[tuple[str, ...]]().union(*(outcome.by_job((True, True)) for outcome in allowed))
    # One of the two jobs went to each side: the right one names them in the opposite order.
    shared = '["done","refused"]'
    assert Outcome(shared, shared, became, "[]").by_job((True, True)) <= may
    assert not Outcome(done, done, became, "[]").by_job((True, True)) <= may
    assert not Outcome(refused, refused, became, "[]").by_job((True, True)) <= may


def test_pairs_that_meet_have_more_schedules_than_their_two_orders(world: World) -> None:
    for left, right, least in (
        ("cancel hard", "signal", 4),
        ("enqueue under a request", "enqueue under a request", 4),
        ("enqueue, replace", "enqueue, replace", 10),
        ("claim by id", "pause", 3),
        ("reopen", "receive", 6),
    ):
        pair = Pair(NAMED[left], NAMED[right], NAMED[left].state)
        play_all(world, [pair])
        assert world.schedules[pair] >= least, pair
