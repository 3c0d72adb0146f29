"""RQ."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="RQ",
    needs=("rq==2.12.0", "redis==8.1.0", "hiredis==3.5.0"),
    server="redis",
    promises=Promises(
        durability="in Redis's memory, on disk within about a second",
        history="the job with its state, times and result, for some minutes",
        recovery="found by maintenance when its worker is silent, and failed or run again",
    ),
    pace=150,
    settings="SimpleWorker (no fork for each job), hiredis",
    concurrency=1,
    handlers=frozenset({"noop_sync"}),
)
_JOB = "bench.handlers.noop_sync"  # a job is named by where its function is


@cache
def _redis(url: str) -> Any:
    from redis import Redis

    return Redis.from_url(url)


def _queue(url: str) -> Any:
    from rq import Queue

    return Queue(connection=_redis(url))


def prepare(url: str) -> None:
    """Make nothing: the keys come with the first job."""


def enqueue(url: str, numbers: Iterable[int]) -> None:
    queue = _queue(url)
    for number in numbers:
        queue.enqueue(_JOB, number)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    queue = _queue(url)
    for batch in batches:
        queue.enqueue_many([queue.prepare_data(_JOB, (number,)) for number in batch])


def work(url: str, handler: Handler, concurrency: int) -> None:  # noqa: ARG001 - it finds the handler by its name
    """Run jobs in this process, one after the other."""
    from rq import SimpleWorker

    SimpleWorker([_queue(url)], connection=_redis(url)).work(logging_level="WARNING")


def finished(url: str) -> int:
    """Count the registry of finished jobs, which keeps them for as long as their results."""
    return int(_redis(url).zcard("rq:finished:default"))
