"""Every dialect refines its seed, and the check that says so can say otherwise."""

from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from leftfold.core import events as e
from leftfold.core.lifecycle import EDGES, LEASED, State
from leftfold.dialects import DIALECTS
from leftfold.dialects.dialect import Basis, Dialect, Extension, Move, Said, Unreached, declared
from leftfold.proof.refinement import problems

CLAIMED, FAILED, QUEUED, RETRYING, RUNNING = State.CLAIMED, State.FAILED, State.QUEUED, State.RETRYING, State.RUNNING
ALL = list(DIALECTS.values())


def without(broken: Dialect, event: type[e.AnyTransition] | None) -> Dialect:
    """Forget every extension of one event."""
    return replace(broken, extensions=tuple(each for each in broken.extensions if each.event is not event))


def declaring(broken: Dialect, event: type[e.AnyTransition] | None, *sources: State | None) -> Dialect:
    """Declare one extension more."""
    return replace(broken, extensions=(*broken.extensions, Extension(event, sources, Basis.OURS, "planted")))


def excusing(broken: Dialect, move: Move) -> Dialect:
    """Declare one more move of the seed as unreached."""
    return replace(broken, unreached=(*broken.unreached, Unreached(move, "planted")))


def saying(broken: Dialect, event: type[e.AnyTransition], name: str | None) -> Dialect:
    """Call an event otherwise."""
    said: Mapping[type[e.AnyTransition], Said] = {**broken.said, event: Said(name)}
    return replace(broken, said=said)


@pytest.mark.parametrize("each", ALL, ids=[each.name for each in ALL])
def test_a_dialect_has_no_problem(each: Dialect) -> None:
    assert list(problems(each)) == []


