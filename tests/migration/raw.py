"""Plain SQL on a store, past the engine: what somebody with a database shell can do."""

import re
from collections.abc import Sequence
from typing import Any, Protocol, Self

import psycopg
from tests.places import Place

from leftfold import Engine
from leftfold.store.sqlite.library import sqlite


class Refused(Exception):  # noqa: N818 - it is what the tests wait for
    """The database said no."""


class Raw(Protocol):
    """A connection whose tables need no schema in front of them."""

    is_file: bool

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None:
        """Close the connection."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with `?` for values, and give its rows; raise `Refused` if the database will not."""

    def maintain(self) -> None:
        """Begin a transaction that says who changes what stands, and why."""

    def commit(self) -> None:
        """End it, as it has to be ended."""


class PostgresRaw:
    is_file = False

    def __init__(self, place: Place) -> None:
        self.connection = psycopg.connect(place.url, autocommit=True)
        self.connection.execute(f'SET search_path = "{place.schema}"'.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            cursor = self.connection.execute((sql.replace("?", "%s") if values else sql).encode(), values or None)
        except psycopg.Error as problem:
            raise Refused(str(problem)) from problem
        return cursor.fetchall() if cursor.description is not None else []

    def maintain(self) -> None:
        self.run("BEGIN")
        self.run("INSERT INTO maintenance (at, actor, reason) VALUES (1, 'ann', 'a law')")

    def commit(self) -> None:
        self.run("COMMIT")


_TABLES = "jobs|events|names|log|counts|requests|queues|feeds|maintenance|migrations"


def in_file(sql: str) -> str:
    """Name the tables as a file does, which may hold other tables beside ours."""
    return re.sub(rf"\b(FROM|INTO|UPDATE|REPLACE|TABLE|ON) ({_TABLES})\b", r"\1 leftfold_\2", sql)


class SqliteRaw:
    is_file = True

    def __init__(self, place: Place) -> None:
        self.connection = sqlite.connect(place.path, isolation_level=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            rows: list[tuple[Any, ...]] = self.connection.execute(in_file(sql), values).fetchall()
        except sqlite.Error as problem:
            raise Refused(str(problem)) from problem
        return rows

    def maintain(self) -> None:
        self.run("BEGIN IMMEDIATE")
        self.run("INSERT INTO maintenance (at, actor, reason, open) VALUES (1, 'ann', 'a law', 1)")

    def commit(self) -> None:
        self.run("UPDATE maintenance SET open = 0 WHERE open")
        self.run("COMMIT")


def short_life(engine: Engine) -> list[str]:
    """Let a job be made, run and completed, and give its events."""
    job = engine.enqueue("work", {"n": 1}, key="key", correlation_id="c", priority="P1", due=0, request_id="ask")
    (claim,) = engine.claim("worker", lease=30, request_id="take")
    engine.start(claim)
    engine.heartbeat(claim)
    engine.complete(claim, {"done": True})
    assert engine.get(job.job_id).state == "succeeded"
    return [record.event.wire for record in engine.history(job.job_id)]
