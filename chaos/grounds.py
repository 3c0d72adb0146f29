"""Where a campaign takes place: a file, or a server of our own behind a proxy that breaks connections."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psycopg
from tests.proxy import Proxy, proxy_to

import leftfold
from leftfold.testing.postgres import OwnServer, running

SCHEMA: Final = "leftfold"
STORES: Final = ("sqlite", "postgres")

#: Whoever holds a file's lock for long. It ends without closing anything: to close is to write, for the last one.
_LOCKER: Final = """
import os, sys, time
from leftfold.store.sqlite.library import sqlite
connection = sqlite.connect(sys.argv[1], timeout=5, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
time.sleep(float(sys.argv[2]))
os._exit(0)
"""


class Ground:
    """A store. Workers and clients have a proxy each where there is a server; who looks at it goes there directly."""

    def __init__(
        self, name: str, direct: str, server: OwnServer | None = None, proxies: tuple[Proxy, ...] = ()
    ) -> None:
        self.name, self.direct = name, direct
        self._server, self.proxies = server, proxies
        self.of_workers, self.of_clients = [proxy.url for proxy in proxies] or [direct, direct]
        self._lockers: list[subprocess.Popen[bytes]] = []
        self.is_up = True

    @property
    def server(self) -> OwnServer:
        """Give the server, where there is one."""
        if self._server is None:
            raise LookupError("a file has no server")
        return self._server

    def crash(self) -> None:
        """Kill the server, all of it."""
        self.server.kill()
        self.is_up = False

    def start(self) -> None:
        """Start it again, and let it recover."""
        self.server.start()
        self.is_up = True

    def backends(self) -> list[int]:
        """Give the processes in which the server serves somebody else."""
        with suppress(psycopg.Error), psycopg.connect(self.direct, autocommit=True) as connection:
            found = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            return [pid for (pid,) in found.fetchall()]
        return []

    def lock(self, seconds: float) -> None:
        """Hold the write lock of the file for a while, from a process of its own."""
        path = self.direct.removeprefix("sqlite:///")
        self._lockers.append(subprocess.Popen([sys.executable, "-c", _LOCKER, path, str(seconds)]))

    def heal(self) -> None:
        """Undo everything that was done to it."""
        for locker in self._lockers:
            locker.wait()
        for proxy in self.proxies:
            proxy.listen()
            proxy.resume()
            proxy.refuses = False
        if not self.is_up:
            self.start()


@contextmanager
def ground_of(store: str, folder: Path) -> Iterator[Ground]:
    """Make a store, and leave no process behind."""
    if store == "sqlite":
        url = f"sqlite:///{folder / 'jobs.db'}"
        leftfold.open(url).close()
        yield Ground(store, url)
        return
    # As it comes: what was acknowledged has to outlive a kill of everything.
    with running(durable=True) as server, proxy_to(server.url()) as first, proxy_to(server.url()) as second:
        leftfold.migrate(server.url(), schema=SCHEMA)
        yield Ground(store, server.url(), server, (first, second))
