"""The table of operations is complete: what the engine writes, the explorer plays."""

import inspect
import re

import pytest
from tests.interleave.operations import BATCHES, KEEPING, OPERATIONS
from tests.interleave.scenes import STATES
from tests.interleave.touching import TOUCHES

from leftfold import Engine
from leftfold.core.lifecycle import State
from leftfold.store.postgres.wire import queries

#: What a method that writes calls, sooner or later.
_WRITES = {"_write", "_create", "_own", "_tell", "_many"}


def calls_of(method: object) -> set[str]:
    return set(re.findall(r"self\.(\w+)\(", inspect.getsource(method)))  # type: ignore[arg-type]


def writing_methods() -> set[str]:
    methods = dict(inspect.getmembers(Engine, inspect.isfunction))
    writing = set(_WRITES)
    while more := {name for name, method in methods.items() if calls_of(method) & writing} - writing:
        writing |= more
    return writing


def test_every_operation_of_the_engine_that_writes_is_in_the_table() -> None:
    writing = writing_methods()
    assert {"enqueue", "claim", "complete_many", "signal", "pause"} <= writing, "what writes is no longer recognised"
    assert writing & {"get", "history", "list", "counts", "queues", "find"} == set()
    played = {operation.method for operation in (*OPERATIONS, *BATCHES, *KEEPING)}
    # What only calls others that are played, each in a transaction of its own, needs no row.
    composed = {name for name in writing if not calls_of(getattr(Engine, name)) & (writing - played)}
    assert {name for name in writing - played - composed if not name.startswith("_")} == set()


def test_no_two_operations_have_the_same_name() -> None:
    names = [operation.name for operation in (*OPERATIONS, *BATCHES, *KEEPING)]
    assert len(set(names)) == len(names)


def test_every_operation_is_made_for_a_state_and_every_state_that_can_change_is_set_up() -> None:
    assert {operation.state for operation in (*OPERATIONS, *BATCHES, *KEEPING)} <= set(STATES)
    text = " ".join(STATES).replace("-", "_")
    ended = {State.SUCCEEDED, State.CANCELLED, State.FAILED}  # nothing leaves the two; failed is as dead-lettered
    assert [state for state in State if state not in ended and state.value not in text] == []


@pytest.mark.parametrize("statement", [name for name in TOUCHES if name.islower()])
def test_what_a_statement_touches_is_said_of_statements_that_there_are(statement: str) -> None:
    assert statement in queries("leftfold")
