"""The run machine of seed 004: a history folded per attempt. Its tables stand in `quality.py`."""

from collections.abc import Iterable
from typing import NamedTuple

from leftfold.core import events as e
from leftfold.core.lifecycle import LEASED, Edge, State
from leftfold.core.record import Record
from leftfold.dialects.dialect import INITIAL, Move, walk
from leftfold.dialects.quality import RUN, RUN_END, RUN_INITIAL, TIMEOUT


class Run(NamedTuple):
    """One attempt, in the words of seed 004 §2."""

    attempt: int
    moves: tuple[Move, ...]

    @property
    def status(self) -> str:
        """Give where the run is."""
        return self.moves[-1].target


def runs(records: Iterable[Record]) -> list[Run]:
    """Give the runs of a history, the first attempt first."""
    found: list[list[Move]] = []
    for record, edge in walk(records):
        move = run_move(edge, _error_code(record.event))
        if edge.event is e.Claimed:
            found.append([])
        if move is not None:
            found[-1].append(move)
    return [Run(attempt, tuple(moves)) for attempt, moves in enumerate(found, start=1)]


def run_move(edge: Edge, error_code: str | None = None) -> Move | None:
    """Give what one move of the job means to the run of its attempt, or None where there is no run to move."""
    if edge.event is e.Claimed:
        return Move(INITIAL, "run:create", RUN_INITIAL)
    if edge.source not in LEASED:
        return None
    source = RUN_INITIAL if edge.source is State.CLAIMED else "running"
    target = "running" if edge.event is e.Started else RUN_END[edge.event]
    if target == "failed" and error_code == TIMEOUT:
        target = TIMEOUT
    return Move(source, f"run:update {target}", target)


def run_allows(move: Move) -> bool:
    """Tell whether the seed's own run table has this move."""
    return (move.source, move.target) == (INITIAL, RUN_INITIAL) or move.target in RUN.get(move.source or "", ())


def _error_code(event: e.AnyEvent) -> str | None:
    match event:
        case e.Retried(error=error) | e.Failed(error=error) | e.DeadLettered(error=error):
            return error.code
        case _:
            return None
