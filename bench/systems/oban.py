"""Oban for Python, the open edition."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="Oban",
    needs=("oban==0.7.0", "psycopg[binary]==3.3.8"),
    server="postgres",
    promises=Promises(
        durability="committed before `enqueue` returns",
        history="the row of the job, with its times and errors, for a day",
        recovery="heartbeats of queues: rescued when its worker is known to be gone",
    ),
    pace=1_300,
    settings="limit 200; uvloop and orjson, as its command line has them",
    concurrency=200,
    python=(3, 12),
    handlers=frozenset({"noop", "nap"}),  # it runs plain functions in the event loop, not in a thread
)


def _run(url: str, each: Callable[[Any], Awaitable[None]]) -> None:
    import orjson
    import uvloop
    from oban import Oban
    from psycopg.types.json import set_json_dumps, set_json_loads

    set_json_dumps(orjson.dumps)
    set_json_loads(orjson.loads)

    async def run() -> None:
        async with await Oban.create_pool(url) as pool:
            await each(pool)

    uvloop.run(run())


def _job(handler: Handler) -> Any:
    from oban import job as decorated

    async def job(number: int) -> None:
        await handler(number)

    return decorated()(job)


async def _never(number: int) -> None:
    """Stand for the handler, which a client only names."""


def prepare(url: str) -> None:
    from oban.schema import install

    _run(url, install)


def enqueue(url: str, numbers: Iterable[int]) -> None:
    from oban import Oban

    job = _job(_never)

    async def each(pool: Any) -> None:
        oban = Oban(pool=pool)
        for number in numbers:
            await oban.enqueue(job.new(number))

    _run(url, each)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    from oban import Oban

    job = _job(_never)

    async def each(pool: Any) -> None:
        oban = Oban(pool=pool)
        for batch in batches:
            await oban.enqueue_many(job.new(number) for number in batch)

    _run(url, each)


def work(url: str, handler: Handler, concurrency: int) -> None:
    from oban import Oban

    _job(handler)

    async def forever(pool: Any) -> None:
        async with Oban(pool=pool, queues={"default": concurrency}):
            await asyncio.Event().wait()

    _run(url, forever)


@functools.cache
def _connection(url: str) -> Any:
    import psycopg

    return psycopg.connect(url, autocommit=True)


def finished(url: str) -> int:
    return _connection(url).execute("SELECT count(*) FROM oban_jobs WHERE state = 'completed'").fetchone()[0]
