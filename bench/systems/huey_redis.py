"""huey on Redis."""

import logging
from collections.abc import Iterable
from functools import cache
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="huey, Redis",
    needs=("huey[redis]==3.5.4", "redis==8.1.0", "hiredis==3.5.0"),
    server="redis",
    promises=Promises(
        durability="in Redis's memory, on disk within about a second",
        history="the result, until it is read",
        recovery="none: a job is taken out of Redis before it runs",
    ),
    pace=1_000,
    settings="4 threads, results of None stored, hiredis",
    concurrency=4,
    handlers=frozenset({"noop_sync"}),  # no coroutines
)


def _job(url: str, handler: Handler) -> tuple[Any, Any]:
    from huey import RedisHuey

    huey = RedisHuey("bench", url=url, store_none=True)  # else nobody could say whether a job that was taken has ended

    @huey.task(name="job")
    def job(number: int) -> None:  # of this module, as huey names a job by its module as well
        handler(number)

    return huey, job


def _never(number: int) -> None:
    """Stand for the handler, which a client only names."""


def prepare(url: str) -> None:
    """Make nothing: the keys come with the first job."""


def enqueue(url: str, numbers: Iterable[int]) -> None:
    _, job = _job(url, _never)
    for number in numbers:
        job(number)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    """Enqueue one after the other: there is no call for many jobs."""
    _, job = _job(url, _never)
    for batch in batches:
        for number in batch:
            job(number)


def work(url: str, handler: Handler, concurrency: int) -> None:
    logging.getLogger("huey").setLevel(logging.WARNING)
    huey, _ = _job(url, handler)
    huey.create_consumer(workers=concurrency, worker_type="thread", periodic=False).run()


@cache
def _storage(url: str) -> Any:
    huey, _ = _job(url, _never)
    return huey.storage


def finished(url: str) -> int:
    """Count the results."""
    return int(_storage(url).result_store_size())
