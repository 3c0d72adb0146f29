"""Dramatiq on Redis."""

import signal
from collections.abc import Iterable
from functools import cache
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="Dramatiq, Redis",
    needs=("dramatiq[redis]==2.2.1", "redis==8.1.0", "hiredis==3.5.0"),
    server="redis",
    promises=Promises(
        durability="in Redis's memory, on disk within about a second",
        history="none: a job that succeeded is gone",
        recovery="acknowledged late: enqueued again when the worker was silent for a minute",
    ),
    pace=2_000,
    settings="8 threads, hiredis",
    concurrency=8,
)
_ENQUEUED = "bench:enqueued"  # ours: Dramatiq keeps no trace of a job that ended, so we count what we gave it


def _job(url: str, handler: Handler) -> tuple[Any, Any]:
    from dramatiq import actor
    from dramatiq.brokers.redis import RedisBroker
    from dramatiq.middleware.asyncio import AsyncIO

    broker = RedisBroker(url=url)
    broker.add_middleware(AsyncIO())
    return broker, actor(handler, actor_name="job", broker=broker)


def _never(number: int) -> None:
    """Stand for the handler, which a client only names."""


def prepare(url: str) -> None:
    """Make nothing: the keys come with the first job."""


def enqueue(url: str, numbers: Iterable[int]) -> None:
    enqueue_many(url, ([number] for number in numbers))


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    """Enqueue one after the other: there is no call for many jobs, as a group is a loop as well."""
    broker, job = _job(url, _never)
    enqueued = 0
    for batch in batches:
        for number in batch:
            job.send(number)
        enqueued += len(batch)
    broker.client.incrby(_ENQUEUED, enqueued)


def work(url: str, handler: Handler, concurrency: int) -> None:
    from dramatiq import Worker

    broker, _ = _job(url, handler)
    Worker(broker, worker_threads=concurrency).start()
    signal.pause()


@cache
def _redis(url: str) -> Any:
    from redis import Redis

    return Redis.from_url(url)


def finished(url: str) -> int:
    """Count the jobs that were enqueued, less the messages that are left: each is, until it was acknowledged."""
    enqueued, left = _redis(url).pipeline().get(_ENQUEUED).hlen("dramatiq:default.msgs").execute()
    return int(enqueued or 0) - int(left)
