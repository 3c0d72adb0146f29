"""A place to play pairs of operations in: a schema, the two sides, and a sound engine that reads and sets up."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final, NamedTuple, Self

import psycopg
import pytest
from tests.interleave.explorer import Ring, Run, explore
from tests.interleave.gates import Answer, Gate, GatedStore, Side, answer_of, with_settings
from tests.interleave.operations import BATCHES, Operation
from tests.interleave.outcomes import BrokenError, Outcome, check_whole, outcome_of
from tests.interleave.scenes import BEFORE_SECONDS, Scene, Stage
from tests.places import Place, schema_on

from leftfold import Engine
from leftfold.core.errors import RefusedError, ValidationError
from leftfold.store import claiming
from leftfold.store.postgres.driver import PostgresStore
from leftfold.testing.clock import FakeClock
from leftfold.testing.postgres import Server

#: LEFTFOLD_INTERLEAVE=all plays every order that may come to something else; else those with one preemption: with two,
#: all the pairs took longer than all other tests together.
EVERYTHING: Final = os.environ.get("LEFTFOLD_INTERLEAVE") == "all"
USUAL: Final = 1
BOUND: Final = None if EVERYTHING else USUAL
#: A deadlock is found a moment after the second one began to wait, so that the first one is who must give way.
SETTINGS: Final[Mapping[str, str]] = {"deadlock_timeout": "40ms", "jit": "off"}


class Pair(NamedTuple):
    """Two operations, and the state of the job that they meet in."""

    left: Operation
    right: Operation
    state: str

    @property
    def asks(self) -> frozenset[str]:
        """Give what the two are about beside the jobs."""
        both = (self.left, self.right)
        queue = any(operation.method in {"pause", "unpause"} for operation in both)
        request = any("request" in operation.name for operation in both)
        methods = {operation.method for operation in both}
        feed = "feed" in methods and not methods & {"acknowledge", "forget_consumer"}  # by these it gets something else
        asked = {"queue": queue, "request": request, "feed": feed}
        return frozenset(name for name, is_asked in asked.items() if is_asked)

    def __str__(self) -> str:
        return f"{self.left} | {self.right} on a job that is {self.state}"


class World:
    """Plays pairs, and counts."""

    def __init__(self, place: Place, clock: FakeClock, ring: Ring, *, alone: bool) -> None:
        self.place, self.clock, self.ring, self._alone = place, clock, ring, alone
        self.engine = Engine(PostgresStore(place.url, schema=place.schema, clock=clock).open(), actor="set-up")
        self.engine.store.counts_grow = False
        self.stage = Stage(self.engine, clock, alone=alone)
        self.schedules: Counter[Pair] = Counter()
        self.outcomes: dict[Pair, set[str]] = {}  # of all that was played of a pair
        self._played: dict[str, tuple[Pair, Run]] = {}  # by the queue of its scene
        #: What the code is like while the sides run: as it is, or with a bug in it.
        self.spoiled: Callable[[], AbstractContextManager[object]] = nullcontext

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def play(self, pair: Pair, bound: int | None = BOUND, *, raw: bool = False) -> Iterator[tuple[Run, str | None]]:
        """Run the schedules of a pair, and say of each why it may not end as it did, or None."""
        self.schedules[pair], self.outcomes[pair] = 0, set()
        allowed = [self._in_order(pair, (0, 1)), self._in_order(pair, (1, 0))]
        empty_handed = [self._without(pair, place) for place in (0, 1) if (pair.left, pair.right)[place].passes_over]
        scenes: list[Scene] = []

        def run(prefix: Any) -> Run:
            scenes.append(self._scene(pair.state))
            self.ring.open()
            calls = self._calls(pair, [side.engine for side in self.ring.sides], scenes[-1])
            with self.spoiled():
                return self.ring.run(calls, prefix)

        for done in explore(run, bound, raw=raw):
            self.schedules[pair] += 1
            self._played[scenes[-1].queue] = pair, done
            yield done, self._why_not(pair, done, scenes[-1], allowed + (empty_handed if done.overlapped else []))

    def _scene(self, state: str) -> Scene:
        """Give a scene that nobody played yet; if it is to be alone, behind a last look at what came before it."""
        if self._alone:
            self.check_whole()
            self.ring.empty(self.place.schema)
            self.stage.known.clear()
            self._played.clear()
        return self.stage.scene(state)

    def _why_not(self, pair: Pair, done: Run, scene: Scene, allowed: list[Outcome]) -> str | None:
        if any(step.waits for step in done.steps if step.statement in {"claim", "claim_on", "overdue"}):
            return "who passes over what others are busy with waited for a lock"
        try:
            outcome = outcome_of(self.engine, scene, done.answers, pair.asks, self.stage.known)
        except BrokenError as problem:
            return str(problem)
        self.outcomes[pair].add(str(outcome))
        if outcome in allowed:
            return None
        batches = (pair.left in BATCHES, pair.right in BATCHES)
        if (pair.left.by_job or pair.right.by_job) and outcome.by_job(batches) <= frozenset().union(
            *(may.by_job(batches) for may in allowed)
        ):
            return None
        return f"ended as {outcome}\nbut in order " + "\nor ".join(map(str, allowed))

    def _in_order(self, pair: Pair, order: tuple[int, int]) -> Outcome:
        """Say what comes of one call behind the other: on a store that is sound, whatever the sides' may be."""
        scene = self._scene(pair.state)
        calls = self._calls(pair, self._callers(), scene)
        answers = {place: answer_of(calls[place]) for place in order}
        for answer in answers.values():
            if answer.raised is not None and not isinstance(answer.raised, RefusedError | ValidationError):
                raise answer.raised  # the table of operations is wrong
        return outcome_of(self.engine, scene, (answers[0], answers[1]), pair.asks, self.stage.known)

    def _without(self, pair: Pair, place: int) -> Outcome:
        """Say what comes of it if the claim finds nothing: the other one was at work on the job."""
        scene = self._scene(pair.state)
        other = answer_of(self._calls(pair, self._callers(), scene)[1 - place])
        nothing = Answer(given=[])
        return outcome_of(
            self.engine, scene, (nothing, other) if place == 0 else (other, nothing), pair.asks, self.stage.known
        )

    def _callers(self) -> list[Engine]:
        return [Engine(self.engine.store, actor=side.name, ids=side.engine._ids) for side in self.ring.sides]

    def _calls(self, pair: Pair, engines: list[Engine], scene: Scene) -> list[Callable[[], Any]]:
        """Give what the two engines are to do, behind what they did before."""
        (left, right), (one, other) = engines, (pair.left, pair.right)
        self.clock.advance(-BEFORE_SECONDS)
        for operation, engine in ((one, left), (other, right)):
            if operation.before is not None:
                self.stage.known.update(operation.before(engine, scene))
        self.clock.advance(BEFORE_SECONDS)
        return [lambda: one.call(left, scene), lambda: other.call(right, scene)]

    def check_whole(self) -> None:
        """Hold rows, logs and counters of everything that was played to each other."""
        try:
            check_whole(self.engine, self.stage.known)
        except BrokenError as problem:
            pair, run = self._played.get(problem.queue, ("a set-up or a serial order", ""))
            raise AssertionError(f"{pair}\n{run}\n{problem}") from problem


