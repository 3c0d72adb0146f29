"""PostgreSQL when a connection is cut in the middle of a statement: what was only asked is asked again."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count, islice
from typing import Any

import pytest
from tests.concurrency.crowd import eventually
from tests.store.between import between, wait_until_it_waits
from tests.store.sides import PostgresSide
from tests.store.test_locks import with_settings
from tests.store.world import Place

import leftfold
from leftfold.engine.running import one
from leftfold.store.patience import pauses
from leftfold.store.postgres.driver import AsyncPostgresStore, PostgresStore
from leftfold.store.query import Operation, Query
from leftfold.testing.clock import FakeClock

#: Every way to ask, by what the two engines have in common.
READS: Mapping[str, Callable[[Any, str], Any]] = {
    "get": lambda engine, job_id: engine.get(job_id),
    "history": lambda engine, job_id: engine.history(job_id),
    "find": lambda engine, job_id: engine.find(job_id[:30]),
    "list": lambda engine, _: engine.list(kind="work"),
    "counts": lambda engine, _: engine.counts(),
    "queues": lambda engine, _: engine.queues(),
}


@pytest.fixture
def side(place: Place) -> Iterator[PostgresSide]:
    opened = PostgresSide(place.url, place.schema, FakeClock())
    yield opened
    opened.close()


def ask(side: PostgresSide, read: str, job_id: str) -> Any:
    with leftfold.open(side.store.url, schema=side.store.schema, pool_size=1) as engine:
        return READS[read](engine, job_id)


def ask_async(side: PostgresSide, read: str, job_id: str) -> Any:
    async def main() -> Any:
        async with await leftfold.aopen(side.store.url, schema=side.store.schema, pool_size=1) as engine:
            return await READS[read](engine, job_id)

    return asyncio.run(main())


@pytest.mark.parametrize("how", [ask, ask_async])
@pytest.mark.parametrize("read", READS)
def test_a_read_whose_connection_is_cut_answers_all_the_same(read: str, how: Any, side: PostgresSide) -> None:
    job_id = side.engine.enqueue("work").job_id
    expected = READS[read](side.engine, job_id)
    # The one who watches is in no transaction: there the server would tell the same of everybody for ever.
    with ThreadPoolExecutor(1) as thread, side.store.connect() as locker:
        with locker.transaction():
            for table in ("jobs", "events", "counts", "queues"):
                locker.execute(f'LOCK TABLE "{side.store.schema}".{table} IN ACCESS EXCLUSIVE MODE'.encode())
            waiting: Future[object] = thread.submit(how, side, read, job_id)
            wait_until_it_waits(side.connection, waiting)
            cut = side.sql(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE ? = ANY (pg_blocking_pids(pid))",
                locker.info.backend_pid,
            )
            assert cut == [(True,)]
        assert waiting.result() == expected


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_write_whose_idle_transaction_the_server_ended_is_done_again(how: str, side: PostgresSide) -> None:
    job_id = side.engine.enqueue("work").job_id
    url = with_settings(side.store.url, {"idle_in_transaction_session_timeout": "20ms"})
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leftfold' AND pid <> pg_backend_pid()"
    ((others,),) = side.sql(asked)

    def dawdle(_: Query | None) -> None:
        eventually(lambda: side.sql(asked) == [(others,)])  # that is, until the session is gone

    def sync() -> None:
        with leftfold.open(url, schema=side.store.schema, pool_size=1) as engine:
            with between(engine, 1, dawdle) as interrupted:
                engine.signal(job_id, "go")
            assert interrupted.seen == ["lock", "load", "lock", "load", "append", "project", "the end"]

    async def main() -> None:
        async with await leftfold.aopen(url, schema=side.store.schema, pool_size=1) as engine:
            store: Any = engine.store
            right, calls = store.execute, count()

            async def execute(cursor: Any, query: Query, channel: str | None) -> Any:
                if next(calls) == 1:
                    dawdle(query)
                return await right(cursor, query, channel)

            store.execute = execute
            await engine.signal(job_id, "go")

    sync() if how == "sync" else asyncio.run(main())
    assert [record.event.wire for record in side.engine.history(job_id)] == ["enqueued", "signalled"]


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_every_statement_is_read_committed_whatever_the_server_is_set_to(level: str, side: PostgresSide) -> None:
    url = with_settings(side.store.url, {"default_transaction_isolation": level.replace(" ", r"\ ")})
    ask = Operation(lambda: one("isolation", {}), apart=True)
    store = PostgresStore(url, schema=side.store.schema).open()
    store.queries["isolation"] = "SHOW transaction_isolation"
    assert store.run(ask) == [("read committed",)]
    store.close()

    async def main() -> None:
        later = await AsyncPostgresStore(url, schema=side.store.schema).open()
        later.queries["isolation"] = "SHOW transaction_isolation"
        assert await later.run(ask) == [("read committed",)]
        await later.close()

    asyncio.run(main())


def test_the_pauses_between_tries_grow_to_a_tenth_of_a_second_and_are_not_all_the_same() -> None:
    found = list(islice(pauses(), 20))
    assert 0.002 <= found[0] <= 0.004
    assert all(0.05 <= each <= 0.1 for each in found[5:])
    assert len(set(found)) == 20
