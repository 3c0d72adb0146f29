"""What can happen between two statements: an operation that is stopped, or that others overtake."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import psycopg
from msgspec.structs import replace
from tests.store.sides import Side, events, others, rows

from leftfold.core.job import fold
from leftfold.core.record import GENESIS, check_chain
from leftfold.engine import Engine
from leftfold.store.query import Columns, Operation, Query, Steps
from leftfold.store.replies import Count
from leftfold.store.rows import Row, records_of, row_of
from leftfold.store.sessions import Session

T = TypeVar("T")


class CrashError(Exception):
    """Our process is gone, as far as the store can see."""


class Between:
    """A store that does something of ours before one of its statements: counted from 0, all operations together."""

    def __init__(self, store: Session, place: int, act: Callable[[Query | None], Query | None]) -> None:
        self.dialect, self.counts_grow, self.sends_ahead = store.dialect, False, False
        self.seen: list[str] = []
        self._store, self._place, self._act = store, place, act

    def run(self, operation: Operation[T]) -> T:
        return self._store.run(replace(operation, steps=lambda: self._steps(operation.steps())))

    def run_within(self, connection: object, operation: Operation[T]) -> T:
        return self._store.run_within(connection, replace(operation, steps=lambda: self._steps(operation.steps())))

    def close(self) -> None:
        self._store.close()

    def _steps(self, steps: Steps[T]) -> Steps[T]:
        answer: list[Columns] | None = None
        while True:
            try:
                query = next(steps) if answer is None else steps.send(answer)
            except StopIteration as done:
                self._come_to(None)
                value: T = done.value
                return value
            ours = self._come_to(query)
            if ours is not None:
                yield ours
            answer = yield query

    def _come_to(self, query: Query | None) -> Query | None:
        self.seen.append(query.name if query else "the end")
        return self._act(query) if len(self.seen) == self._place + 1 else None


@contextmanager
def between(engine: Engine, place: int, act: Callable[[Query | None], Query | None]) -> Iterator[Between]:
    """Let the engine's next operations come to our act before statement number `place`, or before their end."""
    store = engine.store
    interrupted = Between(store, place, act)
    engine.store = interrupted
    try:
        yield interrupted
    finally:
        engine.store = store


def crash(query: Query | None) -> Query | None:
    """Die here."""
    raise CrashError(query.name if query else "at the end")


def wait_until_it_waits(connection: psycopg.Connection[Columns], waiter: Future[Any]) -> None:
    """Wait until somebody waits for somebody else's lock; the server knows."""
    asked = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0)"
    while connection.execute(asked).fetchone() != (True,):
        assert not waiter.done(), "it did not wait for the lock"


class Contents(NamedTuple):
    """Everything that stands in a store."""

    rows: dict[str, Row]
    events: dict[str, list[Columns]]
    others: Any
    counts: list[Count]


def contents(side: Side) -> Contents:
    """Read everything."""
    return Contents(rows(side), events(side), others(side), side.engine.counts())


def check_whole(found: Contents) -> None:
    """Demand that every row is what its log comes to, that every chain holds, and that the counts are right."""
    assert set(found.rows) == set(found.events)
    for job_id, row in found.rows.items():
        entries = [(records_of(job_id, columns[1:]), columns[-1]) for columns in found.events[job_id]]
        records = [record for entry, _ in entries for record in entry]
        head = check_chain(entries, GENESIS)
        job = fold(records)
        assert job is not None
        assert row == row_of(job, records, head)._replace(
            until=row.until, renewals=row.renewals, renewed_by=row.renewed_by, renewed_hash=row.renewed_hash
        )
    for count in found.counts:
        of_kind = [row for row in found.rows.values() if (row.queue, row.kind, row.state) == tuple(_place(count))]
        assert len(of_kind) == count.jobs
    assert sum(count.jobs for count in found.counts) == len(found.rows)


def _place(count: Count) -> Iterator[str]:
    yield from (count.queue, count.kind, count.state.value)
