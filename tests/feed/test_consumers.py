"""Several consumers, several readers for one of them, and a consumer whose effect and place are one transaction."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.concurrency.crowd import Crowd, of_kind
from tests.feed.reading import Event, Reader, check_order, event, log_of
from tests.places import Place

from leftfold import Engine, NewJob
from leftfold.core.errors import FeedConflictError, StoreError
from leftfold.store.feed import FeedPage
from leftfold.store.sqlite.library import sqlite


@pytest.fixture
def engine(place: Place) -> Iterator[Engine]:
    with place.open() as engine:
        yield engine


def lives(engine: Engine, count: int) -> None:
    """Let jobs be made, and let some of them be done."""
    engine.enqueue_many([NewJob("work") for _ in range(count)])
    for claim in engine.claim("worker", limit=count // 2):
        engine.start(claim)
        engine.complete(claim)


def test_each_consumer_goes_at_its_own_pace(engine: Engine) -> None:
    readers = {limit: Reader(engine, f"by-{limit}") for limit in (1, 3, 10, 500)}
    for round_ in range(6):
        lives(engine, 6)
        for limit, reader in readers.items():
            if round_ % (1 + limit % 3) == 0:
                reader.page(limit)
    for reader in readers.values():
        reader.drain()
        reader.check()
        assert reader.lag.behind == 0


def test_of_two_readers_for_one_consumer_one_is_refused_and_nothing_is_lost(place: Place, engine: Engine) -> None:
    lives(engine, 40)
    got: list[list[Event]] = [[], []]

    def read(who: int, page: FeedPage) -> None:
        engine.acknowledge(page)
        got[who] += map(event, page.records)

    with Crowd(2) as crowd:
        rounds = conflicts = 0
        while True:
            pages = [engine.feed("shared", limit=7), engine.feed("shared", limit=7)]
            assert pages[0] == pages[1]
            if not pages[0].records:
                break
            outcomes = crowd.each(lambda who, pages=pages: read(who, pages[who]))
            conflicts += len(of_kind(outcomes, FeedConflictError))
            rounds += 1
    assert conflicts == rounds, "each time exactly one of them went on"
    assert sorted(got[0] + got[1]) == sorted(log_of(engine))


# --- one transaction --------------------------------------------------------------------------------------------------


class Effects:
    """A table of the consumer's own: what it did, for each event."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.table = "effects" if place.is_file else f'"{place.schema}".effects'
        connection = self.connect()
        connection.execute(f"CREATE TABLE {self.table} (job text, version integer)")
        connection.commit()
        connection.close()

    def connect(self) -> Any:
        return sqlite.connect(self.place.path) if self.place.is_file else psycopg.connect(self.place.url)

    def add(self, connection: Any, page: FeedPage) -> None:
        mark = "?" if self.place.is_file else "%s"
        for record in page.records:
            sql = f"INSERT INTO {self.table} VALUES ({mark}, {mark})"  # noqa: S608 - our own
            connection.execute(sql, (record.job_id, record.version))

    def there(self) -> list[Event]:
        connection = self.connect()
        try:
            return [tuple(row) for row in connection.execute(f"SELECT job, version FROM {self.table}").fetchall()]  # noqa: S608
        finally:
            connection.close()


@pytest.mark.parametrize("crash", ["before the effect", "before the place", "before the commit"])
def test_the_effect_and_the_place_of_a_consumer_are_one(place: Place, engine: Engine, crash: str) -> None:
    lives(engine, 10)
    effects = Effects(place)
    for attempt in range(100):
        page = engine.feed("consumer", limit=4)
        if not page.records:
            break
        connection = effects.connect()
        dies = attempt % 2 == 0
        if not (dies and crash == "before the effect"):
            effects.add(connection, page)
            if not (dies and crash == "before the place"):
                engine.acknowledge(page, within=connection)
                if not dies:
                    connection.commit()
        connection.close()  # without a commit, as the death of its process would
    done = effects.there()
    check_order(done)
    assert sorted(done) == sorted(log_of(engine)), "exactly once"


def test_a_place_that_was_rolled_back_is_as_it_was(place: Place, engine: Engine) -> None:
    lives(engine, 4)
    page = engine.feed("consumer", limit=2)
    connection = Effects(place).connect()
    engine.acknowledge(page, within=connection)
    connection.rollback()
    connection.close()
    assert engine.consumers() == []
    engine.acknowledge(page)
    assert not set(map(event, engine.feed("consumer").records)) & set(map(event, page.records))


def test_a_place_that_another_took_is_refused_and_the_effect_can_be_undone(place: Place, engine: Engine) -> None:
    lives(engine, 4)
    effects = Effects(place)
    page = engine.feed("consumer", limit=2)
    engine.acknowledge(page)
    connection = effects.connect()
    effects.add(connection, page)
    with pytest.raises(FeedConflictError):
        engine.acknowledge(page, within=connection)
    connection.rollback()
    connection.close()
    assert effects.there() == []


def test_a_place_of_another_database_is_refused(on_postgres: Place) -> None:
    """Numbers of transactions mean nothing elsewhere: who was restored there would miss what has smaller ones."""
    with on_postgres.open() as engine:
        engine.enqueue("work")
        Reader(engine, "consumer").page()
        with psycopg.connect(on_postgres.url) as connection:
            sql = f'UPDATE "{on_postgres.schema}".feeds SET seen = %s'  # noqa: S608 - our own
            connection.execute(sql.encode(), ("9000000000:9000000000:",))
        with pytest.raises(StoreError, match="forget the consumer"):
            engine.feed("consumer")
        engine.forget_consumer("consumer")
        Reader(engine, "consumer").drain()
