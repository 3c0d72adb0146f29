"""A row that the lifecycle forbids is refused by the database, whoever writes it."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.migration.raw import PostgresRaw, Raw, Refused, SqliteRaw
from tests.places import file_in, schema_on

import leftfold
from leftfold.core.lifecycle import ENDED, FINAL, SHAPE, Shape, State

#: Field of the shape → the columns that go with it.
FIELDS: dict[str, dict[str, Any]] = {
    "due": {"due": 1},
    "lease": {"owner": "worker", "token": "digest"},
    "wait": {"wait": 1},
    "result": {"result": 1},
    "error": {"error": 1},
    "ended": {"ended_at": 1},
}
#: Columns that a state allows and does not ask for: a value, and the states. A dead letter has an incident, and whoever
#: looks at what has ended may resolve it.
ALLOWED: dict[str, tuple[Any, set[State]]] = {
    "incident": ("0123456789ab", {state for state in ENDED if SHAPE[state].error}),
    "resolved_at": (1, set(ENDED)),
}
#: What every row has.
ALWAYS: dict[str, Any] = {
    "created_at": 1, "updated_at": 1, "lease": 60, "version": 1, "renewals": 0, "attempt": 0, "failures": 0,
    "priority": 0, "tenant": "", "kind": "work", "queue": "default",
}  # fmt: skip


#: How the databases call it.
_UNSHAPED = "shape|incident|resolved"


@pytest.fixture(scope="module", params=["postgres", "sqlite"])
def raw(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raw]:
    """One store for all of these: no row is in another's way."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            place = file_in(tmp_path_factory.mktemp("shapes"))
            leftfold.migrate(place.url)
            yield stack.enter_context(SqliteRaw(place))
        else:
            place = stack.enter_context(schema_on(request.getfixturevalue("postgres")))
            yield stack.enter_context(PostgresRaw(place))


def has(state: State, field: str) -> bool:
    return state in ENDED if field == "ended" else bool(getattr(SHAPE[state], field))


def row(state: State, fields: set[str]) -> dict[str, Any]:
    columns = {**ALWAYS, "id": str(uuid4()), "state": state.value}
    for field in fields:
        columns |= FIELDS[field]
    return columns


def id_in(raw: Raw, columns: dict[str, Any]) -> str:
    return f"x'{UUID(columns['id']).hex}'" if raw.is_file else repr(columns["id"])


def insert(raw: Raw, columns: dict[str, Any], insertion: str = "INSERT") -> None:
    head = "x'00'" if raw.is_file else "'\\x00'"
    values = ", ".join(
        id_in(raw, columns) if name == "id" else "NULL" if value is None else repr(value)
        for name, value in columns.items()
    )
    raw.run(f"{insertion} INTO jobs ({', '.join(columns)}, head) VALUES ({values}, {head})")


def legal(state: State) -> set[str]:
    return {field for field in FIELDS if has(state, field)}


def test_each_field_of_the_shape_is_varied_here() -> None:
    assert set(FIELDS) == {*Shape._fields, "ended"}


@pytest.mark.parametrize("state", State)
def test_a_row_in_the_shape_of_its_state_is_taken(raw: Raw, state: State) -> None:
    insert(raw, row(state, legal(state)))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("state", State)
def test_a_row_with_one_field_out_of_shape_is_refused(raw: Raw, state: State, field: str) -> None:
    with pytest.raises(Refused, match="shape"):
        insert(raw, row(state, legal(state) ^ {field}))


@pytest.mark.parametrize("state", [state for state in State if state not in FINAL])
def test_a_row_is_not_brought_out_of_shape_later(raw: Raw, state: State) -> None:
    columns = row(state, legal(state))
    insert(raw, columns)
    for field, given in FIELDS.items():
        values = dict.fromkeys(given) if has(state, field) else given
        changes = ", ".join(
            f"{name} = {repr(value) if value is not None else 'NULL'}" for name, value in values.items()
        )
        with pytest.raises(Refused, match="shape"):
            raw.run(f"UPDATE jobs SET {changes} WHERE id = {id_in(raw, columns)}")  # noqa: S608 - our own


@pytest.mark.parametrize("state", [state for state in State if state not in FINAL])
def test_a_state_that_the_other_columns_do_not_fit_is_refused(raw: Raw, state: State) -> None:
    columns = row(state, legal(state))
    insert(raw, columns)
    for other in State:
        change = f"UPDATE jobs SET state = '{other}' WHERE id = {id_in(raw, columns)}"  # noqa: S608 - our own
        if legal(other) == legal(state):
            raw.run(change)
            raw.run(f"UPDATE jobs SET state = '{state}' WHERE id = {id_in(raw, columns)}")  # noqa: S608 - our own
        else:
            with pytest.raises(Refused, match="shape"):
                raw.run(change)


