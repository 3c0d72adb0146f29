"""The dialects, rendered: the same data for programs and for readers."""

from typing import Any, NamedTuple

from leftfold.core import diagram
from leftfold.core.drawing import NEW, Arrow, Node, draw, look
from leftfold.core.lifecycle import EDGES, Edge, State
from leftfold.dialects.dialect import INITIAL, Basis, Dialect, Extension, Move, declared
from leftfold.dialects.quality import RUN, RUN_EVENTS, RUN_INITIAL, TIMEOUT
from leftfold.dialects.run import run_move

RENEWED = "renewed"


def describe(dialect: Dialect) -> dict[str, Any]:
    """Give a dialect as plain data; where it is two machines, one below the other."""
    machine = _machine(dialect)
    if not dialect.has_runs:
        return {"name": dialect.name, "seed": dialect.seed, **machine}
    return {
        "name": dialect.name,
        "seed": dialect.seed,
        "task": machine,
        "run": _run_machine(dialect),
    }


def extensions(dialect: Dialect) -> list[dict[str, Any]]:
    """Give the extensions of a dialect, one for each move of the lifecycle."""
    return [
        _extension(dialect.renewal(edge), RENEWED, edge, edge, extension)
        if isinstance(edge, State)
        else _extension(dialect.move(edge), edge.event.wire, edge.source, edge.target, extension)
        for edge, extension in declared(dialect.extensions)
    ]


class Shown(NamedTuple):
    """A move as a diagram shows it; `basis` is None for the seed's own."""

    source: str
    event: str
    target: str
    basis: Basis | None = None


def shown(dialect: Dialect) -> list[Shown]:
    """Give what a diagram of the dialect shows: the seed's own moves, then the extensions that are not among them."""
    own = [
        Shown(source, literal.event or "", literal.target)
        for literal in sorted(dialect.literal, key=lambda move: (dialect.states.index(move.target), str(move)))
        for source in ([literal.source] if literal.source else _sources(dialect, literal))
    ]
    found = {(move.source, move.event, move.target): move for move in own}
    ways = {(move.source, move.target) for move in own if not move.event}
    # Moves of ours may look alike here; where one of them is the seed's wish, so is the look.
    for extension in sorted(extensions(dialect), key=lambda each: each["basis"] == Basis.OURS):
        move = Shown(extension["from"], extension["event"] or "", extension["to"], Basis(extension["basis"]))
        if move.source != move.target and (move.source, move.target) not in ways:
            found.setdefault(move[:3], move)
    return list(found.values())


def mermaid(dialect: Dialect) -> str:
    """Give a dialect as a Mermaid state diagram; what is not the seed's own is marked."""
    moves = [
        (
            "[*]" if move.source == INITIAL else move.source,
            f"{move.event or 'silent'} ({move.basis})" if move.basis else move.event,
            move.target,
        )
        for move in shown(dialect)
    ]
    return diagram.mermaid(moves, ends=[])


def svg(dialect: Dialect) -> str:
    """Draw a dialect: each state where ours of that meaning stands, extensions dashed."""
    places = {dialect.names[state]: state for state in State if state not in dialect.stand_ins}
    nodes = [Node(places[name].value, look(places[name]), name) for name in dialect.states]
    arrows: dict[tuple[str, str], Arrow] = {}
    for move in shown(dialect):
        between = (NEW if move.source == INITIAL else places[move.source].value, places[move.target].value)
        # Moves between the same two states share an arrow, and the seed's own, which come first, decide its look.
        known = arrows.get(between, Arrow(*between, "", "ours" if move.basis else "move"))
        arrows[between] = known._replace(label=f"{known.label}\n{move.event}".strip())
    return draw(f"{dialect.name}, seed {dialect.seed.partition('_')[0]}", nodes, list(arrows.values()), {})


def _sources(dialect: Dialect, literal: Move) -> list[str]:
    """Give the sources of a move whose seed names none: those out of which a job really takes it."""
    taken = [dialect.move(edge) for edge in EDGES if not {edge.source, edge.target} & dialect.stand_ins]
    return sorted({move.source for move in taken if literal.covers(move) and move.source})


def _machine(dialect: Dialect) -> dict[str, Any]:
    names = {said for event in dialect.said.values() for said in (event.name, *event.out_of.values()) if said}
    described: dict[str, Any] = {
        "states": list(dialect.states),
        "events": list(dialect.events),
        "table": {row: list(cell) if isinstance(cell, tuple) else dict(cell) for row, cell in dialect.table.items()},
        "extensions": extensions(dialect),
        "unreached": [
            {"from": move.source, "event": move.event, "to": move.target, "reason": reason}
            for move, reason in dialect.unreached
        ],
        "names": {state.value: dialect.names[state] for state in State},
        "stand_ins": sorted(state.value for state in dialect.stand_ins),
        "event_names": {
            event.wire: {"*": said.name, **{state.value: name for state, name in said.out_of.items()}}
            for event, said in dialect.said.items()
        },
        "renewal": dialect.said_of_renewal,
        "ours": sorted(names - set(dialect.events)),
        "derive_status": dict(dialect.derived),
    }
    if dialect.initial:
        described["initial"] = list(dialect.initial)
    if dialect.versions:
        described["edges"] = [
            {"from": move.source, "to": move.target, "event": move.event, "versions": list(versions)}
            for move, versions in dialect.versions.items()
        ]
    return described


def _run_machine(dialect: Dialect) -> dict[str, Any]:
    names = [f"run:update {state}" for state in RUN if state != RUN_INITIAL]
    return {
        "states": list(RUN),
        "events": list(RUN_EVENTS),
        "table": {state: list(targets) for state, targets in RUN.items()},
        "extensions": run_extensions(dialect),
        "unreached": [],
        "initial": [RUN_INITIAL],
        "ours": [name for name in names if name not in RUN_EVENTS],
    }


def run_extensions(dialect: Dialect) -> list[dict[str, Any]]:
    """Give the extensions of the machine that is folded per attempt, with and without a timeout."""
    return [
        _extension(move, edge.event.wire, edge.source, edge.target, extension)
        for edge, extension in declared(dialect.run_extensions)
        for code in (None, TIMEOUT)
        if isinstance(edge, Edge) and (move := run_move(edge, code))
    ]


def _extension(move: Move, event: str, source: State | None, target: State, extension: Extension) -> dict[str, Any]:
    return {
        "from": move.source,
        "event": move.event,
        "to": move.target,
        "canonical": {"event": event, "from": source.value if source else None, "to": target.value},
        "basis": extension.basis.value,
        "reason": extension.reason,
    }
