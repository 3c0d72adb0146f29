"""Each dialect's literal table against the transcription in `seeds.py`, cell by cell."""

import pytest
from tests.dialects.seeds import (
    AUTHORITATIVE_STATES,
    AUTHORITATIVE_TARGETS,
    CONTRACT_EVENTS,
    CONTRACT_STATES,
    CONTRACT_TRANSITIONS,
    FORMAL_CELLS,
    FORMAL_EVENTS,
    FORMAL_STATES,
    IN_FIRST,
    IN_SECOND,
    LEADS_TO,
    RELIABILITY_EVENTS,
    RELIABILITY_STATES,
    RUN_TARGETS,
    SEED_FILES,
    TASK_TARGETS,
)

from leftfold.dialects import DIALECTS
from leftfold.dialects.dialect import INITIAL, Move
from leftfold.dialects.quality import RUN, RUN_EVENTS, RUN_INITIAL, TASK_INITIAL
from leftfold.dialects.reliability import EDGES, FIRST, SECOND
from leftfold.dialects.run import run_allows


def test_there_are_five_dialects_each_of_its_seed() -> None:
    assert {name: each.seed for name, each in DIALECTS.items()} == SEED_FILES
    assert all(each.name == name for name, each in DIALECTS.items())


@pytest.mark.parametrize(
    ("name", "states", "events"),
    [
        ("formal", FORMAL_STATES, FORMAL_EVENTS),
        ("authoritative", AUTHORITATIVE_STATES, [event for event, _ in AUTHORITATIVE_TARGETS]),
        ("reliability", RELIABILITY_STATES, RELIABILITY_EVENTS),
        ("contract", CONTRACT_STATES, CONTRACT_EVENTS),
        ("quality", [*TASK_TARGETS], ["task:create", "task:update todo", "task:update blocked", "task:update done"]),
    ],
)
def test_a_dialect_has_the_states_and_events_of_its_seed_and_no_others(
    name: str, states: list[str], events: list[str]
) -> None:
    assert sorted(DIALECTS[name].states) == sorted(states)
    assert sorted(DIALECTS[name].events) == sorted(events)


@pytest.mark.parametrize(("state", "event", "target"), FORMAL_CELLS)
def test_formal_has_every_cell_of_the_seed(state: str, event: str, target: str | None) -> None:
    formal = DIALECTS["formal"]
    cells = formal.table[state]
    assert isinstance(cells, dict)
    assert cells.get(event) == target
    for guess in FORMAL_STATES:
        assert formal.allows(Move(state, event, guess)) is (guess == target)


def test_formal_has_nine_rows_and_ninety_cells() -> None:
    assert len(FORMAL_CELLS) == 90
    assert [*DIALECTS["formal"].table] == ["(initial)", *FORMAL_STATES]
    assert len(DIALECTS["formal"].literal) == sum(target is not None for _, _, target in FORMAL_CELLS) == 22


@pytest.mark.parametrize(("event", "targets"), AUTHORITATIVE_TARGETS)
def test_authoritative_leads_each_event_where_the_seed_does(event: str, targets: list[str]) -> None:
    authoritative = DIALECTS["authoritative"]
    assert authoritative.table[event] == tuple(targets)
    for state in AUTHORITATIVE_STATES:
        assert authoritative.allows(Move("Queued", event, state)) is (state in targets)


def test_authoritative_has_no_other_row() -> None:
    assert [*DIALECTS["authoritative"].table] == [event for event, _ in AUTHORITATIVE_TARGETS]
    assert len(DIALECTS["authoritative"].literal) == 11


def test_reliability_is_the_union_of_both_versions_and_each_edge_says_where_it_stands() -> None:
    assert (FIRST, SECOND) == ("v1 (Distributed Reliability)", "v1")
    assert {(edge.source, edge.target): edge.versions for edge in EDGES} == {
        edge: (FIRST,) * (edge in IN_FIRST) + (SECOND,) * (edge in IN_SECOND) for edge in IN_FIRST | IN_SECOND
    }
    assert len(EDGES) == len(IN_FIRST | IN_SECOND) == 11


@pytest.mark.parametrize(("source", "target"), sorted(IN_FIRST | IN_SECOND))
def test_reliability_has_every_edge_of_the_seed(source: str, target: str) -> None:
    reliability = DIALECTS["reliability"]
    cells = reliability.table[source]
    assert isinstance(cells, dict)
    assert cells[LEADS_TO[target]] == target
    assert Move(source, LEADS_TO[target], target) in reliability.literal
    assert Move(source, LEADS_TO[target], target) in reliability.versions


def test_reliability_has_no_edge_that_the_seed_lacks() -> None:
    reliability = DIALECTS["reliability"]
    assert [*reliability.table] == ["(initial)", *RELIABILITY_STATES]
    assert sum(len(cells) for cells in reliability.table.values()) == len(reliability.literal) == 11
    assert {*reliability.versions} == reliability.literal


@pytest.mark.parametrize("event", CONTRACT_EVENTS)
@pytest.mark.parametrize("source", ["(initial)", *CONTRACT_STATES])
def test_contract_allows_the_transitions_of_the_seed_and_no_others(source: str, event: str) -> None:
    contract = DIALECTS["contract"]
    targets = [to for start, said, to in CONTRACT_TRANSITIONS if (start, said) == (source, event)]
    cells = contract.table[source]
    assert isinstance(cells, dict)
    assert cells.get(event) == (targets[0] if targets else None)
    assert [state for state in CONTRACT_STATES if contract.allows(Move(source, event, state))] == targets


def test_contract_has_a_row_for_every_status() -> None:
    assert {*DIALECTS["contract"].table} == {"(initial)", *CONTRACT_STATES}
    assert len(DIALECTS["contract"].literal) == len(CONTRACT_TRANSITIONS)


@pytest.mark.parametrize(("state", "targets"), TASK_TARGETS.items())
def test_a_task_of_quality_can_change_as_the_seed_says(state: str, targets: list[str]) -> None:
    quality = DIALECTS["quality"]
    assert quality.table[state] == tuple(targets)
    for target in TASK_TARGETS:
        assert quality.allows(Move(state, f"task:update {target}", target)) is (target in targets)


def test_a_task_of_quality_begins_in_the_inbox() -> None:
    quality = DIALECTS["quality"]
    assert TASK_INITIAL == "inbox"
    assert [state for state in TASK_TARGETS if quality.allows(Move(INITIAL, "task:create", state))] == ["inbox"]
    assert [*quality.table] == [*TASK_TARGETS]
    assert len(quality.literal) == 1 + sum(map(len, TASK_TARGETS.values()))


@pytest.mark.parametrize(("state", "targets"), RUN_TARGETS.items())
def test_a_run_of_quality_can_change_as_the_seed_says(state: str, targets: list[str]) -> None:
    assert RUN[state] == tuple(targets)
    for target in RUN_TARGETS:
        assert run_allows(Move(state, f"run:update {target}", target)) is (target in targets)


def test_a_run_of_quality_begins_queued_with_the_commands_of_the_examples() -> None:
    assert RUN_INITIAL == "queued"
    assert [state for state in RUN_TARGETS if run_allows(Move(INITIAL, "run:create", state))] == ["queued"]
    assert [*RUN] == [*RUN_TARGETS]
    assert RUN_EVENTS == ("run:create", "run:update running", "run:update succeeded", "run:update failed")
