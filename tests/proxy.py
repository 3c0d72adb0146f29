"""A proxy in front of PostgreSQL that breaks connections where it is told to.

It knows just enough of the protocol to tell one request from the next: a request ends with a Query or a Sync. So a
connection can be cut exactly between a COMMIT that the server has carried out and the reply that says so. It can also
cut all of them at once, take no new ones, or hold everything that comes.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tests.concurrency.crowd import DEADLINE

_QUERY: Final = b"Q"
_PARSE: Final = b"P"
_SYNC: Final = b"S"
_READY: Final = b"Z"


class Cut(Enum):
    """Where the connection breaks."""

    BEFORE = "the server never hears the request"
    AFTER = "the server has carried it out, and its reply is lost"


class _Order(NamedTuple):
    number: int
    cut: Cut
    times: int


class Proxy:
    """Listens on a port of its own. `heard` are the requests since the last `listen` or `cut`: their SQL, if any."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._server = parts.hostname or "127.0.0.1", parts.port or 5432
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._order: _Order | None = None
        self.heard: list[str] = []
        self._links: set[_Link] = set()
        self._passes = threading.Event()
        self._passes.set()
        self.refuses = False  # whether new connections are closed at once
        # Encryption would be negotiated first, in words that the proxy does not know.
        user, at, _ = parts.netloc.rpartition("@")
        host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = parts._replace(netloc=user + at + host, query="sslmode=disable&gssencmode=disable").geturl()
        threading.Thread(target=self._accept, daemon=True).start()

    def listen(self) -> None:
        """Cut nothing, and count requests from here on."""
        self._give(None)

    def cut(self, number: int, cut: Cut, times: int = 1) -> None:
        """Break the connection at the request of that number, counted from here: 1, 2, … Then count anew, `times`."""
        self._give(_Order(number, cut, times))

    def _give(self, order: _Order | None) -> None:
        with self._lock:
            self._order, self.heard = order, []

    def sever(self) -> int:
        """Cut every connection that there is, and say how many there were."""
        links = list(self._links)
        for link in links:
            link.close()
        return len(links)

    def hold(self) -> None:
        """Let nothing through, in either direction, and tell nobody."""
        self._passes.clear()

    def resume(self) -> None:
        """Let everything through, what was held back first."""
        self._passes.set()

    def wait(self) -> None:
        """Wait until something may go through."""
        self._passes.wait()

    def forget(self, link: "_Link") -> None:
        """Take note that a connection is gone."""
        self._links.discard(link)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                link = _Link(self, client, server)
                self._links.add(link)
                threading.Thread(target=link.upwards, daemon=True).start()
                threading.Thread(target=link.downwards, daemon=True).start()

    def comes(self, sql: str) -> Cut | None:
        """Note a request, and say what is to become of it."""
        with self._lock:
            self.heard.append(sql)
            if self._order is None or len(self.heard) != self._order.number:
                return None
            number, cut, times = self._order
            self._order = _Order(number, cut, times - 1) if times > 1 else None
            if self._order:
                self.heard = []
            return cut


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._mute = threading.Event()
        self._done = threading.Event()
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def upwards(self) -> None:
        with suppress(OSError, EOFError):
            self._server.sendall(_untyped(self._client))
            request, sql = b"", ""
            while True:
                kind, message = _typed(self._client)
                request += message
                if kind in {_QUERY, _PARSE}:
                    sql += _text_of(kind, message)
                if kind in {_QUERY, _SYNC}:
                    cut = self._proxy.comes(sql)
                    if cut is not None:
                        self._break_off(request, cut)
                        return
                    self._proxy.wait()
                    self._server.sendall(request)
                    request, sql = b"", ""
                elif kind not in {_PARSE, b"B", b"D", b"E", b"C"}:  # a password, or the end
                    self._server.sendall(request)
                    request = b""
        self.close()

    def _break_off(self, request: bytes, cut: Cut) -> None:
        self._mute.set()
        if cut is Cut.AFTER:
            self._server.sendall(request)
            assert self._done.wait(DEADLINE), "the server does not answer"
        self.close()

    def downwards(self) -> None:
        with suppress(OSError, EOFError):
            while True:
                kind, message = _typed(self._server)
                self._proxy.wait()
                if not self._mute.is_set():
                    self._client.sendall(message)
                elif kind == _READY:
                    self._done.set()
        self._done.set()
        self.close()

    def close(self) -> None:
        """Break it off on both sides."""
        self._proxy.forget(self)
        for side in (self._client, self._server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


def _text_of(kind: bytes, message: bytes) -> str:
    """Give the SQL of a Query, or of a Parse, where the name of the statement stands in front of it."""
    body = message[5:] if kind == _QUERY else message[5:].partition(b"\0")[2]
    return body.partition(b"\0")[0].decode(errors="replace")


def _untyped(side: socket.socket) -> bytes:
    """Read the first message of a client, which has no type."""
    head = _exactly(side, 4)
    return head + _exactly(side, struct.unpack("!i", head)[0] - 4)


def _typed(side: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(side, 5)
    return head[:1], head + _exactly(side, struct.unpack("!i", head[1:])[0] - 4)


def _exactly(side: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = side.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts


@contextmanager
def proxy_to(server: str) -> Iterator[Proxy]:
    """Give a proxy to the server of a URL."""
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
