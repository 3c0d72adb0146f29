"""Where a test's jobs live: a schema of its own on the server, or a file of its own."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg

import leftfold
from leftfold import AsyncEngine, Engine
from leftfold.core.job import fold
from leftfold.testing.postgres import Server


class Place(NamedTuple):
    """A store by its URL, and by its schema where there are schemas."""

    url: str
    schema: str = "leftfold"

    @property
    def is_file(self) -> bool:
        return self.url.startswith("sqlite:")

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def open(self, **settings: Any) -> Engine:
        return leftfold.open(self.url, schema=self.schema, **settings)

    async def aopen(self, **settings: Any) -> AsyncEngine:
        return await leftfold.aopen(self.url, schema=self.schema, **settings)


def file_in(folder: Path) -> Place:
    """Give a file that is not there yet."""
    return Place(f"sqlite:///{folder / 'jobs.db'}")


@contextmanager
def schema_on(server: Server, name: str | None = None) -> Iterator[Place]:
    """Give a schema at head, and drop it afterwards."""
    place = Place(server.url(), name or f"t_{uuid4().hex}")
    leftfold.migrate(place.url, schema=place.schema)
    try:
        yield place
    finally:
        with psycopg.connect(place.url, autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute(f'DROP SCHEMA "{place.schema}" CASCADE'.encode())


@contextmanager
def database_on(server: Server) -> Iterator[str]:
    """Give the URL of an empty database, and drop it afterwards."""
    name = f"d_{uuid4().hex}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield server.url(name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def logs_of(engine: Engine) -> dict[str, list[str]]:
    """Give the events of every job, and hold rows, logs and counters to each other on the way.

    `history` follows each chain to the head that stands in the row.
    """
    logs: dict[str, list[str]] = {}
    states: Counter[tuple[str, str, str]] = Counter()
    after = None
    while True:
        page = engine.list(limit=1000, after=after)
        for summary in page.jobs:
            records = engine.history(summary.id)
            job = fold(records)
            assert job is not None
            assert [record.version for record in records] == list(range(1, job.version + 1))
            assert (job.state, job.version, job.attempt, job.failures) == (
                summary.state,
                summary.version,
                summary.attempt,
                summary.failures,
            )
            logs[summary.id] = [record.event.wire for record in records]
            states[summary.queue, summary.kind, summary.state] += 1
        after = page.next
        if after is None:
            break
    assert {(count.queue, count.kind, count.state): count.jobs for count in engine.counts()} == states
    return logs
