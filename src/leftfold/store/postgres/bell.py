"""Waking workers on PostgreSQL: NOTIFY, as a hint. Polling is the truth, so whatever fails here only costs time.

A notification that is part of the transaction that enqueues arrives soonest, but such commits wait for each other. So
only a job that comes alone brings its own, and of a stream of them one now and then. For the others a thread with a
connection of its own sends it, less and less often where they come all the time.
"""

import asyncio
import atexit
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import psycopg

_SHORT: Final = 0.005
_LONG: Final = 0.02  # between two rings, where jobs come all the time
_RARELY: Final = 0.1  # between two that transactions bring along, where jobs come all the time
_MUTE_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 2.0
_PROBE_EVERY: Final = 30.0
_PROBE_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 5.0
#: A hint need not outlive a crash: to wait for the disk would make those wait who enqueue meanwhile.
_RING: Final = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, '')"
_LOG: Final = logging.getLogger("leftfold.wake")


def channel_of(schema: str) -> str:
    """Give the channel of a schema: a name that is never too long for PostgreSQL."""
    return f"leftfold_{sha256(schema.encode()).hexdigest()[:16]}"


class Ringer:
    """Tells workers that there is something to do. Made with an engine; it connects when it first has to ring."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], schema: str) -> None:
        self._connect = connect
        self._channel = channel_of(schema)
        self._wanted = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._gap = _SHORT
        self._turned_at = 0.0

    def turn(self) -> str | None:
        """Give the channel to a transaction that is to ring itself, if it is its turn."""
        now = time.monotonic()
        waited = now - self._turned_at
        if waited < self._gap:
            return None
        self._gap = min(self._gap * 2, _RARELY) if waited < self._gap * 2 else _SHORT
        self._turned_at = now
        return self._channel

    def mute(self) -> None:
        """Let no transaction ring for a while: the server did not take the notification, and so nothing."""
        self._turned_at = time.monotonic() + _MUTE_SECONDS

    def ring(self) -> None:
        """Ring soon. Costs the caller nothing but this call."""
        if not self._wanted.is_set():  # else it will be rung, behind what we wrote: to say it again takes a while
            self._wanted.set()
        if self._thread is None:
            with self._starting:
                self._start()

    def _start(self) -> None:
        if self._thread is None and not self._closed:
            thread = threading.Thread(target=self._run, name="leftfold-ringer", daemon=True)
            try:
                thread.start()
            except RuntimeError as problem:  # there are too many, or the interpreter ends: what was asked has happened
                _LOG.debug("workers were not woken, they will find the job by themselves: %s", problem)
                return
            self._thread = thread
            atexit.register(self.close)  # a short script may end before it has rung

    def close(self) -> None:
        """Ring for what is left, and stop."""
        atexit.unregister(self.close)
        with self._starting:
            self._closed = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        pause = _SHORT
        try:
            while not self._closed or self._wanted.is_set():
                self._wanted.wait()
                self._wanted.clear()
                connection = self._rung(connection)
                if not self._closed:
                    time.sleep(pause)
                    pause = min(pause * 2, _LONG) if self._wanted.is_set() else max(pause / 2, _SHORT)
                elif not self._wanted.is_set():
                    return
        finally:
            if connection is not None:
                connection.close()

    def _rung(self, connection: psycopg.Connection[Any] | None) -> psycopg.Connection[Any] | None:
        """Ring, and give the connection for the next time. One that broke while nobody used it is made anew once."""
        for known in (connection, None) if connection else (None,):
            try:
                used = known or self._connect()
            except psycopg.Error as problem:
                _LOG.debug("workers were not woken, they will find the job by themselves: %s", problem)
                return None
            try:
                used.execute(_RING, (self._channel,), prepare=False)
            except psycopg.Error as problem:
                _LOG.debug("workers were not woken: %s", problem)
                used.close()
            else:
                return used
        return None


class _Deaf(Exception):  # noqa: N818 - it goes no further than this file
    """What was sent is not heard."""


class Listener:
    """Hears the bell for a worker. `works` tells whether it does: a pooler that parts transactions swallows it."""

    def __init__(self, url: str, schema: str, options: dict[str, Any], wake: Callable[[], None]) -> None:
        self._url, self._options = url, options
        self._channel = channel_of(schema)
        self._wake = wake
        self._nonce = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._heard = asyncio.Event()
        self.works = False

    async def run(self) -> None:
        """Listen until cancelled; a connection that breaks, or is silent where it should not be, is made anew."""
        said = False
        while True:
            pause = _AGAIN_SECONDS
            try:
                await self._listen()
            except* _Deaf:
                pause = _PROBE_EVERY
                if not said or self.works:
                    _LOG.warning("notifications of PostgreSQL do not arrive: jobs are found by looking for them")
                said = True
            except* Exception as problems:  # noqa: BLE001 - a hint that fails must not end a worker
                _LOG.info("the bell is not heard, jobs are found by looking: %s", problems.exceptions[0])
            self.works = False
            await asyncio.sleep(pause)

    async def _listen(self) -> None:
        async with await self._connect() as listening:
            await listening.execute(f'LISTEN "{self._channel}"'.encode())
            self._wake()  # what came while nobody listened
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._probe())
                async for notify in listening.notifies():
                    self._hear(notify.payload)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(self._url, autocommit=True, **self._options)

    def _hear(self, payload: str) -> None:
        if not payload:
            self._wake()
        elif payload == self._nonce:
            self._heard.set()

    async def _probe(self) -> None:
        """Ring ourselves from another connection, and see whether that is heard."""
        while True:
            self._heard.clear()
            async with await self._connect() as ringing:
                await ringing.execute("SELECT pg_notify(%s, %s)", (self._channel, self._nonce))
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    await self._heard.wait()
            except TimeoutError:
                raise _Deaf from None
            self.works = True
            await asyncio.sleep(_PROBE_EVERY)
