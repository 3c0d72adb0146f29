"""Bare SQL in a file of SQLite."""

import functools
from collections.abc import Iterable

import leftfold
from bench import limit
from bench.bare import BareSqlite
from bench.system import About, Handler
from leftfold.store.sqlite.library import sqlite

ABOUT = About(
    title="bare SQL, SQLite",
    needs=(),
    server="files",
    promises=limit.PROMISES,
    pace=20_000,
    settings=f"one connection, synchronous=FULL, {limit.BATCH} jobs in a transaction",
    handlers=frozenset({"noop", "noop_sync"}),
    role="limit",
)


def _file(folder: str) -> str:
    return f"{folder}/jobs.db"


def prepare(url: str) -> None:
    leftfold.migrate(f"sqlite:///{_file(url)}")
    BareSqlite.prepare(_file(url))


def enqueue(url: str, numbers: Iterable[int]) -> None:
    limit.enqueue(BareSqlite(_file(url)), numbers)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    limit.enqueue_many(BareSqlite(_file(url)), batches)


async def work(url: str, handler: Handler, _: int) -> None:
    await limit.work(BareSqlite(_file(url)), handler)


@functools.cache
def _connection(url: str) -> sqlite.Connection:
    return sqlite.connect(_file(url), isolation_level=None)


def finished(url: str) -> int:
    ((jobs,),) = _connection(url).execute("SELECT count(ended_at) FROM leftfold_jobs").fetchall()
    return int(jobs)
