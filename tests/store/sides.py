"""A store and its engine on one side, and its tables as plain SQL shows them on the other."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import leftfold
from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden
from leftfold.engine import Engine
from leftfold.store.ids import Ids
from leftfold.store.ops import EVENT_COLUMNS
from leftfold.store.postgres.driver import PostgresStore
from leftfold.store.postgres.wire import quoted
from leftfold.store.query import Columns
from leftfold.store.rows import COLUMNS, Row
from leftfold.store.sqlite.driver import SqliteStore
from leftfold.store.sqlite.library import MEMORY
from leftfold.testing.clock import FakeClock

ACTOR = "client"

#: Every table that an answer of the engine may depend on, beside jobs and events.
OTHER_TABLES = ("requests", "queues")


def same_ids(clock: FakeClock) -> Ids:
    """Give a maker of ids that makes the same ones on every side."""
    return Ids(clock, randomness=random.Random(7).randbytes)  # noqa: S311 - they are to be the same


class Side(Protocol):
    """A store, opened, and what stands in it."""

    engine: Engine

    @property
    def name(self) -> str: ...

    def sql(self, text: str, *values: object) -> list[Columns]:
        """Run SQL on a connection of the driver."""

    def reopen(self) -> None:
        """Close the store and open it again."""

    def close(self) -> None:
        """Close everything."""


class SqliteSide:
    """A file."""

    name = "sqlite"

    def __init__(self, path: Path | None, clock: FakeClock, forbidden: Forbidden = NOTHING_FORBIDDEN) -> None:
        self._path = MEMORY if path is None else str(path)
        self._clock = clock
        self._settings: dict[str, Any] = {"actor": ACTOR, "ids": same_ids(clock), "forbidden": forbidden}
        self._open()

    def _open(self) -> None:
        self.store = SqliteStore(self._path, clock=self._clock)
        self.engine = Engine(self.store, **self._settings)

    def sql(self, text: str, *values: object) -> list[Columns]:
        return list(self.store._connection.execute(text.replace("{schema}.", "leftfold_"), values).fetchall())

    def reopen(self) -> None:
        self.store.close()
        self._open()

    def close(self) -> None:
        self.store.close()


class PostgresSide:
    """A schema."""

    name = "postgres"

    def __init__(self, url: str, schema: str, clock: FakeClock, forbidden: Forbidden = NOTHING_FORBIDDEN) -> None:
        leftfold.migrate(url, schema=schema)
        self._url, self._schema, self._clock = url, schema, clock
        self._settings: dict[str, Any] = {"actor": ACTOR, "ids": same_ids(clock), "forbidden": forbidden}
        self._open()

    def _open(self) -> None:
        self.store = PostgresStore(self._url, schema=self._schema, clock=self._clock).open()
        self.connection = self.store.connect()
        self.engine = Engine(self.store, **self._settings)

    def sql(self, text: str, *values: object) -> list[Columns]:
        cursor = self.connection.execute(text.replace("?", "%s").format(schema=quoted(self._schema)).encode(), values)
        return cursor.fetchall() if cursor.description is not None else []

    def reopen(self) -> None:
        self.connection.close()
        self.store.close()
        self._open()

    def close(self) -> None:
        self.sql("DROP SCHEMA {schema} CASCADE")
        self.connection.close()
        self.store.close()


def rows(side: Side) -> dict[str, Row]:
    """Give every row of the jobs table."""
    spelled = "leftfold_text(id)" if side.name == "sqlite" else "id::text"
    columns = ", ".join(spelled if column == "id" else column for column in COLUMNS)
    found = side.sql(f"SELECT {columns} FROM {{schema}}.jobs ORDER BY id")  # noqa: S608 - our own columns
    return {row[0]: Row._make(row)._replace(head=bytes(row[COLUMNS.index("head")])) for row in found}


def events(side: Side) -> dict[str, list[Columns]]:
    """Give every event, by job, with all columns that the hash covers, and the seal."""
    if side.name == "sqlite":
        source, job_id = "leftfold_log e JOIN leftfold_jobs j ON j.n = e.job", "leftfold_text(j.id)"
    else:
        source, job_id = "{schema}.events e", "e.job_id::text"
    empty = {"who", "request_id", "request_hash"} if side.name == "postgres" else set()
    named = [f"nullif(e.{column}, '')" if column in empty else f"e.{column}" for column in EVENT_COLUMNS[1:]]
    columns = ", ".join([job_id, *named])
    logs: dict[str, list[Columns]] = {}
    for row in side.sql(f"SELECT {columns} FROM {source} ORDER BY 1, 2"):  # noqa: S608
        logs.setdefault(row[0], []).append((*row[:-1], bytes(row[-1])))
    return logs


def others(side: Side) -> Mapping[str, Sequence[Columns]]:
    """Give what stands in the other tables."""
    return {table: sorted(side.sql(f"SELECT * FROM {{schema}}.{table}")) for table in OTHER_TABLES}  # noqa: S608
