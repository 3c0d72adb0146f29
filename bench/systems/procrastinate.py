"""Procrastinate."""

import functools
from collections.abc import Iterable
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="Procrastinate",
    needs=("procrastinate==3.10.0", "psycopg[binary]==3.3.8"),
    server="postgres",
    promises=Promises(
        durability="committed before `defer` returns",
        history="the row of the job, and an event for each change of its status",
        recovery="heartbeats of workers: stalled jobs are found and run again by a task that one writes oneself",
    ),
    pace=700,
    settings="concurrency 20, a pool of 20 connections",
    concurrency=20,
)


def _job(connector: Any, handler: Any) -> tuple[Any, Any]:
    import procrastinate

    app = procrastinate.App(connector=connector)
    return app, app.task(name="job")(handler)


def _client(url: str) -> tuple[Any, Any]:
    import procrastinate

    def never(number: int) -> None:
        """Stand for the handler, which a client only names."""

    return _job(procrastinate.SyncPsycopgConnector(conninfo=url), never)


def prepare(url: str) -> None:
    app, _ = _client(url)
    with app.open():
        app.schema_manager.apply_schema()


def enqueue(url: str, numbers: Iterable[int]) -> None:
    app, job = _client(url)
    with app.open():
        for number in numbers:
            job.defer(number=number)


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    app, job = _client(url)
    with app.open():
        for batch in batches:
            job.batch_defer(*({"number": number} for number in batch))


def work(url: str, handler: Handler, concurrency: int) -> None:
    import procrastinate

    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=max(4, min(concurrency, 20)))
    app, _ = _job(connector, handler)
    app.run_worker(concurrency=concurrency, shutdown_graceful_timeout=0)


@functools.cache
def _connection(url: str) -> Any:
    import psycopg

    return psycopg.connect(url, autocommit=True)


def finished(url: str) -> int:
    return _connection(url).execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'").fetchone()[0]
