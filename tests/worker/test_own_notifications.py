"""A job that comes alone wakes the workers with its own commit: sooner than anybody else could."""

import itertools
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from tests.places import Place

import leftfold
from leftfold.store.postgres import bell
from leftfold.store.postgres.bell import Ringer, channel_of

AT_ONCE = 5.0


@pytest.fixture
def listening(on_postgres: Place) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(on_postgres.url, autocommit=True) as connection:
        connection.execute(f'LISTEN "{channel_of(on_postgres.schema)}"'.encode())
        yield connection


@pytest.fixture
def on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody ring but the transactions themselves."""
    monkeypatch.setattr(Ringer, "ring", lambda _: None)


def opened(place: Place) -> leftfold.Engine:
    return leftfold.open(place.url, schema=place.schema, wake=True)


@pytest.mark.parametrize("key", [None, "key"])
def test_a_job_that_comes_alone_brings_its_notification(
    on_postgres: Place, listening: psycopg.Connection[object], on_its_own: None, key: str | None
) -> None:
    with opened(on_postgres) as engine:
        engine.enqueue("work", key=key)
    assert len(list(listening.notifies(timeout=AT_ONCE, stop_after=1))) == 1


def test_where_the_key_is_taken_there_is_nothing_to_tell(
    on_postgres: Place, listening: psycopg.Connection[object], on_its_own: None
) -> None:
    with opened(on_postgres) as engine, opened(on_postgres) as other:  # which has not rung yet
        engine.enqueue("work", key="key")
        assert not other.enqueue("work", key="key").changed
    assert len(list(listening.notifies(timeout=AT_ONCE, stop_after=1))) == 1
    assert list(listening.notifies(timeout=0)) == []


def test_a_batch_brings_one_and_is_heard_of_when_it_is_committed(
    on_postgres: Place, listening: psycopg.Connection[object], on_its_own: None
) -> None:
    with opened(on_postgres) as engine:
        engine.enqueue_many([leftfold.NewJob("work")] * 1000)  # in parts
        assert len(list(listening.notifies(timeout=AT_ONCE, stop_after=1))) == 1
        assert sum(count.jobs for count in engine.counts()) == 1000


def test_where_jobs_come_all_the_time_the_pauses_between_them_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    ringer = Ringer(lambda: pytest.fail("nobody rings"), "schema")
    turns = []
    for _ in range(2000):  # a job every millisecond
        if ringer.turn():
            turns.append(now)
        now += 0.001
    gaps = [round(later - sooner, 3) for sooner, later in itertools.pairwise(turns)]
    assert gaps[:5] == sorted(gaps[:5])
    assert (gaps[0], gaps[-1]) == (bell._SHORT, bell._RARELY)
    now += 1
    assert [ringer.turn() is None, ringer.turn() is None] == [False, True]
    now += bell._SHORT + 0.001
    assert ringer.turn(), "behind a silence it begins anew"


def test_who_has_no_turn_is_rung_for(
    on_postgres: Place, listening: psycopg.Connection[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ringer, "turn", lambda _: None)
    with opened(on_postgres) as engine:
        engine.enqueue("work")
        assert len(list(listening.notifies(timeout=AT_ONCE, stop_after=1))) == 1


def test_a_notification_that_the_server_refuses_does_not_refuse_the_job(on_postgres: Place, on_its_own: None) -> None:
    """As it does when somebody does not fetch his, until the queue of all is full."""
    refuse_once = """
        CREATE SEQUENCE {schema}.tries;
        CREATE FUNCTION {schema}.refuse_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('{schema}.tries') = 1 THEN
                RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000';
            END IF;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER refuse_once AFTER INSERT ON {schema}.jobs DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_once();
    """
    with opened(on_postgres) as engine, psycopg.connect(on_postgres.url, autocommit=True) as admin:
        admin.execute(refuse_once.format(schema=on_postgres.schema).encode())
        made = engine.enqueue("work").job_id
        assert [job.id for job in engine.list().jobs] == [made]
        assert engine.verify().is_clean
        engine.enqueue("work")  # nobody rings so for a while
        assert admin.execute(f"SELECT last_value FROM {on_postgres.schema}.tries".encode()).fetchall() == [(3,)]  # noqa: S608 - our own


def test_where_no_thread_can_be_had_the_job_is_told_as_made_and_the_next_one_rings(
    on_postgres: Place, listening: psycopg.Connection[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ringer, "turn", lambda _: None)
    with opened(on_postgres) as engine:
        with monkeypatch.context() as scarce:
            scarce.setattr(threading.Thread, "start", _no_thread)
            assert engine.enqueue("work").changed
        assert list(listening.notifies(timeout=0)) == []
        engine.enqueue("work")
        assert len(list(listening.notifies(timeout=AT_ONCE, stop_after=1))) == 1


def _no_thread(_: object) -> None:
    raise RuntimeError("can't start new thread")
