"""The dialects, rendered: for programs, for readers, and as drawings."""

import json
from itertools import product
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from leftfold.core.lifecycle import EDGES, State
from leftfold.dialects import DIALECTS
from leftfold.dialects.describe import describe, extensions, mermaid, shown, svg
from leftfold.dialects.dialect import Basis, Extension, Move, declared
from leftfold.dialects.quality import RUN_EXTENSIONS

SINGLE = [name for name in DIALECTS if name != "quality"]
MACHINE = {
    "states", "events", "table", "extensions", "unreached", "names", "stand_ins", "event_names", "renewal", "ours",
    "derive_status",
}  # fmt: skip

UNMARKED = "where the seed names no sources, a move that only extensions make is shown as the seed's own"


@pytest.mark.parametrize("name", SINGLE)
def test_a_dialect_is_described_as_one_machine(name: str) -> None:
    described = describe(DIALECTS[name])
    assert {*described} == {"name", "seed", *MACHINE} | ({"edges"} if name == "reliability" else set())
    assert (described["name"], described["seed"]) == (name, DIALECTS[name].seed)
    assert described["states"] == [*DIALECTS[name].states]
    assert described["events"] == [*DIALECTS[name].events]
    assert json.loads(json.dumps(described)) == described


def test_quality_is_described_as_a_task_and_a_run() -> None:
    described = describe(DIALECTS["quality"])
    assert {*described} == {"name", "seed", "task", "run"}
    assert {*described["task"]} == MACHINE | {"initial"}
    assert {*described["run"]} == {"states", "events", "table", "extensions", "unreached", "initial", "ours"}
    assert (described["task"]["initial"], described["run"]["initial"]) == (["inbox"], ["queued"])
    assert described["run"]["ours"] == ["run:update timeout", "run:update cancelled"]
    assert json.loads(json.dumps(described)) == described


def test_the_runs_of_quality_can_only_fail_before_they_run_where_it_is_declared() -> None:
    found = describe(DIALECTS["quality"])["run"]["extensions"]
    assert [(each["from"], each["event"], each["to"], each["canonical"]["event"]) for each in found] == [
        ("queued", f"run:update {status}", status, event)
        for event, status in product(["retried", "failed", "dead_lettered"], ["failed", "timeout"])
    ]
    assert {each["basis"] for each in found} == {"ours"}


def test_a_renewal_is_no_move_of_a_run() -> None:
    quality = DIALECTS["quality"]
    planted = (*RUN_EXTENSIONS, Extension(None, (State.RUNNING,), Basis.OURS, "planted"))
    assert describe(replace(quality, run_extensions=planted)) == describe(quality)


OURS = {
    "formal": [],
    "authoritative": ["job_stalled"],
    "reliability": ["job_enqueued", "job_orphaned", "job_released", "job_requeued", "job_retried", "job_suspended"],
    "contract": ["cancelled", "dead_lettered", "parked", "released", "resumed", "retried", "suspended"],
    "quality": ["task:update cancelled", "task:update doing"],
}


@pytest.mark.parametrize("name", OURS)
def test_names_that_the_seed_lacks_are_listed_as_ours(name: str) -> None:
    described = describe(DIALECTS[name])
    assert described.get("task", described)["ours"] == OURS[name]


@pytest.mark.parametrize("name", DIALECTS)
def test_names_and_stand_ins_are_given_for_every_state_of_ours(name: str) -> None:
    described = describe(DIALECTS[name])
    machine = described.get("task", described)
    assert machine["names"] == {state.value: DIALECTS[name].names[state] for state in State}
    assert {*machine["names"].values()} <= {*machine["states"]}
    assert machine["stand_ins"] == sorted(state.value for state in DIALECTS[name].stand_ins)


def test_an_event_that_is_called_otherwise_out_of_some_state_says_so() -> None:
    assert describe(DIALECTS["formal"])["event_names"]["enqueued"] == {"*": "job_created", "inbox": "job_queued"}
    assert describe(DIALECTS["reliability"])["event_names"]["requeued"] == {
        "*": "job_requeued", "queued": None, "retrying": None, "stalled": None,
    }  # fmt: skip
    assert describe(DIALECTS["contract"])["renewal"] == "heartbeat"


