"""DBOS on PostgreSQL: a workflow without steps, from a queue."""

import functools
import os
import signal
from collections.abc import Iterable
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="DBOS, PostgreSQL",
    needs=("dbos==3.3.0", "psycopg[binary]==3.3.8"),
    server="postgres",
    promises=Promises(
        durability="committed before `enqueue` returns",
        history="the row of the workflow and one for each of its steps",
        recovery="when its executor starts again under its old name; its paid service moves work to others",
    ),
    pace=320,
    settings="worker concurrency 100, looks every 0.1 s",
)
_QUEUE = "jobs"


def _launched(url: str, handler: Handler) -> Any:
    from dbos import DBOS

    # Each process needs a name of its own, else it would take over what another one is running.
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "WARNING",
            "executor_id": str(os.getpid()),
            "application_version": "1",
        }
    )
    DBOS.workflow(name="job")(handler)
    DBOS.launch()
    return DBOS


async def _never(number: int) -> None:
    """Stand for the handler, which a client only names."""


def prepare(url: str) -> None:
    _launched(url, _never).destroy()


def _client(url: str) -> Any:
    from dbos import DBOSClient

    return DBOSClient(system_database_url=url, application_name="bench")


def enqueue(url: str, numbers: Iterable[int]) -> None:
    client = _client(url)
    for number in numbers:
        client.enqueue({"queue_name": _QUEUE, "workflow_name": "job"}, number)
    client.destroy()


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    import sqlalchemy

    client = _client(url)
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    for batch in batches:
        with engine.begin() as connection:
            for number in batch:
                client.enqueue_in_transaction(connection, {"queue_name": _QUEUE, "workflow_name": "job"}, number)
    client.destroy()


def work(url: str, handler: Handler, concurrency: int) -> None:
    _launched(url, handler).register_queue(_QUEUE, worker_concurrency=concurrency, polling_interval_sec=0.1)
    signal.pause()


@functools.cache
def _connection(url: str) -> Any:
    import psycopg

    return psycopg.connect(url, autocommit=True)


def finished(url: str) -> int:
    query = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"
    return _connection(url).execute(query).fetchone()[0]
