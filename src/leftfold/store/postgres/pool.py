"""A few connections, lent one at a time: made when needed, kept while they live, thrown away when anything is odd.

There is no thread behind it: who asks while the server is down hears so at once, and why.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Final

import psycopg

from leftfold.core.errors import StoreError, StoreUnavailableError
from leftfold.store.postgres.wire import check_alive
from leftfold.store.query import Columns

WAIT_SECONDS: Final = 30.0

Connection = psycopg.Connection[Columns]
AsyncConnection = psycopg.AsyncConnection[Columns]


class Pool:
    """For threads."""

    def __init__(self, connect: Callable[[], Connection], size: int) -> None:
        self._connect = connect
        self._free: SimpleQueue[None] = SimpleQueue()  # one item for each connection that may be lent: written in C
        for _ in range(size):
            self._free.put(None)
        self._idle: deque[Connection] = deque()
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection, and take it back if it can still be used: outside of any transaction."""
        try:
            self._free.get(timeout=WAIT_SECONDS)
        except Empty:
            raise StoreUnavailableError(_EXHAUSTED) from None
        try:
            connection = self._take()
            try:
                yield connection
            except Exception:
                with suppress(psycopg.Error):  # of a connection that is gone, which then is closed
                    connection.rollback()
                raise
            except BaseException:
                connection.close()  # interrupted in the middle of a statement, perhaps
                raise
            finally:
                self._put_back(connection)
        finally:
            self._free.put(None)

    def _put_back(self, connection: Connection) -> None:
        if not connection.closed:
            self._idle.append(connection)
        if self._closed:  # meanwhile, perhaps behind the last look of `close`
            self.close()

    def _take(self) -> Connection:
        if self._closed:
            raise StoreError(_CLOSED)
        while self._idle:
            connection = self._idle.pop()
            if _is_alive(connection):
                return connection
            connection.close()
        return self._connect()

    def close(self) -> None:
        """Close what is idle, and lend nothing more."""
        self._closed = True
        with suppress(IndexError):  # two may close at once
            while True:
                self._idle.pop().close()


class AsyncPool:
    """The same for tasks of one event loop."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection]], size: int) -> None:
        self._connect = connect
        self._free = asyncio.BoundedSemaphore(size)
        self._idle: deque[AsyncConnection] = deque()
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection, and take it back if it can still be used: outside of any transaction."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):  # wait_for may swallow a cancellation
                await self._free.acquire()
        except TimeoutError:
            raise StoreUnavailableError(_EXHAUSTED) from None
        try:
            connection = await self._take()
            try:
                yield connection
            except Exception:
                with suppress(psycopg.Error):  # of a connection that is gone, which then is closed
                    await connection.rollback()
                raise
            except BaseException:
                await connection.close()  # cancelled in the middle of a statement, perhaps
                raise
            finally:
                await self._put_back(connection)
        finally:
            self._free.release()

    async def _put_back(self, connection: AsyncConnection) -> None:
        if not connection.closed:
            self._idle.append(connection)
        if self._closed:  # meanwhile, perhaps behind the last look of `close`
            await self.close()

    async def _take(self) -> AsyncConnection:
        if self._closed:
            raise StoreError(_CLOSED)
        while self._idle:
            connection = self._idle.pop()
            if _is_alive(connection):
                return connection
            await connection.close()
        return await self._connect()

    async def close(self) -> None:
        """Close what is idle, and lend nothing more."""
        self._closed = True
        while self._idle:
            connection = self._idle.pop()
            await connection.close()


_CLOSED: Final = "this engine is closed: open it anew"
_EXHAUSTED: Final = f"no connection to PostgreSQL came free within {WAIT_SECONDS:.0f} s: is pool_size too small?"


def _is_alive(connection: Connection | AsyncConnection) -> bool:
    try:
        check_alive(connection)
    except psycopg.Error:
        return False
    return True
