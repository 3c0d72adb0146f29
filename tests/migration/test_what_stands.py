"""What is on the log stands: the database refuses to change it, but for who first says who does it, and why."""

import pytest
from tests.migration.raw import PostgresRaw, Raw, Refused, SqliteRaw, short_life
from tests.places import Place

from leftfold.core.errors import StoreError
from leftfold.core.lifecycle import FINAL, State


@pytest.fixture
def ended(place: Place) -> str:
    """A job that has succeeded, with its log."""
    with place.open() as engine:
        short_life(engine)
        (job,) = engine.list().jobs
    return job.id


FORBIDDEN = {
    "update of events": "UPDATE events SET data = '{}'",
    "update of one column of events": "UPDATE events SET at = 1 WHERE version = 2",
    "delete of events": "DELETE FROM events WHERE version = 4",
    "delete of jobs": "DELETE FROM jobs",
    "update of a final job": "UPDATE jobs SET priority = 3",
    "state of a final job": "UPDATE jobs SET state = 'queued', due = 1, result = NULL, ended_at = NULL",
    "no change of a final job": "UPDATE jobs SET state = state",
}
FORBIDDEN_ON_POSTGRES = {
    "another id": "UPDATE jobs SET id = gen_random_uuid()",
    "truncation of events": "TRUNCATE events",
    "truncation of jobs": "TRUNCATE jobs",
    "truncation of both": "TRUNCATE events, jobs CASCADE",
}
FORBIDDEN_ON_SQLITE = {
    "another name for all": "UPDATE names SET name = 'nobody' WHERE n = 1",
    "a name less": "DELETE FROM names",
    "a name replaced": "INSERT OR REPLACE INTO names VALUES (1, 'nobody')",
    "replacement of an event": "INSERT OR REPLACE INTO events SELECT seq, job, version, 1, format, event, who, "
    "actor, request_id, request_hash, data, seal FROM events WHERE version = 2",
    "replacement of a version": "REPLACE INTO events SELECT 99, job, version, 1, format, event, who, "
    "actor, request_id, request_hash, data, seal FROM events WHERE version = 4",
    "replacement of a request": "REPLACE INTO events SELECT 99, job, 99, at, format, event, who, "
    "actor, request_id, request_hash, data, seal FROM events WHERE version = 1",
    "replacement of a final job": "INSERT OR REPLACE INTO jobs SELECT * FROM jobs",
    "update of an event by replacement": "UPDATE OR REPLACE events SET version = 3 WHERE version = 2",
}


def statements(raw: Raw) -> dict[str, str]:
    return FORBIDDEN | (FORBIDDEN_ON_SQLITE if raw.is_file else FORBIDDEN_ON_POSTGRES)


def contents(raw: Raw) -> list[object]:
    order = {"events": "version", "jobs": "id", "maintenance": "id"}
    return [raw.run(f"SELECT * FROM {table} ORDER BY {column}") for table, column in order.items()]  # noqa: S608


def answer(raw: Raw, statement: str) -> str:
    """Give what the database says to a statement, in a transaction that changes nothing in the end."""
    raw.run("BEGIN")
    try:
        raw.run(statement)
    except Refused as refusal:
        return str(refusal)
    finally:
        raw.run("ROLLBACK")
    return "done"


def test_nothing_that_is_on_the_log_is_changed(raw: Raw, ended: str) -> None:
    before = contents(raw)
    told = {what: answer(raw, statement) for what, statement in statements(raw).items()}
    assert {what: said for what, said in told.items() if "leftfold: " not in said or "is refused" not in said} == {}
    assert contents(raw) == before


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_job_in_any_final_state_never_changes(place: Place, raw: Raw, state: State) -> None:
    with place.open() as engine:
        job = engine.enqueue("work")
        if state is State.CANCELLED:
            engine.cancel(job.job_id)
        else:
            (claim,) = engine.claim("worker")
            engine.start(claim)
            engine.complete(claim)
        assert engine.get(job.job_id).state == state
    with pytest.raises(Refused, match="a final job never changes"):
        raw.run("UPDATE jobs SET queue = 'other'")


