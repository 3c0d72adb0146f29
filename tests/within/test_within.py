"""A job that is made within the caller's transaction shares its fate, whatever hand holds the connection."""

from collections.abc import Iterator

import pytest
from tests.places import Place, logs_of
from tests.within.hands import ALL, NO_TRACE, Hand, held, orders, traces

from leftfold import Engine, NewJob
from leftfold.core.errors import KeyTakenError, LimitExceededError, RequestReusedError, ValidationError


@pytest.fixture(params=ALL, ids=" ".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture
def place(kind: tuple[str, str], request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"on_{kind[0]}")
    return found


@pytest.fixture
def hand(kind: tuple[str, str], place: Place) -> Iterator[Hand]:
    with held(kind[1], place) as hand:
        yield hand


@pytest.fixture
def engine(place: Place) -> Iterator[Engine]:
    with place.open() as engine:
        yield engine


def test_a_commit_makes_the_job_claimable_and_not_before(engine: Engine, hand: Hand) -> None:
    receipt = engine.enqueue("work", {"n": 1}, within=hand.within)
    assert engine.list().jobs == ()
    hand.commit()
    (claim,) = engine.claim("worker")
    assert (claim.job_id, claim.payload) == (receipt.job_id, {"n": 1})
    assert logs_of(engine) == {receipt.job_id: ["enqueued", "claimed"]}


def test_a_rollback_leaves_no_trace(engine: Engine, hand: Hand, place: Place) -> None:
    engine.enqueue("work", key="key", request_id="ask", within=hand.within)
    engine.enqueue_many([NewJob("work"), NewJob("other")], within=hand.within)
    hand.rollback()
    assert traces(place) == NO_TRACE
    assert engine.counts() == []
    assert engine.enqueue("work", key="key", request_id="ask").changed, "neither the key nor the request is taken"


def test_a_rollback_behind_a_statement_of_ones_own_leaves_no_trace(engine: Engine, hand: Hand, place: Place) -> None:
    hand.run("INSERT INTO orders VALUES (1)")
    engine.enqueue("work", key="key", request_id="ask", within=hand.within)
    hand.rollback()
    assert traces(place) == NO_TRACE
    assert orders(place) == []


def test_to_leave_without_a_commit_leaves_no_trace(engine: Engine, hand: Hand, place: Place) -> None:
    engine.enqueue("work", request_id="ask", within=hand.within)
    hand.close()
    assert traces(place) == NO_TRACE


def test_two_jobs_and_own_rows_are_one_transaction(engine: Engine, hand: Hand, place: Place) -> None:
    hand.run("INSERT INTO orders VALUES (1)")
    first = engine.enqueue("work", request_id="ask", within=hand.within)
    hand.run("INSERT INTO orders VALUES (2)")
    second = engine.enqueue("work", after=[first.job_id], within=hand.within)
    third = engine.receive("work", within=hand.within)
    assert traces(place) == NO_TRACE
    assert orders(place) == []
    hand.commit()
    assert orders(place) == [1, 2]
    assert logs_of(engine) == {
        first.job_id: ["enqueued"],
        second.job_id: ["enqueued", "suspended"],
        third.job_id: ["received"],
    }
    assert engine.enqueue("work", request_id="ask").job_id == first.job_id


def test_a_refused_job_leaves_the_transaction_as_it_was(engine: Engine, hand: Hand, place: Place) -> None:
    holder = engine.enqueue("work", key="key")
    engine.enqueue("work", request_id="ask")
    before = traces(place)
    hand.run("INSERT INTO orders VALUES (1)")
    with pytest.raises(KeyTakenError, match=holder.job_id):
        engine.enqueue("work", key="key", on_conflict="raise", within=hand.within)
    batch = [NewJob("work"), NewJob("work", key="key")]
    with pytest.raises(KeyTakenError):
        engine.enqueue_many(batch, on_conflict="raise", request_id="batch", within=hand.within)
    with pytest.raises(RequestReusedError):
        engine.enqueue("other", request_id="ask", within=hand.within)
    with pytest.raises(ValidationError):
        engine.enqueue("no name at all", within=hand.within)
    with pytest.raises(LimitExceededError):
        engine.enqueue("work", "x" * 300_000, within=hand.within)
    hand.run("INSERT INTO orders VALUES (2)")
    hand.commit()
    assert orders(place) == [1, 2]
    assert traces(place) == before
    logs_of(engine)


def test_a_refusal_as_the_first_thing_in_a_transaction_leaves_no_trace(
    engine: Engine, hand: Hand, place: Place
) -> None:
    engine.enqueue("work", key="key")
    before = traces(place)
    batch = [NewJob("work"), NewJob("work", key="key")]
    with pytest.raises(KeyTakenError):
        engine.enqueue_many(batch, on_conflict="raise", request_id="ask", within=hand.within)
    hand.run("INSERT INTO orders VALUES (1)")
    hand.commit()
    assert orders(place) == [1]
    assert traces(place) == before


def test_what_to_do_with_a_taken_key_is_asked_here_as_well(engine: Engine, hand: Hand) -> None:
    holder = engine.enqueue("work", key="key")
    assert engine.enqueue("work", key="key", within=hand.within).job_id == holder.job_id
    assert engine.enqueue("work", key="key", on_conflict="skip", within=hand.within) is None
    new = engine.enqueue("work", key="key", on_conflict="replace", within=hand.within)
    again = engine.enqueue("work", key="key", within=hand.within)
    assert (again.job_id, again.changed) == (new.job_id, False), "the transaction sees what it has written"
    hand.commit()
    assert logs_of(engine) == {holder.job_id: ["enqueued", "cancelled"], new.job_id: ["enqueued"]}


def test_a_request_is_remembered_with_the_transaction(engine: Engine, hand: Hand) -> None:
    first = engine.enqueue("work", request_id="ask", within=hand.within)
    assert engine.enqueue("work", request_id="ask", within=hand.within) == first
    hand.commit()
    assert engine.enqueue("work", request_id="ask") == first
    assert len(logs_of(engine)) == 1


def test_a_savepoint_of_the_callers_takes_the_job_with_it(engine: Engine, hand: Hand, place: Place) -> None:
    hand.run("INSERT INTO orders VALUES (1)")
    kept = engine.enqueue("work", within=hand.within)
    hand.run("SAVEPOINT mine")
    engine.enqueue("work", request_id="ask", within=hand.within)
    hand.run("ROLLBACK TO SAVEPOINT mine")
    last = engine.enqueue("work", within=hand.within)
    hand.commit()
    assert set(logs_of(engine)) == {kept.job_id, last.job_id}
    assert traces(place)["requests"] == 0


def test_one_connection_serves_many_transactions(engine: Engine, hand: Hand, kind: tuple[str, str]) -> None:
    made = []
    for n in range(6):
        if n and kind[1] == "sqlite3 by hand":
            hand.run("BEGIN")
        receipt = engine.enqueue("work", n, within=hand.within)
        if n % 2:
            hand.rollback()
        else:
            hand.commit()
            made.append(receipt.job_id)
    assert sorted(logs_of(engine)) == sorted(made)


def test_a_large_batch_goes_in_one_transaction(engine: Engine, hand: Hand) -> None:
    engine.enqueue_many((NewJob("work", n, key=f"key-{n}") for n in range(500)), within=hand.within)
    hand.commit()
    assert len(logs_of(engine)) == 500
