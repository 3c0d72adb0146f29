"""Runs operations on an SQLite file: one writer at a time, and readers beside it.

Every write begins as a write (BEGIN IMMEDIATE): a transaction that reads first and writes later fails at once when
somebody else wrote in between, whatever the busy timeout says. Reads have a connection of their own: a write may have
to wait for another connection of this very process, which perhaps reads before it commits.

The checkpoint guard. On SQLite versions with the WAL-reset bug, a checkpoint that races a writer who starts the
write-ahead log anew drops committed pages. There automatic checkpoints are switched off, and ours runs on a second
connection while the first one, at the beginning of a write, holds the write lock: nobody can start the log anew
meanwhile. What the caller has begun cannot be begun anew: there it runs before the caller's turn, if nobody writes.
"""

import functools
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from leftfold.core.errors import StoreError, StoreNotReadyError, StoreUnavailableError
from leftfold.store import migrate
from leftfold.store.query import Again, Operation, drive
from leftfold.store.sessions import driver_connection
from leftfold.store.sqlite.library import MEMORY, can_lose_commits, check_version, sqlite
from leftfold.store.sqlite.trouble import patiently, raise_translated, translated
from leftfold.store.sqlite.wire import LOG_LIMIT, TEMPORARY, execute, leniently, prepare, statements
from leftfold.store.sqlite.within import check_foreign, check_place, impatient

T = TypeVar("T")

BUSY_SECONDS: Final = 30.0
_TURN_SECONDS: Final = 0.5
_TRIES: Final = 20
#: Within a transaction that may have begun as a read: changes nothing, and holds the write lock from then on.
_BECOME_WRITER: Final = "DELETE FROM leftfold_requests WHERE false"
_LOG_BYTES: Final = 2 * 1024 * 1024  # above it, the log is copied into the file,
_LOG_GROWTH: Final = 512 * 1024  # and again behind so much: a log that starts anew keeps its length, to be filled again

#: Settings of every connection. FULL: what was acknowledged survives a power cut.
_PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "temp_store = MEMORY",
    LOG_LIMIT,
)

MIGRATIONS: Final = migrate.migrations("sqlite")


def applied_to(connection: Any) -> list[migrate.Applied]:
    """Give the migrations that a file has. It is only read, whosever file it may be."""
    there = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'leftfold_migrations'").fetchall()
    rows = connection.execute("SELECT version, checksum FROM leftfold_migrations ORDER BY 1") if there else []
    return [migrate.Applied(*row) for row in rows]


