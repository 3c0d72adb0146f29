"""What a connection of the caller's must be so that an operation may run within its transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leftfold.core.errors import ValidationError
from leftfold.store.sessions import driver_connection
from leftfold.store.sqlite.library import MEMORY, NAME, is_foreign, sqlite


def check_foreign(connection: Any) -> None:
    """Refuse a connection that is none of this process's one SQLite library."""
    if is_foreign(connection):
        raise ValidationError(
            f"this connection is not of {NAME}, which this process uses: two SQLite libraries on one file lose "
            f"data; connect with {NAME}, or set LEFTFOLD_SQLITE"
        )
    if not isinstance(connection, sqlite.Connection):
        raise ValidationError(f"within takes a connection of {NAME} or of SQLAlchemy, not {connection!r}")


def check_place(connection: Any, cursor: Any, path: str) -> None:
    """Refuse a connection to anything but the file at this path, or one that would commit what we write at once."""
    main = next(file for _, name, file in cursor.execute("PRAGMA database_list").fetchall() if name == "main")
    if not main or path == MEMORY or not Path(main).samefile(path):
        raise ValidationError("within takes a connection to the very file of this store")
    if commits_by_itself(connection):
        raise ValidationError("this connection commits by itself: begin a transaction first")


def commits_by_itself(connection: Any) -> bool:
    """Tell whether nobody but us would begin a transaction on this connection, so that nobody would end it.

    There are two ways to ask for that; with `autocommit=True`, of Python 3.12, even `commit()` does nothing.
    """
    is_manual = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
    return is_manual and not connection.in_transaction


def patience_of(connection: object) -> float:
    """Give how many seconds the caller's connection would wait for others."""
    cursor = driver_connection(connection).cursor()
    cursor.row_factory = None
    ((milliseconds,),) = cursor.execute("PRAGMA busy_timeout").fetchall()
    return float(milliseconds) / 1000


@contextmanager
def impatient(cursor: Any) -> Iterator[None]:
    """Let a connection wait for nobody, for the length of the block."""
    ((milliseconds,),) = cursor.execute("PRAGMA busy_timeout").fetchall()
    cursor.execute("PRAGMA busy_timeout = 0").fetchall()
    try:
        yield
    finally:
        cursor.execute(f"PRAGMA busy_timeout = {milliseconds}").fetchall()
