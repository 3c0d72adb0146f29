"""The hands in which a caller may hold a connection, behind one interface: what `within` takes, and what ends it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import psycopg
import sqlalchemy
import sqlalchemy.orm
from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row
from tests.places import Place

from leftfold.store.sqlite.library import sqlite


class Hand(Protocol):
    """A caller's connection. `within` is what the engine is given."""

    within: Any

    def run(self, sql: str) -> None:
        """Run a statement of the caller's own."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo it."""

    def close(self) -> None:
        """Leave."""


class Plain:
    """A connection of a driver."""

    def __init__(self, connection: Any) -> None:
        self.within = connection

    def run(self, sql: str) -> None:
        self.within.execute(sql)

    def commit(self) -> None:
        self.within.commit()

    def rollback(self) -> None:
        self.within.rollback()

    def close(self) -> None:
        self.within.close()


class Alchemy:
    """A connection or session of SQLAlchemy, and the engine behind it."""

    def __init__(self, engine: sqlalchemy.Engine, within: Any) -> None:
        self.engine = engine
        self.within = within

    def run(self, sql: str) -> None:
        self.within.execute(sqlalchemy.text(sql))

    def commit(self) -> None:
        self.within.commit()

    def rollback(self) -> None:
        self.within.rollback()

    def close(self) -> None:
        self.within.close()
        self.engine.dispose()


class Order:
    """What a caller may want to have its rows as."""

    def __init__(self, **columns: Any) -> None:
        self.columns = columns


ROW_FACTORIES: Final[dict[str, Any]] = {
    "dicts": dict_row,
    "named tuples": namedtuple_row,
    "scalars": scalar_row,
    "objects": class_row(Order),
}


def alchemy_url(place: Place) -> sqlalchemy.URL | str:
    if place.is_file:
        return f"sqlite:///{place.path}"
    return sqlalchemy.make_url(place.url).set(drivername="postgresql+psycopg")


def alchemy_engine(place: Place, **options: Any) -> sqlalchemy.Engine:
    """Give an engine on the very library that the store uses."""
    return sqlalchemy.create_engine(alchemy_url(place), **options, **({"module": sqlite} if place.is_file else {}))


def take(kind: str, place: Place) -> Hand:
    """Connect as a caller would."""
    match kind:
        case "psycopg":
            return Plain(psycopg.connect(place.url))
        case "sqlite3":
            return Plain(sqlite.connect(place.path))
        case "sqlite3 with rows":
            connection = sqlite.connect(place.path)
            connection.row_factory = sqlite.Row
            return Plain(connection)
        case "sqlite3 by hand":
            connection = sqlite.connect(place.path, isolation_level=None)
            connection.execute("BEGIN")
            return Plain(connection)
        case "sqlalchemy connection":
            engine = alchemy_engine(place)
            return Alchemy(engine, engine.connect())
        case "sqlalchemy session":
            engine = alchemy_engine(place)
            return Alchemy(engine, sqlalchemy.orm.Session(engine))
        case _:
            return Plain(psycopg.connect(place.url, row_factory=ROW_FACTORIES[kind.removeprefix("psycopg with ")]))


ON_POSTGRES: Final = (
    "psycopg",
    *(f"psycopg with {name}" for name in ROW_FACTORIES),
    "sqlalchemy connection",
    "sqlalchemy session",
)
ON_SQLITE: Final = ("sqlite3", "sqlite3 with rows", "sqlite3 by hand", "sqlalchemy connection", "sqlalchemy session")
ALL: Final = (*(("postgres", kind) for kind in ON_POSTGRES), *(("sqlite", kind) for kind in ON_SQLITE))


@contextmanager
def held(kind: str, place: Place) -> Iterator[Hand]:
    hand = take(kind, place)
    try:
        yield hand
    finally:
        hand.close()


def orders(place: Place) -> list[int]:
    """Give the caller's own rows, as somebody else sees them."""
    return sorted(row[0] for row in look(place, "SELECT id FROM orders"))


def look(place: Place, sql: str) -> list[Any]:
    connection = sqlite.connect(place.path) if place.is_file else psycopg.connect(place.url)
    try:
        return list(connection.execute(sql).fetchall())
    finally:
        connection.close()


def traces(place: Place) -> dict[str, int]:
    """Give how many rows each table of the store has."""
    prefix = "leftfold_" if place.is_file else ""
    return {table: len(look(place, f"SELECT 1 FROM {prefix}{table}")) for table in NO_TRACE}  # noqa: S608 - our own


NO_TRACE: Final = dict.fromkeys(("jobs", "events", "requests", "counts"), 0)
