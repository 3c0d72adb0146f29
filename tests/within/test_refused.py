"""What `within` does not take, and what the caller's own settings do not change."""

import importlib
import sqlite3 as stdlib
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from tests.concurrency.crowd import Crowd, eventually, processes
from tests.places import Place, logs_of
from tests.within.hands import NO_TRACE, alchemy_engine, held, look, orders, traces

from leftfold import NewJob, Receipt
from leftfold.core.errors import KeyTakenError, StoreError, StoreUnavailableError, ValidationError
from leftfold.store.sqlite.library import sqlite
from leftfold.store.sqlite.within import commits_by_itself


def test_a_connection_that_commits_by_itself_is_refused(on_postgres: Place, on_sqlite: Place) -> None:
    with on_postgres.open() as engine, psycopg.connect(on_postgres.url, autocommit=True) as connection:
        with pytest.raises(ValidationError, match="commits by itself: begin a transaction first"):
            engine.enqueue("work", within=connection)
        with connection.transaction():
            engine.enqueue("work", within=connection)
        connection.execute("BEGIN")
        engine.enqueue("work", within=connection)
        connection.execute("ROLLBACK")
        assert len(logs_of(engine)) == 1
    with on_sqlite.open() as engine:
        connection = sqlite.connect(on_sqlite.path, isolation_level=None)
        with pytest.raises(ValidationError, match="commits by itself: begin a transaction first"):
            engine.enqueue("work", within=connection)
        connection.execute("BEGIN")
        engine.enqueue("work", within=connection)
        connection.execute("COMMIT")
        connection.close()
        assert len(logs_of(engine)) == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has had autocommit since Python 3.12")
def test_a_connection_with_autocommit_is_refused_because_its_commit_would_do_nothing(on_sqlite: Place) -> None:
    connect: Any = partial(stdlib.connect, on_sqlite.path)  # what has no such parameter is pysqlite3, and Python 3.11
    if sqlite is not stdlib:
        pytest.skip("pysqlite3 has no autocommit")
    with on_sqlite.open() as engine:
        connection = connect(autocommit=True)
        with pytest.raises(ValidationError, match="commits by itself: begin a transaction first"):
            engine.enqueue("work", within=connection)
        assert not connection.in_transaction
        connection.execute("BEGIN")
        engine.enqueue("work", within=connection)
        connection.execute("COMMIT")
        connection.close()
        always = connect(autocommit=False)
        engine.enqueue("work", within=always)
        always.commit()
        always.close()
        assert len(logs_of(engine)) == 2


class Settings(NamedTuple):
    """What a connection says of itself; `autocommit` as of Python 3.12, where -1 is the way of older ones."""

    isolation_level: str | None
    autocommit: bool | int
    in_transaction: bool = False


@pytest.mark.parametrize(
    ("settings", "alone"),
    [
        (Settings("", -1), False),
        (Settings("IMMEDIATE", -1), False),
        (Settings(None, -1), True),
        (Settings(None, -1, in_transaction=True), False),
        (Settings("", True), True),
        (Settings(None, True), True),
        (Settings("", True, in_transaction=True), False),
        (Settings("", False, in_transaction=True), False),
    ],
)
def test_every_way_to_commit_by_oneself_is_known(settings: Settings, alone: bool) -> None:
    assert commits_by_itself(settings) is alone


