"""Far behind: what is new is looked at a stretch of time at a time, and nothing falls between two of them."""

from collections.abc import Iterator

import pytest
from tests.feed.reading import Reader, Transaction, log_of
from tests.migration.raw import SqliteRaw
from tests.places import Place

from leftfold import Engine, NewJob
from leftfold.core.lifecycle import State
from leftfold.store import feed
from leftfold.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(place: Place, clock: FakeClock) -> Iterator[Engine]:
    with place.open(clock=clock) as engine:
        yield engine


@pytest.fixture(params=[1, 5])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    size: int = request.param
    monkeypatch.setattr(feed, "WINDOW", size)
    return size


def make(engine: Engine, count: int) -> None:
    engine.enqueue_many([NewJob("work") for _ in range(count)])


@pytest.mark.parametrize("limit", [1, 3, 500])
def test_many_more_events_than_are_looked_at_in_one_go(
    engine: Engine, clock: FakeClock, window: int, limit: int
) -> None:
    for _ in range(12):
        make(engine, 2)
        clock.advance(0.001)
        for claim in engine.claim("worker"):
            engine.start(claim)
    reader = Reader(engine)
    reader.drain(limit)
    reader.check()


@pytest.mark.parametrize("limit", [1, 4, 500])
def test_many_events_at_one_moment(engine: Engine, clock: FakeClock, window: int, limit: int) -> None:
    make(engine, 3)
    clock.advance(1)
    make(engine, 20)
    for claim in engine.claim("worker", limit=7):
        engine.start(claim)
    clock.advance(1)
    make(engine, 3)
    reader = Reader(engine)
    reader.drain(limit)
    reader.check()


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_lag_is_right_in_the_middle_of_a_stretch(place: Place, clock: FakeClock, limit: int) -> None:
    with place.open(clock=clock) as engine:
        reader = Reader(engine)
        for _ in range(5):
            make(engine, 2)
            clock.advance(1)
        moments = {(record.job_id, record.version): record.at for record in engine.feed("other").records}
        for step in range(20):
            reader.page(limit)
            if step == 1:  # behind the target of a stretch that is under way
                make(engine, 3)
                moments = {(record.job_id, record.version): record.at for record in engine.feed("other").records}
            left = log_of(engine) - set(reader.got)
            assert (reader.lag.behind, reader.lag.oldest_at) == (
                len(left),
                min((moments[each] for each in left), default=None),
            )
        reader.check()


def test_lag_counts_what_was_open_when_the_consumer_looked(on_postgres: Place) -> None:
    with on_postgres.open() as engine, Transaction(on_postgres, engine) as late:
        reader = Reader(engine)
        late.enqueue(2)
        engine.enqueue("work")
        reader.drain()
        assert reader.lag.behind == 0
        late.commit()
        assert reader.lag.behind == 2
        reader.page(limit=1)
        assert reader.lag.behind == 1
        engine.enqueue("work")
        assert reader.lag.behind == 2
        reader.drain(limit=1)
        assert (reader.lag.behind, reader.lag.oldest_at) == (0, None)
        reader.check()


def test_lag_is_counted_no_further_than_it_says(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "BEHIND_MAX", 5)
    engine.feed("reader", start="now")
    make(engine, 9)
    assert [each.behind for each in engine.consumers()] == [5]


def test_a_consumer_that_is_a_real_window_behind_gets_everything(on_postgres: Place) -> None:
    """One run with the length that is in use: more events than that, in transactions that are not in order of time."""
    with on_postgres.open() as engine, Transaction(on_postgres, engine) as late:
        late.enqueue(3)
        for _ in range(feed.WINDOW // 10_000 + 1):
            make(engine, 10_000)
        reader = Reader(engine)
        reader.page(limit=10_000)
        late.commit()
        make(engine, 100)
        reader.drain(limit=10_000)
        reader.check()


@pytest.mark.parametrize("limit", [1, 2, 3, 500])
def test_numbers_that_are_missing_in_a_file_stop_nobody(on_sqlite: Place, limit: int) -> None:
    with on_sqlite.open() as engine:
        make(engine, 12)
        kept = engine.claim("worker", limit=1)
        _forget_all_but(on_sqlite, kept[0].job_id)
        engine.enqueue("work")
        reader = Reader(engine)
        reader.drain(limit)
        reader.check()
        assert [each.state for each in engine.list().jobs] == [State.QUEUED, State.CLAIMED]
        engine.forget_consumer("reader")
        assert [record.job_id for record in engine.follow("reader", limit=limit)] == [job for job, _ in reader.got]


def _forget_all_but(place: Place, job_id: str) -> None:
    with SqliteRaw(place) as raw:
        raw.maintain()
        number = raw.run(f"SELECT n FROM jobs WHERE id = x'{job_id.replace('-', '')}'")[0][0]  # noqa: S608 - our own
        raw.run(f"DELETE FROM events WHERE job <> {number}")  # noqa: S608
        raw.run(f"DELETE FROM jobs WHERE n <> {number}")  # noqa: S608
        raw.commit()
