"""What a consumer got, held against the log; and transactions that are ours to end."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import psycopg
from tests.places import Place

from leftfold import Engine
from leftfold.core import commands as c
from leftfold.core.decide import NOTHING_FORBIDDEN
from leftfold.core.lifecycle import Who
from leftfold.core.payload import to_payload
from leftfold.core.record import Record
from leftfold.store import ops
from leftfold.store.feed import Consumer
from leftfold.store.query import Operation

Event = tuple[str, int]


def event(record: Record) -> Event:
    return record.job_id, record.version


def log_of(engine: Engine) -> set[Event]:
    """Give every event that there is, as `list` and `history` know them."""
    found: set[Event] = set()
    after = None
    while True:
        page = engine.list(limit=1000, after=after)
        found |= {(job.id, version) for job in page.jobs for version in range(1, job.version + 1)}
        after = page.next
        if after is None:
            return found


def check_order(events: Iterable[Event]) -> None:
    """Demand that no event comes before the one that it follows. An event may come again."""
    reached: dict[str, int] = {}
    for job_id, version in events:
        assert version <= reached.get(job_id, 0) + 1, f"event {version} of {job_id} came before the one that it follows"
        reached[job_id] = max(version, reached.get(job_id, 0))


class Reader:
    """A consumer of the feed that remembers what it acknowledged."""

    def __init__(self, engine: Engine, name: str = "reader") -> None:
        self.engine = engine
        self.name = name
        self.got: list[Event] = []

    def page(self, limit: int = 500) -> list[Event]:
        """Read one page and acknowledge it."""
        page = self.engine.feed(self.name, limit=limit)
        self.engine.acknowledge(page)
        self.got += map(event, page.records)
        return [event(record) for record in page.records]

    def drain(self, limit: int = 500) -> list[Event]:
        """Read everything that there is."""
        before = len(self.got)
        while not self.engine.feed(self.name, limit=1).caught_up or self.lag.behind:
            assert self.page(limit), "there was said to be more"
        return self.got[before:]

    @property
    def lag(self) -> Consumer:
        found = {consumer.name: consumer for consumer in self.engine.consumers()}
        return found.get(self.name) or Consumer(name=self.name, started_at=0, moved_at=0, behind=1, oldest_at=None)

    def check(self, expected: set[Event] | None = None) -> None:
        """Demand that it got everything exactly once, in the order of each job."""
        check_order(self.got)
        assert len(self.got) == len(set(self.got)), "nothing that was acknowledged comes again"
        assert set(self.got) == (log_of(self.engine) if expected is None else expected)


class Transaction:
    """A transaction on PostgreSQL, of somebody who uses the engine within it."""

    def __init__(self, place: Place, engine: Engine) -> None:
        self.connection = psycopg.connect(place.url)
        self.engine = engine
        self.jobs: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def take_number(self) -> int:
        """Let the server number it now, before it writes anything."""
        row = self.connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        assert row is not None
        return int(row[0])

    def enqueue(self, count: int = 1) -> None:
        for _ in range(count):
            self.jobs.append(self.engine.enqueue("within", within=self.connection).job_id)

    def signal(self, job_id: str, key: str) -> None:
        """Tell a job something, which the engine offers for a transaction of its own only."""
        command = c.Signal(by=c.Actor(who=Who.CLIENT, name="client"), key=key, payload=to_payload("signal", None))
        self.tell([ops.Ask(job_id, command)])

    def tell(self, asks: Sequence[ops.Ask]) -> None:
        operation: Operation[Any] = Operation(lambda: ops.carry_out(asks, NOTHING_FORBIDDEN))
        assert not [
            each for each in self.engine.store.run_within(self.connection, operation) if not hasattr(each, "rev")
        ]

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()
