"""SAQ on Redis."""

import asyncio
import inspect
from collections.abc import Iterable
from functools import cache
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="SAQ, Redis",
    needs=("saq[redis,hiredis]==0.26.4", "redis==7.4.1", "hiredis==3.5.0", "typing_extensions==4.16.0"),
    server="redis",
    promises=Promises(
        durability="in Redis's memory, on disk within about a second",
        history="the job with its last state and result, for ten minutes",
        recovery="swept and run again when its time-out is over, if it has retries left",
    ),
    pace=1_000,
    settings="concurrency 100, 3 attempts, hiredis",
)


def _queue(url: str) -> Any:
    from saq import Queue

    return Queue.from_url(url)


def prepare(url: str) -> None:
    """Make nothing: the keys come with the first job."""


async def enqueue(url: str, numbers: Iterable[int]) -> None:
    queue = _queue(url)
    await queue.connect()
    for number in numbers:
        await queue.enqueue("job", number=number, retries=3)
    await queue.disconnect()


async def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    """Enqueue side by side, on as many connections as the queue allows: there is no call for many jobs."""
    queue = _queue(url)
    await queue.connect()
    for batch in batches:
        await asyncio.gather(*(queue.enqueue("job", number=number, retries=3) for number in batch))
    await queue.disconnect()


async def work(url: str, handler: Handler, concurrency: int) -> None:
    from saq import Worker

    async def job(_: Any, *, number: int) -> None:
        await handler(number)

    def job_in_thread(_: Any, *, number: int) -> None:
        handler(number)

    queue = _queue(url)
    await queue.connect()
    function = job if inspect.iscoroutinefunction(handler) else job_in_thread
    await Worker(queue, functions=[("job", function)], concurrency=concurrency).start()
    await queue.disconnect()


@cache
def _redis(url: str) -> Any:
    from redis import Redis

    return Redis.from_url(url)


def finished(url: str) -> int:
    """Count the jobs that are kept, but for those that are queued or run. A job moves from these in one transaction."""
    count = "return #redis.call('KEYS', 'saq:job:default:*') - redis.call('ZCARD', 'saq:default:incomplete')"
    return int(_redis(url).eval(count, 0))
