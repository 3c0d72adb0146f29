"""Runs operations on an SQLite file: one connection per process, one writer at a time.

Every write begins as a write (BEGIN IMMEDIATE): a transaction that reads first and writes later fails at once when
somebody else wrote in between, whatever the busy timeout says.

The checkpoint guard. On SQLite versions with the WAL-reset bug, a checkpoint that races a writer who starts the
write-ahead log anew drops committed pages. There automatic checkpoints are switched off, and ours runs on a second
connection while the first one, at the beginning of a write, holds the write lock: nobody can start the log anew
meanwhile.
"""

import asyncio
import functools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from leftfold.core.errors import (
    StoreError,
    StoreNotReadyError,
    StoreUnavailableError,
    ValidationError,
)
from leftfold.store import migrate
from leftfold.store.query import NAMES, Again, Columns, Operation, Query, drive, load_queries
from leftfold.store.rows import COLUMNS
from leftfold.store.sessions import driver_connection
from leftfold.store.sqlite.library import NAME, can_lose_commits, check_version, is_foreign, sqlite
from leftfold.store.sqlite.trouble import patiently, raise_translated, translated

T = TypeVar("T")

BUSY_SECONDS: Final = 30.0
_TRIES: Final = 20
_LOG_BYTES: Final = 2 * 1024 * 1024  # above it, the log is copied into the file
MEMORY: Final = ":memory:"

#: Settings of every connection. FULL: what was acknowledged survives a power cut.
_PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "temp_store = MEMORY",
    "journal_size_limit = 1048576",  # a log that starts anew gives its space back, so that its size tells something
)


_OF_TEXT: Final = {"id": "leftfold_id", "head": "leftfold_from_hex"}  # columns that JSON cannot carry as they are


def _item(place: int, column: str) -> str:
    item = f"value ->> {place}"
    return f"{_OF_TEXT[column]}({item})" if column in _OF_TEXT else item


_NAMES: Final = {
    **NAMES,
    "values": ", ".join(_item(place, column) for place, column in enumerate(COLUMNS)),
    "restored": ", ".join(f"{column} = {_item(place, column)}" for place, column in enumerate(COLUMNS)),
    "changes": ", ".join(f"{column} = {_item(place, column)}" for place, column in enumerate(COLUMNS, start=1)),
}


def _statements(script: str) -> Iterator[str]:
    """Split a script into its statements; the semicolons inside of a trigger end none."""
    statement = ""
    for piece in script.rstrip(" \n;").split(";"):
        statement += piece + ";"
        if sqlite.complete_statement(statement):
            yield statement.strip()
            statement = ""


def _spelled(script: str) -> tuple[str, ...]:
    """Spell `value ->> 3` as SQLite before 3.38 knows it."""
    words = script.split("value ->> ")
    for place, word in enumerate(words[1:], start=1):
        digits = word[: len(word) - len(word.lstrip("0123456789"))]
        words[place] = f"json_extract(value, '$[{digits}]'){word[len(digits) :]}"
    return tuple(_statements("".join(words)))


QUERIES: Final = {name: _spelled(script) for name, script in load_queries("sqlite", _NAMES).items()}
MIGRATIONS: Final = migrate.migrations("sqlite", {})


def id_of(text: str) -> bytes:
    """Give an id as the file keeps it."""
    return bytes.fromhex(text.replace("-", ""))


def id_text(id_: bytes) -> str:
    """Give an id as everybody else spells it."""
    text = id_.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def link(previous: bytes, *fields: bytes | str | int | None) -> bytes:
    """Give the hash of an event's columns, as `leftfold.core.record.link` computes it."""
    hashed = sha256(previous)
    for field in fields:
        if field is None:
            hashed.update(b"-")
        else:
            text = (id_text(field) if isinstance(field, bytes) else str(field)).encode()
            hashed.update(b"%d:%b" % (len(text), text))
    return hashed.digest()


def prepare(cursor: Any, connection: Any, *, guarded: bool) -> None:
    """Teach a connection the functions that our queries use, and let it leave checkpoints to us."""
    there = "SELECT 1 FROM pragma_function_list WHERE name = 'leftfold_link'"
    if not cursor.execute(there).fetchall():  # while the caller reads rows of its own, none could be replaced
        connection.create_function("leftfold_link", 11, link, deterministic=True)
        connection.create_function("leftfold_id", 1, id_of, deterministic=True)
        connection.create_function("leftfold_text", 1, id_text, deterministic=True)
        connection.create_function("leftfold_from_hex", 1, lambda text: None if text is None else bytes.fromhex(text))
    if guarded:
        cursor.execute("PRAGMA wal_autocheckpoint = 0").fetchall()


