"""The statements that answer owners without a look at the log do what `decide` says, or nothing."""

from collections.abc import Iterator, Sequence
from itertools import islice

import pytest
from tests.store.stories import QUICK, SECOND_CLAIM, Fenced, fenced, put, tell
from tests.store.world import Place, World

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden
from leftfold.core.errors import LimitExceededError
from leftfold.core.lifecycle import EDGES, State
from leftfold.core.limits import EVENTS_PER_JOB_MAX, MINUTE
from leftfold.dialects import DIALECTS
from leftfold.store import ops
from leftfold.store.ops import Ask
from leftfold.store.query import Operation
from leftfold.store.replies import Receipt

SIZES = (1, 2, 50, 1000)

#: What may be enforced: nothing, a dialect, or a table of ours that has none of the moves that owners make most often.
ENFORCED: dict[str, Forbidden] = {
    "full": NOTHING_FORBIDDEN,
    **{name: dialect.forbidden() for name, dialect in DIALECTS.items()},
    "no start": frozenset(edge for edge in EDGES if edge.event is e.Started),
    "no success": frozenset(edge for edge in EDGES if edge.event is e.Succeeded),
}
WHEN = [pytest.param(name, MINUTE, id=name) for name in ENFORCED]
WHEN.append(pytest.param("full", -MINUTE, id="with the clock set back"))


Done = dict[int, Receipt | None]


def quickly(
    world: World, asks: Sequence[Ask], forbidden: Forbidden = NOTHING_FORBIDDEN, *, quietly: bool = False
) -> Done:
    """Let the statement alone answer, on both stores alike."""
    first, second = (
        side.engine.store.run(Operation(lambda: ops.quickly(asks, forbidden, quietly=quietly), apart=True))
        for side in world.sides
    )
    assert first == second
    return first


def follow(world: World, every: Sequence[Fenced], asks: Sequence[Ask], done: Done) -> list[Ask]:
    """Hold what the statement did to what `decide` says; give what it left undone."""
    before = dict(world.model.logs)
    outcomes = world.model.tell_many(asks)
    for place, (each, outcome) in enumerate(zip(every, outcomes, strict=True)):
        if place in done:
            assert done[place] in {outcome, None}, each.name
            assert isinstance(outcome, Receipt), each.name
        elif isinstance(outcome, Receipt) and outcome.changed:
            # At the limit the log is asked: what ends the job may still happen.
            assert "at the limit" in each.name, each.name
            world.model.logs[each.story.id] = before[each.story.id]
    return [ask for place, ask in enumerate(asks) if place not in done]


@pytest.mark.parametrize(("enforced", "shift"), WHEN)
@pytest.mark.parametrize("said", QUICK)
def test_a_statement_does_what_decide_says_or_nothing(
    said: str, enforced: str, shift: int, place: Place, low_limit: int
) -> None:
    with World(place, ENFORCED[enforced]) as world:
        every = list(fenced(low_limit))
        put(world, [each.story for each in every])
        world.clock.now += shift
        undone: list[Ask] = []
        for each in every:
            asks = [Ask(each.story.id, QUICK[said](each.by))]
            undone += follow(world, [each], asks, quickly(world, asks, ENFORCED[enforced]))
        world.check()
        # What it left undone is decided, and done or refused with the reason.
        with world.unchecked():
            for ask in undone:
                world.tell(*ask)
        world.check()


@pytest.mark.parametrize("quietly", [False, True], ids=["with receipts", "quietly"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("said", QUICK)
def test_a_batch_of_good_and_bad_rows_comes_to_what_each_alone_would(
    said: str, size: int, quietly: bool, world: World, low_limit: int
) -> None:
    every = list(islice(_endlessly(low_limit), size))
    put(world, [each.story for each in every])
    asks = [Ask(each.story.id, QUICK[said](each.by)) for each in every]
    done = quickly(world, asks, quietly=quietly)
    assert all((receipt is None) == (quietly and "heartbeat" not in said) for receipt in done.values())
    undone = follow(world, every, asks, done)
    world.check()
    if undone:
        world.tell_many(undone)


@pytest.mark.parametrize("quietly", [False, True], ids=["with receipts", "quietly"])
def test_a_batch_without_a_bad_row_is_told_as_a_whole(world: World, quietly: bool) -> None:
    stories = [tell(number, State.RUNNING) for number in range(5)]
    put(world, stories)
    asks = [Ask(story.id, c.Complete(by=SECOND_CLAIM)) for story in stories]
    done = quickly(world, asks, quietly=quietly)
    assert set(done) == set(range(5))
    world.model.tell_many(asks)
    world.check()


def _endlessly(limit: int) -> Iterator[Fenced]:
    first = 0
    while True:
        for each in fenced(limit, first):
            yield each
            first += 1


@pytest.mark.parametrize("said", QUICK)
def test_a_batch_with_a_job_in_it_twice_comes_to_what_one_after_the_other_would(said: str, world: World) -> None:
    stories = [tell(number, state) for number, state in enumerate(State)]
    put(world, stories)
    asks = [Ask(story.id, QUICK[said](SECOND_CLAIM)) for story in stories]
    world.tell_many([*asks, *asks[::2], *asks[::3]])


def test_heartbeats_of_many_lengths_are_each_as_long_as_asked(world: World) -> None:
    stories = [tell(number, State.RUNNING) for number in range(3)]
    put(world, stories)
    for lease, story in zip((None, MINUTE, 2 * MINUTE), stories, strict=True):
        world.tell_many([Ask(story.id, c.Heartbeat(by=SECOND_CLAIM, lease=lease))])


@pytest.mark.parametrize("said", ["start", "note", "complete"])
def test_the_limit_of_events_is_that_of_the_core(said: str, world: World) -> None:
    state = State.CLAIMED if said == "start" else State.RUNNING
    full = tell(1, state, events=EVENTS_PER_JOB_MAX)
    put(world, [full])
    assert full.job.version == EVENTS_PER_JOB_MAX
    command = QUICK[said](SECOND_CLAIM)
    assert quickly(world, [Ask(full.id, command)]) == {}
    answer = world.tell(full.id, command)
    assert (answer is LimitExceededError) == (said == "note")
