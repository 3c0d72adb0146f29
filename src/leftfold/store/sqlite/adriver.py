"""Runs operations on an SQLite file for asyncio."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from leftfold.core.errors import StoreError, StoreUnavailableError
from leftfold.store.patience import pauses
from leftfold.store.query import Operation
from leftfold.store.sqlite.bell import Watcher
from leftfold.store.sqlite.driver import SqliteStore
from leftfold.store.sqlite.trouble import is_locked
from leftfold.store.sqlite.within import patience_of

T = TypeVar("T")


class AsyncSqliteStore:
    """The same for asyncio: a whole operation per hop to a thread, one for what reads and one for what writes."""

    dialect = "sqlite"
    counts_grow = False
    sends_ahead = False

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self._closed = False
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="leftfold-sqlite")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="leftfold-sqlite-reads")

    @classmethod
    async def open(cls, place: str, **settings: Any) -> "AsyncSqliteStore":
        """Open a file, beside the loop: it may have to wait for somebody who migrates it."""
        return cls(await asyncio.to_thread(SqliteStore, place, **settings))

    def listener(self, wake: Callable[[], None]) -> Watcher:
        """Give what sees that somebody else has written."""
        return Watcher(self.store.path, wake)

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation in one transaction."""
        if self._closed:
            raise StoreError("this engine is closed: open it anew")
        thread = self._reading if operation.reads else self._writing
        return await asyncio.get_running_loop().run_in_executor(thread, self.store.run, operation)

    async def run_within(self, connection: object, operation: Operation[T]) -> T:
        """Run an operation as a part of the caller's transaction, on the caller's thread.

        While somebody else writes, other tasks go on: it may be one of them.
        """
        pause, deadline = pauses(), None
        while True:
            try:
                return self.store.run_within(connection, operation, waits=False)
            except StoreUnavailableError as problem:
                deadline = deadline or time.monotonic() + patience_of(connection)
                if not is_locked(problem.__cause__) or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(next(pause))

    async def close(self) -> None:
        """Close the file."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._writing, self.store.close)
        self._writing.shutdown()
        self._reading.shutdown()
