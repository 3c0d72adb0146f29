"""What the engine asks of a store: to run an operation, in a transaction of its own or within the caller's."""

from typing import Any, Protocol, TypeVar

from leftfold.core.errors import ValidationError
from leftfold.store.query import Operation

T = TypeVar("T")


class Session(Protocol):
    """A store, opened."""

    dialect: str
    counts_grow: bool  # whether the counters are to be folded now and then

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction."""

    def run_within(self, connection: object, operation: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction."""

    def close(self) -> None:
        """Close it."""


class AsyncSession(Protocol):
    """A store, opened for asyncio."""

    dialect: str
    counts_grow: bool  # whether the counters are to be folded now and then

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction."""

    async def run_within(self, connection: object, operation: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction."""

    async def close(self) -> None:
        """Close it."""


def driver_connection(connection: Any) -> Any:
    """Give the driver's own connection of an SQLAlchemy session or connection; any other is given as it is.

    Asking for it makes SQLAlchemy begin its transaction, if it has not yet.
    """
    if not type(connection).__module__.startswith("sqlalchemy."):
        return connection
    if hasattr(connection, "sync_session"):
        connection = connection.sync_session
    if hasattr(connection, "sync_connection"):
        connection = connection.sync_connection
    if hasattr(connection, "get_bind"):  # a session
        connection = connection.connection()
    if connection is None or not hasattr(connection, "connection"):
        raise ValidationError("this SQLAlchemy object has no connection yet: begin it first")
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection
