"""Seed 004's run machine: a history folded per attempt."""

import pytest
from hypothesis import given, settings
from tests.dialects.histories import CHOICES, told, wandered

from leftfold.core import events as e
from leftfold.core.errors import CorruptLogError
from leftfold.core.lifecycle import EDGES, LEASED, Edge
from leftfold.dialects.dialect import declared
from leftfold.dialects.quality import RUN_EXTENSIONS
from leftfold.dialects.run import run_allows, run_move, runs

BEGUN = "run:create queued"
RUNS = "run:update running running"

#: The acts of a story; then, run by run, what is said of it.
ATTEMPTS: dict[str, tuple[tuple[str, ...], list[list[str]]]] = {
    "never claimed": (("enqueue", "cancel"), []),
    "claimed": (("enqueue", "claim"), [[BEGUN]]),
    "running": (("enqueue", "claim", "start"), [[BEGUN, RUNS]]),
    "succeeded": (("enqueue", "claim", "start", "complete"), [[BEGUN, RUNS, "run:update succeeded succeeded"]]),
    "failed, to be retried": (("enqueue", "claim", "start", "fail"), [[BEGUN, RUNS, "run:update failed failed"]]),
    "failed for good": (
        ("enqueue strict", "claim", "start", "fail"), [[BEGUN, RUNS, "run:update failed failed"]]),
    "dead-lettered": (("enqueue once", "claim", "start", "fail"), [[BEGUN, RUNS, "run:update failed failed"]]),
    "given up": (("enqueue", "claim", "start", "give up"), [[BEGUN, RUNS, "run:update failed failed"]]),
    "set aside by an operator": (
        ("enqueue", "claim", "start", "set aside"), [[BEGUN, RUNS, "run:update failed failed"]]),
    "out of time, to be retried": (
        ("enqueue", "claim", "start", "fail late"), [[BEGUN, RUNS, "run:update timeout timeout"]]),
    "out of time for good": (
        ("enqueue strict", "claim", "start", "fail late"), [[BEGUN, RUNS, "run:update timeout timeout"]]),
    "out of time, dead-lettered": (
        ("enqueue once", "claim", "start", "fail late"), [[BEGUN, RUNS, "run:update timeout timeout"]]),
    "out of time before it ran": (("enqueue", "claim", "fail late"), [[BEGUN, "run:update timeout timeout"]]),
    "failed before it ran": (("enqueue", "claim", "fail"), [[BEGUN, "run:update failed failed"]]),
    "released before it ran": (("enqueue", "claim", "release"), [[BEGUN, "run:update cancelled cancelled"]]),
    "released": (("enqueue", "claim", "start", "release"), [[BEGUN, RUNS, "run:update cancelled cancelled"]]),
    "suspended": (("enqueue", "claim", "start", "wait"), [[BEGUN, RUNS, "run:update cancelled cancelled"]]),
    "parked": (("enqueue", "claim", "start", "park"), [[BEGUN, RUNS, "run:update cancelled cancelled"]]),
    "stalled before it ran": (("enqueue", "claim", "stall"), [[BEGUN, "run:update cancelled cancelled"]]),
    "stalled": (("enqueue", "claim", "start", "stall"), [[BEGUN, RUNS, "run:update cancelled cancelled"]]),
    "worn out": (("enqueue once", "claim", "start", "stall"), [[BEGUN, RUNS, "run:update cancelled cancelled"]]),
    "killed": (("enqueue", "claim", "start", "kill"), [[BEGUN, RUNS, "run:update cancelled cancelled"]]),
    "four attempts": (
        ("enqueue", "claim", "start", "fail late", "claim", "stall", "claim", "start", "park", "signal",
         "claim", "start", "note", "complete"),
        [
            [BEGUN, RUNS, "run:update timeout timeout"],
            [BEGUN, "run:update cancelled cancelled"],
            [BEGUN, RUNS, "run:update cancelled cancelled"],
            [BEGUN, RUNS, "run:update succeeded succeeded"],
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", ATTEMPTS)
def test_each_attempt_is_a_run(story: str) -> None:
    acts, expected = ATTEMPTS[story]
    folded = runs(told(*acts).log)
    assert [[f"{move.event} {move.target}" for move in run.moves] for run in folded] == expected
    assert [run.attempt for run in folded] == [*range(1, len(expected) + 1)]
    assert [run.status for run in folded] == [said[-1].split()[-1] for said in expected]
    assert all(run.moves[0].source == "(initial)" for run in folded)


@settings(max_examples=200, deadline=None)
@given(CHOICES)
def test_the_runs_of_any_history_are_its_attempts_and_only_the_last_may_be_open(choices: list[tuple[int, int]]) -> None:
    story = wandered(choices)
    folded = runs(story.log)
    attempts = story.job.attempt if story.job else 0
    assert [run.attempt for run in folded] == [*range(1, attempts + 1)]
    assert all(run.status in {"succeeded", "failed", "timeout", "cancelled"} for run in folded[:-1])
    held = story.job is not None and story.job.state in LEASED
    assert held == bool(folded and folded[-1].status in {"queued", "running"})


@pytest.mark.parametrize("edge", EDGES, ids=str)
@pytest.mark.parametrize("code", [None, "timeout", "boom"])
def test_a_move_of_a_run_is_in_the_seed_or_declared_and_never_both(edge: Edge, code: str | None) -> None:
    move = run_move(edge, code)
    if edge.event is not e.Claimed and edge.source not in LEASED:
        assert move is None
    else:
        assert move is not None
        assert run_allows(move) is not (edge in {each for each, _ in declared(RUN_EXTENSIONS)})


def test_a_log_that_breaks_the_table_has_no_runs() -> None:
    begun, claimed, started = told("enqueue", "claim", "start").log
    with pytest.raises(CorruptLogError, match="'started' is not legal for a job that is queued"):
        runs([begun, started, claimed])
    assert runs([]) == []
