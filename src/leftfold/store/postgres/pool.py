"""A few connections, lent one at a time: made when needed, kept while they live, thrown away when anything is odd.

What is lent is the one cursor of a connection: it has learned how to write the values that it writes again and again.
There is no thread behind it: who asks while the server is down hears so at once, and why.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

import psycopg

from leftfold.core.errors import StoreError, StoreUnavailableError
from leftfold.store.postgres.wire import check_alive
from leftfold.store.query import Columns

WAIT_SECONDS: Final = 30.0
Cursor = psycopg.Cursor[Columns]
AsyncCursor = psycopg.AsyncCursor[Columns]


class Pool:
    """For threads."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Columns]], size: int) -> None:
        self._connect = connect
        self._free: SimpleQueue[None] = SimpleQueue()  # one item for each connection that may be lent: written in C
        for _ in range(size):
            self._free.put(None)
        self._idle: deque[Cursor] = deque()
        self.full: set[Cursor] = set()  # those that hold on to what they last wrote or read, which may be a lot
        self._closed = False

    def lend(self) -> "_Loan":
        """Lend a connection, and take it back if it can still be used: outside of any transaction."""
        return _Loan(self)

    def take(self) -> Cursor:
        """Give one that is idle, or a new one."""
        try:
            self._free.get(timeout=WAIT_SECONDS)
        except Empty:
            raise StoreUnavailableError(_EXHAUSTED) from None
        try:
            return self._take()
        except BaseException:
            self._free.put(None)
            raise

    def put_back(self, cursor: Cursor, problem: BaseException | None) -> None:
        """Take one back, after a `problem` perhaps."""
        try:
            if isinstance(problem, Exception):
                with suppress(psycopg.Error):  # of a connection that is gone, which then is closed
                    cursor.connection.rollback()
            elif problem is not None:
                cursor.connection.close()  # interrupted in the middle of a statement, perhaps
            if not cursor.connection.closed:
                self._idle.append(cursor.connection.cursor() if cursor in self.full else cursor)
            if self._closed:  # meanwhile, perhaps behind the last look of `close`
                self.close()
        finally:
            self.full.discard(cursor)
            self._free.put(None)

    def _take(self) -> Cursor:
        if self._closed:
            raise StoreError(_CLOSED)
        while self._idle:
            cursor = self._idle.pop()
            if _is_alive(cursor):
                return cursor
            cursor.connection.close()
        return self._connect().cursor()

    def close(self) -> None:
        """Close what is idle, and lend nothing more."""
        self._closed = True
        with suppress(IndexError):  # two may close at once
            while True:
                self._idle.pop().connection.close()


class _Loan:
    """A connection while it is lent."""

    __slots__ = ("_cursor", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __enter__(self) -> Cursor:
        self._cursor = self._pool.take()
        return self._cursor

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        self._pool.put_back(self._cursor, problem)


class AsyncPool:
    """The same for tasks of one event loop."""

    def __init__(self, connect: Callable[[], Awaitable[psycopg.AsyncConnection[Columns]]], size: int) -> None:
        self._connect = connect
        self._free = asyncio.BoundedSemaphore(size)
        self._idle: deque[AsyncCursor] = deque()
        self.full: set[AsyncCursor] = set()  # those that hold on to what they last wrote or read, which may be a lot
        self._closed = False

    def lend(self) -> "_AsyncLoan":
        """Lend a connection, and take it back if it can still be used: outside of any transaction."""
        return _AsyncLoan(self)

    async def take(self) -> AsyncCursor:
        """Give one that is idle, or a new one."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):  # wait_for may swallow a cancellation
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailableError(_EXHAUSTED) from None
        try:
            return await self._take()
        except BaseException:
            self._free.release()
            raise

    async def put_back(self, cursor: AsyncCursor, problem: BaseException | None) -> None:
        """Take one back, after a `problem` perhaps."""
        try:
            if isinstance(problem, Exception):
                with suppress(psycopg.Error):  # of a connection that is gone, which then is closed
                    await cursor.connection.rollback()
            elif problem is not None:
                await cursor.connection.close()  # cancelled in the middle of a statement, perhaps
            if not cursor.connection.closed:
                self._idle.append(cursor.connection.cursor() if cursor in self.full else cursor)
            if self._closed:  # meanwhile, perhaps behind the last look of `close`
                await self.close()
        finally:
            self.full.discard(cursor)
            self._free.release()

    async def _take(self) -> AsyncCursor:
        if self._closed:
            raise StoreError(_CLOSED)
        while self._idle:
            cursor = self._idle.pop()
            if _is_alive(cursor):
                return cursor
            await cursor.connection.close()
        return (await self._connect()).cursor()

    async def close(self) -> None:
        """Close what is idle, and lend nothing more."""
        self._closed = True
        while self._idle:
            cursor = self._idle.pop()
            await cursor.connection.close()


class _AsyncLoan:
    """A connection while it is lent."""

    __slots__ = ("_cursor", "_pool")

    def __init__(self, pool: AsyncPool) -> None:
        self._pool = pool

    async def __aenter__(self) -> AsyncCursor:
        self._cursor = await self._pool.take()
        return self._cursor

    async def __aexit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        await self._pool.put_back(self._cursor, problem)


_CLOSED: Final = "this engine is closed: open it anew"
_EXHAUSTED: Final = f"no connection to PostgreSQL came free within {WAIT_SECONDS:.0f} s: is pool_size too small?"


def _is_alive(cursor: Cursor | AsyncCursor) -> bool:
    try:
        check_alive(cursor.connection)
    except psycopg.Error:
        return False
    return True
