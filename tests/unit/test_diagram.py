"""The rendered lifecycle says what the table says."""

import json

from leftfold.core import diagram
from leftfold.core import events as e
from leftfold.core.lifecycle import EDGES, SHAPE, TABLE, State


def test_the_description_has_the_documented_form() -> None:
    described = json.loads(json.dumps(diagram.describe()))
    assert set(described) >= {"states", "transitions", "notes", "shape"}
    assert described["states"] == [state.value for state in State]
    assert described["notes"] == [note.wire for note in e.NOTES]
    assert len(described["transitions"]) == len(TABLE)
    for row in described["transitions"]:
        assert set(row) >= {"event", "from", "to", "who"}
    assert described["transitions"][1] == {
        "label": "B",
        "event": "enqueued",
        "from": [None, "inbox"],
        "to": "queued",
        "who": ["client"],
        "effect": "sets due",
    }
    assert described["shape"]["retrying"] == {
        "due": "required",
        "lease": "forbidden",
        "wait": "forbidden",
        "result": "forbidden",
        "error": "required",
    }
    assert list(described["shape"]) == described["states"]
    assert (described["final"], described["closed"]) == (["cancelled", "succeeded"], ["dead_lettered", "failed"])


def test_the_description_holds_every_edge() -> None:
    described = {
        (source, row["event"], row["to"]) for row in diagram.describe()["transitions"] for source in row["from"]
    }
    assert described == {(edge.source and edge.source.value, edge.event.wire, edge.target.value) for edge in EDGES}


def test_the_mermaid_diagram_names_every_edge_once() -> None:
    first, *lines = diagram.mermaid().splitlines()
    assert first == "stateDiagram-v2"
    labels = {rule.event: rule.label for rule in TABLE}
    edges = [
        f"  {edge.source or '[*]'} --> {edge.target}: {labels[edge.event]} {edge.event.wire}" for edge in EDGES
    ]  # fmt: skip
    assert sorted(lines) == sorted([*edges, "  succeeded --> [*]", "  cancelled --> [*]"])


def test_other_edges_are_drawn_the_same_way() -> None:
    assert diagram.mermaid([("a", "go", "b"), ("b", "", "c")], ["c"]).splitlines() == [
        "stateDiagram-v2",
        "  a --> b: go",
        "  b --> c",
        "  c --> [*]",
    ]
    assert diagram.mermaid([], []) == "stateDiagram-v2"


def test_the_matrix_has_a_cell_for_every_state_and_event() -> None:
    head, rows = diagram.matrix()
    assert head == ["", "event", "(new)", *(state.value for state in State), "leads to"]
    assert [row[1] for row in rows] == [event.wire for event in e.TRANSITIONS]
    assert all(len(row) == len(head) for row in rows)
    legal = {
        (row[1], source, row[-1])
        for row in rows
        for source, cell in zip(head[2:-1], row[2:-1], strict=True)
        if cell == "●"
    }
    assert legal == {(edge.event.wire, str(edge.source or "(new)"), edge.target.value) for edge in EDGES}
    assert {cell for row in rows for cell in row[2:-1]} == {"●", "·"}
    assert "".join(row[0] for row in rows) == "ABCDEFGHIJKLMNO"


def test_the_shapes_are_those_of_the_table() -> None:
    head, rows = diagram.shapes()
    assert head == ["state", "due", "lease", "wait", "result", "error", "meaning"]
    assert [[cell == "●" for cell in row[1:-1]] for row in rows] == [list(SHAPE[state]) for state in State]
    assert rows[0] == ["inbox", "·", "·", "·", "·", "·", "received, not yet admitted"]


def test_the_rules_are_the_rows_of_the_table() -> None:
    head, rows = diagram.rules()
    assert head == ["", "event", "from", "to", "who", "effect"]
    assert len(rows) == len(TABLE)
    assert rows[1] == ["B", "enqueued", "(new), inbox", "queued", "client", "sets due"]


def test_a_table_in_markdown() -> None:
    assert diagram.markdown((["a", "b"], [["1", "2"], ["3", "4"]])).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1 | 2 |",
        "| 3 | 4 |",
    ]
