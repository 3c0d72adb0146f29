"""Runs operations on PostgreSQL, with a pool of connections: the sync driver and the async one, line by line the same.

Read committed is enough: every writer of a job locks its row first, or asks everything of the row that it writes. A
transaction that had to give way is run anew.
"""

import asyncio
import functools
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final, TypeVar

import psycopg
from psycopg.rows import tuple_row

from leftfold.core.errors import StoreUnavailableError, ValidationError
from leftfold.store import migrate
from leftfold.store.patience import pauses
from leftfold.store.postgres.common import GREETING, Base, Progress
from leftfold.store.postgres.packed import teach
from leftfold.store.postgres.pool import AsyncPool, Pool
from leftfold.store.postgres.wire import (
    call,
    plan,
    quoted,
    raced,
    translated,
)
from leftfold.store.postgres.within import IDENTITY, check_same, check_transaction
from leftfold.store.query import Again, Columns, Operation, Query, adrive, drive
from leftfold.store.sessions import driver_connection, is_async_session

T = TypeVar("T")

_TRIES: Final = 20
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
#: Within the caller's transaction: what is refused there must leave no trace, and the transaction usable.
_SAVEPOINT: Final = "SAVEPOINT leftfold"
_RELEASE: Final = "RELEASE SAVEPOINT leftfold"
_BACK: Final = "ROLLBACK TO SAVEPOINT leftfold; RELEASE SAVEPOINT leftfold"
GAVE_WAY: Final = "the operation gave way to others too often: try again"


