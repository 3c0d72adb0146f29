"""PostgreSQL when a connection is cut in the middle of a statement: what was only asked is asked again."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.store.between import wait_until_it_waits
from tests.store.sides import PostgresSide
from tests.store.world import Place

import leftfold
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
