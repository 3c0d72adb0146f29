"""A PostgreSQL that lets its clients wait, throws them out, or lets them in no more."""

import gc
import tracemalloc
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import psycopg
import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.concurrency.crowd import DEADLINE, eventually, outcome
from tests.ground.load import Writer, check_told
from tests.places import Place, logs_of
from tests.store.between import between

import leftfold
from leftfold import Engine, NewJob, Receipt
from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import OutcomeUnknownError, StoreUnavailableError
from leftfold.store.ops import Ask
from leftfold.store.query import Query

Connection = psycopg.Connection[tuple[Any, ...]]


def with_settings(place: Place, settings: Mapping[str, str]) -> Place:
    """Give the place for sessions with these settings."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return place._replace(url=f"{place.url}?options={quote(options)}")


@pytest.fixture
def admin(on_postgres: Place) -> Iterator[Connection]:
    with psycopg.connect(on_postgres.url, autocommit=True) as connection:
        yield connection


@contextmanager
def locked(place: Place, job_id: str) -> Iterator[None]:
    with psycopg.connect(place.url) as connection:
        connection.execute("SELECT FROM leftfold.jobs WHERE id = %s FOR UPDATE", (job_id,))
        yield
        connection.rollback()


@pytest.mark.parametrize(
    ("setting", "told"),
    [("statement_timeout", "took too long"), ("lock_timeout", "a lock was not to be had in time: try again")],
)
def test_a_wait_that_is_too_long_is_reported_and_nothing_happened(on_postgres: Place, setting: str, told: str) -> None:
    with with_settings(on_postgres, {setting: "50ms"}).open() as engine:
        claimed, job_id = engine.enqueue("work"), engine.enqueue("work").job_id
        (claim,) = engine.claim("worker", job_id=claimed.job_id)
        with locked(on_postgres, job_id), pytest.raises(StoreUnavailableError, match=told):
            engine.cancel(job_id, request_id="stop")
        with locked(on_postgres, claim.job_id), pytest.raises(StoreUnavailableError, match=told):
            engine.start(claim)  # a statement that commits by itself: that it did not happen is known all the same
        assert list(logs_of(engine).values()) == [["enqueued"], ["enqueued", "claimed"]]
        assert engine.cancel(job_id, request_id="stop").changed
        assert engine.start(claim).changed


def backends(admin: Connection) -> list[int]:
    found = admin.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend'"
    )
    return [pid for (pid,) in found.fetchall()]


def terminate_everything(admin: Connection) -> int:
    """Throw everybody out, and wait until they are gone."""
    there = backends(admin)
    admin.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) pid", (there,))
    eventually(lambda: not set(there) & set(backends(admin)))
    return len(there)


@pytest.mark.parametrize("place", range(4))
def test_a_session_that_sat_idle_in_its_transaction_too_long_is_run_anew(
    on_postgres: Place, admin: Connection, place: int
) -> None:
    with with_settings(on_postgres, {"idle_in_transaction_session_timeout": "200ms"}).open() as engine:
        job_id = engine.enqueue("work").job_id

        def sit_idle(_: Query | None) -> None:
            mine = backends(admin)
            eventually(lambda: not set(mine) & set(backends(admin)))

        with between(engine, place, sit_idle) as seen:
            answer = outcome(engine.cancel, job_id, request_id="stop")
        assert len(seen.seen) > place
        if seen.seen[place] == "the end":  # the commit went to a session that was gone: who knows
            assert isinstance(answer, OutcomeUnknownError)
        else:
            assert isinstance(answer, Receipt)
        assert engine.cancel(job_id, request_id="stop").state == "cancelled"
        assert logs_of(engine) == {job_id: ["enqueued", "cancelled"]}


def test_sessions_that_are_terminated_while_they_are_idle_are_not_missed(on_postgres: Place, admin: Connection) -> None:
    """A statement that commits by itself would leave a doubt if it were sent to a session that is gone."""
    with on_postgres.open() as engine:
        for number in range(3):
            assert len(logs_of(engine)) == number
            assert terminate_everything(admin) == 1
            engine.enqueue("work")


def test_sessions_that_are_terminated_under_load_lose_nothing(on_postgres: Place, admin: Connection) -> None:
    with on_postgres.open() as engine, ThreadPoolExecutor(4) as threads:
        writers = [Writer(engine, f"w{number}", size=10) for number in range(4)]
        over = False
        crew = [threads.submit(writer.write_until, lambda: over) for writer in writers]
        try:
            for _ in range(15):
                before = [len(writer.told) for writer in writers]
                eventually(lambda before=before: all(len(w.told) > n for w, n in zip(writers, before, strict=True)))  # type: ignore[misc]
                terminate_everything(admin)
        finally:
            over = True
        for part in crew:
            part.result(DEADLINE)
        check_told(engine, *writers)


@contextmanager
def small_role(place: Place, limit: int) -> Iterator[Place]:
    """Give the place for a user who may have a few connections, and no more."""
    name = f"r_{uuid4().hex}"
    parts = urlsplit(place.url)
    with psycopg.connect(place.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT {limit} IN ROLE {parts.username}".encode())
        try:
            yield place._replace(url=parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port}").geturl())
        finally:
            admin.execute(f"DROP ROLE {name}".encode())


def test_too_many_connections_are_reported_and_do_not_hurt_those_that_there_are(own_database: Place) -> None:
    with small_role(own_database, 2) as place, place.open() as engine:
        writer = Writer(engine)
        writer.write()
        with psycopg.connect(place.url):
            with pytest.raises(StoreUnavailableError, match=r"too many connections.*pool_size"):
                place.open()
            with all_lent(engine), pytest.raises(StoreUnavailableError, match=r"too many connections.*pool_size"):
                writer.write()
            writer.write()
        with place.open() as second:
            check_told(second, writer)


@contextmanager
def all_lent(engine: Engine) -> Iterator[None]:
    """Keep the one connection of the pool busy."""
    with engine.store._pool.lend():  # type: ignore[attr-defined]
        yield


def test_a_pool_that_is_lent_out_is_reported(on_postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftfold.store.postgres.pool.WAIT_SECONDS", 0.02)
    with on_postgres.open(pool_size=1) as engine:
        with all_lent(engine), pytest.raises(StoreUnavailableError, match=r"is pool_size too small\?"):
            engine.enqueue("work")
        assert engine.enqueue("work").changed


def test_what_is_written_of_a_batch_is_told_when_the_rest_cannot_be(on_postgres: Place) -> None:
    """Who heard that nothing was written would say everything again."""
    with with_settings(on_postgres, {"lock_timeout": "50ms"}).open() as engine:
        engine.enqueue_many([NewJob("work") for _ in range(2)])
        free, held = engine.claim("worker", limit=2, start=True)
        notes = [(free, e.Progress(fraction=0.5)), *[(held, e.Progress(fraction=n / 10)) for n in (1, 2)]]
        with locked(on_postgres, held.job_id):
            told = engine.note_many(notes)
            assert [type(each) for each in told] == [Receipt, StoreUnavailableError, StoreUnavailableError]
            stale = replace(held, token="stale")  # it goes the long way
            done = engine.complete_many([(free, "done"), (stale, "done")])
            assert [type(each) for each in done] == [Receipt, StoreUnavailableError]
            with pytest.raises(StoreUnavailableError):
                engine.complete_many([(stale, "done")])
            settled = [
                Ask(free.job_id, c.Complete(by=free.actor, result=Raw(b'"done"'))),
                Ask(held.job_id, c.Release(by=held.actor)),
            ]
            assert [type(each) for each in engine.settle_many(settled)] == [Receipt, StoreUnavailableError]
        wires = [record.event.wire for record in engine.history(free.job_id)]
        assert wires == ["enqueued", "claimed", "started", "progress", "succeeded"]
        assert engine.complete(held).changed


def test_counters_are_folded_by_the_write_behind_a_claim(on_postgres: Place) -> None:
    """Somebody waits for what a claim gives."""
    asked = f'SELECT count(*) FROM "{on_postgres.schema}".counts'  # noqa: S608 - our own

    def rows() -> int:
        with psycopg.connect(on_postgres.url) as connection:
            found: int = connection.execute(asked.encode()).fetchall()[0][0]
            return found

    with on_postgres.open() as engine:
        for _ in range(3):
            engine.enqueue("work")
        engine._writes = -1
        (claim,) = engine.claim("worker", start=True)
        assert rows() == 5
        engine.complete(claim)
        assert rows() == 3


def test_texts_with_backslashes_mean_the_same_whatever_the_server_is_told(own_database: Place) -> None:
    with psycopg.connect(own_database.url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET standard_conforming_strings = off'.encode())
    with own_database.open() as engine:
        job_id = engine.enqueue("work", {"path": "C:\\x41"}, key="a\\b").job_id
        engine.enqueue_many([NewJob("work", "\\") for _ in range(3)])
        (claim,) = engine.claim("worker", job_id=job_id)
        engine.start(claim)
        engine.complete(claim, "\\n")
        assert engine.get(job_id).payload == {"path": "C:\\x41"}
        assert engine.verify().is_clean


def test_an_idle_connection_keeps_nothing_of_what_it_carried(on_postgres: Place) -> None:
    large = "x" * 100_000
    with on_postgres.open(pool_size=1) as engine:
        engine.enqueue("work")  # what is learned once
        tracemalloc.start()
        try:
            engine.enqueue_many([NewJob("work", large) for _ in range(50)])
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < 1_000_000
        finally:
            tracemalloc.stop()
        assert engine.store._pool.full == set()  # type: ignore[attr-defined]


def test_a_database_that_takes_no_writes_is_reported_with_what_to_do(on_postgres: Place) -> None:
    with with_settings(on_postgres, {"default_transaction_read_only": "on"}).open() as engine:
        writer = Writer(engine)
        with pytest.raises(StoreUnavailableError, match="it is read-only: connect to the primary"):
            writer.write()
        with pytest.raises(StoreUnavailableError, match="it is read-only: connect to the primary"):
            engine.claim("worker")
        assert engine.list().jobs == ()


def test_a_database_that_is_dropped_under_our_hands_is_reported(on_postgres: Place) -> None:
    with on_postgres.open() as engine:
        writer = Writer(engine)
        writer.write()
        name = urlsplit(on_postgres.url).path[1:]
        with psycopg.connect(on_postgres.url.replace(name, "postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            with pytest.raises(leftfold.errors.StoreNotReadyError, match="does not exist"):
                writer.write()
            connection.execute(f"CREATE DATABASE {name}".encode())
        with pytest.raises(leftfold.errors.StoreNotReadyError, match="run `leftfold migrate` first"):
            writer.write()
        leftfold.migrate(on_postgres.url)
        writer.told.clear()
        writer.write()
        check_told(engine, writer)
