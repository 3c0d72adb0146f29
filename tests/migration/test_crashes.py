"""A migration that breaks off, wherever it does, leaves nothing behind, and the next one succeeds."""

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.concurrency.crowd import DEADLINE, eventually, outcome, rounds
from tests.concurrency.hammer import die_at
from tests.migration.raw import short_life
from tests.places import Place, database_on, file_in

import leftfold
from leftfold.core.errors import StoreError
from leftfold.store.sqlite.driver import SqliteStore
from leftfold.store.sqlite.library import sqlite
from leftfold.testing.postgres import Server

HEAD = ["0001_begin"]
COMMANDS_MAX = 100  # there are a few dozen


def left_behind(path: Path) -> list[Any]:
    connection = sqlite.connect(path)
    found = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    connection.close()
    return list(found)


def test_an_error_at_any_statement_leaves_a_file_empty(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    for number in range(1, COMMANDS_MAX):
        store: Any = SqliteStore(str(path), migrate_now=False)
        store._connection.set_authorizer(denier(number))
        try:
            store.migrate()
        except (sqlite.DatabaseError, StoreError):
            assert left_behind(path) == []
        else:
            break
        finally:
            store.close()
    assert 20 < number < COMMANDS_MAX, "there were many places to break off at"
    with leftfold.open(f"sqlite:///{path}") as engine:
        short_life(engine)


def denier(number: int) -> Any:
    """Deny the creation of the thing of that number, whatever it is."""
    created = 0
    kinds = {sqlite.SQLITE_CREATE_TABLE, sqlite.SQLITE_CREATE_INDEX, sqlite.SQLITE_CREATE_TRIGGER, sqlite.SQLITE_PRAGMA}

    def authorize(action: int, *_: object) -> int:
        nonlocal created
        created += action in kinds
        denied = action in kinds and created == number
        return int(sqlite.SQLITE_DENY if denied else sqlite.SQLITE_OK)

    return authorize


@pytest.mark.parametrize("statement", [2, 3, 4, 11, 20, 30])
def test_a_process_that_dies_while_it_migrates_leaves_a_file_empty(tmp_path: Path, statement: int) -> None:
    place = file_in(tmp_path)
    victim = multiprocessing.get_context("spawn").Process(target=migrate_and_die, args=(str(place.path), statement))
    victim.start()
    victim.join(DEADLINE)
    assert victim.exitcode == -signal.SIGKILL
    assert left_behind(place.path) == []
    assert leftfold.migrate(place.url) == HEAD
    with place.open() as engine:
        short_life(engine)


def migrate_and_die(path: str, statement: int) -> None:
    store = SqliteStore(path, migrate_now=False)
    die_at(store, statement)
    store.migrate()


@contextlib.contextmanager
def at_command(server: Server, act: str) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """Give a database that acts at the command of the number in `public.stops`, whoever gives it."""
    with database_on(server) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SEQUENCE public.commands")
        connection.execute("CREATE TABLE public.stops (at bigint NOT NULL)")
        connection.execute("INSERT INTO public.stops VALUES (0)")
        connection.execute(
            f"""
            CREATE FUNCTION public.stop() RETURNS event_trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF nextval('public.commands') = (SELECT at FROM public.stops) THEN {act}; END IF;
            END $$
            """.encode()  # noqa: S608 - a constant
        )
        connection.execute("CREATE EVENT TRIGGER stop ON ddl_command_start EXECUTE FUNCTION public.stop()")
        yield url, connection


def stop_at(connection: psycopg.Connection[Any], number: int) -> None:
    connection.execute("ALTER SEQUENCE public.commands RESTART")  # itself a command, the first one
    connection.execute("SELECT setval('public.commands', 1, false)")
    connection.execute("UPDATE public.stops SET at = %s", (number,))


def schemas(connection: psycopg.Connection[Any]) -> list[str]:
    rows = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = 'leftfold'").fetchall()
    return [name for (name,) in rows]


def test_an_error_at_any_command_leaves_a_database_empty(postgres: Server) -> None:
    with at_command(postgres, "RAISE EXCEPTION 'the disk broke'") as (url, connection):
        for number in range(1, COMMANDS_MAX):
            stop_at(connection, number)
            answer = outcome(leftfold.migrate, url)
            if isinstance(answer, list):
                break
            assert "the disk broke" in str(answer)
            assert schemas(connection) == []
        assert answer == HEAD
        assert 20 < number < COMMANDS_MAX, "there were many places to break off at"
        with leftfold.open(url) as engine:
            short_life(engine)


def test_a_connection_that_breaks_while_it_migrates_leaves_a_database_empty(postgres: Server) -> None:
    with at_command(postgres, "PERFORM pg_terminate_backend(pg_backend_pid())") as (url, connection):
        for number in range(1, 24, max(1, 8 // rounds(1))):
            stop_at(connection, number)
            with pytest.raises(StoreError):
                leftfold.migrate(url)
            assert schemas(connection) == []
        stop_at(connection, 0)
        assert leftfold.migrate(url) == HEAD


def test_a_process_that_is_killed_while_it_migrates_leaves_a_database_empty(postgres: Server) -> None:
    with at_command(postgres, "PERFORM pg_advisory_xact_lock(4711)") as (url, connection):
        for number in (2, 9, 17):
            stop_at(connection, number)
            connection.execute("SELECT pg_advisory_lock(4711)")
            victim = multiprocessing.get_context("spawn").Process(target=leftfold.migrate, args=(url,))
            victim.start()
            eventually(lambda: waiting(connection) == 1)
            victim.kill()
            victim.join(DEADLINE)
            connection.execute("SELECT pg_advisory_unlock(4711)")
            eventually(lambda: others(connection) == 0)
            assert schemas(connection) == []
        stop_at(connection, 0)
        assert leftfold.migrate(url) == HEAD
        with leftfold.open(url) as engine:
            short_life(engine)


def waiting(connection: psycopg.Connection[Any]) -> int:
    ((count,),) = connection.execute("SELECT count(*) FROM pg_locks WHERE objid = 4711 AND NOT granted").fetchall()
    return int(count)


def others(connection: psycopg.Connection[Any]) -> int:
    ((count,),) = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'"
    ).fetchall()
    return int(count)


def test_who_waits_for_another_one_to_migrate_finds_its_work_done(postgres: Server) -> None:
    """The first one is stopped in the middle; the second waits for it, and then has nothing to do."""
    with at_command(postgres, "PERFORM pg_advisory_xact_lock(4711)") as (url, connection):
        stop_at(connection, 9)
        connection.execute("SELECT pg_advisory_lock(4711)")
        with contextlib.closing(multiprocessing.get_context("spawn").Pool(2)) as pool:
            first = pool.apply_async(leftfold.migrate, (url,))
            eventually(lambda: waiting(connection) == 1)
            second = pool.apply_async(leftfold.migrate, (url,))
            eventually(lambda: others(connection) == 2)
            connection.execute("SELECT pg_advisory_unlock(4711)")
            assert first.get(DEADLINE) == HEAD
            assert second.get(DEADLINE) == []
        pool.join()
        assert short_life_at(Place(url)) == ["enqueued", "claimed", "started", "succeeded"]


def short_life_at(place: Place) -> list[str]:
    with place.open() as engine:
        return short_life(engine)
