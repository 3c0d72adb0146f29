"""Chancy, with its executors of coroutines and of threads."""

import functools
import inspect
import logging
from collections.abc import Iterable
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="Chancy",
    needs=("chancy==0.26.0", "psycopg[binary]==3.3.8"),
    server="postgres",
    promises=Promises(
        durability="committed before `push` returns",
        history="the row of the job, with its times and errors, until it is pruned",
        recovery="heartbeats of workers: run again 90 s after the last one, and late writes are refused",
    ),
    pace=2_000,
    settings="async executor, concurrency 100, eager polling",
)


async def _never(number: int) -> None:
    """Stand for the handler, which a client only names."""


job: Handler = _never  # what its worker finds by name; `work` puts the handler here


def _chancy(url: str) -> Any:
    from chancy import Chancy

    log = logging.getLogger("chancy")
    log.setLevel(logging.WARNING)
    return Chancy(url, log=log)


def _new(number: int) -> Any:
    from chancy import Job

    return Job(func="bench.systems.chancy.job", kwargs={"number": number})


async def prepare(url: str) -> None:
    async with _chancy(url) as chancy:
        await chancy.migrate()


def enqueue(url: str, numbers: Iterable[int]) -> None:
    with _chancy(url) as chancy:
        for number in numbers:
            chancy.sync_push(_new(number))


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    with _chancy(url) as chancy:
        for batch in batches:
            for _ in chancy.sync_push_many([_new(number) for number in batch]):
                pass


async def work(url: str, handler: Handler, concurrency: int) -> None:
    from chancy import Chancy, Queue, Worker

    global job  # noqa: PLW0603 - it is found by its name
    job = handler
    executor = Chancy.Executor.Async if inspect.iscoroutinefunction(handler) else Chancy.Executor.Threaded
    queue = Queue("default", concurrency=concurrency, executor=executor, eager_polling=True)
    async with _chancy(url) as chancy:
        await chancy.declare(queue, upsert=True)
        async with Worker(chancy) as worker:
            await worker.wait_for_shutdown()


@functools.cache
def _connection(url: str) -> Any:
    import psycopg

    return psycopg.connect(url, autocommit=True)


def finished(url: str) -> int:
    return _connection(url).execute("SELECT count(*) FROM chancy_jobs WHERE state = 'succeeded'").fetchone()[0]
