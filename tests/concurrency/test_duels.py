"""Two commands on one job at the same moment: exactly one order happened, and both orders can."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.concurrency.crowd import Crowd, outcome, rounds
from tests.places import Place, logs_of

from leftfold import Actor, Claim, Engine, Receipt
from leftfold.core.errors import JobEndedError, LeaseConflictError, LeftfoldError, NotDueError, RefusedError
from leftfold.core.lifecycle import Who
from leftfold.testing.clock import FakeClock

KEEPER = Actor(who=Who.KEEPER, name="keeper")
LEAST, MOST = 25, 400


def duels(
    crowd: Crowd, prepare: Callable[[], Any], one: Callable[[Any], Any], other: Callable[[Any], Any]
) -> Iterator[tuple[Any, Any, Any]]:
    """Give (what it was about, what became of the one, of the other), each of them beginning first in turn."""
    for n in range(rounds(MOST)):
        subject = prepare()
        if n % 2:
            first, second = crowd.duel(partial(one, subject), partial(other, subject))
        else:
            second, first = crowd.duel(partial(other, subject), partial(one, subject))
        yield subject, first, second


def enough(seen: set[str], orders: set[str], played: int) -> bool:
    assert seen <= orders
    return seen == orders and played >= rounds(LEAST)


def events(engine: Engine, job_id: str) -> list[str]:
    return [record.event.wire for record in engine.history(job_id)]


def running(engine: Engine, owner: str = "worker") -> Claim:
    job = engine.enqueue("work")
    (claim,) = engine.claim(owner, job_id=job.job_id)
    engine.start(claim)
    return claim


def test_an_owners_heartbeat_never_stands_in_the_way_of_its_own_completion(place: Place) -> None:
    with place.open(pool_size=8) as engine, place.open(pool_size=8) as heart, Crowd(2) as crowd:

        def beat(claim: Claim) -> int:
            beats = 0
            while isinstance(told := outcome(heart.heartbeat, claim), Receipt):
                beats += 1
            assert isinstance(told, LeaseConflictError)
            assert engine.get(claim.job_id).state == "succeeded", "the lease was lost to nobody but the owner"
            return beats

        for _ in range(rounds(60)):
            claim = running(engine)
            beats, done = crowd.duel(partial(beat, claim), partial(engine.complete, claim, "done"))
            assert isinstance(done, Receipt), done
            assert isinstance(beats, int), beats
            job = engine.get(claim.job_id)
            assert (job.state, job.version, job.renewals) == ("succeeded", 4, beats)
        logs_of(engine)


def test_an_owner_that_notes_beats_and_starts_at_once_is_never_told_that_it_is_not_the_owner(place: Place) -> None:
    with place.open(pool_size=8) as engine, Crowd(4) as crowd:
        actions: tuple[Callable[[Claim], Receipt], ...] = (engine.start, engine.heartbeat)
        for _ in range(rounds(20)):
            (claim,) = engine.claim("worker", job_id=engine.enqueue("work").job_id)
            told = crowd.each(lambda who, claim: [actions[who % 2](claim) for _ in range(5)], claim)
            assert not [each for each in told if isinstance(each, LeftfoldError)]
            job = engine.get(claim.job_id)
            assert (job.state, job.version, job.renewals) == ("running", 3, 10)


def test_of_a_hard_cancel_and_a_completion_one_ends_the_job(place: Place) -> None:
    orders = {"succeeded", "cancelled"}
    seen: set[str] = set()
    with place.open() as engine, place.open() as rival, Crowd(2) as crowd:
        fights = duels(
            crowd, lambda: running(engine), engine.complete, lambda claim: rival.cancel(claim.job_id, mode="hard")
        )
        for played, (claim, done, cancelled) in enumerate(fights):
            state = engine.get(claim.job_id).state
            if state == "succeeded":
                assert (done.state, type(cancelled)) == ("succeeded", JobEndedError)
            else:
                assert (type(done), cancelled.state) == (LeaseConflictError, "cancelled")
            assert events(engine, claim.job_id) == ["enqueued", "claimed", "started", state]
            seen.add(state)
            if enough(seen, orders, played):
                break
        assert seen == orders
        logs_of(engine)


def test_a_soft_cancel_is_either_on_the_log_before_the_completion_or_refused(place: Place) -> None:
    orders = {"asked", "refused"}
    seen: set[str] = set()
    with place.open() as engine, place.open() as rival, Crowd(2) as crowd:
        fights = duels(crowd, lambda: running(engine), engine.complete, lambda claim: rival.cancel(claim.job_id))
        for played, (claim, done, asked) in enumerate(fights):
            assert done.state == "succeeded", "success wins"
            refused = isinstance(asked, JobEndedError)
            assert refused or asked.cancel_requested
            assert events(engine, claim.job_id)[3:] == (["succeeded"] if refused else ["cancel_requested", "succeeded"])
            seen.add("refused" if refused else "asked")
            if enough(seen, orders, played):
                break
        assert seen == orders


def test_a_job_is_either_cancelled_or_claimed(place: Place) -> None:
    orders = {"cancelled", "claimed"}
    seen: set[str] = set()
    with place.open() as engine, place.open() as rival, Crowd(2) as crowd:
        fights = duels(
            crowd,
            lambda: engine.enqueue("work"),
            lambda _: engine.claim("worker"),
            lambda job: rival.cancel(job.job_id, mode="soft"),
        )
        for played, (job, claims, told) in enumerate(fights):
            if claims:
                assert [claim.job_id for claim in claims] == [job.job_id]
                assert told.cancel_requested
                assert events(engine, job.job_id) == ["enqueued", "claimed", "cancel_requested"]
                engine.cancel_claim(claims[0])
            else:
                assert told.state == "cancelled"
                assert events(engine, job.job_id) == ["enqueued", "cancelled"], "a cancelled job is never claimed"
            seen.add("claimed" if claims else "cancelled")
            if enough(seen, orders, played):
                break
        assert seen == orders


def test_a_lease_at_its_end_is_either_renewed_or_taken_away(place: Place) -> None:
    orders = {"renewed", "stalled"}
    seen: set[str] = set()
    clock = FakeClock()
    with place.open(clock=clock) as engine, place.open(clock=clock) as rival, Crowd(2) as crowd:

        def at_its_end() -> Claim:
            claim = running(engine)
            clock.now = claim.until  # from this very moment on a keeper may take it
            return claim

        fights = duels(crowd, at_its_end, engine.heartbeat, lambda claim: rival.stall(claim.job_id, by=KEEPER))
        for played, (claim, beaten, taken) in enumerate(fights):
            job = engine.get(claim.job_id)
            if isinstance(beaten, Receipt):
                assert isinstance(taken, NotDueError)
                assert (job.state, job.attempt, job.renewals) == ("running", 1, 1)
                assert job.lease is not None
                assert job.lease.until == beaten.until == clock.now + job.policy.lease
            else:
                assert isinstance(beaten, LeaseConflictError)
                assert taken.state == "queued"
                assert events(engine, claim.job_id)[3:] == ["stalled", "requeued"]
                assert job.renewals == 0, "a lease that was taken away is not revived"
            seen.add("renewed" if isinstance(beaten, Receipt) else "stalled")
            if enough(seen, orders, played):
                break
        assert seen == orders
        logs_of(engine)


def test_of_two_keepers_one_takes_the_job_away(place: Place) -> None:
    clock = FakeClock()
    with place.open(pool_size=8, clock=clock) as engine, Crowd(8) as crowd:
        for _ in range(rounds(20)):
            claim = running(engine)
            clock.now = claim.until
            told = crowd.same(engine.stall, claim.job_id, by=KEEPER)
            assert len([each for each in told if isinstance(each, Receipt)]) == 1
            assert len([each for each in told if isinstance(each, RefusedError)]) == 7
            assert events(engine, claim.job_id)[3:] == ["stalled", "requeued"]
            engine.cancel(claim.job_id)


def test_a_signal_and_the_end_of_its_wait_resume_the_job_once(place: Place) -> None:
    orders = {"signal", "expiry"}
    seen: set[str] = set()
    clock = FakeClock()
    with place.open(clock=clock) as engine, place.open(clock=clock) as rival, Crowd(2) as crowd:

        def waiting() -> Claim:
            claim = running(engine)
            engine.suspend(claim, "answer", deadline=10)
            clock.advance(10)
            return claim

        fights = duels(
            crowd,
            waiting,
            lambda claim: engine.signal(claim.job_id, "answer", 42),
            lambda claim: rival.expire(claim.job_id),
        )
        for played, (claim, signalled, expired) in enumerate(fights):
            assert isinstance(signalled, Receipt) != isinstance(expired, Receipt)
            assert events(engine, claim.job_id)[3:] == ["suspended", "resumed"]
            assert engine.get(claim.job_id).answers["answer"].expired == isinstance(expired, Receipt)
            seen.add("signal" if isinstance(signalled, Receipt) else "expiry")
            engine.cancel(claim.job_id)
            if enough(seen, orders, played):
                break
        assert seen == orders


def test_a_signal_is_never_lost_to_a_wait_that_begins(place: Place) -> None:
    orders = {"before", "after"}
    seen: set[str] = set()
    with place.open() as engine, place.open() as rival, Crowd(2) as crowd:
        fights = duels(
            crowd,
            lambda: running(engine),
            lambda claim: engine.suspend(claim, "answer"),
            lambda claim: rival.signal(claim.job_id, "answer", 42),
        )
        for played, (claim, suspended, signalled) in enumerate(fights):
            assert isinstance(suspended, Receipt)
            assert isinstance(signalled, Receipt)
            job, before = engine.get(claim.job_id), not suspended.changed
            assert job.state == ("running" if before else "queued"), "the job goes on either way"
            assert events(engine, claim.job_id)[3:] == (["signalled"] if before else ["parked", "resumed"])
            seen.add("before" if before else "after")
            engine.cancel(claim.job_id, mode="hard")
            if enough(seen, orders, played):
                break
        assert seen == orders
