"""PgQueuer, over asyncpg and uvloop."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="PgQueuer",
    needs=("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    server="postgres",
    promises=Promises(
        durability="committed before `enqueue` returns",
        history="a log row for each status of a job; the job itself is deleted",
        recovery="heartbeats: taken again when the last one is too old (30 s)",
    ),
    pace=9_000,
    settings="batch size 500 (250 where 500 are the most at once), asyncpg and uvloop, `autovac` settings",
    concurrency=1_000,
)


async def prepare(url: str) -> None:
    import asyncpg
    from pgqueuer.queries import Queries

    connection = await asyncpg.connect(url)
    queries = Queries.from_asyncpg_connection(connection)
    await queries.install()
    await queries.optimize_autovacuum()  # as its guide to performance says
    await connection.close()


def enqueue(url: str, numbers: Iterable[int]) -> None:
    async def each(enqueue_: Callable[..., Awaitable[Any]]) -> None:
        for number in numbers:
            await enqueue_("job", b"%d" % number)

    _run(url, each)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    async def each(enqueue_: Callable[..., Awaitable[Any]]) -> None:
        for batch in batches:
            await enqueue_(["job"] * len(batch), [b"%d" % number for number in batch], [0] * len(batch))

    _run(url, each)


def _run(url: str, each: Callable[[Callable[..., Awaitable[Any]]], Awaitable[None]]) -> None:
    import asyncpg
    import uvloop
    from pgqueuer.queries import Queries

    async def run() -> None:
        connection = await asyncpg.connect(url)
        await each(Queries.from_asyncpg_connection(connection).enqueue)
        await connection.close()

    uvloop.run(run())


def work(url: str, handler: Handler, concurrency: int) -> None:
    import asyncpg
    import uvloop
    from pgqueuer import PgQueuer
    from pgqueuer.models import Job

    async def job(job: Job) -> None:
        await handler(int(job.payload))

    async def job_in_thread(job: Job) -> None:
        await asyncio.to_thread(handler, int(job.payload))

    async def run() -> None:
        queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))
        queue.entrypoint("job")(job if inspect.iscoroutinefunction(handler) else job_in_thread)
        cap = None if concurrency == ABOUT.concurrency else concurrency  # it is faster without
        await queue.run(batch_size=concurrency // 2, max_concurrent_tasks=cap)  # a cap is two batches at least

    uvloop.run(run())


@functools.cache
def _watcher(url: str) -> tuple[asyncio.Runner, Any]:
    import asyncpg

    runner = asyncio.Runner()
    return runner, runner.run(asyncpg.connect(url))


def finished(url: str) -> int:
    runner, connection = _watcher(url)
    return runner.run(connection.fetchval("SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"))
