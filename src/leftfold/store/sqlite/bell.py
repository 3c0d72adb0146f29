"""Waking workers on SQLite: a look at whether the file has changed, often enough that nobody waits for it.

`PRAGMA data_version` reads a few bytes of shared memory, and tells whether another connection has written.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from leftfold.store.sqlite.library import sqlite

_SHORT: Final = 0.005
_LONG: Final = 0.05  # where nothing has happened for a while
_AGAIN: Final = 1.0
_LOG: Final = logging.getLogger("leftfold.wake")


class Watcher:
    """Watches a file for a worker, in a thread and with a connection of its own. `works` tells whether it can."""

    def __init__(self, path: str, wake: Callable[[], None]) -> None:
        self._path = path
        self._wake = wake
        self._stop = threading.Event()
        self.works = True

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def watch() -> None:
            with suppress(RuntimeError):  # the loop is closed: there is nobody left to wake
                try:
                    self._watch_for_ever(lambda: loop.call_soon_threadsafe(self._wake))
                finally:
                    loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=watch, name="leftfold-watcher", daemon=True).start()
        try:
            await ended.wait()
        finally:
            self._stop.set()
            await ended.wait()  # a moment: then nobody has the file open any more

    def _watch_for_ever(self, wake: Callable[[], object]) -> None:
        """Watch until stopped. A file that cannot be watched costs time only: a look now and then finds what is due."""
        while not self._stop.is_set():
            try:
                self._watch(wake)
            except sqlite.Error as problem:
                if self.works:
                    _LOG.warning("%s cannot be watched, jobs are found by looking: %s", self._path, problem)
                self.works = False
                self._stop.wait(_AGAIN)

    def _watch(self, wake: Callable[[], object]) -> None:
        # Not to be made here: an empty file would take the place of one that was moved away.
        connection = sqlite.connect(f"{Path(self._path).as_uri()}?mode=rw", isolation_level=None, uri=True)
        try:
            seen, pause = _version(connection), _SHORT
            self.works = True
            wake()  # what came while nobody watched
            while not self._stop.wait(pause):
                version = _version(connection)
                pause = _SHORT if version != seen else min(pause * 1.2, _LONG)
                if version != seen:
                    seen = version
                    wake()
        finally:
            connection.close()


def _version(connection: Any) -> int:
    found: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return found
