"""From nothing to our schema: once, twice, by many at once, and not where it would be wrong."""

from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from tests.concurrency.crowd import DEADLINE, Crowd, eventually, processes
from tests.migration.raw import Raw, short_life
from tests.places import Place, logs_of

import leftfold
from leftfold import Engine
from leftfold.core.errors import StoreNotReadyError, StoreUnavailableError
from leftfold.store.sqlite.driver import SqliteStore
from leftfold.store.sqlite.library import sqlite

HEAD = ["0001_begin"]


def migrate(place: Place) -> list[str]:
    return leftfold.migrate(place.url, schema=place.schema)


def test_an_empty_store_comes_to_head_and_works(empty: Place) -> None:
    assert migrate(empty) == HEAD
    with empty.open() as engine:
        assert short_life(engine) == ["enqueued", "claimed", "started", "succeeded"]
        logs_of(engine)


def test_to_migrate_twice_changes_nothing(empty: Place) -> None:
    migrate(empty)
    with empty.open() as engine:
        job = engine.enqueue("work")
    assert migrate(empty) == []
    with empty.open() as engine:
        assert engine.get(job.job_id).state == "queued"


def test_a_file_is_migrated_by_whoever_opens_it_first(tmp_path: Path) -> None:
    with leftfold.open(f"sqlite:///{tmp_path}/jobs.db") as engine:
        short_life(engine)
    assert leftfold.migrate(f"sqlite:///{tmp_path}/jobs.db") == []


def test_an_empty_file_and_one_with_tables_of_others_take_ours_as_well(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    connection = sqlite.connect(tmp_path / "theirs.db")
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO orders VALUES (7)")
    connection.commit()
    connection.close()
    for name in ("empty.db", "theirs.db"):
        with leftfold.open(f"sqlite:///{tmp_path / name}") as engine:
            short_life(engine)
    connection = sqlite.connect(tmp_path / "theirs.db")
    assert connection.execute("SELECT id FROM orders").fetchall() == [(7,)]
    connection.close()


def test_who_must_not_make_a_store_is_told_that_there_is_none(empty: Place) -> None:
    with pytest.raises(StoreNotReadyError, match="leftfold migrate"):
        empty.open(create=False)
    if empty.is_file:
        assert not empty.path.exists()
        empty.path.touch()
        with pytest.raises(StoreNotReadyError, match="leftfold migrate"):
            empty.open(create=False)
        assert empty.path.stat().st_size == 0 or sqlite_tables(empty) == []


def test_an_open_that_is_refused_leaves_no_connection_behind(place: Place, raw: Raw) -> None:
    raw.run("UPDATE migrations SET checksum = 'abc'")
    if raw.is_file:  # SQLite closes a file only when the last connection to it holds no lock any more
        raw.close()
    with pytest.raises(StoreNotReadyError) as refusal:
        Place(place.url if raw.is_file else f"{place.url}?application_name=refused", place.schema).open()
    eventually(lambda: open_connections(place, raw) == 0, 5)
    assert refusal.value.code == "store_not_ready", "which keeps alive what the refused one held"


def open_connections(place: Place, raw: Raw) -> int:
    if raw.is_file:
        descriptors = list(Path("/proc/self/fd").iterdir())
        return sum(1 for each in descriptors if each.exists() and each.resolve() == place.path.resolve())
    return len(raw.run("SELECT FROM pg_stat_activity WHERE application_name = 'refused'"))


def sqlite_tables(place: Place) -> list[str]:
    connection = sqlite.connect(place.path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema")]
    connection.close()
    return names


def test_of_many_threads_that_migrate_at_once_one_does_it(empty: Place) -> None:
    with Crowd(8) as crowd:
        answers = crowd.same(migrate, empty)
    assert sorted(answers, key=str) == [HEAD] + [[]] * 7
    with empty.open() as engine:
        short_life(engine)


def test_of_many_processes_that_migrate_at_once_one_does_it(empty: Place) -> None:
    told = processes(4, migrate_and_enqueue, empty)
    assert sorted(names for names, _ in told) == [[]] * 3 + [HEAD]
    with empty.open() as engine:
        assert set(logs_of(engine)) == {job_id for _, job_id in told}


def migrate_and_enqueue(_: int, barrier: Barrier, place: Place) -> tuple[list[str], str]:
    barrier.wait(DEADLINE)
    names = migrate(place)
    with place.open() as engine:
        return names, engine.enqueue("work").job_id


def test_many_who_open_a_new_file_at_once_all_find_it_ready(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        engines = list(threads.map(lambda _: leftfold.open(f"sqlite:///{tmp_path}/jobs.db"), range(8)))
    for engine in engines:
        engine.enqueue("work")
    assert len(logs_of(engines[0])) == 8
    for engine in engines:
        engine.close()


def test_a_newer_schema_is_refused_and_left_as_it_is(place: Place, raw: Raw) -> None:
    raw.run("INSERT INTO migrations SELECT 99, 'later', 'abc', applied_at FROM migrations")
    for refused in (lambda: place.open().close(), lambda: migrate(place), lambda: place.open(create=False).close()):
        with pytest.raises(StoreNotReadyError, match=r"schema 99.*knows 1.*upgrade leftfold"):
            refused()
    assert raw.run("SELECT version FROM migrations ORDER BY 1") == [(1,), (99,)]


def test_a_migration_that_is_not_ours_is_refused(place: Place, raw: Raw) -> None:
    raw.run("UPDATE migrations SET checksum = 'abc'")
    for refused in (lambda: place.open().close(), lambda: migrate(place), lambda: place.open(create=False).close()):
        with pytest.raises(StoreNotReadyError, match="migration 1 of the store is not the one"):
            refused()


def test_an_older_schema_is_brought_up_or_refused_as_asked(place: Place, raw: Raw) -> None:
    """There is one migration so far; a store that remembers none of them stands for an older one."""
    raw.run("DELETE FROM migrations")
    with pytest.raises(StoreNotReadyError, match="leftfold migrate"):
        place.open(create=False)


def test_what_was_applied_is_remembered(place: Place, raw: Raw) -> None:
    ((version, name, checksum),) = raw.run("SELECT version, name, checksum FROM migrations")
    assert (version, name, len(checksum)) == (1, "begin", 64)


@pytest.mark.parametrize("number", [0, 1, 7])
def test_a_file_that_others_use_as_well_stays_as_they_left_it(tmp_path: Path, number: int) -> None:
    """Their tables may be called as they like, and the number that SQLite keeps for applications is theirs."""
    connection = sqlite.connect(tmp_path / "shop.db", isolation_level=None)
    for table in ("jobs", "events", "queues", "migrations", "counts", "names"):
        connection.execute(f"CREATE TABLE {table} (mine)")
    connection.execute(f"PRAGMA user_version = {number}")
    with leftfold.open(f"sqlite:///{tmp_path}/shop.db") as engine:
        short_life(engine)
    with leftfold.open(f"sqlite:///{tmp_path}/shop.db") as engine:
        assert len(engine.list().jobs) == 1
    assert connection.execute("PRAGMA user_version").fetchone() == (number,)
    assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    connection.close()


def test_who_migrates_a_locked_file_is_told_to_try_again(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), migrate_now=False, busy=0.05)
    rival = sqlite.connect(tmp_path / "jobs.db", isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="locked"):
        store.migrate()
    rival.execute("ROLLBACK")
    rival.close()
    assert [each.name for each in store.migrate()] == ["begin"]
    with Engine(store) as engine:
        short_life(engine)
