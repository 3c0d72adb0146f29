"""arq."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import Any

from bench.system import About, Promises

ABOUT = About(
    title="arq",
    needs=("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0"),
    server="redis",
    promises=Promises(
        durability="in Redis's memory, on disk within about a second",
        history="the result, for an hour",
        recovery="stays in the queue, run again when its time-out is over",
    ),
    pace=1_000,
    settings="100 jobs, polls every 10 ms",
    handlers=frozenset({"noop", "nap"}),  # coroutines alone
)


async def _pool(url: str) -> Any:
    from arq import create_pool
    from arq.connections import RedisSettings

    return await create_pool(RedisSettings.from_dsn(url))


def prepare(url: str) -> None:
    """Make nothing: the keys come with the first job."""


async def enqueue(url: str, numbers: Iterable[int]) -> None:
    pool = await _pool(url)
    for number in numbers:
        await pool.enqueue_job("job", number)
    await pool.aclose()


async def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    """Enqueue side by side, on a few connections: there is no call for many jobs."""
    pool = await _pool(url)

    async def some(numbers: list[int]) -> None:
        for number in numbers:
            await pool.enqueue_job("job", number)

    for batch in batches:
        await asyncio.gather(*(some(batch[first::20]) for first in range(20)))
    await pool.aclose()


def work(url: str, handler: Callable[[int], Awaitable[None]], concurrency: int) -> None:
    from arq.connections import RedisSettings
    from arq.worker import Worker, func

    async def job(_context: Any, number: int) -> None:
        await handler(number)

    Worker(
        functions=[func(job, name="job")],
        redis_settings=RedisSettings.from_dsn(url),
        max_jobs=concurrency,
        poll_delay=0.01,
    ).run()


@cache
def _redis(url: str) -> Any:
    from redis import Redis

    return Redis.from_url(url)


def finished(url: str) -> int:
    """Count the results. A job leaves the queue in the transaction that keeps its result."""
    return int(_redis(url).eval("return #redis.call('KEYS', 'arq:result:*')", 0))
