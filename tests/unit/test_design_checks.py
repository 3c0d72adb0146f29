"""A table that contradicts itself is refused before any job exists, with and without `python -O`."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from leftfold.core import events as e
from leftfold.core import lifecycle
from leftfold.core.errors import DesignError
from leftfold.core.lifecycle import SHAPE, TABLE, Rule, Shape, State, Who, check_design

Tables = tuple[tuple[Rule, ...], Mapping[State, Shape]]


def _with(*rules: Rule) -> Tables:
    return (*TABLE, *rules), SHAPE


def _without(drop: Callable[[Rule], bool]) -> Tables:
    return tuple(rule for rule in TABLE if not drop(rule)), SHAPE


def _changed(change: Callable[[Rule], Rule]) -> Tables:
    return tuple(change(rule) for rule in TABLE), SHAPE


def _never_leaving_running(rule: Rule) -> Rule:
    return rule._replace(sources=tuple(source for source in rule.sources if source is not State.RUNNING))


def _reopened_by_a_keeper(rule: Rule) -> Rule:
    return rule._replace(who=(Who.OPERATOR, Who.KEEPER)) if State.FAILED in rule.sources else rule


BROKEN: Final[Mapping[str, tuple[str, Tables]]] = {
    "two rules on one edge": (
        "two rules on one edge: claimed x started",
        _with(Rule("D", e.Started, (State.CLAIMED,), State.RUNNING, (Who.OPERATOR,))),
    ),
    "two rules on the birth": (
        "two rules on one edge: None x received",
        _with(Rule("A", e.Received, (None,), State.INBOX, (Who.KEEPER,))),
    ),
    "an event without a rule": ("an event without a rule: parked", _without(lambda rule: rule.event is e.Parked)),
    "a label for two events": (
        "label A stands for more than one event",
        _changed(lambda rule: rule._replace(label="A") if rule.event is e.Started else rule),
    ),
    "a label for two targets": (
        "label D stands for more than one event",
        _with(Rule("D", e.Started, (State.STALLED,), State.CLAIMED, (Who.OPERATOR,))),
    ),
    "a state without a shape": (
        "a state without a shape: parked",
        (TABLE, {state: shape for state, shape in SHAPE.items() if state is not State.PARKED}),
    ),
    "an unreachable state": (
        "an unreachable state: inbox",
        _changed(lambda rule: rule._replace(sources=(State.INBOX,)) if rule.event is e.Received else rule),
    ),
    "a state without an end": ("a state without an end: running", _changed(_never_leaving_running)),
    "an exit from a final state": (
        "an exit from a final state: cancelled x started",
        _with(Rule("D", e.Started, (State.CANCELLED,), State.RUNNING, (Who.OPERATOR,))),
    ),
    "a reopening by others": ("somebody else than an operator reopens failed", _changed(_reopened_by_a_keeper)),
    "an owner without a lease": (
        "an owner without a lease: queued x started",
        _with(Rule("D", e.Started, (State.QUEUED,), State.RUNNING, (Who.OWNER,))),
    ),
    "an owner of a job that is not there": (
        "an owner without a lease: None x started",
        _with(Rule("D", e.Started, (None,), State.RUNNING, (Who.OWNER,))),
    ),
}


def test_the_tables_as_they_are_pass() -> None:
    check_design(TABLE, SHAPE)


@pytest.mark.parametrize(("message", "tables"), BROKEN.values(), ids=BROKEN)
def test_a_table_that_contradicts_itself_is_refused_with_its_reason(message: str, tables: Tables) -> None:
    with pytest.raises(DesignError) as caught:
        check_design(*tables)
    assert str(caught.value) == message


def test_the_checks_hold_without_assertions() -> None:
    script = """
from tests.unit.test_design_checks import BROKEN
from leftfold.core.errors import DesignError
from leftfold.core.lifecycle import check_design

assert False, "assertions are on"
for message, tables in BROKEN.values():
    try:
        check_design(*tables)
    except DesignError as error:
        print(error)
"""
    run = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert run.stderr == ""
    assert run.stdout.splitlines() == [message for message, _ in BROKEN.values()]


@pytest.mark.parametrize("options", [[], ["-O"]], ids=["plain", "optimised"])
def test_a_module_with_a_broken_table_cannot_be_imported(options: list[str]) -> None:
    source, removed = re.subn(r"\n +Rule\(.F., e.Parked,[^\n]*", "", inspect.getsource(lifecycle))
    assert removed == 1
    run = subprocess.run(
        [sys.executable, *options, "-"], input=source, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == "leftfold.core.errors.DesignError: an event without a rule: parked"