def check_foreign(connection: Any) -> None:
    """Refuse a connection that is none of this process's one SQLite library."""
    if is_foreign(connection):
        raise ValidationError(
            f"this connection is not of {NAME}, which this process uses: two SQLite libraries on one file lose "
            f"data; connect with {NAME}, or set LEFTFOLD_SQLITE"
        )
    if not isinstance(connection, sqlite.Connection):
        raise ValidationError(f"within takes a connection of {NAME} or of SQLAlchemy, not {connection!r}")


def _encodable(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


_OPTIONAL: Final = re.compile(r"^ *AND \(:(\w+) IS NULL OR (.*)\)$", re.MULTILINE)


def _narrowed(statement: str, arguments: Mapping[str, object]) -> str:
    """Leave out the conditions whose argument is null, so that an index can serve those that are left."""
    return _OPTIONAL.sub(lambda match: "" if arguments[match[1]] is None else f"AND {match[2]}", statement)


def execute(cursor: Any, now: int, query: Query) -> list[Columns]:
    """Run one query; the last of its statements that gives rows gives the answer."""
    arguments: dict[str, Any] = {"now": now}
    for name, value in query.arguments.items():
        is_array = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        arguments[name] = msgspec.json.encode(value).decode() if is_array else value
    if query.columns:
        rows = [[_encodable(value) for value in row] for row in query.rows]
        arguments["rows"] = msgspec.json.encode(rows).decode()
    answer: list[Columns] = []
    for statement in QUERIES[query.name]:
        cursor.execute(_narrowed(statement, arguments) if "IS NULL OR" in statement else statement, arguments)
        if cursor.description is not None:
            answer = cursor.fetchall()
    return answer


def applied_to(connection: Any) -> list[migrate.Applied]:
    """Give the migrations that a file has. It is only read, whosever file it may be."""
    there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'leftfold_migrations'").fetchall()
    rows = connection.execute("SELECT version, checksum FROM leftfold_migrations ORDER BY 1") if there else []
    return [migrate.Applied(*row) for row in rows]


class SqliteStore:
    """A file, opened. Safe for threads, which take turns; not for a fork, which must open it anew."""

    dialect = "sqlite"
    counts_grow = False

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        migrate_now: bool = True,
        clock: Callable[[], int] | None = None,
        busy: float = BUSY_SECONDS,
    ) -> None:
        check_version()
        self.path = path
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self._busy = busy
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._guarded = can_lose_commits() and path != MEMORY
        if not create and path != MEMORY and not Path(path).exists():
            raise StoreNotReadyError(f"there is no store at {path}: `leftfold migrate` or a first enqueue makes one")
        self._opened: list[Any] = []
        self._closed = False
        try:
            self._connection = self._connect(create=create)
            self._checkpointer = self._connect(create=True) if self._guarded else None
            if create and migrate_now:
                self.migrate()
        except BaseException as problem:  # noqa: BLE001 - it is raised again
            self.close()
            raise_translated(problem, self.path)
        self._inode = None if path == MEMORY else Path(path).stat().st_ino

    def _connect(self, *, create: bool) -> Any:
        connection = sqlite.connect(self.path, timeout=self._busy, isolation_level=None, check_same_thread=False)
        self._opened.append(connection)
        if not create:
            migrate.check_ready(MIGRATIONS, applied_to(connection))
        for pragma in _PRAGMAS:
            patiently(functools.partial(connection.execute, f"PRAGMA {pragma}"), self._busy)
        prepare(connection.cursor(), connection, guarded=self._guarded)
        connection.execute("CREATE TEMP TABLE picked (place INTEGER PRIMARY KEY, n INTEGER NOT NULL)")
        return connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._closed = True
            for connection in self._opened:
                connection.close()

    def applied(self) -> list[migrate.Applied]:
        """Give the migrations that the file has."""
        return applied_to(self._connection)

    def migrate(self) -> list[migrate.Migration]:
        """Bring the file to our schema, and give what that took. Two at once wait for each other."""
        if not migrate.pending(MIGRATIONS, self.applied()):
            return []
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute(MIGRATIONS_TABLE)
            missing = migrate.pending(MIGRATIONS, self.applied())
            for migration in missing:
                for statement in _statements(migration.sql):
                    cursor.execute(statement)
                row = (migration.version, migration.name, migration.checksum, self._clock())
                cursor.execute("INSERT INTO leftfold_migrations VALUES (?, ?, ?, ?)", row)
            cursor.execute("COMMIT")
        except BaseException as problem:  # noqa: BLE001 - it is raised again
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise_translated(problem, self.path)
        return missing

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction."""
        if os.getpid() != self._pid:
            raise StoreError("this store was opened before a fork: open it anew in the child")
        with self._lock:
            self._check_file()
            for _ in range(_TRIES):
                try:
                    return self._run_once(operation)
                except Again:
                    continue
        raise StoreUnavailableError("the operation gave way to others too often: try again")

    def _run_once(self, operation: Operation[T]) -> T:
        if self._closed:
            raise StoreError("this engine is closed: open it anew")
        cursor = self._connection.cursor()
        committing = False
        try:
            if operation.reads:
                cursor.execute("BEGIN")
            else:
                self._begin_to_write(cursor)
            answer = drive(operation.steps(), functools.partial(execute, cursor, self._clock()))
            committing = True
            cursor.execute("COMMIT")
        except BaseException as problem:  # noqa: BLE001 - it is raised again
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise_translated(problem, self.path, committing=committing)
        return answer

    def run_within(self, connection: object, operation: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction: nothing is committed here."""
        foreign = driver_connection(connection)
        check_foreign(foreign)
        text_factory = foreign.text_factory
        foreign.text_factory = str
        try:
            cursor = foreign.cursor()
            cursor.row_factory = None
            self._check_place(foreign, cursor)
            prepare(cursor, foreign, guarded=self._guarded)
            if not foreign.in_transaction:
                with self._lock:
                    self._begin_to_write(cursor)
            return self._run_inside(cursor, operation)
        except sqlite.Error as problem:
            raise_translated(problem, self.path)
        finally:
            foreign.text_factory = text_factory

    def _run_inside(self, cursor: Any, operation: Operation[T]) -> T:
        for _ in range(_TRIES):
            cursor.execute("SAVEPOINT leftfold")
            try:
                answer = drive(operation.steps(), functools.partial(execute, cursor, self._clock()))
            except BaseException as problem:
                cursor.execute("ROLLBACK TO leftfold")
                cursor.execute("RELEASE leftfold")
                if isinstance(problem, Again) or isinstance(translated(problem, self.path), Again):
                    continue
                raise
            cursor.execute("RELEASE leftfold")
            return answer
        raise StoreUnavailableError("the operation gave way to others too often: try again")

    def _check_place(self, connection: Any, cursor: Any) -> None:
        main = next(file for _, name, file in cursor.execute("PRAGMA database_list").fetchall() if name == "main")
        if not main or self.path == MEMORY or not Path(main).samefile(self.path):
            raise ValidationError("within takes a connection to the very file of this store")
        if not connection.in_transaction and connection.isolation_level is None:
            raise ValidationError("this connection commits by itself: begin a transaction first")

    def _begin_to_write(self, cursor: Any) -> None:
        """Become the writer. A log that has grown large is copied into the file first, while nobody else writes."""
        cursor.execute("BEGIN IMMEDIATE")
        if self._checkpointer is not None and self._log_is_large():
            with suppress(sqlite.DatabaseError):  # what is wrong with the file, the caller's statements will say
                self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            cursor.execute("ROLLBACK")  # only a write that begins behind the copy starts the log anew
            cursor.execute("BEGIN IMMEDIATE")

    def _log_is_large(self) -> bool:
        try:
            return Path(f"{self.path}-wal").stat().st_size > _LOG_BYTES
        except FileNotFoundError:
            return False

    def _check_file(self) -> None:
        """Refuse to write into a file that has no name any more."""
        try:
            gone = self._inode is not None and Path(self.path).stat().st_ino != self._inode
        except FileNotFoundError:
            gone = True
        if gone:
            raise StoreError(f"{self.path} was replaced or deleted while it was open: open it anew")

    def pragma(self, name: str) -> Any:
        """Give a setting of the connection."""
        return self._connection.execute(f"PRAGMA {name}").fetchone()[0]


class AsyncSqliteStore:
    """The same for asyncio: a whole operation per hop to the one thread that has the connection."""

    dialect = "sqlite"
    counts_grow = False

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leftfold-sqlite")

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction."""
        if self._closed:
            raise StoreError("this engine is closed: open it anew")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.store.run, operation)

    async def run_within(self, connection: object, operation: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction, on the caller's thread."""
        return self.store.run_within(connection, operation)

    async def close(self) -> None:
        """Close the file."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self.store.close)
        self._thread.shutdown()


MIGRATIONS_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS leftfold_migrations ("
    "version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"
)
