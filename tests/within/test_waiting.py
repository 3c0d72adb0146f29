"""A file has one writer at a time: who waits for it keeps nobody else from going on, who may be the one that writes."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.concurrency.crowd import eventually
from tests.places import Place, logs_of
from tests.within.hands import held

from leftfold import Engine
from leftfold.core.errors import StoreError, StoreUnavailableError
from leftfold.store.sqlite.driver import SqliteStore
from leftfold.store.sqlite.library import sqlite


@pytest.fixture
def engine(on_sqlite: Place) -> Iterator[Engine]:
    """An engine that waits a few seconds: a test that has to wait them out fails."""
    with Engine(SqliteStore(str(on_sqlite.path), busy=5)) as engine:
        yield engine


def seen_on(connection: Any) -> list[str]:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    return statements


def test_a_read_does_not_queue_behind_a_write_that_waits_for_an_open_transaction(
    engine: Engine, on_sqlite: Place
) -> None:
    before = engine.enqueue("before")
    statements = seen_on(engine.store._connection)  # type: ignore[attr-defined]
    with held("sqlite3", on_sqlite) as hand, ThreadPoolExecutor(1) as thread:
        within = engine.enqueue("within", within=hand.within)
        behind = thread.submit(engine.enqueue, "behind")
        eventually(lambda: "BEGIN IMMEDIATE" in statements)
        assert [job.id for job in engine.list().jobs] == [before.job_id]
        assert engine.get(before.job_id).version == 1
        assert not behind.done()
        hand.commit()
        made = [before.job_id, within.job_id, behind.result().job_id]
        assert sorted(logs_of(engine)) == sorted(made)


def test_another_transaction_may_begin_while_a_write_waits(engine: Engine, on_sqlite: Place) -> None:
    statements = seen_on(engine.store._connection)  # type: ignore[attr-defined]
    with held("sqlite3", on_sqlite) as hand, ThreadPoolExecutor(2) as threads:
        engine.enqueue("within", within=hand.within)
        behind = threads.submit(engine.enqueue, "behind")
        eventually(lambda: "BEGIN IMMEDIATE" in statements)
        other = sqlite.connect(on_sqlite.path, timeout=0, check_same_thread=False)
        with pytest.raises(StoreUnavailableError, match="locked by another connection: try again"):
            engine.enqueue("other", within=other)
        other.close()
        hand.commit()
        assert behind.result().changed


def test_a_read_sees_what_was_written_before_it(engine: Engine) -> None:
    for number in range(1, 20):
        engine.enqueue("work")
        assert sum(count.jobs for count in engine.counts()) == number


@pytest.mark.parametrize("begins", ["", "BEGIN"])
def test_a_task_that_waits_for_the_file_lets_the_others_go_on(on_sqlite: Place, begins: str) -> None:
    async def main() -> list[str]:
        first = sqlite.connect(on_sqlite.path)
        second = sqlite.connect(on_sqlite.path, isolation_level=None if begins else "")
        second.execute(begins)
        async with await on_sqlite.aopen() as engine:
            made = [await engine.enqueue("first", within=first)]
            behind = asyncio.create_task(engine.enqueue("behind"))
            within = asyncio.create_task(engine.enqueue("second", within=second))
            assert (await engine.list()).jobs == ()
            assert not within.done()
            first.commit()
            made.append(await within)
            second.execute("COMMIT")
            made.append(await behind)
        first.close()
        second.close()
        return [receipt.job_id for receipt in made]

    made = asyncio.run(main())
    with on_sqlite.open() as engine:
        assert sorted(logs_of(engine)) == sorted(made)


def test_a_task_waits_as_long_as_its_connection_would_and_no_longer(on_sqlite: Place) -> None:
    async def main() -> None:
        rival = sqlite.connect(on_sqlite.path, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        connection = sqlite.connect(on_sqlite.path, timeout=0.05)
        async with await on_sqlite.aopen() as engine:
            with pytest.raises(StoreUnavailableError, match="locked by another connection: try again"):
                await engine.enqueue("work", within=connection)
            assert connection.execute("PRAGMA busy_timeout").fetchall() == [(50,)], "which is as it was"
            rival.execute("ROLLBACK")
            await engine.enqueue("work", within=connection)
            connection.commit()
        rival.close()
        connection.close()

    asyncio.run(main())


def test_a_transaction_that_read_what_others_have_changed_is_told_to_begin_anew(
    engine: Engine, on_sqlite: Place
) -> None:
    connection = sqlite.connect(on_sqlite.path, isolation_level=None, timeout=0.05)
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM orders").fetchall()
    engine.enqueue("work")
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="begin it anew, with BEGIN IMMEDIATE"):
            engine.enqueue("work", within=connection)
    connection.execute("ROLLBACK")
    connection.execute("BEGIN IMMEDIATE")
    engine.enqueue("work", within=connection)
    connection.execute("COMMIT")
    connection.close()
    assert len(logs_of(engine)) == 2


def test_what_was_opened_before_a_fork_serves_nobody_behind_it(engine: Engine, on_sqlite: Place) -> None:
    job = engine.enqueue("work")
    with held("sqlite3", on_sqlite) as hand:
        child = os.fork()
        if child == 0:
            os._exit(_tried_behind_a_fork(engine, hand.within))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(logs_of(engine)) == [job.job_id], "and whoever was there before goes on"


def _tried_behind_a_fork(engine: Engine, connection: Any) -> int:
    """Give how many of the calls did something."""
    calls: list[Callable[[], object]] = [engine.counts]
    calls += [lambda: engine.enqueue("work"), lambda: engine.enqueue("work", within=connection)]
    refused = 0
    for call in calls:
        try:
            call()
        except StoreError as problem:
            refused += "before a fork" in str(problem)
    engine.close()
    return len(calls) - refused
