"""Processes that carry out a row of the table and die on the way.

They are forked from one that has everything loaded and nothing open: that takes milliseconds, and forking a process
that has threads, as that of the tests may have, is asking for trouble.
"""

import gc
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, NoReturn

import psycopg
from tests.concurrency.crowd import DEADLINE
from tests.crash.rows import ROWS
from tests.crash.scenes import ACTOR, NOW, Held
from tests.places import Place

from leftfold.core.errors import LeftfoldError
from leftfold.store.postgres.driver import PostgresStore
from leftfold.store.query import Columns
from leftfold.store.sqlite.driver import SqliteStore

#: Loaded before the first fork, for `open` loads a driver when it is needed.
DRIVERS: Final = (PostgresStore, SqliteStore)

DONE: Final = 17  # the operation returned; the process died before anybody heard its answer
KILLED: Final = -signal.SIGKILL


class Death(NamedTuple):
    """Which row to carry out where, and before which statement to die: 1, 2, …"""

    place: Place
    row: str
    held: Held
    statement: int


class Nursery:
    """The process that the victims come from."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_nurse, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def kill(self, death: Death) -> int:
        """Let a new process die this death, and give its exit code, as `subprocess` does."""
        return self.run(die, death)

    def run(self, act: Callable[..., object], *arguments: object) -> int:
        """Let a new process do this."""
        self._pipe.send((act, arguments))
        assert self._pipe.poll(DEADLINE), "the victim takes too long"
        code: int = self._pipe.recv()
        return code

    def close(self) -> None:
        self._pipe.close()
        self._process.join(DEADLINE)


def _nurse(pipe: Connection) -> None:
    gc.freeze()  # else each child copies what its first collection looks at
    while True:
        try:
            act, arguments = pipe.recv()
        except EOFError:
            return
        pid = os.fork()
        if pid == 0:
            pipe.close()
            _live(act, arguments)
        pipe.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _live(act: Callable[..., object], arguments: tuple[object, ...]) -> NoReturn:
    try:
        act(*arguments)
        os._exit(DONE)
    except BaseException:  # noqa: BLE001 - whatever it was, the child must not go on as its parent
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def die(death: Death) -> None:
    """Carry out the row, unless we die before."""
    row = ROWS[death.row]
    engine = death.place.open(clock=lambda: NOW, actor=ACTOR)
    gate(engine.store, death.statement)
    engine._writes = -1 if row.folds else 0
    with suppress(LeftfoldError):  # a refusal is an answer, too
        row.act(engine, death.held)
    os._exit(DONE)


def gate(store: Any, statement: int) -> None:
    """Let this process die when a connection of this store begins the statement of that number."""
    begun, last = 0, ""

    def step(sql: str = "") -> None:
        nonlocal begun, last
        begun += not sql or sql != last  # SQLite shows a statement again at each of its triggers
        last = sql
        if begun == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    if store.dialect == "sqlite":
        for connection in (store._connection, store._reader):
            connection.set_trace_callback(step)
        return
    idle = store._pool._idle
    assert len(idle) == 1, "there is the one connection that looked at the schema"

    class Gated(psycopg.Cursor[Columns]):
        def execute(self, *arguments: Any, **named: Any) -> Any:
            step()
            return super().execute(*arguments, **named)

    connection = idle[0].connection
    connection.cursor_factory = Gated
    idle[0] = connection.cursor()
