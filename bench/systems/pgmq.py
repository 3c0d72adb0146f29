"""PGMQ: a bare queue of messages, by its SQL as the client for Python carries it. Shown, and not counted."""

import asyncio
import functools
import inspect
from collections.abc import Iterable
from typing import Any

from bench.system import About, Handler, Promises

ABOUT = About(
    title="PGMQ",
    needs=("pgmq==1.1.4", "psycopg[binary]==3.3.8"),
    server="postgres",
    promises=Promises(
        durability="committed before `send` returns",
        history="none: a message that was run is deleted",
        recovery="read again when its visibility time-out is over, however often",
    ),
    pace=10_000,
    settings="its SQL without the extension; reads and deletes 500 at once, in a loop of ours: it has no worker",
    handlers=frozenset({"noop", "noop_sync"}),
    role="bare queue",
)
_QUEUE = "jobs"
_BATCH = 500
_IDLE = 0.005
_HELD = 60  # seconds


def prepare(url: str) -> None:
    import psycopg
    from pgmq.install import get_embedded_install_sql

    with psycopg.connect(url) as connection:
        connection.execute(get_embedded_install_sql())
        connection.execute("SELECT pgmq.create(%s)", (_QUEUE,))


def _client(url: str) -> Any:
    from pgmq import PGMQueue

    return PGMQueue(conn_string=url, init_extension=False)


def enqueue(url: str, numbers: Iterable[int]) -> None:
    queue = _client(url)
    for number in numbers:
        queue.send(_QUEUE, {"number": number})
    queue.close()


def enqueue_many(url: str, batches: Iterable[list[int]]) -> None:
    queue = _client(url)
    for batch in batches:
        queue.send_batch(_QUEUE, [{"number": number} for number in batch])
    queue.close()


async def work(url: str, handler: Handler, _: int) -> None:
    """Read some, run them, delete them, and so on."""
    queue = _client(url)
    while True:
        messages = queue.read(_QUEUE, vt=_HELD, qty=_BATCH) or []
        for message in messages:
            given = handler(message.message["number"])
            if inspect.isawaitable(given):
                await given
        if messages:
            queue.delete_batch(_QUEUE, [message.msg_id for message in messages])
        else:
            await asyncio.sleep(_IDLE)


@functools.cache
def _connection(url: str) -> Any:
    import psycopg

    return psycopg.connect(url, autocommit=True)


def finished(url: str) -> int:
    """Give how many are gone of those that ever were there."""
    query = f"SELECT s.last_value - (SELECT count(*) FROM pgmq.q_{_QUEUE}) FROM pgmq.q_{_QUEUE}_msg_id_seq s"
    return int(_connection(url).execute(query).fetchone()[0])
