"""The parts of the migrations that the lifecycle dictates say what its tables say."""

import re
from collections.abc import Iterable
from importlib.resources import files

import pytest

from leftfold.core.lifecycle import ENDED, FINAL, SHAPE, Shape, State

#: Field of the shape → its columns, in the order of their numbers: 1, 2, 4 …
COLUMNS = {
    "due": ("due",), "lease": ("owner", "token"), "wait": ("wait",), "result": ("result",), "error": ("error",),
    "ended": ("ended_at",),
}  # fmt: skip
#: Columns that may be there where others are: these belong to an error that ended a job, and to any end.
MAY = {"incident": ("error", "ended"), "resolved_at": ("ended",)}
#: What most rows are is asked first.
FIRST = (State.QUEUED, State.CLAIMED, State.SUCCEEDED)


def quoted(states: Iterable[State]) -> str:
    chosen = set(states)
    return ", ".join(f"'{state}'" for state in State if state in chosen)


def shape_in_a_file() -> str:
    places = [(field, column) for field, columns in COLUMNS.items() for column in columns]
    there = [f"({column} IS NOT NULL)" for _, column in places]
    terms = [there[0], *(f"{1 << place} * {term}" for place, term in enumerate(there) if place)]
    numbers = {
        state: sum(1 << place for place, (field, _) in enumerate(places) if _has(state, field)) for state in State
    }
    cases = " ".join(f"WHEN '{state}' THEN {number}" for state, number in numbers.items())
    return f"{' + '.join(terms)}\nIS CASE state {cases} END"


def shape_on_postgres() -> str:
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[State]] = {}
    for state in dict.fromkeys((*FIRST, *State)):
        there = tuple(column for field, columns in COLUMNS.items() if _has(state, field) for column in columns)
        not_there = tuple(column for field, columns in COLUMNS.items() if not _has(state, field) for column in columns)
        refused = tuple(column for column, fields in MAY.items() if not all(_has(state, field) for field in fields))
        alike.setdefault((there, not_there + refused), []).append(state)
    lines = []
    for (there, not_there), states in alike.items():
        lines.append(f"WHEN {quoted(states)} THEN")
        asked = [f"num_nulls({_new(there)}) = 0"] if there else []
        fits = " AND ".join([*asked, f"num_nonnulls({_new(not_there)}) = 0"])
        lines.append(f"    IF {fits} THEN RETURN NEW; END IF;")
    return "\n".join(line.strip() for line in lines)


def out_of_shape_on_postgres() -> str:
    lines = [
        f"(NEW.{column} IS NULL) = (NEW.state IN ({quoted(state for state in State if _has(state, field))}))"
        for field, columns in COLUMNS.items()
        for column in columns
    ]
    for column, fields in MAY.items():
        allowed = quoted(state for state in State if all(_has(state, field) for field in fields))
        lines.append(f"NEW.{column} IS NOT NULL AND NEW.state NOT IN ({allowed})")
    return "\nOR ".join(lines)


def _new(columns: Iterable[str]) -> str:
    return ", ".join(f"NEW.{column}" for column in columns)


def _has(state: State, field: str) -> bool:
    return state in ENDED if field == "ended" else bool(getattr(SHAPE[state], field))


def rendered(dialect: str) -> dict[str, str]:
    if dialect == "sqlite":
        return {"shape": shape_in_a_file(), "final": quoted(FINAL)}
    shapes = {"shape": shape_on_postgres(), "out_of_shape": out_of_shape_on_postgres()}
    return shapes | {"states": quoted(State), "final": quoted(FINAL)}


def test_each_field_of_the_shape_has_its_columns() -> None:
    assert set(COLUMNS) == {*Shape._fields, "ended"}


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_migration_says_what_the_lifecycle_says(dialect: str) -> None:
    text = files("leftfold.store").joinpath(dialect, "migrations", "0001_begin.sql").read_text(encoding="utf-8")
    blocks = re.findall(r"-- rendered from the lifecycle: (\w+)\n(.*?)\n *-- end\n", text, re.DOTALL)
    found = {name: "\n".join(line.strip() for line in body.splitlines()) for name, body in blocks}
    assert found == rendered(dialect)
    assert len(blocks) == len(found)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_no_state_is_named_outside_of_what_is_rendered(dialect: str) -> None:
    text = files("leftfold.store").joinpath(dialect, "migrations", "0001_begin.sql").read_text(encoding="utf-8")
    rest = re.sub(r"-- rendered from the lifecycle: (\w+)\n(.*?)\n *-- end\n", "", text, flags=re.DOTALL)
    assert [state for state in State if f"'{state}'" in rest] == []
