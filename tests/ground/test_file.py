"""What can happen to an SQLite file: no space, no permission, somebody who does not let go of it."""

import multiprocessing
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from tests.concurrency.crowd import DEADLINE
from tests.crash.victims import DONE, Nursery
from tests.ground.conftest import ballast
from tests.ground.load import Writer, check_told
from tests.places import Place, file_in

import leftfold
from leftfold import Engine
from leftfold.core.errors import OutcomeUnknownError, StoreDeniedError, StoreError, StoreUnavailableError
from leftfold.store.sqlite.driver import SqliteStore
from leftfold.store.sqlite.library import sqlite

NOBODY = 65534


def test_a_full_disk_is_reported_and_the_engine_goes_on_when_there_is_space(
    disk_of: Callable[[int], Path], nursery: Nursery
) -> None:
    assert nursery.run(fill_the_disk, disk_of(4)) == DONE


def fill_the_disk(disk: Path) -> None:
    with file_in(disk).open() as engine:
        writer = Writer(engine)
        job_id = writer.write()
        for leave in (0, 5_000, 50_000):
            with ballast(disk, leave):
                problem = writer.write_until_it_fails()
                assert isinstance(problem, StoreUnavailableError)
                assert "no space is left" in str(problem)
                assert "nothing was written" in str(problem)
                assert engine.get(job_id).id == job_id, "what is there can be read"
            check_told(engine, writer)
            writer.write()
            check_told(engine, writer)
    with file_in(disk).open() as engine:
        check_told(engine, writer)


def test_a_file_that_may_not_grow_is_reported_and_the_engine_goes_on_when_it_may(
    tmp_path: Path, nursery: Nursery
) -> None:
    assert nursery.run(write_beyond_the_limit, file_in(tmp_path)) == DONE


def write_beyond_the_limit(place: Place) -> None:
    with place.open() as engine:
        writer = Writer(engine)
        writer.write()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for limit in (300_000, 500_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            problem = writer.write_until_it_fails()
            assert isinstance(problem, OutcomeUnknownError), "it failed while it was committed"
            assert "request_id" in str(problem)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            writer.write()
            check_told(engine, writer)
    with place.open() as engine:
        check_told(engine, writer)


@pytest.fixture
def impatient(on_sqlite: Place) -> Engine:
    return Engine(SqliteStore(str(on_sqlite.path), busy=0.05))


def hold(path: str, locked: Event, let_go: Event) -> None:
    connection = sqlite.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    locked.set()
    let_go.wait(DEADLINE)
    connection.close()


def test_a_file_that_another_process_locks_is_reported_and_can_be_read(impatient: Engine, on_sqlite: Place) -> None:
    context = multiprocessing.get_context("spawn")
    locked, let_go = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(str(on_sqlite.path), locked, let_go), daemon=True)
    with impatient as engine:
        writer = Writer(engine)
        job_id = writer.write()
        holder.start()
        assert locked.wait(DEADLINE)
        with pytest.raises(StoreUnavailableError, match="is locked by another connection: try again"):
            writer.write()
        assert engine.get(job_id).id == job_id
        with pytest.raises(StoreUnavailableError, match="is locked by another connection: try again"):
            engine.claim("worker")
        let_go.set()
        holder.join(DEADLINE)
        writer.write()
        check_told(engine, writer)


def test_writers_of_one_process_take_turns_and_none_waits_for_ever(tmp_path: Path) -> None:
    one, same, other = (SqliteStore(str(tmp_path / name), busy=0.05) for name in ("a.db", "a.db", "b.db"))
    writers = one._writers
    assert writers is not None
    assert writers is same._writers is not other._writers
    with Engine(one), Engine(same) as engine, Engine(other) as apart, ThreadPoolExecutor(1) as thread:
        with writers.turn():
            apart.enqueue("work")
            waiting = thread.submit(engine.enqueue, "work")
            assert waiting.result(DEADLINE).changed  # somebody keeps his turn, and nobody writes: SQLite decides
        with writers.turn():
            assert engine.list().jobs  # who reads has no need of a turn
        assert engine.enqueue("work").changed


def test_a_child_does_not_wait_for_a_turn_of_its_parent(tmp_path: Path) -> None:
    parent = SqliteStore(str(tmp_path / "a.db"))
    assert parent._writers is not None
    with Engine(parent), parent._writers.turn():
        child = os.fork()
        if child == 0:
            store = SqliteStore(str(tmp_path / "a.db"))
            os._exit(DONE if store._writers is not parent._writers else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == DONE


def as_nobody(act: Callable[..., object], *arguments: object) -> None:
    """Root may write everywhere, so somebody else has to try."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    act(*arguments)


@pytest.fixture
def in_public() -> Iterator[Place]:
    """A file in a folder that anybody can find; those of the test run are for us alone."""
    with tempfile.TemporaryDirectory() as folder:
        place = file_in(Path(folder))
        place.open().close()
        yield place
        protect(place, 0o644, 0o755)


def protect(place: Place, mode: int, folder_mode: int) -> None:
    place.path.parent.chmod(0o755)
    place.path.chmod(mode)
    place.path.parent.chmod(folder_mode)


@pytest.mark.parametrize(
    ("mode", "folder_mode", "error"),
    [
        (0o444, 0o777, StoreDeniedError),
        (0o444, 0o555, StoreDeniedError),
        (0o666, 0o555, StoreDeniedError),
        (0o000, 0o777, StoreError),
        (0o666, 0o000, StoreError),
    ],
    ids=["read-only file", "read-only file and folder", "read-only folder", "hidden file", "hidden folder"],
)
def test_a_file_that_may_not_be_written_is_reported_with_what_to_do(
    in_public: Place, nursery: Nursery, mode: int, folder_mode: int, error: type[StoreError]
) -> None:
    protect(in_public, mode, folder_mode)
    assert nursery.run(as_nobody, try_to_write, in_public, error) == DONE
    protect(in_public, 0o644, 0o755)
    with in_public.open() as engine:
        writer = Writer(engine)
        writer.write()
        check_told(engine, writer)


def try_to_write(place: Place, error: type[StoreError]) -> None:
    with pytest.raises(error, match=r"jobs.db .*may (this user|we) write"), place.open() as engine:
        engine.enqueue("work")


def test_a_folder_that_is_not_there_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does its folder exist"):
        leftfold.open(f"sqlite:///{tmp_path / 'nowhere' / 'jobs.db'}")


@pytest.mark.parametrize("act", ["replace", "delete"])
def test_a_file_that_is_replaced_under_our_hands_is_never_written_to(on_sqlite: Place, act: str) -> None:
    with on_sqlite.open() as engine:
        writer = Writer(engine)
        writer.write()
        on_sqlite.path.unlink()
        if act == "replace":
            on_sqlite.path.touch()
        with pytest.raises(StoreError, match="was replaced or deleted while it was open: open it anew"):
            writer.write()
