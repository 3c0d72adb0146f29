"""Waking workers on SQLite: a look at whether the file has changed, often enough that nobody waits for it.

`PRAGMA data_version` reads a few bytes of shared memory, and tells whether another connection has written.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

from leftfold.store.sqlite.library import sqlite

_SHORT: Final = 0.005
_LONG: Final = 0.05  # where nothing has happened for a while


class Watcher:
    """Watches a file for a worker, in a thread and with a connection of its own."""

    works = True

    def __init__(self, path: str, wake: Callable[[], None]) -> None:
        self._path = path
        self._wake = wake
        self._stop = threading.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def watch() -> None:
            try:
                self._watch(lambda: loop.call_soon_threadsafe(self._wake))
            finally:
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=watch, name="leftfold-watcher", daemon=True).start()
        try:
            await ended.wait()
        finally:
            self._stop.set()

    def _watch(self, wake: Callable[[], object]) -> None:
        connection = sqlite.connect(self._path, isolation_level=None)
        try:
            seen, pause = _version(connection), _SHORT
            while not self._stop.wait(pause):
                version = _version(connection)
                pause = _SHORT if version != seen else min(pause * 1.2, _LONG)
                if version != seen:
                    seen = version
                    wake()
        except (sqlite.Error, RuntimeError):  # the file or the loop is gone: a look now and then finds what there is
            return
        finally:
            connection.close()


def _version(connection: Any) -> int:
    found: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return found