def play_all(world: World, pairs: Iterable[Pair], bound: int | None = BOUND) -> int:
    """Play pairs, hold all their schedules to the serial orders, and give how many there were."""
    before = sum(world.schedules.values())
    asked = list(pairs)
    for pair in asked:
        for run, why in world.play(pair, bound):
            assert why is None, f"{pair}\n{run}\n{why}"
    played = sum(world.schedules.values()) - before
    print(f"{len(asked)} pairs, {played} schedules")  # noqa: T201 - for `pytest -s`
    return played


@contextmanager
def world_on(
    server: Server,
    settings: Mapping[str, str] | None = None,
    plant: Callable[[PostgresStore], None] | None = None,
    *,
    stops_at_begin: bool = EVERYTHING,
    alone: bool = False,
) -> Iterator[World]:
    """Give a world whose sides have these settings of the session, and perhaps a planted bug in their stores.

    Scenes that are `alone` have the store to themselves: for who speaks of all jobs.
    """
    with ExitStack() as stack:
        place = stack.enter_context(schema_on(server))
        clock = FakeClock()
        url = with_settings(place.url, {**SETTINGS, **(settings or {})})
        sides = []
        for name in ("left", "right"):
            store = GatedStore(url, place.schema, clock, Gate(stops_at_begin=stops_at_begin))
            if plant is not None:
                plant(store)
            sides.append(Side(name, store, clock))
            stack.callback(sides[-1].close)
        # A trail is worth following for a moment; here that is as long as a schedule takes.
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(claiming, "_TRAIL_SECONDS", 3600)
        watch = stack.enter_context(psycopg.connect(place.url, autocommit=True))
        yield stack.enter_context(World(place, clock, Ring(sides[0], sides[1], watch), alone=alone))
