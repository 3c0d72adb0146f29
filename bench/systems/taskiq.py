"""taskiq on streams of Redis."""

import asyncio
from collections.abc import Iterable
from functools import cache
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="taskiq, Redis",
    needs=("taskiq[uv]==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0", "hiredis==3.5.0", "uvloop==0.23.0"),
    server="redis",
    promises=Promises(
        durability="in Redis's memory, on disk within about a second",
        history="the result, for as long as one says",
        recovery="claimed by another worker when it was not acknowledged for ten minutes",
    ),
    pace=1_000,
    settings="stream broker, 100 tasks, acknowledged when the result is saved, uvloop, hiredis",
)


def _broker(url: str, handler: Handler) -> tuple[Any, Any]:
    from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

    results: Any = RedisAsyncResultBackend(url, result_ex_time=3600, prefix_str="result")
    broker = RedisStreamBroker(url).with_result_backend(results)
    return broker, broker.register_task(handler, task_name="job")


async def _never(number: int) -> None:
    """Stand for the handler, which a client only names."""


async def prepare(url: str) -> None:
    """Make the group of consumers: it gets what comes after it."""
    broker, _ = _broker(url, _never)
    await broker.startup()
    await broker.shutdown()


async def enqueue(url: str, numbers: Iterable[int]) -> None:
    broker, job = _broker(url, _never)
    await broker.startup()
    for number in numbers:
        await job.kiq(number)
    await broker.shutdown()


async def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    """Enqueue side by side: there is no call for many jobs."""
    broker, job = _broker(url, _never)
    await broker.startup()
    for batch in batches:
        await asyncio.gather(*(job.kiq(number) for number in batch))
    await broker.shutdown()


def work(url: str, handler: Handler, concurrency: int) -> None:
    import uvloop
    from taskiq.api import run_receiver_task

    async def receive() -> None:
        broker, _ = _broker(url, handler)
        await run_receiver_task(broker, run_startup=True, max_async_tasks=concurrency)

    uvloop.run(receive())  # as its command line does where it is installed


@cache
def _redis(url: str) -> Any:
    from redis import Redis

    return Redis.from_url(url)


def finished(url: str) -> int:
    """Count the results, less what is not acknowledged: too few while jobs run, and exact when none does."""
    count = "return #redis.call('KEYS', 'result:*') - redis.call('XPENDING', 'taskiq', 'taskiq')[1]"
    return int(_redis(url).eval(count, 0))