@pytest.mark.parametrize("column", ALLOWED)
@pytest.mark.parametrize("state", State)
def test_a_new_row_has_an_incident_or_is_resolved_only_if_its_state_allows_that(
    raw: Raw, state: State, column: str
) -> None:
    value, states = ALLOWED[column]
    columns = row(state, legal(state)) | {column: value}
    if state in states:
        insert(raw, columns)
    else:
        with pytest.raises(Refused, match=_UNSHAPED):
            insert(raw, columns)


@pytest.mark.parametrize("column", ALLOWED)
@pytest.mark.parametrize("state", [state for state in State if state not in FINAL])
def test_a_row_comes_to_an_incident_or_is_resolved_only_while_its_state_allows_that(
    raw: Raw, state: State, column: str
) -> None:
    value, states = ALLOWED[column]
    columns = row(state, legal(state))
    insert(raw, columns)
    change = f"UPDATE jobs SET {column} = {value!r} WHERE id = {id_in(raw, columns)}"  # noqa: S608 - our own
    if state not in states:
        with pytest.raises(Refused, match=_UNSHAPED):
            raw.run(change)
        return
    raw.run(change)
    inbox = ", ".join(f"{name} = NULL" for field in legal(state) for name in FIELDS[field])
    with pytest.raises(Refused, match=_UNSHAPED):  # it is not taken along out of that state
        raw.run(f"UPDATE jobs SET state = 'inbox', {inbox} WHERE id = {id_in(raw, columns)}")  # noqa: S608 - our own
    raw.run(f"UPDATE jobs SET state = 'inbox', {inbox}, {column} = NULL WHERE id = {id_in(raw, columns)}")  # noqa: S608


def test_a_lease_without_its_token_and_a_token_without_a_lease_are_refused(raw: Raw) -> None:
    with pytest.raises(Refused, match="shape"):
        insert(raw, row(State.CLAIMED, legal(State.CLAIMED)) | {"token": None})
    with pytest.raises(Refused, match="shape"):
        insert(raw, row(State.QUEUED, legal(State.QUEUED)) | {"token": "digest"})


def test_a_state_that_there_is_not_is_refused(raw: Raw) -> None:
    for wrong in ("QUEUED", "done", ""):
        with pytest.raises(Refused):
            insert(raw, row(State.INBOX, set()) | {"state": wrong})


def test_there_are_no_two_live_jobs_with_one_key(raw: Raw) -> None:
    insert(raw, row(State.QUEUED, legal(State.QUEUED)) | {"key": "key"})
    if raw.is_file:  # it says nothing there: an exception could not be told from a REPLACE that may not be
        for insertion in ("INSERT", "INSERT OR REPLACE", "REPLACE"):
            insert(raw, row(State.QUEUED, legal(State.QUEUED)) | {"key": "key", "priority": 7}, insertion)
        assert raw.run("SELECT count(*), max(priority) FROM jobs WHERE key = 'key'") == [(1, ALWAYS["priority"])]
        insert(raw, other := row(State.QUEUED, legal(State.QUEUED)))
        with pytest.raises(Refused, match="another live job holds the key"):
            raw.run(f"UPDATE OR REPLACE jobs SET key = 'key' WHERE id = {id_in(raw, other)}")  # noqa: S608 - our own
    else:
        with pytest.raises(Refused, match="key"):
            insert(raw, row(State.QUEUED, legal(State.QUEUED)) | {"key": "key"})
    insert(raw, row(State.SUCCEEDED, legal(State.SUCCEEDED)) | {"key": "key"})
    insert(raw, row(State.QUEUED, legal(State.QUEUED)) | {"key": "key", "kind": "other"})
    insert(raw, row(State.QUEUED, legal(State.QUEUED)) | {"key": "key", "tenant": "other"})


def test_each_column_is_held_to_its_type(raw: Raw) -> None:
    for wrong in ({"version": "one"}, {"attempt": ""}, {"created_at": None}):
        with pytest.raises(Refused):
            insert(raw, row(State.INBOX, set()) | wrong)
    if raw.is_file:
        tables = raw.run("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        ours = ("jobs", "events", "names", "counts", "requests", "queues", "feeds", "maintenance")
        assert {name for name, _ in tables} >= {f"leftfold_{name}" for name in ours}
        assert [name for name, sql in tables if "STRICT" not in sql.rpartition(")")[2]] == []
