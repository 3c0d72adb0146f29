"""Leftfold, as its users write it: an app, a function, a worker. The same for both stores."""

import functools
from collections.abc import Iterable
from typing import Any

import leftfold
from bench.system import Handler
from leftfold import App
from leftfold.core.lifecycle import State


def prepare(url: str) -> None:
    leftfold.migrate(url)


def _job(url: str, handler: Handler) -> tuple[App, Any]:
    app = App(url)
    return app, app.job(name="job")(handler)


async def _never(number: int) -> None:
    """Stand for the handler, which a client only names."""


def enqueue(url: str, numbers: Iterable[int]) -> None:
    app, job = _job(url, _never)
    with app:
        for number in numbers:
            job.enqueue(number)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    app, job = _job(url, _never)
    with app:
        for batch in batches:
            app.enqueue_many(job.call(number) for number in batch)


def work(url: str, handler: Handler, concurrency: int) -> None:
    app, _ = _job(url, handler)
    app.run_worker(concurrency=concurrency)


@functools.cache
def _engine(url: str) -> leftfold.Engine:
    return leftfold.open(url)


def finished(url: str) -> int:
    return sum(count.jobs for count in _engine(url).counts() if count.state is State.SUCCEEDED)
