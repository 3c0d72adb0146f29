"""The parts of the migrations that the lifecycle dictates say what its tables say."""

import re
from collections.abc import Iterable
from importlib.resources import files

import pytest

from leftfold.core.lifecycle import ENDED, FINAL, SHAPE, Shape, State

#: The lease of a job has several columns; this one is there whenever the lease is.
COLUMNS = {"lease": "owner"}


def quoted(states: Iterable[State]) -> str:
    chosen = set(states)
    return ", ".join(f"'{state}'" for state in State if state in chosen)


def by_state(field: str, column: str, states: Iterable[State]) -> str:
    return f"CONSTRAINT {field}_by_state CHECK (({column} IS NOT NULL) = (state IN ({quoted(states)})))"


def shapes() -> str:
    lines = [
        by_state(field, COLUMNS.get(field, field), [state for state in State if getattr(SHAPE[state], field)])
        for field in Shape._fields
    ]
    return ",\n".join([*lines, by_state("ended", "ended_at", ENDED)])


RENDERED = {"states": quoted(State), "shapes": shapes(), "final": quoted(FINAL)}


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_migration_says_what_the_lifecycle_says(dialect: str) -> None:
    text = files("leftfold.store").joinpath(dialect, "migrations", "0001_begin.sql").read_text(encoding="utf-8")
    blocks = re.findall(r"-- rendered from the lifecycle: (\w+)\n(.*?)\n *-- end\n", text, re.DOTALL)
    found = {name: "\n".join(line.strip() for line in body.splitlines()) for name, body in blocks}
    assert found == RENDERED
    assert len(blocks) == len(RENDERED)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_no_state_is_named_outside_of_what_is_rendered(dialect: str) -> None:
    text = files("leftfold.store").joinpath(dialect, "migrations", "0001_begin.sql").read_text(encoding="utf-8")
    rest = re.sub(r"-- rendered from the lifecycle: (\w+)\n(.*?)\n *-- end\n", "", text, flags=re.DOTALL)
    assert [state for state in State if f"'{state}'" in rest] == []
