"""Where a case plays: a store, new and empty, that is thrown away behind it."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import leftfold
from leftfold.opening import MEMORY, Address, address_of

Clock = Callable[[], int]


class World(Protocol):
    """A store of its own for one case. `shared` tells whether a second engine sees what the first one wrote."""

    shared: bool

    def open(self, clock: Clock, enforce: str | None) -> leftfold.Engine:
        """Open an engine that has no other time than this clock, held to a dialect if one is named."""

    async def aopen(self, clock: Clock, enforce: str | None) -> leftfold.AsyncEngine:
        """Do the same for asyncio."""

    def drop(self) -> None:
        """Leave no trace."""


class SqliteWorld:
    """A file of its own beside the one that was named, or memory."""

    def __init__(self, place: str) -> None:
        self.shared = place != MEMORY
        path = Path(place)
        self._file = path.with_name(f"{path.stem}-{uuid4().hex}{path.suffix}") if self.shared else None
        self._url = f"sqlite:///{self._file or MEMORY}"

    def open(self, clock: Clock, enforce: str | None) -> leftfold.Engine:
        """Open an engine on the file."""
        return leftfold.open(self._url, clock=clock, enforce=enforce, actor=ACTOR)

    async def aopen(self, clock: Clock, enforce: str | None) -> leftfold.AsyncEngine:
        """Do the same for asyncio."""
        return await leftfold.aopen(self._url, clock=clock, enforce=enforce, actor=ACTOR)

    def drop(self) -> None:
        """Remove the file, and those that SQLite puts beside it."""
        if self._file is not None:
            for file in self._file.parent.glob(f"{self._file.name}*"):
                file.unlink(missing_ok=True)


class PostgresWorld:
    """A schema of its own. To make one takes longer than to empty one, so schemas are used again."""

    shared = True

    def __init__(self, url: str) -> None:
        self._url = url
        if _SPARE.get(url):
            self._schema = _SPARE[url].pop()
        else:
            self._schema = f"conformance_{uuid4().hex}"
            leftfold.migrate(url, schema=self._schema)

    def open(self, clock: Clock, enforce: str | None) -> leftfold.Engine:
        """Open an engine on the schema."""
        return leftfold.open(self._url, schema=self._schema, clock=clock, enforce=enforce, actor=ACTOR)

    async def aopen(self, clock: Clock, enforce: str | None) -> leftfold.AsyncEngine:
        """Do the same for asyncio."""
        return await leftfold.aopen(self._url, schema=self._schema, clock=clock, enforce=enforce, actor=ACTOR)

    def drop(self) -> None:
        """Empty every table, in the one way in which the store allows that: by saying who does it, and why."""
        with _connection(self._url).transaction():
            who = f"INSERT INTO {self._schema}.maintenance (at, actor, reason) VALUES (0, '{ACTOR}', 'it has ended')"  # noqa: S608 - the name is ours
            _run(self._url, who)
            _run(self._url, self._emptying())
        _SPARE.setdefault(self._url, []).append(self._schema)

    def _emptying(self) -> str:
        """Give the statement that deletes everything: one, so that it is planned once."""
        if self._schema not in _TABLES:
            asked = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> ALL (%s)"
            rows = _connection(self._url).execute(asked, (self._schema, ["maintenance", "migrations"])).fetchall()
            _TABLES[self._schema] = [name for (name,) in rows]
        parts = (f"{name}_ AS (DELETE FROM {self._schema}.{name})" for name in _TABLES[self._schema])  # noqa: S608 - the names are ours
        return f"WITH {', '.join(parts)} SELECT"


#: By schema, the tables in it that are emptied.
_TABLES: Final[dict[str, list[str]]] = {}
#: By URL, the schemas that are empty and can be used again.
_SPARE: Final[dict[str, list[str]]] = {}


def drop_spares() -> None:
    """Drop the schemas that were kept to be used again."""
    for url, schemas in _SPARE.items():
        for schema in schemas:
            _connection(url).execute(f"DROP SCHEMA {schema} CASCADE".encode())
        _connection(url).close()
    _SPARE.clear()
    _connection.cache_clear()


def _run(url: str, sql: str) -> None:
    _connection(url).execute(sql.encode(), prepare=True)


@cache
def _connection(url: str) -> Any:
    import psycopg  # noqa: PLC0415 - only who has a PostgreSQL needs it

    return psycopg.connect(url, autocommit=True, options="-c client_min_messages=warning")


#: The name under which the engines of the kit speak, where a case gives no other.
ACTOR: Final = "kit"


def world_of(url: str) -> World:
    """Give a new world in one of the stores that leftfold brings."""
    match address_of(url):
        case Address(dialect="sqlite", place=place):
            return SqliteWorld(place)
        case Address(place=place):
            return PostgresWorld(place)