def test_a_closed_job_may_change_for_it_can_be_reopened(place: Place, raw: Raw) -> None:
    with place.open() as engine:
        job = engine.enqueue("work")
        engine.dead_letter(job.job_id, "enough")
        raw.run("UPDATE jobs SET priority = 3")
        assert engine.requeue(job.job_id, reason="another chance").state == "queued"


def test_a_transaction_that_says_why_may_change_what_stands(raw: Raw, ended: str) -> None:
    raw.maintain()
    raw.run("UPDATE events SET at = 1 WHERE version = 2")
    raw.run("UPDATE jobs SET priority = 3")
    raw.run("DELETE FROM events")
    raw.run("DELETE FROM jobs")
    raw.commit()
    events, jobs, maintained = contents(raw)
    assert (events, jobs) == ([], [])
    assert maintained, "it is on record"


def test_behind_such_a_transaction_everything_stands_again(raw: Raw, ended: str) -> None:
    raw.maintain()
    raw.run("UPDATE events SET at = 1 WHERE version = 2")
    raw.commit()
    for statement in FORBIDDEN.values():
        with pytest.raises(Refused, match="is refused"):
            raw.run(statement)


def test_such_a_transaction_that_is_rolled_back_leaves_no_way_open(raw: Raw, ended: str) -> None:
    before = contents(raw)
    raw.maintain()
    raw.run("DELETE FROM events")
    raw.run("ROLLBACK")
    with pytest.raises(Refused, match="is refused"):
        raw.run("DELETE FROM events")
    assert contents(raw) == before


def test_what_one_transaction_says_is_no_leave_for_another(place: Place, raw: Raw, ended: str) -> None:
    with SqliteRaw(place) if raw.is_file else PostgresRaw(place) as other:
        raw.maintain()
        if raw.is_file:  # where there is one writer at a time
            other.run("PRAGMA busy_timeout = 0")
        with pytest.raises(Refused, match="locked" if raw.is_file else "is refused"):
            other.run("DELETE FROM events")
        raw.commit()
        with pytest.raises(Refused, match="is refused"):
            other.run("DELETE FROM events")


def test_nothing_is_appended_while_somebody_forgot_to_end_it(place: Place, raw: Raw) -> None:
    if not raw.is_file:
        return  # there it ends with its transaction
    raw.maintain()
    raw.run("COMMIT")
    with place.open() as engine:
        with pytest.raises(StoreError, match="a maintenance is open"):
            engine.enqueue("work")
        raw.run("UPDATE maintenance SET open = 0")
        engine.enqueue("work")


def test_the_record_of_such_a_transaction_stands_as_well(raw: Raw, ended: str) -> None:
    raw.maintain()
    raw.commit()
    before = contents(raw)
    wipes = ["UPDATE maintenance SET reason = 'none'", "DELETE FROM maintenance"]
    wipes += ["UPDATE maintenance SET open = 1"] if raw.is_file else ["TRUNCATE maintenance"]
    told = {statement: answer(raw, statement) for statement in wipes}
    assert {statement: said for statement, said in told.items() if "is refused" not in said} == {}
    assert contents(raw) == before


def test_not_even_maintenance_alters_the_record_of_maintenance(raw: Raw, ended: str) -> None:
    """Else a transaction could change the log and leave no trace of itself, or of an earlier one."""
    raw.maintain()
    raw.commit()
    raw.maintain()
    for statement in (
        "UPDATE maintenance SET reason = 'none' WHERE id = 1",
        "DELETE FROM maintenance WHERE id = 1",
        "DELETE FROM maintenance",
    ):
        raw.run("SAVEPOINT before")
        with pytest.raises(Refused, match="is refused"):
            raw.run(statement)
        raw.run("ROLLBACK TO SAVEPOINT before")
    raw.commit()
    assert raw.run("SELECT reason FROM maintenance") == [("a law",), ("a law",)]
