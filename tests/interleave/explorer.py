"""Every order in which the statements of two calls can run: depth first, each schedule once.

A side that waits for a lock cannot be advanced until the other one has let go, so the schedules that there are stay
few. A bound on preemptions (turns taken from a side that could have gone on) makes them fewer still.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import psycopg
from tests.interleave.gates import PATIENCE_SECONDS, Answer, Side, StuckError
from tests.interleave.touching import Touch

from leftfold.store.query import Columns

LEFT: Final = 0
RIGHT: Final = 1


class Step(NamedTuple):
    """A statement that was let through, and who could have gone instead."""

    side: int
    statement: str
    enabled: tuple[int, ...]
    preempts: bool  # the other side went last, and could have gone on
    touch: Touch
    waits: bool = False  # it came to a lock that the other side held


class Run(NamedTuple):
    """What a schedule came to."""

    steps: tuple[Step, ...]
    answers: tuple[Answer, Answer]

    @property
    def waited(self) -> frozenset[int]:
        """Give the sides that waited for a lock."""
        return frozenset(step.side for step in self.steps if step.waits)

    @property
    def choices(self) -> tuple[int, ...]:
        return tuple(step.side for step in self.steps)

    @property
    def overlapped(self) -> bool:
        """Tell whether neither call was over when the other one began."""
        changes = sum(1 for one, next_one in zip(self.choices, self.choices[1:], strict=False) if one != next_one)
        return changes > 1 or bool(self.waited)

    def __str__(self) -> str:
        return " ".join(f"{'LR'[step.side]}:{step.statement}" for step in self.steps)


class Ring:
    """Two sides, and a connection that sees who waits for whom."""

    def __init__(self, left: Side, right: Side, watch: psycopg.Connection[Columns]) -> None:
        self.sides = (left, right)
        self._watch = watch

    def run(self, calls: Sequence[Callable[[], Any]], prefix: Sequence[int]) -> Run:
        """Run two calls: as `prefix` says as far as it goes, then each to its end, the first one first."""
        steps: list[Step] = []
        for side, call in zip(self.sides, calls, strict=True):
            side.begin(call)
        while not all(side.is_done for side in self.sides):
            enabled = tuple(place for place, side in enumerate(self.sides) if side.is_ready)
            last = steps[-1].side if steps else None
            wish = prefix[len(steps)] if len(steps) < len(prefix) else last
            place = wish if wish in enabled and wish is not None else enabled[0]
            preempts = last is not None and last != place and last in enabled
            statement, touch = self.sides[place].at or "", self.sides[place].touch
            self.sides[place].let_go()
            self._settle()
            steps.append(Step(place, statement, enabled, preempts, touch, self.sides[place].has_waited))
            self._note_losses(steps)
        return Run(tuple(steps), (self.sides[LEFT].answer, self.sides[RIGHT].answer))

    def open(self) -> None:
        """Let the sides do what nobody looks at, until the next run."""
        for side in self.sides:
            side.gate.is_open = True

    def _note_losses(self, steps: list[Step]) -> None:
        """Let a statement show all that its transaction held, if that failed with it."""
        for side, actor in enumerate(self.sides):
            if actor.lost:
                place = max(place for place, step in enumerate(steps) if step.side == side)
                steps[place] = steps[place]._replace(touch=steps[place].touch._replace(shows=actor.lost))
                actor.lost = frozenset()

    def empty(self, schema: str) -> None:
        """Let the store be as new: what nothing but the end of a test may do, past the triggers."""
        tables = ("events", "jobs", "counts", "requests", "queues", "feeds", "workers", "maintenance")
        emptied = "".join(f'DELETE FROM "{schema}".{table};' for table in tables)  # noqa: S608 - names of our own
        past = f"SET session_replication_role = replica; {emptied} RESET session_replication_role"
        self._watch.execute(past.encode())

    def _settle(self) -> None:
        """Wait until each side stands before its next statement, is done, or waits for the other one, which may go on.

        Two that wait for each other go on waiting here, until the server finds the deadlock.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for side in self.sides:
                other = self._other(side)
                side.is_blocked = side.is_blocked and other.holds_locks and other.gate.begun == side.blocked_in
            moving = [side for side in self.sides if side.is_under_way and not side.is_blocked]
            if not moving:
                return
            for side in moving:
                side.blocked_in = self._other(side).gate.begun  # read first: it may end it meanwhile
                side.is_blocked = not side.came() and self._waits(side)
                side.has_waited = side.has_waited or side.is_blocked
            if time.monotonic() > deadline:
                raise StuckError(f"{moving[0].name} neither goes on nor waits for the other side")

    def _waits(self, side: Side) -> bool:
        asked = "SELECT %s = ANY (pg_blocking_pids(%s))"
        return self._watch.execute(asked, (self._other(side).store.pid, side.store.pid)).fetchone() == (True,)

    def _other(self, side: Side) -> Side:
        return self.sides[1 - self.sides.index(side)]


def explore(run: Callable[[Sequence[int]], Run], bound: int | None, *, raw: bool = False) -> Iterator[Run]:
    """Give the schedules with at most `bound` preemptions; None: with any number of them.

    Orders are left out that come to the same, unless all are to be had `raw`: a turn is not taken away before a
    statement that meets nothing of what the other side then does. Every schedule is asked for that anywhere in it, for
    what a side does then may be more than it did before.
    """
    pending: list[tuple[int, ...]] = [()]
    seen: set[tuple[int, ...]] = set()  # choices that a schedule began with, or will
    while pending:
        done = run(pending.pop())
        yield done
        seen.update(done.choices[:place] for place in range(1, len(done.choices) + 1))
        found = [choices for choices in _branches(done, bound, raw=raw) if choices not in seen]
        seen.update(found)
        pending += reversed(found)


def _branches(done: Run, bound: int | None, *, raw: bool) -> Iterator[tuple[int, ...]]:
    """Give the choices by which schedules part from this one, the earliest first."""
    for place, step in enumerate(done.steps):
        if not raw and not _matters(done.steps, place, bound):
            continue
        before = done.choices[:place]
        for other in step.enabled:
            last = before[-1] if before else None
            cost = sum(each.preempts for each in done.steps[:place])
            cost += last is not None and last != other and last in step.enabled
            if other != step.side and (bound is None or cost <= bound):
                yield (*before, other)


def _matters(steps: Sequence[Step], place: int, bound: int | None) -> bool:
    """Tell whether it may matter that the other side waits here.

    With a bound, a side that is about to go on for a while may be kept from all of that at once: to take its turn away
    in the midst of it would come to the same, but for one preemption more, of which there may be none left.
    """
    side, end = steps[place].side, place + 1
    if bound is not None and (place == 0 or steps[place - 1].side != side):
        while end < len(steps) and steps[end].side == side:
            end += 1
    return any(
        step.touch.meets(later.touch) for step in steps[place:end] for later in steps[end:] if later.side != side
    )