@pytest.mark.parametrize("where", ["postgres", "sqlite"])
def test_an_autocommitting_connection_of_sqlalchemy_is_refused(where: str, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(f"on_{where}")
    alchemy = alchemy_engine(place, isolation_level="AUTOCOMMIT")
    with place.open() as engine, alchemy.connect() as connection, sqlalchemy.orm.Session(alchemy) as session:
        for within in (connection, session):
            with pytest.raises(ValidationError, match="commits by itself"):
                engine.enqueue("work", within=within)
    alchemy.dispose()
    assert traces(place) == NO_TRACE


def strangers(place: Place) -> list[Callable[[], object]]:
    """Give ways to what is no connection at all."""
    return [
        lambda: "a connection",
        lambda: 7,
        object,
        lambda: place,
        lambda: place.open,
        lambda: sqlalchemy.text("SELECT 1"),
        lambda: alchemy_engine(place),
        lambda: sqlite.connect(":memory:").cursor(),
    ]


@pytest.mark.parametrize("where", ["postgres", "sqlite"])
def test_what_is_no_connection_is_refused(where: str, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(f"on_{where}")
    with place.open() as engine:
        for make in strangers(place):
            with pytest.raises(ValidationError, match=r"within takes|has no connection"):
                engine.enqueue("work", within=make())
    assert traces(place) == NO_TRACE


def test_a_connection_to_the_other_store_is_refused(on_postgres: Place, on_sqlite: Place) -> None:
    with on_postgres.open() as server, on_sqlite.open() as file:
        with held("sqlite3", on_sqlite) as hand, pytest.raises(ValidationError, match="within takes a psycopg"):
            server.enqueue("work", within=hand.within)
        with held("psycopg", on_postgres) as hand, pytest.raises(ValidationError, match="within takes a connection of"):
            file.enqueue("work", within=hand.within)
        with held("sqlalchemy session", on_postgres) as hand, pytest.raises(ValidationError, match="within takes"):
            file.enqueue("work", within=hand.within)


def test_a_connection_to_another_file_is_refused(on_sqlite: Place, tmp_path: Path) -> None:
    other, memory = sqlite.connect(tmp_path / "other.db"), sqlite.connect(":memory:")
    attached = sqlite.connect(":memory:")
    attached.execute(f"ATTACH '{on_sqlite.path}' AS theirs")
    with on_sqlite.open() as engine:
        for connection in (other, memory, attached):
            with pytest.raises(ValidationError, match="the very file of this store"):
                engine.enqueue("work", within=connection)
            assert not connection.in_transaction, "nothing was begun on it"
            connection.close()
    assert traces(on_sqlite) == NO_TRACE


def test_the_same_file_by_another_name_is_taken(on_sqlite: Place, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(on_sqlite.path)
    connections = [sqlite.connect(tmp_path / "link.db"), sqlite.connect(f"file:{on_sqlite.path}?mode=rw", uri=True)]
    with on_sqlite.open() as engine:
        for connection in connections:
            engine.enqueue("work", within=connection)
            connection.commit()
            connection.close()
        assert len(logs_of(engine)) == 2


def test_a_connection_of_the_other_sqlite_module_is_refused(on_sqlite: Place) -> None:
    pytest.importorskip("pysqlite3")
    assert processes(2, offer_the_other_module, on_sqlite, libraries=["stdlib", "pysqlite3"]) == [
        "this connection is not of sqlite3",
        "this connection is not of pysqlite3",
    ]
    assert traces(on_sqlite) == NO_TRACE


def offer_the_other_module(_: int, __: object, place: Place) -> str:
    other: Any = importlib.import_module("pysqlite3.dbapi2") if sqlite is stdlib else stdlib
    connection = other.connect(":memory:")  # two libraries on one file would be the very thing that must not be
    with place.open() as engine:
        try:
            engine.enqueue("work", within=connection)
        except ValidationError as refusal:
            return str(refusal).partition(",")[0]
        finally:
            connection.close()
    return "it was taken"


def dicts(cursor: Any, row: Any) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize(
    ("setting", "value"),
    [("row_factory", dicts), ("row_factory", lambda _, row: row[0]), ("text_factory", bytes)],
    ids=["dicts", "scalars", "bytes"],
)
def test_how_the_caller_likes_its_rows_does_not_matter(on_sqlite: Place, setting: str, value: Any) -> None:
    with on_sqlite.open() as engine:
        holder = engine.enqueue("work", key="key")
        connection = sqlite.connect(on_sqlite.path)
        setattr(connection, setting, value)
        receipt = engine.enqueue("work", request_id="ask", within=connection)
        assert engine.enqueue("work", request_id="ask", within=connection) == receipt
        assert engine.enqueue("work", key="key", within=connection).job_id == holder.job_id
        replaced = engine.enqueue("work", key="key", on_conflict="replace", within=connection)
        assert getattr(connection, setting) is value, "and it stays as it was"
        connection.commit()
        connection.close()
        assert set(logs_of(engine)) == {holder.job_id, receipt.job_id, replaced.job_id}


@pytest.mark.parametrize("where", ["postgres", "sqlite"])
def test_a_caller_may_enqueue_while_it_reads_its_own_rows(where: str, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(f"on_{where}")
    with place.open() as engine, held("sqlite3" if place.is_file else "psycopg", place) as hand:
        hand.run("INSERT INTO orders VALUES (1), (2), (3)")
        for (number,) in hand.within.execute("SELECT id FROM orders ORDER BY id"):
            engine.enqueue("work", number, within=hand.within)
        hand.commit()
        assert sorted(engine.get(job_id).payload for job_id in logs_of(engine)) == [1, 2, 3]


def test_a_transaction_that_has_failed_already_is_told_so(on_postgres: Place) -> None:
    with on_postgres.open() as engine, psycopg.connect(on_postgres.url) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(StoreError, match="aborted"):
            engine.enqueue("work", within=connection)
        connection.rollback()
        engine.enqueue("work", within=connection)
        connection.commit()
        assert len(logs_of(engine)) == 1


def test_a_closed_connection_is_told_so(on_postgres: Place, on_sqlite: Place) -> None:
    with on_postgres.open() as engine:
        closed = psycopg.connect(on_postgres.url)
        closed.close()
        with pytest.raises((StoreError, ValidationError)):
            engine.enqueue("work", within=closed)
    with on_sqlite.open() as engine:
        connection = sqlite.connect(on_sqlite.path)
        connection.close()
        with pytest.raises((StoreError, ValidationError)):
            engine.enqueue("work", within=connection)


def test_a_database_that_lost_our_tables_is_told_so_and_the_transaction_lives_on(on_postgres: Place) -> None:
    with on_postgres.open() as engine, psycopg.connect(on_postgres.url) as connection:
        connection.execute(f'ALTER TABLE "{on_postgres.schema}".jobs RENAME TO gone'.encode())
        with pytest.raises(StoreError, match="leftfold migrate"):
            engine.enqueue("work", within=connection)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        connection.rollback()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_the_isolation_of_the_caller_is_its_own(on_postgres: Place, level: str) -> None:
    with on_postgres.open() as engine, psycopg.connect(on_postgres.url) as connection:
        connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        engine.enqueue("work", key="key", request_id="ask", within=connection)
        assert connection.execute("SHOW transaction_isolation").fetchall() == [(level.lower(),)]
        connection.commit()
        assert len(logs_of(engine)) == 1


def test_a_locked_file_is_told_so(on_sqlite: Place) -> None:
    rival = sqlite.connect(on_sqlite.path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    connection = sqlite.connect(on_sqlite.path, timeout=0.05)
    with on_sqlite.open() as engine:
        with pytest.raises(StoreUnavailableError, match="locked"):
            engine.enqueue("work", within=connection)
        rival.execute("ROLLBACK")
        engine.enqueue("work", within=connection)
        connection.commit()
        assert len(logs_of(engine)) == 1
    rival.close()
    connection.close()


@pytest.mark.parametrize("commits", [True, False])
def test_who_wants_the_key_of_an_open_transaction_waits_for_its_end(on_postgres: Place, commits: bool) -> None:
    with on_postgres.open() as engine, held("psycopg", on_postgres) as hand, Crowd(2) as crowd:
        hand.run("INSERT INTO orders VALUES (1)")
        first = engine.enqueue("work", key="key", within=hand.within)

        def end() -> None:
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
            eventually(lambda: bool(look(on_postgres, waiting)))
            (hand.commit if commits else hand.rollback)()

        second, _ = crowd.duel(partial(engine.enqueue, "work", key="key"), end)
        assert isinstance(second, Receipt)
        assert (second.job_id == first.job_id) is commits
        assert second.changed is not commits
        assert len(logs_of(engine)) == 1
        assert orders(on_postgres) == ([1] if commits else [])


def test_a_key_that_is_taken_while_we_wait_within_is_refused_without_a_trace(on_postgres: Place) -> None:
    with on_postgres.open() as engine, held("psycopg", on_postgres) as one, held("psycopg", on_postgres) as other:
        one.run("INSERT INTO orders VALUES (1)")
        other.run("INSERT INTO orders VALUES (2)")
        first = engine.enqueue("work", key="key", within=one.within)

        def end() -> None:
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
            eventually(lambda: bool(look(on_postgres, waiting)))
            one.commit()

        with Crowd(2) as crowd:
            raising = partial(engine.enqueue, "work", key="key", on_conflict="raise", within=other.within)
            second, _ = crowd.duel(raising, end)
        assert isinstance(second, KeyTakenError)
        other.commit()
        assert set(logs_of(engine)) == {first.job_id}
        assert orders(on_postgres) == [1, 2]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_that_is_full_takes_nothing_else_from_the_callers_transaction(on_sqlite: Place, jobs: int) -> None:
    with on_sqlite.open() as engine, closing(sqlite.connect(on_sqlite.path, isolation_level=None)) as mine:
        mine.execute("CREATE TABLE baskets (name TEXT)")
        mine.execute("BEGIN IMMEDIATE")
        mine.execute("INSERT INTO baskets VALUES ('before')")
        ((pages,),) = mine.execute("PRAGMA page_count").fetchall()
        mine.execute(f"PRAGMA max_page_count = {pages + 4}").fetchall()
        made: list[object] = []

        def fill() -> None:
            while True:
                made.extend(engine.enqueue_many([NewJob("work", "x" * 500)] * jobs, within=mine))

        with pytest.raises(StoreUnavailableError, match="no space is left"):
            fill()
        mine.execute("PRAGMA max_page_count = 1000000").fetchall()
        mine.execute("INSERT INTO baskets VALUES ('after')")
        mine.execute("COMMIT")
        assert mine.execute("SELECT name FROM baskets").fetchall() == [("before",), ("after",)]
        assert len(logs_of(engine)) == len(made) > 0
        assert engine.verify().is_clean


def test_what_rolls_the_callers_transaction_back_is_told_as_it_is(on_sqlite: Place) -> None:
    with on_sqlite.open() as engine, closing(sqlite.connect(on_sqlite.path, isolation_level=None)) as mine:
        mine.execute(
            "CREATE TRIGGER mine BEFORE INSERT ON leftfold_events BEGIN SELECT raise(ROLLBACK, 'all of it'); END"
        )
        mine.execute("BEGIN")
        with pytest.raises(StoreError, match="all of it"):
            engine.enqueue("work", within=mine)
        assert not mine.in_transaction
        assert logs_of(engine) == {}
