"""Celery on Redis."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="Celery, Redis",
    needs=("celery[redis]==5.7.0", "redis==8.1.0", "hiredis==3.5.0"),
    server="redis",
    promises=Promises(
        durability="in Redis's memory, on disk within about a second",
        history="the result, for a day",
        recovery="acknowledged late: delivered again when the visibility time-out of an hour is over",
    ),
    pace=400,
    settings="solo pool, acks_late, results, prefetch 128, hiredis",
    concurrency=1,
    handlers=frozenset({"noop_sync"}),  # no coroutines
)


def _job(url: str, handler: Handler) -> tuple[Any, Any]:
    from celery import Celery

    app = Celery("bench", broker=url, backend=url, set_as_current=True)
    app.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=128,
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
    )
    return app, app.task(handler, name="job")


def _never(number: int) -> None:
    """Stand for the handler, which a client only names."""


def prepare(url: str) -> None:
    """Make nothing: the keys come with the first job."""


def enqueue(url: str, numbers: Iterable[int]) -> None:
    _, job = _job(url, _never)
    for number in numbers:
        job.delay(number)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    """Enqueue one after the other with one producer: there is no call for many jobs, as a group is a loop as well."""
    app, job = _job(url, _never)
    with app.producer_pool.acquire(block=True) as producer:
        for batch in batches:
            for number in batch:
                job.apply_async((number,), producer=producer)


def work(url: str, handler: Handler, concurrency: int) -> None:
    app, _ = _job(url, handler)
    alone = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["--quiet", "worker", "--pool", "solo", "-c", str(concurrency), "--loglevel", "WARNING", *alone])


@cache
def _redis(url: str) -> Any:
    from redis import Redis

    return Redis.from_url(url)


def finished(url: str) -> int:
    """Count the results, less what is not acknowledged: too few while jobs run, and exact when none does."""
    count = "return #redis.call('KEYS', 'celery-task-meta-*') - redis.call('HLEN', 'unacked')"
    return int(_redis(url).eval(count, 0))
