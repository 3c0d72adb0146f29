"""Leftfold in a file of SQLite."""

from collections.abc import Iterable

from bench import ours
from bench.system import About, Handler, Promises

ABOUT = About(
    title="Leftfold, SQLite",
    needs=(),
    server="files",
    promises=Promises(
        durability="committed before `enqueue` returns (synchronous=FULL)",
        history="every event of every job, in a hash chain that `verify` checks",
        recovery="leases and fences: run again when the lease ends, and late writes are refused",
    ),
    pace=14_000,
    settings="concurrency 500",
    concurrency=500,
    role="ours",
)


def _file(folder: str) -> str:
    return f"sqlite:///{folder}/jobs.db"


def prepare(url: str) -> None:
    ours.prepare(_file(url))


def enqueue(url: str, numbers: Iterable[int]) -> None:
    ours.enqueue(_file(url), numbers)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    ours.enqueue_many(_file(url), batches)


def work(url: str, handler: Handler, concurrency: int) -> None:
    ours.work(_file(url), handler, concurrency)


def finished(url: str) -> int:
    return ours.finished(_file(url))
