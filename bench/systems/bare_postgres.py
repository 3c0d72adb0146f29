"""Bare SQL on PostgreSQL."""

import functools
from collections.abc import Iterable

import psycopg

import leftfold
from bench import limit
from bench.bare import BarePostgres
from bench.system import About, Handler

ABOUT = About(
    title="bare SQL, PostgreSQL",
    needs=(),
    server="postgres",
    promises=limit.PROMISES,
    pace=20_000,
    settings=f"psycopg, one connection, {limit.BATCH} jobs in a statement",
    handlers=frozenset({"noop", "noop_sync"}),
    role="limit",
)
_SCHEMA = "leftfold"


def prepare(url: str) -> None:
    leftfold.migrate(url)


def enqueue(url: str, numbers: Iterable[int]) -> None:
    limit.enqueue(BarePostgres(url, _SCHEMA), numbers)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    limit.enqueue_many(BarePostgres(url, _SCHEMA), batches)


async def work(url: str, handler: Handler, _: int) -> None:
    await limit.work(BarePostgres(url, _SCHEMA), handler)


@functools.cache
def _connection(url: str) -> psycopg.Connection[tuple[int]]:
    return psycopg.connect(url, autocommit=True)


def finished(url: str) -> int:
    ((jobs,),) = _connection(url).execute(f"SELECT count(ended_at) FROM {_SCHEMA}.jobs".encode()).fetchall()
    return jobs
