"""Breadth first through every world of a scope, until nothing new is found or something is wrong.

Breadth first means that the first violation found is one with the shortest path.
"""

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden, apply
from leftfold.core.errors import RefusedError, ValidationError
from leftfold.core.lifecycle import Edge
from leftfold.core.record import Record
from leftfold.proof import duties, guards, invariants
from leftfold.proof.invariants import Taken
from leftfold.proof.moves import REQUEST, Move, moves
from leftfold.proof.world import Scope, World, beginning, identity, is_pending

#: What `leftfold lifecycle check` searches if it is not told otherwise.
DEFAULT_SCOPES: Final = (Scope(jobs=1, workers=3, attempts=3), Scope(jobs=2, workers=2, attempts=2))

_REPORT_EVERY: Final = 1_000  # states searched


class Violation(NamedTuple):
    """What went wrong, and a shortest way there."""

    problem: str
    path: tuple[str, ...]


class Found(NamedTuple):
    """What the search of one scope found, so far or in the end."""

    scope: Scope
    states: int
    waiting: int  # states found and not yet searched
    transitions: int
    seconds: float
    edges: frozenset[Edge] = frozenset()
    violation: Violation | None = None


class _Next(NamedTuple):
    """A world that one move makes; its log is only written if the world is new."""

    label: str
    world: World
    job: int | None = None
    records: tuple[Record, ...] = ()


class _Broken(Exception):  # noqa: N818 - no error of ours but a find
    def __init__(self, label: str, problem: str) -> None:
        super().__init__(problem)
        self.label = label


def search(
    scope: Scope, forbidden: Forbidden = NOTHING_FORBIDDEN, progress: Callable[[Found], None] = lambda _: None
) -> Found:
    """Search a scope completely, or up to its first violation."""
    gc.disable()  # nothing here is cyclic, and a million live tuples are slow to look through
    try:
        return _search(scope, forbidden, progress)
    finally:
        gc.enable()


def _search(scope: Scope, forbidden: Forbidden, progress: Callable[[Found], None]) -> Found:
    begun = time.perf_counter()
    first = beginning(scope)
    here: object = identity(first)
    found_by: dict[object, tuple[object, str] | None] = {here: None}
    frontier = deque([(here, first)])
    edges: set[Edge] = set()
    searched = transitions = 0
    violation = None
    try:
        while frontier:
            here, world = frontier.popleft()
            for following in _successors(world, forbidden, edges):
                transitions += 1
                there = identity(following.world)
                if there not in found_by:
                    found_by[there] = (here, following.label)
                    frontier.append((there, _settled(following)))
            searched += 1
            if searched % _REPORT_EVERY == 0:
                seconds = time.perf_counter() - begun
                progress(Found(scope, len(found_by), len(frontier), transitions, seconds))
    except _Broken as broken:
        violation = Violation(str(broken), (*_path(found_by, here), broken.label))
    seconds = time.perf_counter() - begun
    return Found(scope, len(found_by), len(frontier), transitions, seconds, frozenset(edges), violation)


def _path(found_by: dict[object, tuple[object, str] | None], state: object) -> tuple[str, ...]:
    labels: list[str] = []
    step = found_by[state]
    while step is not None:
        state, label = step
        labels.append(label)
        step = found_by[state]
    return tuple(reversed(labels))


def _successors(world: World, forbidden: Forbidden, edges: set[Edge]) -> Iterator[_Next]:
    for move in moves(world):
        taken = _try(world, move, forbidden)
        if taken is None:
            continue
        edges.update(invariants.edges(taken))
        yield _next(world, move, taken)
        if world.asked is None:
            yield _asked(world, move, taken, forbidden)
    for worker, held in enumerate(world.held):
        if any(held):
            yield _Next(f"worker{worker} dies", world.without_worker(worker))
    if is_pending(world):
        yield _Next("the clock ticks", world.later())


def _asked(world: World, move: Move, plain: Taken, forbidden: Forbidden) -> _Next:
    """Give what an accepted move does under the request_id: the same, once."""
    label = f"{move.label} (request {REQUEST})"
    try:
        applied = apply(plain.before, move.requested, world.now, forbidden)
    except Exception as error:
        raise _Broken(label, f"a request_id made a difference: {type(error).__name__}: {error}") from error
    taken = invariants.taken(plain.before, move.requested, applied, world.now)
    problem = invariants.a_request_happens_once(plain, taken)
    if problem:
        raise _Broken(label, problem)
    return _next(world._replace(asked=(move.job, move.requested)), move._replace(label=label), taken)


def _try(world: World, move: Move, forbidden: Forbidden) -> Taken | None:
    """Give what a move does, or None if it is refused or changes nothing."""
    before, command = world.jobs[move.job], move.command
    try:
        applied = apply(before, command, world.now, forbidden)
    except (RefusedError, ValidationError) as error:
        problem = guards.check_refusal(world, move, error)
        if not problem and not forbidden:
            problem = duties.check_refusal(before, command, world.now)
        if problem:
            raise _Broken(move.label, problem) from error
        return None
    except Exception as error:
        # Whatever else is raised is no refusal: a decision that cannot be carried out is a wrong one.
        raise _Broken(move.label, f"{type(error).__name__}: {error}") from error
    taken = invariants.taken(before, command, applied, world.now)
    problem = invariants.check_move(taken)
    if not problem and not forbidden:
        problem = duties.check_move(taken)
    if problem:
        raise _Broken(move.label, problem)
    return None if applied.job is before else taken


def _next(world: World, move: Move, taken: Taken) -> _Next:
    after = world.with_job(move.job, taken.after)
    if move.claimer is not None:
        after = after.with_memory(move.claimer, move.job, taken.after.attempt)
    return _Next(move.label, after, move.job, taken.applied.records)


def _settled(following: _Next) -> World:
    """Give a world that is new with its log written, and check it."""
    if following.job is None:
        return following.world
    world = following.world.with_records(following.job, following.records)
    try:
        problem = guards.check_state(world, following.job)
    except Exception as error:
        raise _Broken(following.label, f"{type(error).__name__}: {error}") from error
    if problem:
        raise _Broken(following.label, problem)
    return world
