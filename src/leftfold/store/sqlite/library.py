"""Which SQLite library this process uses: one and only one.

Two libraries on one file in one process lose data: the locks of one are dropped when the other closes the file. So
the choice is made once, here: pysqlite3 if it is installed (the `sqlite` extra), else Python's own sqlite3.
LEFTFOLD_SQLITE=stdlib or LEFTFOLD_SQLITE=pysqlite3 overrides it.
"""

import importlib
import os
import sqlite3 as stdlib
from types import ModuleType
from typing import Any, Final

from leftfold.core.errors import MissingExtraError, StoreError, ValidationError

OLDEST: Final = (3, 37, 0)  # STRICT tables
MEMORY: Final = ":memory:"  # the name of a store that has no file


def _choose(wish: str) -> ModuleType:
    if wish not in {"", "stdlib", "pysqlite3"}:
        raise ValidationError(f"LEFTFOLD_SQLITE is {wish!r}: it can be stdlib or pysqlite3")
    if wish == "stdlib":
        return stdlib
    try:
        return importlib.import_module("pysqlite3.dbapi2")
    except ImportError as problem:
        if wish:
            raise MissingExtraError("pysqlite3 is not installed: pip install 'leftfold[sqlite]'") from problem
        return stdlib


#: The module. Typed as Any: pysqlite3 has the interface of sqlite3 but no types.
sqlite: Final[Any] = _choose(os.environ.get("LEFTFOLD_SQLITE", ""))
NAME: Final = "sqlite3" if sqlite is stdlib else "pysqlite3"
VERSION: Final[tuple[int, ...]] = tuple(sqlite.sqlite_version_info)


def check_version() -> None:
    """Refuse a library that lacks what the schema needs."""
    if VERSION < OLDEST:
        raise StoreError(
            f"{NAME} brings SQLite {sqlite.sqlite_version}, 3.37 is the oldest that will do: "
            "pip install 'leftfold[sqlite]' brings a new one"
        )


def can_lose_commits(version: tuple[int, ...] = VERSION) -> bool:
    """Tell whether this version has the WAL-reset bug: a checkpoint that races a writer drops committed pages.

    It was mended in 3.51.3, and in 3.50.7 and 3.44.6 of the older lines.
    """
    return not (version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45))


def is_foreign(connection: object) -> bool:
    """Tell whether this is a connection of the other SQLite module."""
    name = type(connection).__module__.partition(".")[0]
    return isinstance(connection, stdlib.Connection) != (sqlite is stdlib) and name in {"sqlite3", "pysqlite3"}
