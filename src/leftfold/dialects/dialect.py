"""What a dialect is, and what can be asked of one.

A state that the seed lacks gets a stand-in: the seed's state that lies nearest. Moves into or out of a
stand-in are extensions even where the seed's table has the cell, because the cell means something else there.
An event is silent only where the projected state stays; a name that the seed lacks is ours, and marked so.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import field

from leftfold.core import events as e
from leftfold.core.errors import CorruptLogError
from leftfold.core.frozen import Frozen
from leftfold.core.lifecycle import EDGES, PHASE, TARGETS, Edge, State, rule_for
from leftfold.core.record import Record

#: Where a job is before its first event.
INITIAL: Final = "(initial)"


class Basis(StrEnum):
    """Whose wish an extension is: the seed's prose asks for it, or we do."""

    SEED = "seed"
    OURS = "ours"


class Move(NamedTuple):
    """A move in a dialect's words. A literal table may leave the source or the event open (None)."""

    source: str | None
    event: str | None
    target: str

    def covers(self, move: "Move") -> bool:
        """Tell whether a move of a literal table is that move."""
        return self.target == move.target and self.source in {None, move.source} and self.event in {None, move.event}


class Extension(NamedTuple):
    """Moves of the lifecycle that the seed's table lacks; `event` is None for the renewal of a lease."""

    event: type[e.AnyTransition] | None
    sources: tuple[State | None, ...]
    basis: Basis
    reason: str


class Unreached(NamedTuple):
    """A move of the seed's table that no job of ours makes."""

    move: Move
    reason: str


class Said(NamedTuple):
    """What the dialect calls an event: one name, or another one out of certain states. None is silence."""

    name: str | None
    out_of: Mapping[State, str | None] = {}


class Step(NamedTuple):
    """One record, in a dialect's words. `event` is None where the dialect is silent, `ours` marks a foreign name."""

    record: Record
    move: Move
    ours: bool


#: State → event → target; or event → targets, or state → targets, where a seed says no more.
Table = Mapping[str, Mapping[str, str]] | Mapping[str, tuple[str, ...]]


class Dialect(Frozen):
    """One seed's vocabulary and table."""

    name: str
    seed: str
    summary: str
    states: tuple[str, ...]
    events: tuple[str, ...]
    table: Table  # as the seed writes it
    initial: tuple[str, ...] = ()  # where a job begins, if the table does not say
    literal: frozenset[Move]  # the same, move by move
    names: Mapping[State, str]
    stand_ins: frozenset[State]
    said: Mapping[type[e.AnyTransition], Said]
    said_of_renewal: str | None
    derived: Mapping[str, str]
    extensions: tuple[Extension, ...]
    unreached: tuple[Unreached, ...] = ()
    mergers: tuple[frozenset[str], ...] = ()
    versions: Mapping[Move, tuple[str, ...]] = field(default_factory=dict)  # where a seed is several stacked ones
    has_runs: bool = False  # whether there is a second machine, folded per attempt (`run.py`)
    run_extensions: tuple[Extension, ...] = ()

    def move(self, edge: Edge) -> Move:
        """Give one move of the lifecycle in this dialect's words."""
        said = self.said[edge.event]
        name = said.name if edge.source is None else said.out_of.get(edge.source, said.name)
        return Move(self.state(edge.source), name, self.names[edge.target])

    def renewal(self, state: State) -> Move:
        """Give the renewal of a lease in this dialect's words."""
        return Move(self.names[state], self.said_of_renewal, self.names[state])

    def state(self, state: State | None) -> str:
        """Give a state in this dialect's words."""
        return INITIAL if state is None else self.names[state]

    def allows(self, move: Move) -> bool:
        """Tell whether the seed's own table has this move."""
        return any(literal.covers(move) for literal in self.literal)

    def forbidden(self) -> frozenset[Edge]:
        """Give the moves that `enforce` refuses: those that are nobody's wish but ours."""
        return frozenset(
            edge
            for edge, extension in declared(self.extensions + self.run_extensions)
            if isinstance(edge, Edge) and extension.basis is Basis.OURS
        )

    def derive_status(self, events: Iterable[str]) -> str | None:
        """Give the state that a stream of this dialect's events says: the last one that it knows wins."""
        status = None
        for event in events:
            status = self.derived.get(event, status)
        return status

    def project(self, records: Iterable[Record]) -> list[Step]:
        """Give a whole history in this dialect's words. Notes change nothing and are left out."""
        return [
            Step(record, move, move.event is not None and move.event not in self.events)
            for record, move in ((record, self.move(edge)) for record, edge in walk(records))
        ]


def declared(extensions: Iterable[Extension]) -> Iterator[tuple[Edge | State, Extension]]:
    """Give the extensions edge by edge; the renewal of a lease is given by the state it happens in."""
    edges = {(edge.source, edge.event): edge for edge in EDGES}
    for extension in extensions:
        for source in extension.sources:
            if extension.event is None and source is not None:
                yield source, extension
            elif extension.event is not None and (source, extension.event) in edges:
                yield edges[source, extension.event], extension


def walk(records: Iterable[Record]) -> Iterator[tuple[Record, Edge]]:
    """Give the transitions of a log, each with the edge it takes."""
    state: State | None = None
    for record in records:
        if isinstance(record.event, e.Transition):
            rule = rule_for(state, type(record.event))
            if rule is None:
                raise CorruptLogError(f"{record.event.wire!r} is not legal for a job that is {state or 'new'}")
            yield record, Edge(state, type(record.event), rule.target)
            state = rule.target


def cells(table: Mapping[str, Mapping[str, str]]) -> frozenset[Move]:
    """Read a literal table that is written state by event."""
    return frozenset(Move(source, event, target) for source, row in table.items() for event, target in row.items())


def first_step_back(records: Iterable[Record]) -> Record | None:
    """Give the first record that moves an attempt backwards, or None: seed 002's monotonic transitions.

    It asks nothing else of the log: an event leads to one state, wherever it came from.
    """
    attempt, phase = 0, 0
    for record in records:
        if isinstance(record.event, e.Note):
            continue
        attempt_then = attempt + isinstance(record.event, e.Claimed)
        phase_then = PHASE[TARGETS[type(record.event)]]
        if (attempt_then, phase_then) < (attempt, phase):
            return record
        attempt, phase = attempt_then, phase_then
    return None
