"""A pooler in front of PostgreSQL that parts transactions, as PgBouncer does in that mode.

Clients share a few sessions of the server: a client has one from the first message of a transaction until the server
says that it is outside of any. So what a client leaves in a session is found by another one, and what the server sends
unasked, a notification for example, reaches nobody in particular: it is dropped.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Final
from urllib.parse import urlsplit

from tests.proxy import _exactly, _typed, _untyped

_CANCEL: Final = 80877102
_READY: Final = b"Z"
_NOTIFICATION: Final = b"A"


class Pooler:
    """Listens on a port of its own. `dropped` counts the notifications that reached nobody."""

    def __init__(self, server: str, sessions: int = 3) -> None:
        self._parts = urlsplit(server)
        self._free: SimpleQueue[socket.socket] = SimpleQueue()
        self._hello = b""
        self.dropped = 0
        for _ in range(sessions):
            self._free.put(self._session())
        self._listener = socket.create_server(("127.0.0.1", 0))
        user, at, _ = self._parts.netloc.rpartition("@")
        host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = self._parts._replace(netloc=user + at + host, query="sslmode=disable&gssencmode=disable").geturl()
        threading.Thread(target=self._accept, daemon=True).start()

    def _session(self) -> socket.socket:
        """Make a session, and keep what the server says first: every client is told the same."""
        session = socket.create_connection((self._parts.hostname or "127.0.0.1", self._parts.port or 5432))
        session.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        names = {"user": self._parts.username or "", "database": self._parts.path.removeprefix("/")}
        words = "".join(f"{name}\0{value}\0" for name, value in {**names, "client_encoding": "UTF8"}.items()).encode()
        body = struct.pack("!i", 196608) + words + b"\0"
        session.sendall(struct.pack("!i", len(body) + 4) + body)
        hello = b""
        while True:
            kind, message = _typed(session)
            hello += message
            if kind == _READY:
                self._hello = hello
                return session

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session: socket.socket | None = None
        with client, suppress(OSError, EOFError):
            first = _untyped(client)
            if struct.unpack("!i", first[4:8])[0] == _CANCEL:
                return
            client.sendall(self._hello)
            while True:
                kind, message = _typed(client)
                if kind == b"X":
                    break
                session = session or self._free.get()
                session.sendall(message)
                if kind in {b"Q", b"S"} and self._answered(session, client):
                    self._free.put(session)
                    session = None
        if session is not None:  # its client went away in the middle of a transaction
            session.close()
            self._free.put(self._session())

    def _answered(self, session: socket.socket, client: socket.socket) -> bool:
        """Hand on what the server says, and tell whether the transaction is over."""
        while True:
            head = _exactly(session, 5)
            body = _exactly(session, struct.unpack("!i", head[1:])[0] - 4)
            if head[:1] == _NOTIFICATION:
                self.dropped += 1
                continue
            client.sendall(head + body)
            if head[:1] == _READY:
                return body == b"I"


@contextmanager
def pooler_to(server: str) -> Iterator[Pooler]:
    """Give a pooler to the server of a URL."""
    pooler = Pooler(server)
    try:
        yield pooler
    finally:
        pooler.close()
