"""Two sides whose every statement waits at a gate until it is let through: the product itself, one step at a time.

Nothing of the store is replaced: its own driver runs, with its own retries, on psycopg connections whose cursors stop
before each statement. Who waits for a lock is known from the server (`pg_blocking_pids`).
"""

import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from tests.interleave.touching import ENDS, Touch, touch_of

from leftfold.engine import Engine
from leftfold.store.ids import Ids
from leftfold.store.postgres.driver import PostgresStore
from leftfold.store.postgres.wire import call
from leftfold.store.query import Columns, Query
from leftfold.testing.clock import FakeClock

#: How long a statement may take before we look whether it waits for somebody, and before we give it up.
GLANCE_SECONDS: Final = 0.0008
PATIENCE_SECONDS: Final = 30.0
BEGIN: Final = "BEGIN"


def with_settings(url: str, settings: Mapping[str, str]) -> str:
    """Give the URL for sessions with these settings."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return f"{url}?options={quote(options)}" if options else url


class Gate:
    """Where a side waits. Open, it lets everything through."""

    def __init__(self, *, stops_at_begin: bool) -> None:
        self.is_open = True
        self.deadlocks = 0  # how often it had to give way
        self.came: SimpleQueue[str | None] = SimpleQueue()  # the statement that it came to; None at the end
        self.may_go: SimpleQueue[None] = SimpleQueue()
        self.begun = 0  # transactions
        self._stops_at_begin = stops_at_begin

    def pass_through(self, statement: str) -> None:
        """Wait until we are let through. A BEGIN touches nothing, and may go with the statement behind it."""
        if not self.is_open and (statement != BEGIN or self._stops_at_begin):
            self.came.put(statement)
            self.may_go.get()
        if statement == BEGIN:
            self.begun += 1


class GatedCursor(psycopg.Cursor[Any]):
    """A cursor that comes to the gate of its connection before each statement."""

    connection: "GatedConnection"

    def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        self.connection.gate.pass_through(self.connection.name_of(query))
        try:
            return super().execute(query, *arguments, **options)
        except psycopg.errors.DeadlockDetected:
            self.connection.gate.deadlocks += 1
            raise


class GatedConnection(psycopg.Connection[Any]):
    """A connection with a gate."""

    gate: Gate
    names: dict[bytes, str]

    def name_of(self, query: Any) -> str:
        """Give a statement's name in `queries.sql`, or its first word."""
        text = query.encode() if isinstance(query, str) else bytes(query)
        return self.names.get(text) or text.decode().split(maxsplit=1)[0]

    def rollback(self) -> None:
        if self.info.transaction_status is TransactionStatus.INTRANS:
            self.gate.pass_through("ROLLBACK")
        super().rollback()


class GatedStore(PostgresStore):
    """The store, with gates in its one connection. Counters are folded by an operation of its own, not now and then."""

    counts_grow = False

    def __init__(self, url: str, schema: str, clock: FakeClock, gate: Gate) -> None:
        super().__init__(url, schema=schema, pool_size=1, clock=clock)
        self.gate = gate
        self.lent: GatedConnection | None = None

    def connect(self) -> psycopg.Connection[Columns]:
        connection = GatedConnection.connect(
            self.url, autocommit=True, row_factory=tuple_row, cursor_factory=GatedCursor, **self._options
        )
        connection.gate = self.gate
        connection.names = {}
        self.lent = connection
        return connection

    def execute(self, cursor: psycopg.Cursor[Columns], query: Query, channel: str | None = None) -> list[Columns]:
        text, _ = call(self.queries, query, 0, channel)
        cursor.connection.names[text] = query.name  # type: ignore[attr-defined]
        return super().execute(cursor, query, channel)

    def in_transaction(self) -> bool:
        """Tell whether it may hold locks beyond the statement that it ran last."""
        return self.lent is not None and self.lent.info.transaction_status is TransactionStatus.INTRANS

    @property
    def pid(self) -> int:
        """Give the process of its session on the server."""
        return self.lent.info.backend_pid if self.lent else 0


class Answer(NamedTuple):
    """What a call came to: what it gave, or what it raised."""

    given: Any = None
    raised: BaseException | None = None


def answer_of(call: Callable[[], Any]) -> Answer:
    """Call, and keep what comes of it."""
    try:
        return Answer(given=call())
    except BaseException as problem:  # noqa: BLE001 - an outcome like any other, compared with what may be
        return Answer(raised=problem)


class StuckError(Exception):
    """A side neither came to its next statement nor waits for the other one."""


class Side:
    """One of two callers: an engine of its own, in a thread of its own, which runs one statement when told to."""

    def __init__(self, name: str, store: GatedStore, clock: FakeClock) -> None:
        self.name, self.store, self.gate = name, store, store.gate
        self.engine = Engine(store.open(), actor=name, ids=Ids(clock))
        self.at: str | None = None  # the statement that it stands before
        self.is_done = self.is_blocked = self.has_waited = False  # the last: in the statement that it ran last
        self.blocked_in = 0  # the transaction of the other one that it waited for last
        self.touch = Touch()  # what the statement that it stands before will touch
        self.lost: frozenset[str] = frozenset()  # what a transaction held that failed with the last statement
        self._held: frozenset[str] = frozenset()
        self._within: int | None = None  # the transaction that it stands in
        self._ends = False  # the statement that it ran last ended its transaction
        self.answer = Answer()
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.gate.is_open = True
        self._calls.put(None)
        self._thread.join(PATIENCE_SECONDS)
        self.engine.close()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self.answer = answer_of(call)
            self.gate.came.put(None)

    def begin(self, call: Callable[[], Any]) -> None:
        """Start a call, and wait until it stands before its first statement."""
        self.gate.is_open = False
        self.is_done = self.is_blocked = False
        self.lost = self._held = frozenset()
        self._within, self._ends = None, False
        self._calls.put(call)
        self._come(PATIENCE_SECONDS)

    def let_go(self) -> None:
        """Let it run the statement that it stands before."""
        self._held |= self.touch.locks
        self._ends = self.at in ENDS
        self.at, self.has_waited = None, False
        self.gate.may_go.put(None)

    @property
    def is_ready(self) -> bool:
        return self.at is not None

    @property
    def holds_locks(self) -> bool:
        """Tell whether it stands still inside of a transaction."""
        return self.is_ready and self.store.in_transaction()

    @property
    def is_under_way(self) -> bool:
        return self.at is None and not self.is_done

    def came(self) -> bool:
        """Tell whether it came to its next statement, or to its end, at a glance."""
        return self._come(GLANCE_SECONDS)

    def _come(self, seconds: float) -> bool:
        try:
            self.at = self.gate.came.get(timeout=seconds)
        except Empty:
            return False
        self.is_blocked = False
        self.is_done = self.at is None
        within = self.gate.begun if self.store.in_transaction() else None
        if within is None or within != self._within:
            if self._within is not None and not self._ends:
                self.lost = self._held
            self._held = frozenset()
        self._within = within
        self.touch = touch_of(self.at or "", self._held, in_transaction=within is not None)
        return True
