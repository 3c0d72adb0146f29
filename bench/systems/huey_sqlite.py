"""Huey in a file of SQLite."""

import functools
import logging
import sqlite3
from collections.abc import Iterable
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="huey, SQLite",
    needs=("huey==3.5.4",),
    server="files",
    promises=Promises(
        durability="committed before the call returns (fsync=True)",
        history="none: a job is deleted when it is taken; its result is kept, if it has one",
        recovery="none: a job whose worker died is lost",
    ),
    pace=4_000,
    settings="one thread, looks every 10 ms when idle, no results",
    concurrency=1,
    handlers=frozenset({"noop_sync"}),
)


def _job(folder: str, handler: Handler) -> tuple[Any, Any]:
    from huey import SqliteHuey

    # In strict order its ids are never used again, so the last one tells how many jobs there have been.
    huey = SqliteHuey(filename=f"{folder}/huey.db", fsync=True, strict_fifo=True, results=False)

    @huey.task(name="job")
    def job(number: int) -> None:  # of this module, as huey names a job by its module as well
        handler(number)

    return huey, job


def _never(number: int) -> None:
    """Stand for the handler, which a client only names."""


def prepare(url: str) -> None:
    _job(url, _never)


def enqueue(url: str, numbers: Iterable[int]) -> None:
    _, job = _job(url, _never)
    for number in numbers:
        job(number)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    enqueue(url, (number for batch in batches for number in batch))  # it has no other way


def work(url: str, handler: Handler, concurrency: int) -> None:
    logging.basicConfig(level=logging.WARNING)
    huey, _ = _job(url, handler)
    huey.create_consumer(workers=concurrency, periodic=False, initial_delay=0.01, max_delay=0.01).run()


@functools.cache
def _connection(folder: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{folder}/huey.db", isolation_level=None)


def finished(url: str) -> int:
    """Give how many jobs were taken: it knows of no other end, and none of them will be run again."""
    ever = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'task'"
    ((jobs,),) = _connection(url).execute(f"SELECT ({ever}) - (SELECT count(*) FROM task)")
    return jobs