class _Writers:
    """Those of this process who write to one file: who waits here is woken at once, and SQLite would sleep and look.

    Others may write, too, so this decides nothing: who has waited for a moment goes on, and hears from SQLite.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def turn(self) -> "_Turn":
        """Wait for a turn, but not for long."""
        return _Turn(self.lock)


class _Turn:
    """A turn of one of them."""

    __slots__ = ("_lock", "_mine")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._mine = self._lock.acquire(timeout=_TURN_SECONDS)

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if self._mine:
            self._lock.release()


_FILES: Final[WeakValueDictionary[str, _Writers]] = WeakValueDictionary()
os.register_at_fork(after_in_child=_FILES.clear)  # the turn that a thread of the parent had would never end


class SqliteStore:
    """A file, opened. Safe for threads, which take turns; not for a fork, which must open it anew.

    What is only in memory has one connection, and one turn for all.
    """

    dialect = "sqlite"
    counts_grow = False
    sends_ahead = False

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
        self.path = path if path == MEMORY else str(Path(path).absolute())  # wherever the process goes from here
        self._shown = path
        self._log = f"{self.path}-wal"
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self._busy = busy
        self._lock = threading.Lock()  # of the connection that writes
        self._writers = _FILES.setdefault(self.path, _Writers()) if path != MEMORY else None
        self._reading = self._lock if path == MEMORY else threading.Lock()
        self._copying = threading.Lock()
        self._copied = 0  # how long the log was when we last copied it
        self._pid = os.getpid()
        self._guarded = can_lose_commits() and path != MEMORY
        if not create and path != MEMORY and not Path(self.path).exists():
            raise StoreNotReadyError(f"there is no store at {path}: `leftfold migrate` or a first enqueue makes one")
        self._opened: list[Any] = []
        self._closed = False
        try:
            self._connection = self._connect(create=create)
            self._checkpointer = self._connect(create=True) if self._guarded else None
            if create and migrate_now:
                self.migrate()
            self._reader = self._connection
            if path != MEMORY:
                self._reader = self._connect(create=True)
                self._reader.execute("PRAGMA query_only = ON")
        except BaseException as problem:  # noqa: BLE001 - it is raised again
            self.close()
            raise_translated(problem, self._shown)
        self._inode = None if path == MEMORY else Path(self.path).stat().st_ino

    def _connect(self, *, create: bool) -> Any:
        connection = sqlite.connect(self.path, timeout=self._busy, isolation_level=None, check_same_thread=False)
        self._opened.append(connection)
        if not create:
            migrate.check_ready(MIGRATIONS, applied_to(connection))
        for pragma in _PRAGMAS:
            patiently(functools.partial(connection.execute, f"PRAGMA {pragma}"), self._busy)
        prepare(connection.cursor(), connection, guarded=self._guarded)
        for table in TEMPORARY:
            connection.execute(table)
        return connection

    def close(self) -> None:
        """Close the file."""
        self._closed = True
        if os.getpid() != self._pid:  # they are the parent's: to close them here could end what it has under way
            return
        with ExitStack() as turns:
            for lock in dict.fromkeys((self._lock, self._reading, self._copying)):
                turns.enter_context(lock)
            for connection in self._opened:
                connection.close()

    def applied(self) -> list[migrate.Applied]:
        """Give the migrations that the file has."""
        return applied_to(self._connection)

    def migrate(self) -> list[migrate.Migration]:
        """Bring the file to our schema, and give what that took. Two at once wait for each other."""
        cursor = self._connection.cursor()
        try:
            if not migrate.pending(MIGRATIONS, self.applied()):
                return []
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute(MIGRATIONS_TABLE)
            missing = migrate.pending(MIGRATIONS, self.applied())
            for migration in missing:
                for statement in statements(migration.sql):
                    cursor.execute(statement)
                row = (migration.version, migration.name, migration.checksum, self._clock())
                cursor.execute("INSERT INTO leftfold_migrations VALUES (?, ?, ?, ?)", row)
            cursor.execute("COMMIT")
        except BaseException as problem:  # noqa: BLE001 - it is raised again
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise_translated(problem, self._shown)
        return missing

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction."""
        self._check_process()
        connection, turn = (self._reader, self._reading) if operation.reads else (self._connection, self._lock)
        with turn, nullcontext() if operation.reads or self._writers is None else self._writers.turn():
            self._check_file()
            for _ in range(_TRIES):
                try:
                    return self._run_once(connection, operation)
                except Again:
                    continue
        raise StoreUnavailableError("the operation gave way to others too often: try again")

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError("this store was opened before a fork: open it anew in the child")

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("this engine is closed: open it anew")

    def _run_once(self, connection: Any, operation: Operation[T]) -> T:
        self._check_open()
        cursor = connection.cursor()
        committing = False
        try:
            if operation.reads:
                cursor.execute("BEGIN")
            else:
                self._begin_to_write(cursor)
            answer = drive(operation.steps(), functools.partial(execute, cursor, self._clock()))
            committing = True
            cursor.execute("COMMIT")
        except BaseException as problem:
            if connection.in_transaction:
                cursor.execute("ROLLBACK")
            if "decode to UTF-8" in str(problem) and connection.text_factory is str:
                # Somebody damaged a text: read it all the same from now on, so that it can be named.
                connection.text_factory = leniently
                raise Again from problem
            raise_translated(problem, self._shown, committing=committing)
        return answer

    def run_within(self, connection: object, operation: Operation[T], *, waits: bool = True) -> T:
        """Run an operation as a part of the caller's transaction: nothing is committed here.

        Somebody else may be writing. `waits` lets SQLite wait for that as long as the connection's own timeout says.
        """
        self._check_process()
        self._check_open()
        foreign = driver_connection(connection)
        check_foreign(foreign)
        text_factory, begun = foreign.text_factory, False
        foreign.text_factory = str
        try:
            cursor = foreign.cursor()
            cursor.row_factory = None
            check_place(foreign, cursor, self.path)
            prepare(cursor, foreign, guarded=self._guarded)
            begun = foreign.in_transaction
            with nullcontext() if waits else impatient(cursor):
                if begun:
                    self._copy_large_log_if_nobody_writes()
                    cursor.execute(_BECOME_WRITER)
                else:
                    self._begin_to_write(cursor)
            return self._run_inside(cursor, operation)
        except sqlite.Error as problem:
            raise_translated(problem, self._shown, begun=begun)
        finally:
            foreign.text_factory = text_factory

    def _run_inside(self, cursor: Any, operation: Operation[T]) -> T:
        for _ in range(_TRIES):
            cursor.execute("SAVEPOINT leftfold")
            try:
                answer = drive(operation.steps(), functools.partial(execute, cursor, self._clock(), within=True))
            except BaseException as problem:
                if not cursor.connection.in_transaction:
                    raise  # SQLite has rolled all of it back, or somebody's trigger
                cursor.execute("ROLLBACK TO leftfold")
                cursor.execute("RELEASE leftfold")
                if isinstance(problem, Again) or isinstance(translated(problem, self._shown), Again):
                    continue
                raise
            cursor.execute("RELEASE leftfold")
            return answer
        raise StoreUnavailableError("the operation gave way to others too often: try again")

    def _begin_to_write(self, cursor: Any) -> None:
        """Become the writer. A log that has grown large is copied into the file first, while nobody else writes."""
        cursor.execute("BEGIN IMMEDIATE")
        if self._copy_large_log():
            cursor.execute("ROLLBACK")  # only a write that begins behind the copy starts the log anew
            cursor.execute("BEGIN IMMEDIATE")

    def _copy_large_log(self) -> bool:
        """Copy a log that has grown large into the file, where we see to that. Who calls holds the write lock."""
        if self._checkpointer is None or not self._log_is_large():
            return False
        with self._copying, suppress(sqlite.DatabaseError):  # what is wrong with the file, later statements will say
            self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        self._copied = self._log_bytes()
        return True

    def _copy_large_log_if_nobody_writes(self) -> None:
        if self._checkpointer is None or not self._log_is_large() or not self._lock.acquire(blocking=False):
            return  # who has the lock writes, and sees to it
        try:
            self._check_open()
            cursor = self._connection.cursor()
            with impatient(cursor), suppress(sqlite.DatabaseError):
                self._begin_to_write(cursor)
                cursor.execute("ROLLBACK")
        finally:
            self._lock.release()

    def _log_is_large(self) -> bool:
        size = self._log_bytes()
        self._copied = min(self._copied, size)
        return size > _LOG_BYTES and size >= self._copied + _LOG_GROWTH

    def _log_bytes(self) -> int:
        try:
            return os.stat(self._log).st_size  # before every write: a Path costs more
        except FileNotFoundError:
            return 0

    def _check_file(self) -> None:
        """Refuse to write into a file that has no name any more."""
        try:
            gone = self._inode is not None and os.stat(self.path).st_ino != self._inode
        except FileNotFoundError:
            gone = True
        if gone:
            raise StoreError(f"{self._shown} was replaced or deleted while it was open: open it anew")

    def pragma(self, name: str) -> Any:
        """Give a setting of the connection."""
        return self._connection.execute(f"PRAGMA {name}").fetchone()[0]


MIGRATIONS_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS leftfold_migrations ("
    "version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT"
)
