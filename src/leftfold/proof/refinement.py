"""Each dialect against its seed's own table, in both directions.

Every move of the lifecycle is legal in the literal table or declared as an extension, never both; and every
move of the literal table is made, or declared unreached with the reason.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from leftfold.core.lifecycle import EDGES, LEASED, Edge, State
from leftfold.dialects.dialect import Dialect, Extension, Move, declared
from leftfold.dialects.quality import RUN, TIMEOUT
from leftfold.dialects.run import run_allows, run_move


def problems(dialect: Dialect, edges: Iterable[Edge] = EDGES) -> Iterator[str]:
    """Give everything that is wrong with a dialect, measured on the edges that jobs really take."""
    taken = frozenset(edges)
    moves: dict[Edge | State, Move] = {edge: dialect.move(edge) for edge in taken}
    moves |= {state: dialect.renewal(state) for state in LEASED}
    extended = {edge for edge, _ in declared(dialect.extensions)}
    yield from _misdeclared(dialect.extensions)
    reached = set()
    for edge, move in moves.items():
        foreign = _touched(edge) & dialect.stand_ins
        silent = move.event is None
        if silent and move.source != move.target:
            yield f"{edge}: silent, though {move.source} becomes {move.target}"
        legal = not foreign and (silent or dialect.allows(move))
        if legal and edge in extended:
            yield f"{edge}: declared as an extension, though the seed has {move}"
        if not legal and edge not in extended:
            yield f"{edge}: {move} is neither in the seed's table nor declared"
        if legal and not silent:
            reached |= {literal for literal in dialect.literal if literal.covers(move)}
    for edge in extended - set(moves):
        yield f"{edge}: declared, but no job takes it"
    yield from _unreached(dialect, reached)
    if dialect.has_runs:
        yield from _run_problems(dialect, taken)


def _unreached(dialect: Dialect, reached: set[Move]) -> Iterator[str]:
    excused = {unreached.move for unreached in dialect.unreached}
    for literal in dialect.literal - reached - excused:
        yield f"{literal}: in the seed's table, never taken and not declared"
    for literal in excused & reached:
        yield f"{literal}: declared unreached, yet taken"
    for literal in excused - dialect.literal:
        yield f"{literal}: declared unreached, yet not in the seed's table"


def _run_problems(dialect: Dialect, edges: frozenset[Edge]) -> Iterator[str]:
    yield from _misdeclared(dialect.run_extensions)
    extended = {edge for edge, _ in declared(dialect.run_extensions)}
    reached = set()
    for edge in edges:
        for code in (None, TIMEOUT):
            move = run_move(edge, code)
            if move is None:
                continue
            reached.add((move.source, move.target))
            if run_allows(move) == (edge in extended):
                yield f"run, {edge}: {move} must be in the seed's table or declared, not both"
    for source, targets in RUN.items():
        for target in targets:
            if (source, target) not in reached:
                yield f"run, {source} -> {target}: in the seed's table, never taken"


def _misdeclared(extensions: Iterable[Extension]) -> Iterator[str]:
    extensions = tuple(extensions)
    edges = Counter(edge for edge, _ in declared(extensions))
    yield from (f"{edge}: declared twice" for edge, count in edges.items() if count > 1)
    for extension in extensions:
        known = sum(1 for _ in declared([extension]))
        if known < len(extension.sources):
            yield f"{extension.event and extension.event.wire} out of {extension.sources}: there is no such move"


def _touched(edge: Edge | State) -> set[State | None]:
    return {edge} if isinstance(edge, State) else {edge.source, edge.target}
