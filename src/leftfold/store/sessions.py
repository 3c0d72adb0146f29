"""What the engine asks of a store: to run an operation, in a transaction of its own or within the caller's."""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeVar

from leftfold.core.errors import ValidationError
from leftfold.store.query import Operation

T = TypeVar("T")


class Bell(Protocol):
    """Wakes workers: a hint that costs the caller nothing."""

    def ring(self) -> None:
        """Say that there is something to do."""

    def close(self) -> None:
        """Ring for what is left, and stop."""


class Listener(Protocol):
    """Hears the bell, for a worker."""

    works: bool

    async def run(self) -> None:
        """Listen until cancelled."""


class Session(Protocol):
    """A store, opened."""

    dialect: str
    counts_grow: bool  # whether the counters are to be folded now and then
    sends_ahead: bool  # whether queries that need no answer are sent while the ones before them run

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction, and wake the workers behind one that `rings`."""

    def run_within(self, connection: object, operation: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction."""

    def close(self) -> None:
        """Close it."""


class AsyncSession(Protocol):
    """A store, opened for asyncio."""

    dialect: str
    counts_grow: bool  # whether the counters are to be folded now and then
    sends_ahead: bool  # whether queries that need no answer are sent while the ones before them run

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction, and wake the workers behind one that `rings`."""

    async def run_within(self, connection: object, operation: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction."""

    def listener(self, wake: Callable[[], None]) -> Listener:
        """Give what calls `wake` when there may be something to do."""

    async def close(self) -> None:
        """Close it."""


def is_async_session(connection: Any) -> bool:
    """Tell whether this is an async session of SQLAlchemy, scoped or not, which may have to connect first."""
    return _is_alchemy(connection) and iscoroutinefunction(getattr(type(connection), "connection", None))


def driver_connection(connection: Any, *, asynchronous: bool = False) -> Any:
    """Give the driver's own connection of an SQLAlchemy session or connection; any other is given as it is.

    Asking for it makes SQLAlchemy begin its transaction, if it has not yet.
    """
    if not _is_alchemy(connection):
        return connection
    if hasattr(connection, "sync_connection") or is_async_session(connection):
        if not asynchronous:  # SQLAlchemy itself would only speak of a greenlet
            raise ValidationError("within takes no async session or connection of SQLAlchemy here, only a sync one")
        connection = connection.sync_connection
    if hasattr(connection, "get_bind"):  # a session
        connection = connection.connection()
    if connection is None or not hasattr(connection, "connection"):
        raise ValidationError("this SQLAlchemy object has no connection yet: begin it first")
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


def _is_alchemy(connection: object) -> bool:
    """Tell whether this is of SQLAlchemy, or of a class that somebody made of one of its own."""
    return any(base.__module__.startswith("sqlalchemy.") for base in type(connection).__mro__)
