"""A PostgreSQL that dies, whose disk fails or is full, or that turns out to be a standby."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from tests.concurrency.crowd import DEADLINE, eventually
from tests.ground.conftest import ballast
from tests.ground.load import Writer, check_told
from tests.ground.strace import inject, needs_strace, was_hit
from tests.places import Place, database_on, schema_on

import leftfold
from leftfold import Engine, errors
from leftfold.core.errors import OutcomeUnknownError, StoreUnavailableError
from leftfold.testing.postgres import OwnServer, _as_user, _free_port, running

CRASHES = 3


@contextmanager
def under_load(engine: Engine, writers: int = 4) -> Iterator[list[Writer]]:
    """Let several write all the while, and then come to an end."""
    crew = [Writer(engine, f"w{number}", size=10) for number in range(writers)]
    over = False
    with ThreadPoolExecutor(writers) as threads:
        parts: list[Future[None]] = [threads.submit(writer.write_until, lambda: over) for writer in crew]
        try:
            yield crew
        finally:
            over = True
        for part in parts:
            part.result(DEADLINE)


def wait_for_progress(writers: list[Writer]) -> None:
    before = [len(writer.told) for writer in writers]
    eventually(lambda: all(len(writer.told) > count + 1 for writer, count in zip(writers, before, strict=True)))


def test_a_server_that_is_killed_under_load_and_started_again_has_lost_nothing(
    own_server: OwnServer, own_place: Place
) -> None:
    with own_place.open() as engine:
        with under_load(engine) as writers:
            for _ in range(CRASHES):
                wait_for_progress(writers)
                own_server.kill()
                own_server.start()
            wait_for_progress(writers)
        check_told(engine, *writers)
    heard = {type(problem) for writer in writers for problem in writer.heard}
    assert StoreUnavailableError in heard


def test_a_session_that_is_killed_takes_all_the_others_along_and_nothing_is_lost(own_place: Place) -> None:
    """The server cuts all sessions when one of them dies: who knows what it did to the memory that they share."""
    with own_place.open() as engine:
        with under_load(engine) as writers:
            for _ in range(CRASHES):
                wait_for_progress(writers)
                os.kill(a_session_of(own_place), signal.SIGKILL)
            wait_for_progress(writers)
        check_told(engine, *writers)


def a_session_of(place: Place) -> int:
    with psycopg.connect(place.url) as connection:
        ((pid,), *_) = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'leftfold' AND pid <> pg_backend_pid()"
        ).fetchall()
    return int(pid)


@needs_strace()
@pytest.mark.parametrize("number", [1, 2])
def test_a_commit_that_the_disk_does_not_take_may_have_happened(own_place: Place, tmp_path: Path, number: int) -> None:
    """The server panics, and starts again from what is on the disk, which may well have the commit."""
    with own_place.open() as engine:
        writer = Writer(engine)
        writer.write()
        pid = engine.store._pool._idle[0].connection.info.backend_pid  # type: ignore[attr-defined]
        log = tmp_path / "log"
        tracer = inject(pid, "fdatasync", "error=EIO", number, log)
        problem = writer.write_until_it_fails()
        tracer.wait()
        assert was_hit(log)
        assert isinstance(problem, OutcomeUnknownError)
        eventually(writer.try_to_write)
        check_told(engine, writer)


def test_tables_whose_disk_is_full_are_reported_and_the_engine_goes_on_when_there_is_space(
    own_server: OwnServer, disk_of: Callable[[int], Path]
) -> None:
    disk = disk_of(8)
    (disk / "tables").mkdir()
    if own_server._user:
        shutil.chown(disk / "tables", own_server._user)
    with database_on(own_server) as url, psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE TABLESPACE small LOCATION '{disk / 'tables'}'".encode())
        try:
            place = Place(f"{url}?options={quote('-c default_tablespace=small')}")
            leftfold.migrate(place.url)
            with place.open() as engine:
                fill_the_tables(engine, disk)
        finally:
            admin.execute("DROP SCHEMA leftfold CASCADE")
            admin.execute("DROP TABLESPACE small")


def fill_the_tables(engine: Engine, disk: Path) -> None:
    writer = Writer(engine)
    job_id = writer.write()
    with ballast(disk):
        problem = writer.write_until_it_fails()
        assert type(problem) is StoreUnavailableError
        assert "its disk is full: make room" in str(problem)
        assert engine.get(job_id).id == job_id
    check_told(engine, writer)
    writer.write()
    check_told(engine, writer)


def test_a_server_without_space_for_its_log_loses_nothing(disk_of: Callable[[int], Path]) -> None:
    """Where there is no space for what it has promised to write down, the server panics."""
    disk = disk_of(64)
    with running(durable=True, settings={"max_wal_size": "32MB", "min_wal_size": "32MB"}) as server:
        move_the_log(server, disk / "pg_wal")
        with schema_on(server) as place, place.open() as engine:
            writer = Writer(engine, size=100_000)
            writer.write()
            with ballast(disk):
                writer.write_until_it_fails()
                assert "PANIC" in (server.folder / "log").read_text(encoding="utf-8")
                assert writer.heard[-1].code in {"outcome_unknown", "store_unavailable"}
            eventually(lambda: server._answers() or server._process is None or server._process.poll() is not None)
            if not server._answers():  # without space it could not start again, and gave up
                server.start()
            eventually(writer.try_to_write)
            check_told(engine, writer)


def move_the_log(server: OwnServer, there: Path) -> None:
    server.stop()
    here = server.folder / "data" / "pg_wal"
    shutil.move(here, there)
    here.symlink_to(there)
    if server._user:
        for path in (there, *there.rglob("*")):
            shutil.chown(path, server._user)
    server.start()


@contextmanager
def standby_of(server: OwnServer) -> Iterator[OwnServer]:
    """Give a server that follows another one."""
    folder = Path(tempfile.mkdtemp(prefix="leftfold-standby-"))
    try:
        if server._user:
            shutil.chown(folder, server._user)
        source = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "leftfold"]
        subprocess.run(
            [server.binaries / "pg_basebackup", *source, "-D", folder / "data", "-R", "-c", "fast", "--no-sync"],
            check=True, **_as_user(server._user),
        )  # fmt: skip
        standby = OwnServer(server.binaries, folder, _free_port(), server._user, server._settings)
        standby.start()
        try:
            yield standby
        finally:
            standby.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_standby_refuses_writes_until_it_is_promoted(own_server: OwnServer, own_place: Place) -> None:
    with own_place.open() as primary:
        before = Writer(primary)
        job_id = before.write()
        with standby_of(own_server) as standby, own_place._replace(url=standby.url()).open() as engine:
            after = Writer(engine, "later")
            eventually(lambda: len(engine.list().jobs) == 1)
            assert engine.get(job_id).id == job_id, "what is there can be read"
            for act in (after.write, lambda: engine.claim("worker"), lambda: engine.cancel(job_id)):
                with pytest.raises(StoreUnavailableError, match="it is read-only: connect to the primary"):
                    act()
            with pytest.raises(errors.StoreError, match="read-only: connect to the primary"):
                leftfold.migrate(standby.url(), schema="another")
            with psycopg.connect(standby.url(), autocommit=True) as admin:
                admin.execute("SELECT pg_promote()")
            eventually(after.try_to_write)
            check_told(engine, before, after)
