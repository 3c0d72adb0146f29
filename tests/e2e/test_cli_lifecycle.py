"""`leftfold lifecycle` as people and programs call it."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.dialects.seeds import (
    AUTHORITATIVE_TARGETS,
    CONTRACT_EVENTS,
    CONTRACT_STATES,
    CONTRACT_TRANSITIONS,
    FORMAL_CELLS,
    FORMAL_EVENTS,
    FORMAL_STATES,
    IN_FIRST,
    IN_SECOND,
    RUN_TARGETS,
    SEED_FILES,
    TASK_TARGETS,
)
from tests.e2e.command import complaint, run

STATES = [
    "inbox", "queued", "retrying", "claimed", "running", "waiting", "parked", "stalled", "succeeded", "failed",
    "cancelled", "dead_lettered",
]  # fmt: skip
EVENTS = [
    "received", "enqueued", "claimed", "started", "suspended", "parked", "resumed", "succeeded", "retried",
    "released", "stalled", "requeued", "failed", "dead_lettered", "cancelled",
]  # fmt: skip
NOTES = {
    "cancel_requested", "cancel_delivered", "starved",
    "signalled", "progress", "plan_generated", "node_started", "node_finished", "step_started",
    "step_finished", "tool_invocation_started", "tool_invocation_finished", "evidence_added", "compensated", "custom",
    "remarked", "resolved",
}  # fmt: skip
#: Which fields a job must carry in a state; it must not carry the others.
REQUIRED = {
    "queued": {"due"}, "retrying": {"due", "error"}, "claimed": {"lease"}, "running": {"lease"},
    "waiting": {"wait"}, "parked": {"wait"}, "succeeded": {"result"}, "failed": {"error"},
    "dead_lettered": {"error"},
}  # fmt: skip


def test_the_overview_names_every_state_event_and_note() -> None:
    ran = run("lifecycle")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("The life of a job: 12 states, 15 events, 43 moves.")
    words = {*ran.out.replace(",", " ").split()}
    assert {*STATES, *EVENTS, *NOTES} <= words


def test_the_lifecycle_as_json() -> None:
    ran = run("lifecycle", "--json")
    described = ran.json()
    assert (ran.code, ran.err) == (0, "")
    assert {"states", "transitions", "notes", "shape"} <= {*described}
    assert described["states"] == STATES
    assert {*described["notes"]} == NOTES
    assert all({"event", "from", "to", "who"} <= {*each} for each in described["transitions"])
    assert {each["event"] for each in described["transitions"]} == {*EVENTS}
    assert {each["to"] for each in described["transitions"]} == {*STATES}
    sources = [source for each in described["transitions"] for source in each["from"]]
    assert {*sources} == {None, *STATES} - {"succeeded", "cancelled"}
    whos = {who for each in described["transitions"] for who in each["who"]}
    assert whos == {"client", "worker", "owner", "keeper", "operator"}


def test_the_shape_says_of_every_field_whether_it_is_required_or_forbidden() -> None:
    shape = run("lifecycle", "--json").json()["shape"]
    assert shape == {
        state: {
            field: "required" if field in REQUIRED.get(state, ()) else "forbidden"
            for field in ("due", "lease", "wait", "result", "error")
        }
        for state in STATES
    }


def test_formal_gives_the_table_of_its_seed_cell_for_cell() -> None:
    described = run("lifecycle", "--dialect", "formal", "--json").json()
    assert (described["name"], described["seed"]) == ("formal", SEED_FILES["formal"])
    table: dict[str, dict[str, str]] = {state: {} for state in ["(initial)", *FORMAL_STATES]}
    for state, event, target in FORMAL_CELLS:
        if target is not None:
            table[state][event] = target
    assert described["table"] == table
    assert (described["states"], described["events"]) == (FORMAL_STATES, FORMAL_EVENTS)


def test_authoritative_gives_the_targets_of_each_event() -> None:
    described = run("lifecycle", "--dialect", "authoritative", "--json").json()
    assert (described["name"], described["seed"]) == ("authoritative", SEED_FILES["authoritative"])
    assert described["table"] == dict(AUTHORITATIVE_TARGETS)


def test_reliability_gives_its_edges_with_the_versions_that_they_stand_in() -> None:
    described = run("lifecycle", "--dialect", "reliability", "--json").json()
    assert (described["name"], described["seed"]) == ("reliability", SEED_FILES["reliability"])
    first, second = "v1 (Distributed Reliability)", "v1"
    assert all({*edge} >= {"from", "to", "versions"} for edge in described["edges"])
    assert {(edge["from"], edge["to"]): edge["versions"] for edge in described["edges"]} == {
        edge: [first] * (edge in IN_FIRST) + [second] * (edge in IN_SECOND) for edge in IN_FIRST | IN_SECOND
    }
    cells = {(state, target) for state, row in described["table"].items() for target in row.values()}
    assert cells == IN_FIRST | IN_SECOND


def test_contract_gives_its_transitions_by_event_type() -> None:
    described = run("lifecycle", "--dialect", "contract", "--json").json()
    assert (described["name"], described["seed"]) == ("contract", SEED_FILES["contract"])
    table: dict[str, dict[str, str]] = {state: {} for state in ["(initial)", *CONTRACT_STATES]}
    for source, event, target in CONTRACT_TRANSITIONS:
        table[source][event] = target
    assert described["table"] == table
    assert described["events"] == CONTRACT_EVENTS


def test_quality_gives_a_task_and_a_run() -> None:
    described = run("lifecycle", "--dialect", "quality", "--json").json()
    assert (described["name"], described["seed"]) == ("quality", SEED_FILES["quality"])
    assert described["task"]["table"] == TASK_TARGETS
    assert described["run"]["table"] == RUN_TARGETS


@pytest.mark.parametrize("name", SEED_FILES)
def test_the_extensions_of_a_dialect_are_objects_with_basis_and_reason(name: str) -> None:
    ran = run("lifecycle", "--dialect", name, "--json")
    assert (ran.code, ran.err) == (0, "")
    described = ran.json()
    machines = [described["task"], described["run"]] if name == "quality" else [described]
    for machine in machines:
        assert machine["extensions"]
        for each in machine["extensions"]:
            assert {*each} == {"from", "event", "to", "canonical", "basis", "reason"}
            assert each["basis"] in {"seed", "ours"}
            assert each["reason"]
            assert {*each["canonical"]} == {"event", "from", "to"}
            assert each["to"] in machine["states"]


@pytest.mark.parametrize("name", SEED_FILES)
def test_a_dialect_in_text_names_its_seed_its_states_and_its_extensions(name: str) -> None:
    ran = run("lifecycle", "--dialect", name)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{name}: ")
    assert f"(seed {SEED_FILES[name]})" in ran.out.splitlines()[0]
    assert "stand-in" in ran.out
    assert any(line.startswith("extension") for line in ran.out.splitlines())


def test_the_matrix_has_a_row_for_every_event_and_a_column_for_every_state() -> None:
    ran = run("lifecycle", "--matrix")
    head, *rows = ran.out.splitlines()
    assert ran.code == 0
    assert head.split() == ["event", "new", *(state[:4] for state in STATES), "leads", "to"]
    assert [row.split()[1] for row in rows] == EVENTS
    assert all(len(row.split()) == 2 + 1 + len(STATES) + 1 for row in rows)
    assert ran.out.count("●") == 43


@pytest.mark.parametrize("name", SEED_FILES)
def test_the_matrix_of_a_dialect_is_the_table_of_its_seed_alone(name: str) -> None:
    ran = run("lifecycle", "--dialect", name, "--matrix")
    assert ran.code == 0
    assert "extension" not in ran.out
    assert "stand-in" not in ran.out


def test_the_matrix_of_formal_is_the_table_of_its_seed() -> None:
    rows = [line.split() for line in run("lifecycle", "--dialect", "formal", "--matrix").out.splitlines()[2:]]
    assert rows[0] == FORMAL_EVENTS
    assert [(row[0], event, cell) for row in rows[1:] for event, cell in zip(FORMAL_EVENTS, row[1:], strict=True)] == [
        (state, event, target or "—") for state, event, target in FORMAL_CELLS
    ]


def test_the_mermaid_diagram_has_every_move() -> None:
    ran = run("lifecycle", "--mermaid")
    first, *rest = ran.out.splitlines()
    assert (ran.code, first) == (0, "stateDiagram-v2")
    assert len(rest) == 43 + 2
    assert {"  [*] --> inbox: A received", "  running --> succeeded: H succeeded", "  cancelled --> [*]"} <= {*rest}


@pytest.mark.parametrize("name", SEED_FILES)
def test_the_mermaid_diagram_of_a_dialect_has_its_states(name: str) -> None:
    ran = run("lifecycle", "--dialect", name, "--mermaid")
    assert ran.code == 0
    assert ran.out.startswith("stateDiagram-v2\n")
    assert all(" --> " in line for line in ran.out.splitlines()[1:])


@pytest.mark.parametrize("name", [None, *SEED_FILES])
def test_a_drawing_goes_into_a_file_and_nothing_onto_standard_output(name: str | None, tmp_path: Path) -> None:
    file = tmp_path / "drawn.svg"
    ran = run("lifecycle", *(["--dialect", name] if name else []), "--svg", str(file))
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.strip() == f"drawn into {file}"
    root = ET.parse(file).getroot()  # noqa: S314 - our own drawing
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_a_drawing_and_json_can_be_had_at_once(tmp_path: Path) -> None:
    ran = run("lifecycle", "--json", "--svg", "drawn.svg", cwd=tmp_path)
    assert ran.code == 0
    assert ran.json()["states"] == STATES
    assert (tmp_path / "drawn.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--dialect", "klingon"], "'klingon' is not one of 'formal', 'authoritative', 'reliability', 'contract'"),
        (["--dialect"], "Option '--dialect' requires an argument"),
        (["--bogus"], "No such option '--bogus'"),
        (["nonsense"], "No such command 'nonsense'"),
        (["--svg", "."], "is a directory"),
        (["--json", "check"], "check takes no options of `leftfold lifecycle`"),
        (["check", "--jobs", "0"], "0 is not in the range 1<=x<=9"),
        (["check", "--workers", "many"], "'many' is not a valid integer"),
        (["check", "--attempts", "10"], "10 is not in the range 1<=x<=9"),
        (["check", "extra"], "Got unexpected extra argument (extra)"),
    ],
)
def test_a_wrong_command_line_gives_one_clear_message(arguments: list[str], problem: str) -> None:
    ran = run("lifecycle", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert problem in complaint(ran)


def test_a_file_that_cannot_be_written_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    missing = tmp_path / "no such folder" / "drawn.svg"
    ran = run("lifecycle", "--svg", str(missing))
    assert (ran.code, ran.out) == (1, "")
    assert complaint(ran) == f"leftfold: os: Could not open file '{missing}': No such file or directory"