#: A mistake, the dialect it is made in, and what has to be said about it.
MISTAKES: dict[str, tuple[str, Callable[[Dialect], Dialect], str]] = {
    "an extension is removed": (
        "contract", lambda d: without(d, e.Retried),
        ("running -retried-> retrying: Move(source='running', event='retried', target='queued') "
        "is neither in the seed's table nor declared"),
    ),
    "the renewal of a lease is no longer declared": (
        "reliability", lambda d: without(d, None),
        ("claimed: Move(source='assigned', event='job_lease_renewed', target='assigned') "
        "is neither in the seed's table nor declared"),
    ),
    "an extension is declared though the seed has the move": (
        "contract", lambda d: declaring(d, e.Succeeded, RUNNING),
        ("running -succeeded-> succeeded: declared as an extension, though the seed has "
        "Move(source='running', event='succeeded', target='succeeded')"),
    ),
    "a renewal is declared though the seed has heartbeats": (
        "contract", lambda d: declaring(d, None, RUNNING),
        ("running: declared as an extension, though the seed has "
        "Move(source='running', event='heartbeat', target='running')"),
    ),
    "a silent move that changes nothing is declared": (
        "formal", lambda d: declaring(d, e.Started, CLAIMED),
        ("claimed -started-> running: declared as an extension, though the seed has "
        "Move(source='Running', event=None, target='Running')"),
    ),
    "an extension is declared twice": (
        "authoritative", lambda d: declaring(d, e.Parked, RUNNING),
        "running -parked-> parked: declared twice",
    ),
    "an edge of the seed is no longer reached": (
        "reliability", lambda d: saying(d, e.Succeeded, "job_done"),
        ("Move(source='running', event='job_succeeded', target='succeeded'): "
        "in the seed's table, never taken and not declared"),
    ),
    "an edge of the seed is taken from a stand-in alone": (
        "quality", lambda d: replace(d, stand_ins=d.stand_ins | {State.INBOX}),
        "Move(source='inbox', event=None, target='todo'): in the seed's table, never taken and not declared",
    ),
    "an unreached edge is forgotten": (
        "authoritative", lambda d: replace(d, unreached=()),
        ("Move(source=None, event='wait_completed', target='Running'): "
        "in the seed's table, never taken and not declared"),
    ),
    "an unreached edge is reached": (
        "formal", lambda d: excusing(d, Move("Queued", "job_leased", "Running")),
        "Move(source='Queued', event='job_leased', target='Running'): declared unreached, yet taken",
    ),
    "an unreached edge is not in the table": (
        "contract", lambda d: excusing(d, Move("failed", "requeued", "queued")),
        "Move(source='failed', event='requeued', target='queued'): declared unreached, yet not in the seed's table",
    ),
    "an event is silent though the state changes": (
        "authoritative", lambda d: saying(d, e.Started, None),
        "claimed -started-> running: silent, though Leased becomes Running",
    ),
    "a move out of a stand-in is not declared": (
        "contract", lambda d: without(d, e.Resumed),
        ("parked -resumed-> queued: Move(source='stalled', event='resumed', target='queued') "
        "is neither in the seed's table nor declared"),
    ),
    "a move into a stand-in is not declared, though the seed has the cell": (
        "formal", lambda d: without(d, e.Received),
        ("(new) -received-> inbox: Move(source='(initial)', event='job_created', target='Queued') "
        "is neither in the seed's table nor declared"),
    ),
    "a silent move into a stand-in is not declared": (
        "formal", lambda d: without(d, e.Stalled),
        ("running -stalled-> stalled: Move(source='Running', event=None, target='Running') "
        "is neither in the seed's table nor declared"),
    ),
    "a state becomes a stand-in": (
        "formal", lambda d: replace(d, stand_ins=d.stand_ins | {RETRYING}),
        ("retrying -claimed-> claimed: Move(source='Retrying', event='job_leased', target='Running') "
        "is neither in the seed's table nor declared"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str) -> None:
    name, make, problem = MISTAKES[mistake]
    assert problem in list(problems(make(DIALECTS[name])))


@pytest.mark.parametrize("each", ALL, ids=[each.name for each in ALL])
def test_no_extension_can_be_spared(each: Dialect) -> None:
    for left_out in each.extensions:
        rest = tuple(extension for extension in each.extensions if extension is not left_out)
        lacking = [edge for edge, _ in declared([left_out])]
        said = list(problems(replace(each, extensions=rest)))
        assert len(said) >= len(lacking), left_out
        assert all(any(line.startswith(f"{edge}: ") for line in said) for edge in lacking)


@pytest.mark.parametrize("each", ALL, ids=[each.name for each in ALL])
def test_no_move_can_be_declared_twice_or_needlessly(each: Dialect) -> None:
    once_more = {str(edge): declaring(each, edge.event, edge.source) for edge in EDGES}
    once_more |= {state.value: declaring(each, None, state) for state in LEASED}
    for edge, broken in once_more.items():
        assert any(line.startswith(f"{edge}: declared") for line in problems(broken)), edge


def test_an_extension_that_no_job_takes_is_named() -> None:
    taken = [edge for edge in EDGES if (edge.source, edge.event) != (FAILED, e.Requeued)]
    said = list(problems(DIALECTS["contract"], taken))
    assert said == ["failed -requeued-> queued: declared, but no job takes it"]


def test_an_edge_of_the_run_table_that_no_job_takes_is_named() -> None:
    taken = [edge for edge in EDGES if edge.event is not e.Succeeded]
    said = list(problems(DIALECTS["quality"], taken))
    assert "run, running -> succeeded: in the seed's table, never taken" in said


RUN_PROBLEM = (
    "run, claimed -failed-> failed: Move(source='queued', event='run:update failed', target='failed') "
    "must be in the seed's table or declared, not both"
)


@pytest.mark.parametrize("kept", [0, 1], ids=["none declared", "one declared"])
def test_a_run_move_that_is_not_declared_is_named(kept: int) -> None:
    quality = DIALECTS["quality"]
    assert RUN_PROBLEM in list(problems(replace(quality, run_extensions=quality.run_extensions[:kept])))


@pytest.mark.parametrize(
    "extension", [Extension(e.Succeeded, (RUNNING,), Basis.OURS, ""), Extension(e.Failed, (CLAIMED,), Basis.OURS, "")]
)
def test_a_run_move_that_is_declared_needlessly_or_twice_is_named(extension: Extension) -> None:
    quality = DIALECTS["quality"]
    assert list(problems(replace(quality, run_extensions=(*quality.run_extensions, extension)))) != []


def test_the_renewal_of_no_lease_is_nobodys_extension() -> None:
    assert list(declared([Extension(None, (None, QUEUED), Basis.OURS, "")])) == [
        (QUEUED, Extension(None, (None, QUEUED), Basis.OURS, ""))
    ]
