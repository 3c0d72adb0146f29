"""Several keepers at once: what has run out is taken once, and nobody waits for another."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.concurrency.crowd import Crowd
from tests.places import Place, file_in, logs_of
from tests.verify.planting import Shell

from leftfold import Engine, NewJob
from leftfold.core.errors import BrokenChainError
from leftfold.core.lifecycle import State
from leftfold.store.ops import Outcome
from leftfold.store.replies import Claim, Receipt
from leftfold.testing.clock import FakeClock

KEEPERS = 4


@pytest.fixture
def keepers(place: Place, clock: FakeClock, engine: Engine) -> Iterator[list[Engine]]:
    """Engines that know nothing of each other."""
    opened = [place.open(clock=clock) for _ in range(KEEPERS)]
    yield opened
    for each in opened:
        each.close()


def held(engine: Engine, count: int) -> list[Claim]:
    engine.enqueue_many([NewJob("work") for _ in range(count)])
    claims = engine.claim("worker", limit=count)
    engine.start_many(claims)
    return claims


def test_keepers_at_once_take_each_job_once_and_hear_no_refusal(
    engine: Engine, keepers: list[Engine], clock: FakeClock
) -> None:
    claims = held(engine, 60)
    for claim in claims[:20]:
        engine.suspend(claim, "approved", deadline=30)
    clock.advance(60)
    with Crowd(KEEPERS) as crowd:

        def keep(who: int) -> list[Outcome]:
            done: list[Outcome] = []
            while outcomes := keepers[who].reap(limit=7):
                done += outcomes
            return done

        outcomes = [each for done in crowd.each(keep) for each in (done if isinstance(done, list) else [done])]
    refused = [each for each in outcomes if not isinstance(each, Receipt)]
    assert refused == []
    # One that found all that was left in the hands of others has stopped; what they had is done by then.
    assert Counter(each.job_id for each in outcomes if isinstance(each, Receipt)) == {
        claim.job_id: 1 for claim in claims
    }
    ends = Counter(tuple(log[-2:]) for log in logs_of(engine).values())
    assert ends == {("suspended", "resumed"): 20, ("stalled", "requeued"): 40}


def test_a_keeper_passes_over_what_another_is_busy_with(on_postgres: Place, clock: FakeClock) -> None:
    # Who would wait for the other would wait for ever.
    impatient = on_postgres._replace(url=f"{on_postgres.url}?options=-c%20lock_timeout%3D2s")
    with impatient.open(clock=clock) as engine, psycopg.connect(on_postgres.url) as busy:
        first, second = held(engine, 2)
        clock.advance(60)
        lock = f'SELECT FROM "{on_postgres.schema}".jobs WHERE id = %s FOR UPDATE'
        busy.execute(lock.encode(), (first.job_id,))
        assert [each.job_id for each in engine.reap() if isinstance(each, Receipt)] == [second.job_id]
        busy.rollback()
        assert [each.job_id for each in engine.reap() if isinstance(each, Receipt)] == [first.job_id]


def test_owners_who_renew_while_keepers_look_are_left_alone(
    engine: Engine, keepers: list[Engine], clock: FakeClock
) -> None:
    claims = held(engine, 12)
    clock.advance(50)
    renewed, silent = claims[:6], claims[6:]
    engine.heartbeat_many(renewed)
    clock.advance(10)
    with Crowd(KEEPERS) as crowd:
        crowd.each(lambda who: engine.heartbeat_many(renewed) if who == 0 else keepers[who].reap())
    assert {engine.get(claim.job_id).state for claim in renewed} == {State.RUNNING}
    assert {engine.get(claim.job_id).state for claim in silent} == {State.QUEUED}
    assert all(isinstance(each, Receipt) for each in engine.complete_many((claim, None) for claim in renewed))


def test_whoever_was_asked_to_stop_ends_cancelled(engine: Engine, clock: FakeClock) -> None:
    asked, other = held(engine, 2)
    engine.cancel(asked.job_id, reason="enough")
    clock.advance(60)
    engine.reap()
    assert (engine.get(asked.job_id).state, engine.get(other.job_id).state) == (State.CANCELLED, State.QUEUED)


def test_a_job_whose_budget_is_used_up_is_set_aside(tmp_path: Path, clock: FakeClock) -> None:
    with file_in(tmp_path).open(clock=clock) as engine:
        (claim,) = held(engine, 1)
        for _ in range(100):
            clock.advance(3600)
            engine.reap()
            again = engine.claim("worker", job_id=claim.job_id) if not engine.get(claim.job_id).error else []
            if not again:
                break
            engine.start(again[0])
        assert engine.get(claim.job_id).state is State.DEAD_LETTERED
        clock.advance(3600)
        assert engine.reap() == []
        assert engine.verify().is_clean


def test_a_job_whose_log_cannot_be_read_stands_in_nobodys_way(engine: Engine, shell: Shell, clock: FakeClock) -> None:
    """It is overdue for ever: who left it as it is would find it first, again and again."""
    broken, *others = held(engine, 3)
    shell.edit(broken.job_id, 2, data='{"token":"x"}')
    clock.advance(600)
    told = [outcome for _ in range(4) for outcome in engine.reap(limit=1)]
    assert {each.job_id for each in told if isinstance(each, Receipt)} == {claim.job_id for claim in others}
    assert [type(each) for each in told if not isinstance(each, Receipt)] == [BrokenChainError]
    assert engine.is_frozen(broken.job_id)


def test_a_clock_that_jumps_behind_the_last_look_at_it_takes_nothing(engine: Engine, clock: FakeClock) -> None:
    (claim,) = held(engine, 1)
    began = engine.clock()
    clock.advance(59)
    seen = engine.clock()
    clock.advance(3600)
    assert engine.reap(watched=(began, seen)) == []
    (taken,) = engine.reap(watched=(began, seen + 1))
    assert isinstance(taken, Receipt)
    assert taken.job_id == claim.job_id


def test_what_had_run_out_when_the_watch_began_is_judged_a_lease_later(engine: Engine, clock: FakeClock) -> None:
    (claim,) = held(engine, 1)
    clock.advance(3600)
    began = engine.clock()
    clock.advance(59)
    assert engine.reap(watched=(began, engine.clock())) == []
    engine.heartbeat(claim)
    clock.advance(30)
    assert engine.reap(watched=(began, engine.clock())) == [], "its owner lives"
    assert engine.get(claim.job_id).state is State.RUNNING
