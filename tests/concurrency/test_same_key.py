"""One key, wanted by many at once: one live job has it, and everybody is told as it was asked."""

from collections import Counter
from functools import partial
from itertools import pairwise
from multiprocessing.synchronize import Barrier

import pytest
from tests.concurrency.crowd import DEADLINE, Crowd, of_kind, outcome, processes, rounds
from tests.places import Place, logs_of

from leftfold import Engine, NewJob, Receipt
from leftfold.core.errors import KeyTakenError, LeftfoldError
from leftfold.store.creating import OnConflict


def live(engine: Engine, key: str) -> list[str]:
    return [job.id for job in engine.list(key=key).jobs if job.state not in {"cancelled", "succeeded"}]


def test_32_who_take_what_is_there_all_get_the_same_job(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(10)):
            answers = of_kind(crowd.same(engine.enqueue, "work", key=f"key-{n}"), Receipt)
            assert {answer.job_id for answer in answers} == set(live(engine, f"key-{n}"))
            assert Counter(answer.changed for answer in answers) == {True: 1, False: 31}
        assert len(logs_of(engine)) == rounds(10)


def test_of_32_who_insist_on_being_first_one_is(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(10)):
            answers = crowd.same(engine.enqueue, "work", key=f"key-{n}", on_conflict="raise")
            (winner,) = of_kind(answers, Receipt)
            refusals = of_kind(answers, KeyTakenError)
            assert len(refusals) == 31
            assert all(winner.job_id in str(refusal) for refusal in refusals)
        assert len(logs_of(engine)) == rounds(10)


def test_a_refusal_is_not_its_own_cause(place: Place) -> None:
    """Whoever follows the causes of an error, as loggers do, must come to an end."""
    with place.open() as engine:
        engine.enqueue("work", key="key")
        refusal = outcome(engine.enqueue, "work", key="key", on_conflict="raise")
        assert isinstance(refusal, KeyTakenError)
        assert refusal.__cause__ is not refusal


def test_of_32_who_would_rather_not_31_do_not(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(10)):
            answers = crowd.same(engine.enqueue, "work", key=f"key-{n}", on_conflict="skip")
            assert Counter(map(type, answers)) == {Receipt: 1, type(None): 31}
        assert len(logs_of(engine)) == rounds(10)


def test_of_32_who_replace_each_other_the_last_one_stays(place: Place) -> None:
    with place.open(pool_size=32) as engine, Crowd(32) as crowd:
        for n in range(rounds(3)):
            answers = crowd.same(engine.enqueue, "work", key=f"key-{n}", on_conflict="replace")
            assert len({answer.job_id for answer in of_kind(answers, Receipt)}) == 32, answers
            assert len(live(engine, f"key-{n}")) == 1
        logs = Counter(map(tuple, logs_of(engine).values()))
        assert logs == {("enqueued",): rounds(3), ("enqueued", "cancelled"): 31 * rounds(3)}


def test_a_job_that_is_claimed_meanwhile_is_not_replaced(place: Place) -> None:
    seen = set()
    with place.open(pool_size=4) as engine, Crowd(2) as crowd:
        for n in range(rounds(200)):
            old = engine.enqueue("work", key=f"key-{n}", queue=f"queue-{n}")
            claiming = partial(engine.claim, "worker", queues=[f"queue-{n}"])
            replacing = partial(engine.enqueue, "work", key=f"key-{n}", queue=f"queue-{n}", on_conflict="replace")
            if n % 2:
                claims, new = crowd.duel(claiming, replacing)
            else:
                new, claims = crowd.duel(replacing, claiming)
            assert isinstance(claims, list)
            events = [record.event.wire for record in engine.history(old.job_id)]
            if isinstance(new, KeyTakenError):
                assert events == ["enqueued", "claimed"]
                assert [claim.job_id for claim in claims] == [old.job_id]
            else:
                assert isinstance(new, Receipt)
                assert events == ["enqueued", "cancelled"]
                assert [claim.job_id for claim in claims] in ([], [new.job_id])
            seen.add(type(new))
            if len(seen) == 2 and n >= 20:
                break
    assert seen == {KeyTakenError, Receipt}, "both were seen"


@pytest.mark.parametrize("on_conflict", ["return", "skip", "replace"])
def test_batches_in_opposite_order_all_come_to_an_end(place: Place, on_conflict: OnConflict) -> None:
    """Two batches that take the same keys from both ends wait for each other; one of them gives way and tries again."""
    if not place.is_file:  # else a second passes each time, before the server looks
        place = place._replace(url=f"{place.url}?options=-c%20deadlock_timeout%3D10ms")
    with place.open(pool_size=4) as engine, Crowd(4) as crowd:

        def act(who: int, keys: list[str]) -> list[Receipt | None]:
            jobs = [NewJob("work", key=key) for key in (keys if who % 2 else reversed(keys))]
            return engine.enqueue_many(jobs, on_conflict=on_conflict)

        for n in range(rounds(5)):
            keys = [f"{n}-{m}" for m in range(30)]
            answers = crowd.each(act, keys)
            assert [type(answer).__name__ for answer in answers] == ["list"] * 4, answers
            assert all(len(live(engine, key)) == 1 for key in keys)
        logs_of(engine)


def test_owners_batches_in_opposite_order_do_not_stop_each_other(place: Place) -> None:
    with place.open(pool_size=8) as engine, Crowd(8) as crowd:
        engine.enqueue_many(NewJob("work") for _ in range(60))
        claims = engine.claim("worker", limit=60)
        assert not of_kind(engine.start_many(claims), LeftfoldError)

        def act(who: int) -> list[object]:
            order = claims if who % 2 else claims[::-1]
            return [*engine.heartbeat_many(order), *engine.heartbeat_many(order[::-1])]

        for _ in range(rounds(10)):
            for answers in of_kind(crowd.each(act), list):
                assert len(of_kind(answers, Receipt)) == 120
        ended = crowd.each(
            lambda who: engine.complete_many((each, 1) for each in (claims if who % 2 else claims[::-1]))
        )
        assert all(len(of_kind(each, Receipt)) == 60 for each in of_kind(ended, list)), "a repetition is no conflict"
        assert set(map(tuple, logs_of(engine).values())) == {("enqueued", "claimed", "started", "succeeded")}


def test_a_key_goes_from_job_to_job_between_8_processes(on_sqlite: Place, library: str) -> None:
    told = processes(8, pass_the_key_on, on_sqlite, rounds(15))
    with on_sqlite.open() as engine:
        made = sorted(job_id for ids in told for job_id in ids)
        assert made == sorted(logs_of(engine))
        jobs = sorted((engine.get(job_id) for job_id in made), key=lambda job: (job.created_at, job.updated_at))
        for job, following in pairwise(jobs):
            assert job.updated_at <= following.created_at, "the key was free before the next one had it"


def pass_the_key_on(place: int, barrier: Barrier, where: Place, repeated: int) -> list[str]:
    made: list[str] = []
    with where.open() as engine:
        barrier.wait(DEADLINE)
        while len(made) < repeated:
            answer = outcome(engine.enqueue, "work", key="the-key", on_conflict="raise")
            if isinstance(answer, Receipt):
                made.append(answer.job_id)
                (claim,) = engine.claim(f"worker-{place}", job_id=answer.job_id)
                engine.start(claim)
                engine.complete(claim)
    return made