def test_an_extension_says_which_move_of_ours_it_is() -> None:
    found = {(each["canonical"]["event"], each["canonical"]["from"]): each for each in extensions(DIALECTS["contract"])}
    assert found["retried", "running"] == {
        "from": "running",
        "event": "retried",
        "to": "queued",
        "canonical": {"event": "retried", "from": "running", "to": "retrying"},
        "basis": "ours",
        "reason": "a failed attempt may be tried again; here `failed` is the end and backoff belongs to another plan. "
        "`queued` stands in, with the error",
    }
    assert found["received", None]["from"] == "(initial)"


def test_the_renewal_of_a_lease_is_an_extension_of_reliability() -> None:
    renewals = [each for each in extensions(DIALECTS["reliability"]) if each["canonical"]["event"] == "renewed"]
    assert [(each["from"], each["event"], each["to"], each["canonical"]["from"]) for each in renewals] == [
        ("assigned", "job_lease_renewed", "assigned", "claimed"),
        ("running", "job_lease_renewed", "running", "running"),
    ]
    assert {each["basis"] for each in renewals} == {"seed"}


@pytest.mark.parametrize("name", DIALECTS)
def test_every_extension_has_a_reason_and_stands_there_once(name: str) -> None:
    found = extensions(DIALECTS[name])
    assert all(each["reason"] and each["basis"] in {"seed", "ours"} for each in found)
    canonical = [(each["canonical"]["event"], each["canonical"]["from"]) for each in found]
    assert len(canonical) == len({*canonical})


@pytest.mark.parametrize("name", DIALECTS)
def test_a_diagram_shows_every_literal_move_that_is_taken_or_has_a_source(name: str) -> None:
    moves = shown(DIALECTS[name])
    own = {(move.source, move.event, move.target) for move in moves if move.basis is None}
    assert len(moves) == len({move[:3] for move in moves})
    for literal in DIALECTS[name].literal:
        if literal.source is not None:
            assert (literal.source, literal.event or "", literal.target) in own


def test_a_diagram_leaves_out_what_no_source_leads_to() -> None:
    moves = shown(DIALECTS["authoritative"])
    assert not [move for move in moves if (move.event, move.target) == ("wait_completed", "Running")]
    assert [move.source for move in moves if (move.event, move.target) == ("job_requeued", "Retrying")] == [
        "Leased", "Running",
    ]  # fmt: skip
    assert [move.source for move in moves if (move.event, move.target) == ("wait_completed", "Queued")] == ["Waiting"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("formal", ["[*] --> Queued: job_created", "Running --> Retrying: job_requeued (seed)"]),
        ("authoritative", ["Queued --> Leased: job_leased", "Leased --> Running: job_stalled (seed)"]),
        ("reliability", ["queued --> assigned: job_claimed", "running --> queued: job_suspended (ours)"]),
        ("contract", ["running --> running: heartbeat", "stalled --> failed: failed (ours)"]),
        ("quality", ["[*] --> inbox", "inbox --> todo", "doing --> todo: task:update todo (ours)"]),
    ],
)
def test_a_mermaid_diagram_marks_what_is_not_the_seeds_own(name: str, lines: list[str]) -> None:
    drawn = mermaid(DIALECTS[name]).splitlines()
    assert drawn[0] == "stateDiagram-v2"
    assert {f"  {line}" for line in lines} <= {*drawn}
    assert len(drawn) == len({*drawn})


@pytest.mark.parametrize("name", DIALECTS)
def test_what_only_extensions_do_is_not_shown_as_the_seeds_own(name: str) -> None:
    each = DIALECTS[name]
    extended = {edge for edge, _ in declared(each.extensions)}
    plain = {each.move(edge) for edge in EDGES if edge not in extended}
    for move in shown(each):
        if move.basis is None and Move(*move[:3]) not in each.literal and move.event:
            assert Move(*move[:3]) in plain, move


@pytest.mark.parametrize("name", DIALECTS)
def test_a_drawing_is_valid_and_shows_every_state(name: str) -> None:
    root = ET.fromstring(svg(DIALECTS[name]))  # noqa: S314 - our own drawing
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == f"{name}, seed {DIALECTS[name].seed[:3]}"
    assert {*DIALECTS[name].states} <= {*texts}
    assert [*root.iter("{http://www.w3.org/2000/svg}circle")]


@pytest.mark.parametrize("name", [name for name in DIALECTS if name != "authoritative"])
def test_a_drawing_shows_extensions_dashed(name: str) -> None:
    drawn = svg(DIALECTS[name])
    assert 'class="ours"' in drawn
    assert "a declared extension" in drawn
