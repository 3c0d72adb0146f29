"""SAQ on PostgreSQL."""

import asyncio
import functools
import inspect
import logging
from collections.abc import Iterable
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="SAQ, PostgreSQL",
    needs=("saq[postgres]==0.26.4", "psycopg[binary]==3.3.8"),
    server="postgres",
    promises=Promises(
        durability="committed before `enqueue` returns",
        history="the row of the job, for ten minutes after its end",
        recovery="swept when it is out of time: run again if it may be retried",
    ),
    pace=450,
    settings="concurrency 20, a pool of 20 connections",
    concurrency=20,
)


def _queue(url: str) -> Any:
    from saq.queue.postgres import PostgresQueue

    logging.getLogger("saq").setLevel(logging.WARNING)
    return PostgresQueue.from_url(url)


async def prepare(url: str) -> None:
    queue = _queue(url)
    await queue.connect()
    await queue.disconnect()


async def enqueue(url: str, numbers: Iterable[int]) -> None:
    queue = _queue(url)
    await queue.connect()
    for number in numbers:
        await queue.enqueue("job", number=number)
    await queue.disconnect()


async def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    queue = _queue(url)
    await queue.connect()
    for batch in batches:  # it has no other way than one by one, but it has many connections
        await asyncio.gather(*(queue.enqueue("job", number=number) for number in batch))
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


@functools.cache
def _connection(url: str) -> Any:
    import psycopg

    return psycopg.connect(url, autocommit=True)


def finished(url: str) -> int:
    return _connection(url).execute("SELECT count(*) FROM saq_jobs WHERE status = 'complete'").fetchone()[0]