class PostgresStore(Base):
    """A database, opened. Safe for threads; not for a fork, which must open it anew."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "leftfold",
        pool_size: int = 10,
        clock: Callable[[], int] | None = None,
        prepare: bool = True,
    ) -> None:
        super().__init__(url, schema=schema, clock=clock, prepare=prepare)
        self._pool = Pool(self.connect, pool_size)

    def open(self) -> "PostgresStore":
        """Connect, and refuse a server or a schema that will not do."""
        try:
            with self._pool.lend() as cursor:
                migrate.check_ready(self.migrations, self.applied(cursor))
        except psycopg.Error as problem:
            self.close()
            raise translated(problem) from problem
        except BaseException:
            self.close()
            raise
        return self

    def connect(self) -> psycopg.Connection[Columns]:
        """Give a connection of its own."""
        connection = psycopg.connect(self.url, autocommit=True, row_factory=tuple_row, **self._options)
        try:
            ((isolation, *_),) = connection.execute(GREETING, [self._own_session(connection.info)]).fetchall()
            self._learn(connection.info, isolation)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the pool."""
        self._pool.close()

    def applied(self, cursor: psycopg.Cursor[Columns]) -> list[migrate.Applied]:
        """Give the migrations that the schema has."""
        ((there,),) = cursor.execute(*self._there_query()).fetchall()
        rows = cursor.execute(self._applied_query()).fetchall() if there else []
        return [migrate.Applied(*row) for row in rows]

    def migrate(self) -> list[migrate.Migration]:
        """Bring the schema to ours, in one transaction, and give what that took. Two at once wait for each other."""
        name = quoted(self.schema)
        try:
            with self.connect() as connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('leftfold.migrate', 0))")
                ((there,),) = connection.execute(
                    "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s)", (self.schema,)
                ).fetchall()
                if not there:
                    connection.execute(f"CREATE SCHEMA {name}")
                connection.execute(self.bookkeeping())
                missing = migrate.pending(self.migrations, self.applied(connection.cursor()))
                for migration in missing:
                    connection.execute(migration.sql.encode())
                    connection.execute(
                        f"INSERT INTO {name}.migrations (version, name, checksum) VALUES (%s, %s, %s)",
                        (migration.version, migration.name, migration.checksum),
                    )
        except psycopg.Error as problem:
            raise translated(problem, migrating=True) from problem
        return missing

    def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction, or each of its queries in one where it says so."""
        self._check_process()
        pause = pauses()
        for attempt in range(_TRIES):
            progress = Progress()
            try:
                with self._pool.lend() as cursor:
                    answer = self._run_once(cursor, operation, progress)
            except Again:
                pass
            except psycopg.Error as problem:
                if not self._may_run_again(problem, progress, attempt):
                    raise translated(problem, unknown=progress.unknown) from problem
            else:
                self._ring(operation, progress)
                return answer
            time.sleep(next(pause))
        raise StoreUnavailableError(GAVE_WAY)

    def _run_once(self, cursor: psycopg.Cursor[Columns], operation: Operation[T], progress: Progress) -> T:
        execute = functools.partial(self._execute_lent, cursor, progress)
        if operation.apart and self._may_be_apart:
            progress.unknown = not operation.reads
            return drive(operation.steps(), execute)
        ahead = operation.blind and self.sends_ahead
        with cursor.connection.pipeline() if ahead else nullcontext():
            cursor.execute(_BEGIN)
            answer = drive(operation.steps(), execute)
            progress.unknown = not operation.reads
            cursor.execute("COMMIT")
        return answer

    def run_within(self, connection: object, operation: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction: nothing is committed here."""
        foreign = driver_connection(connection)
        if not isinstance(foreign, psycopg.Connection):
            raise ValidationError(f"within takes a psycopg or SQLAlchemy connection, not {connection!r}")
        check_transaction(foreign)
        try:
            with psycopg.Cursor(foreign, row_factory=tuple_row) as cursor:
                teach(cursor.adapters)
                self._check_database(foreign, cursor)
                for _ in range(_TRIES):
                    cursor.execute(_SAVEPOINT)
                    try:
                        answer = drive(operation.steps(), functools.partial(self.execute, cursor))
                    except BaseException as problem:
                        if not foreign.closed:
                            cursor.execute(_BACK)
                        if not raced(problem):
                            raise
                    else:
                        cursor.execute(_RELEASE)
                        return answer
        except psycopg.Error as problem:
            raise translated(problem) from problem
        raise StoreUnavailableError(GAVE_WAY)

    def _check_database(self, foreign: psycopg.Connection[Any], cursor: psycopg.Cursor[Columns]) -> None:
        if not self._is_ours(foreign):
            with self._pool.lend() as own:
                ours = own.execute(IDENTITY).fetchall()
            check_same(cursor.execute(IDENTITY).fetchall(), ours)
            self._same.add(foreign)

    def execute(self, cursor: psycopg.Cursor[Columns], query: Query, channel: str | None = None) -> list[Columns]:
        """Run one query."""
        sql, given = call(self.queries, query, self._clock and self._clock(), channel)
        cursor.execute(sql, given, prepare=self._prepare and plan(query))
        return cursor.fetchall() if cursor.rownumber is not None or query.name == "clock" else []

    def _execute_lent(self, cursor: psycopg.Cursor[Columns], progress: Progress, query: Query) -> list[Columns]:
        channel = self._channel(query)
        progress.has_turn |= channel is not None
        rows = self.execute(cursor, query, channel)
        progress.rang |= channel is not None and (query.name != "enqueue_keyed" or bool(rows))
        if rows or len(query.rows) > 1:
            self._pool.full.add(cursor)
        return rows


