"""On PostgreSQL events become visible in the order of commits, which no number that they carry tells."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.feed.reading import Reader, Transaction
from tests.places import Place

from leftfold import Engine
from leftfold.testing.postgres import OwnServer


@pytest.fixture
def engine(on_postgres: Place) -> Iterator[Engine]:
    with on_postgres.open() as engine:
        yield engine


def test_what_is_not_committed_is_not_given_and_comes_once_it_is(on_postgres: Place, engine: Engine) -> None:
    reader = Reader(engine)
    with Transaction(on_postgres, engine) as late:
        late.enqueue()
        others = [engine.enqueue("work").job_id for _ in range(3)]
        assert [job_id for job_id, _ in reader.drain()] == others
        late.commit()
        assert reader.drain() == [(late.jobs[0], 1)]
    reader.check()


def test_nobody_waits_for_a_transaction_that_is_left_open(on_postgres: Place, engine: Engine) -> None:
    reader = Reader(engine)
    with Transaction(on_postgres, engine) as forgotten, Transaction(on_postgres, engine) as another:
        forgotten.take_number()
        another.enqueue()
        for _ in range(20):
            job_id = engine.enqueue("work").job_id
            assert reader.drain() == [(job_id, 1)]
        forgotten.enqueue(3)
        another.commit()
        forgotten.commit()
    reader.drain(limit=2)
    reader.check()


def test_transactions_that_commit_in_the_other_order_are_both_given(on_postgres: Place, engine: Engine) -> None:
    reader = Reader(engine)
    with Transaction(on_postgres, engine) as first, Transaction(on_postgres, engine) as second:
        assert first.take_number() < second.take_number()
        second.enqueue()
        second.commit()
        assert reader.drain() == [(second.jobs[0], 1)]
        first.enqueue()
        first.commit()
        assert reader.drain() == [(first.jobs[0], 1)]
    reader.check()


def test_what_is_rolled_back_never_happened(on_postgres: Place, engine: Engine) -> None:
    reader = Reader(engine)
    engine.enqueue("work")
    with Transaction(on_postgres, engine) as undone:
        undone.enqueue(3)
        reader.drain()
        undone.rollback()
        undone.enqueue(2)
        engine.enqueue("work")
        reader.drain()
        undone.commit()
    reader.drain()
    reader.check()
    assert len(reader.got) == 4


def test_a_savepoint_that_is_rolled_back_takes_only_its_own(on_postgres: Place, engine: Engine) -> None:
    reader = Reader(engine)
    with Transaction(on_postgres, engine) as half:
        half.enqueue()
        half.connection.execute("SAVEPOINT mine")
        half.enqueue(2)
        half.connection.execute("ROLLBACK TO mine")
        half.enqueue()
        reader.page()
        half.commit()
    assert [job_id for job_id, _ in reader.drain()] == [half.jobs[0], half.jobs[-1]]
    reader.check()


@pytest.mark.parametrize("limit", [1, 2, 500])
def test_an_event_of_an_earlier_transaction_comes_behind_the_one_that_it_follows(
    on_postgres: Place, engine: Engine, limit: int
) -> None:
    reader = Reader(engine)
    with Transaction(on_postgres, engine) as early:
        number = early.take_number()
        job_id = engine.enqueue("work").job_id  # a later transaction
        early.signal(job_id, "approved")  # the job's second event, in the earlier one
        early.commit()
    with psycopg.connect(on_postgres.url) as connection:
        sql = f'SELECT version, xid = %s FROM "{on_postgres.schema}".events ORDER BY xid'  # noqa: S608 - our own
        assert connection.execute(sql.encode(), (number,)).fetchall() == [(2, True), (1, False)]
    reader.drain(limit)
    assert reader.got == [(job_id, 1), (job_id, 2)]


def test_a_job_goes_on_in_a_transaction_that_was_open_when_its_beginning_was_given(
    on_postgres: Place, engine: Engine
) -> None:
    reader = Reader(engine)
    with Transaction(on_postgres, engine) as early:
        early.take_number()
        job_id = engine.enqueue("work").job_id
        reader.drain()
        early.signal(job_id, "one")
        reader.page()
        early.commit()
        engine.signal(job_id, "two")
    assert reader.drain(limit=1) == [(job_id, 2), (job_id, 3)]
    reader.check()


def test_what_commits_while_a_page_is_read_waits_for_the_next_target(on_postgres: Place, engine: Engine) -> None:
    """In the middle of a stretch of pages the target stays: what comes meanwhile comes behind it, once."""
    reader = Reader(engine)
    with Transaction(on_postgres, engine) as late:
        late.enqueue()
        before = [engine.enqueue("work").job_id for _ in range(6)]
        late.enqueue()
        assert [job_id for job_id, _ in reader.page(limit=2)] == before[:2]
        late.commit()  # one of its events is older than those that were given, and one is newer
        after = engine.enqueue("work").job_id
        assert [job_id for job_id, _ in reader.page(limit=4)] == before[2:]
        assert [job_id for job_id, _ in reader.drain(limit=2)] == [*late.jobs, after]
    reader.check()


def test_who_starts_now_gets_what_was_open_then(on_postgres: Place, engine: Engine) -> None:
    engine.enqueue("before")
    with Transaction(on_postgres, engine) as late:
        late.enqueue()
        engine.enqueue("before")  # a later transaction, that is committed by then
        assert engine.feed("reader", start="now").records == ()
        late.commit()
        reader = Reader(engine)
        assert reader.drain() == [(late.jobs[0], 1)]


# --- transactions that outlive their connection -----------------------------------------------------------------------


def test_a_prepared_transaction_holds_nobody_up_and_is_not_missed(prepared_place: Place) -> None:
    with prepared_place.open() as engine:
        reader = Reader(engine)
        with Transaction(prepared_place, engine) as prepared, Transaction(prepared_place, engine) as undone:
            prepared.enqueue(2)
            prepared.connection.execute("PREPARE TRANSACTION 'kept'")
            undone.enqueue(2)
            undone.connection.execute("PREPARE TRANSACTION 'undone'")
            for _ in range(5):
                job_id = engine.enqueue("work").job_id
                assert reader.drain() == [(job_id, 1)]
            with psycopg.connect(prepared_place.url, autocommit=True) as hand:
                hand.execute("COMMIT PREPARED 'kept'")
                hand.execute("ROLLBACK PREPARED 'undone'")
            assert [job_id for job_id, _ in reader.drain()] == prepared.jobs
        reader.check()


def test_a_crash_of_the_server_loses_no_place_and_no_prepared_transaction(
    preparing: OwnServer, prepared_place: Place
) -> None:
    with prepared_place.open() as engine:
        reader = Reader(engine)
        with Transaction(prepared_place, engine) as prepared, Transaction(prepared_place, engine) as lost:
            prepared.enqueue()
            prepared.connection.execute("PREPARE TRANSACTION 'kept'")
            lost.enqueue()
            for _ in range(4):
                engine.enqueue("work")
            reader.page(limit=3)
            # What was told to be committed has to be there: this server acknowledges before it writes.
            with psycopg.connect(prepared_place.url, autocommit=True) as hand:
                hand.execute("CHECKPOINT")
            preparing.kill()
    preparing.start()
    with prepared_place.open() as engine:
        again = Reader(engine)
        again.got = reader.got
        again.drain(limit=1)
        engine.enqueue("work")
        with psycopg.connect(prepared_place.url, autocommit=True) as hand:
            hand.execute("COMMIT PREPARED 'kept'")
        again.drain(limit=1)
        again.check()
        assert len(again.got) == 6
