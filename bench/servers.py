"""The servers that systems run on, on free ports of the loopback; and a fresh place for each figure.

PostgreSQL runs as it comes, with fsync and synchronous_commit on, and with room for its buffers and its log. Redis
writes its log once a second, as its own documentation recommends: it may lose that second, which PostgreSQL and SQLite
do not.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psycopg

from bench.environments import redis_server
from bench.system import Server
from leftfold.store.sqlite.library import sqlite
from leftfold.testing.postgres import running

POSTGRES: Final = {
    "shared_buffers": "1GB", "max_wal_size": "4GB", "min_wal_size": "1GB", "checkpoint_timeout": "15min",
    "max_connections": "200",
}  # fmt: skip
REDIS: Final = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "bind": "127.0.0.1"}
_START_SECONDS: Final = 10.0


class Place(NamedTuple):
    """An empty database or folder, and the server behind it."""

    url: str
    server: Server
    pid: int | None  # of the server

    def analyze(self) -> None:
        """Let the planner know what is there, as autovacuum does in a longer time: the same for every system."""
        if self.server == "postgres":
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("ANALYZE")

    @property
    def kept(self) -> str:
        """Give what `bytes` are called."""
        return "bytes/job in memory" if self.server == "redis" else "bytes/job"

    def bytes(self) -> int:
        """Give how much is kept here, with its indexes."""
        match self.server:
            case "postgres":
                with psycopg.connect(self.url, autocommit=True) as connection:
                    connection.execute("VACUUM")  # what autovacuum does in a longer time
                    ((total,),) = connection.execute(
                        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n"
                        " ON n.oid = relnamespace WHERE relkind = 'r' AND nspname !~ '^(pg_|information_schema)'"
                    ).fetchall()
                return int(total or 0)
            case "redis":
                (line,) = [line for line in _redis(self.url, "INFO memory") if line.startswith("used_memory_dataset:")]
                return int(line.partition(":")[2])
            case "files":
                return sum(map(_checkpointed, Path(self.url).glob("*.db")))


def _checkpointed(file: Path) -> int:
    """Give the size of a database when all that was written is in it, and not in the log beside it."""
    with closing(sqlite.connect(file, isolation_level=None, timeout=_START_SECONDS)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return file.stat().st_size


class Servers:
    """Starts each server when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leftfold-bench-")))
        self._postgres: tuple[str, int] | None = None
        self._redis: tuple[str, int] | None = None
        self._made = 0

    @contextmanager
    def fresh(self, server: Server) -> Iterator[Place]:
        """Give an empty place, and throw it away afterwards."""
        self._made += 1
        name = f"bench_{self._made}"
        match server:
            case "postgres":
                base, pid = self._started_postgres()
                with psycopg.connect(f"{base}/postgres", autocommit=True) as admin:
                    admin.execute(f"CREATE DATABASE {name}".encode())
                    admin.execute("CHECKPOINT")  # of what was before, so that it does not fall into the measured time
                    try:
                        yield Place(f"{base}/{name}", server, pid)
                    finally:
                        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            case "redis":
                url, pid = self._started_redis()
                _redis(url, "FLUSHALL")
                yield Place(url, server, pid)
            case "files":
                folder = self.folder / name
                folder.mkdir()
                try:
                    yield Place(str(folder), server, None)
                finally:
                    shutil.rmtree(folder)

    def versions(self) -> dict[str, str]:
        """Give the versions of the servers that were started."""
        found = {}
        if self._postgres:
            with psycopg.connect(f"{self._postgres[0]}/postgres") as connection:
                found["PostgreSQL"] = connection.info.parameter_status("server_version") or "?"
        if self._redis:
            (line,) = [line for line in _redis(self._redis[0], "INFO server") if line.startswith("redis_version:")]
            found["Redis"] = line.partition(":")[2]
        return found

    def _started_postgres(self) -> tuple[str, int]:
        if self._postgres is None:
            server = self._stack.enter_context(running(durable=True, settings=POSTGRES))
            self._postgres = server.url().removesuffix("/postgres"), server.pid
        return self._postgres

    def _started_redis(self) -> tuple[str, int]:
        if self._redis is None:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            options = [part for name, value in REDIS.items() for part in (f"--{name}", value)]
            command: list[str | Path] = [redis_server(), "--port", str(port), "--dir", str(self.folder), *options]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - our own words
            self._stack.callback(process.wait)
            self._stack.callback(os.kill, process.pid, signal.SIGTERM)
            self._redis = f"redis://127.0.0.1:{port}/0", process.pid
            _await_redis(self._redis[0])
        return self._redis


def _await_redis(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            _redis(url, "PING")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _redis(url: str, command: str) -> list[str]:
    """Ask Redis one thing; its protocol needs no library for that."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=_START_SECONDS) as connection:
        connection.sendall(f"{command}\r\nQUIT\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return answer.decode().splitlines()