class AsyncPostgresStore(Base):
    """The same for asyncio."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "leftfold",
        pool_size: int = 10,
        clock: Callable[[], int] | None = None,
        prepare: bool = True,
    ) -> None:
        super().__init__(url, schema=schema, clock=clock, prepare=prepare)
        self._pool = AsyncPool(self.connect, pool_size)

    async def open(self) -> "AsyncPostgresStore":
        """Connect, and refuse a server or a schema that will not do."""
        try:
            async with self._pool.lend() as cursor:
                migrate.check_ready(self.migrations, await self._applied(cursor))
        except psycopg.Error as problem:
            await self.close()
            raise translated(problem) from problem
        except BaseException:
            await self.close()
            raise
        return self

    async def connect(self) -> psycopg.AsyncConnection[Columns]:
        """Give a connection of its own."""
        connection = await psycopg.AsyncConnection.connect(
            self.url, autocommit=True, row_factory=tuple_row, **self._options
        )
        try:
            ((isolation, *_),) = await (
                await connection.execute(GREETING, [self._own_session(connection.info)])
            ).fetchall()
            self._learn(connection.info, isolation)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close()

    async def _applied(self, cursor: psycopg.AsyncCursor[Columns]) -> list[migrate.Applied]:
        ((there,),) = await (await cursor.execute(*self._there_query())).fetchall()
        rows = await (await cursor.execute(self._applied_query())).fetchall() if there else []
        return [migrate.Applied(*row) for row in rows]

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction, or each of its queries in one where it says so."""
        self._check_process()
        pause = pauses()
        for attempt in range(_TRIES):
            progress = Progress()
            try:
                async with self._pool.lend() as cursor:
                    answer = await self._run_once(cursor, operation, progress)
            except Again:
                pass
            except psycopg.Error as problem:
                if not self._may_run_again(problem, progress, attempt):
                    raise translated(problem, unknown=progress.unknown) from problem
            else:
                self._ring(operation, progress)
                return answer
            await asyncio.sleep(next(pause))
        raise StoreUnavailableError(GAVE_WAY)

    async def _run_once(self, cursor: psycopg.AsyncCursor[Columns], operation: Operation[T], progress: Progress) -> T:
        execute = functools.partial(self._execute_lent, cursor, progress)
        if operation.apart and self._may_be_apart:
            progress.unknown = not operation.reads
            return await adrive(operation.steps(), execute)
        ahead = operation.blind and self.sends_ahead
        async with cursor.connection.pipeline() if ahead else nullcontext():
            await cursor.execute(_BEGIN)
            answer = await adrive(operation.steps(), execute)
            progress.unknown = not operation.reads
            await cursor.execute("COMMIT")
        return answer

    async def run_within(self, connection: object, operation: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction: nothing is committed here."""
        session: Any = connection
        if is_async_session(session):
            session = await session.connection()
        foreign = driver_connection(session, asynchronous=True)
        if not isinstance(foreign, psycopg.AsyncConnection):
            raise ValidationError(f"within takes an async psycopg or SQLAlchemy connection, not {connection!r}")
        check_transaction(foreign)
        try:
            async with psycopg.AsyncCursor(foreign, row_factory=tuple_row) as cursor:
                teach(cursor.adapters)
                await self._check_database(foreign, cursor)
                for _ in range(_TRIES):
                    await cursor.execute(_SAVEPOINT)
                    try:
                        answer = await adrive(operation.steps(), functools.partial(self.execute, cursor))
                    except BaseException as problem:
                        if not foreign.closed:
                            await cursor.execute(_BACK)
                        if not raced(problem):
                            raise
                    else:
                        await cursor.execute(_RELEASE)
                        return answer
        except psycopg.Error as problem:
            raise translated(problem) from problem
        raise StoreUnavailableError(GAVE_WAY)

    async def _check_database(
        self, foreign: psycopg.AsyncConnection[Any], cursor: psycopg.AsyncCursor[Columns]
    ) -> None:
        if not self._is_ours(foreign):
            async with self._pool.lend() as own:
                ours = await (await own.execute(IDENTITY)).fetchall()
            check_same(await (await cursor.execute(IDENTITY)).fetchall(), ours)
            self._same.add(foreign)

    async def execute(
        self, cursor: psycopg.AsyncCursor[Columns], query: Query, channel: str | None = None
    ) -> list[Columns]:
        """Run one query."""
        sql, given = call(self.queries, query, self._clock and self._clock(), channel)
        await cursor.execute(sql, given, prepare=self._prepare and plan(query))
        return await cursor.fetchall() if cursor.rownumber is not None or query.name == "clock" else []

    async def _execute_lent(
        self, cursor: psycopg.AsyncCursor[Columns], progress: Progress, query: Query
    ) -> list[Columns]:
        channel = self._channel(query)
        progress.has_turn |= channel is not None
        rows = await self.execute(cursor, query, channel)
        progress.rang |= channel is not None and (query.name != "enqueue_keyed" or bool(rows))
        if rows or len(query.rows) > 1:
            self._pool.full.add(cursor)
        return rows
