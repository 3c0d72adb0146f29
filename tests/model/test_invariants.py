"""Every invariant is able to fail: each is shown something that breaks it, and nothing else of it."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import Applied, apply
from leftfold.core.errors import JobEndedError, LeaseConflictError
from leftfold.core.job import Job, LastLease, Lease
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import State, Who
from leftfold.core.record import Record, encode
from leftfold.core.values import Answer, CancelMode, Failure, Spec, Wait, WaitFor
from leftfold.proof import duties, guards, invariants
from leftfold.proof.invariants import Step, Taken
from leftfold.proof.moves import CLIENT, KEEPER, OPERATOR, Move, owner
from leftfold.proof.world import Scope, World, beginning, identity

WORKER = c.Actor(who=Who.WORKER, name="worker0")
LEASE = Lease(owner="worker0", token="t", until=100)
ERROR = Failure(code="transient")
WAIT = Wait(until=WaitFor.SIGNAL, key="go", deadline=50)


def job(state: State, **fields: Any) -> Job:
    shapes: dict[State, dict[str, Any]] = {
        State.QUEUED: {"due": 0},
        State.RETRYING: {"due": 0, "error": ERROR},
        State.CLAIMED: {"lease": LEASE},
        State.RUNNING: {"lease": LEASE},
        State.WAITING: {"wait": WAIT},
        State.PARKED: {"wait": WAIT},
        State.SUCCEEDED: {"result": Raw(b"1")},
        State.FAILED: {"error": ERROR},
        State.DEAD_LETTERED: {"error": ERROR},
    }
    shape = shapes.get(state, {})
    return Job(
        id="job0", state=state, version=fields.pop("version", 5), spec=Spec(kind="k"), created_at=0,
        updated_at=fields.pop("updated_at", 10), **{**shape, **fields},
    )  # fmt: skip


def record(event: e.AnyEvent, who: Who = Who.OWNER, version: int = 6, at: int = 10) -> Record:
    return Record(job_id="job0", version=version, at=at, who=who, actor="x", event=event, data=encode(event))


def step(before: Job | None, event: e.AnyEvent, after: Job, who: Who = Who.OWNER, **how: int) -> Step:
    return Step(before, record(event, who, **how), replace(after, version=6))


def taken(before: Job | None, command: c.AnyCommand, after: Job, *steps: Step, now: int = 10) -> Taken:
    return Taken(before, command, Applied(after, tuple(each.record for each in steps)), now, steps)


COMPLETE = c.Complete(by=owner(0, 0, 1))
STARTED = step(job(State.CLAIMED, attempt=1), e.Started(), job(State.RUNNING, attempt=1))
LETTER = e.DeadLettered(
    error=ERROR, reason_code=Reason.TIMEOUT, stage=Stage.EXEC, last_error=ERROR, attempts=1, last_owner="worker0",
    last_lease_expires_at=5, correlation_id=None,
)  # fmt: skip
RUNNING, QUEUED = job(State.RUNNING, attempt=1), job(State.QUEUED, attempt=1)
DEAD = job(State.DEAD_LETTERED, attempt=1)

BAD_MOVES: list[tuple[Callable[[Taken], str | None], Taken]] = [
    (invariants.shapes, taken(RUNNING, COMPLETE, job(State.SUCCEEDED, lease=LEASE))),
    (invariants.shapes, taken(RUNNING, COMPLETE, job(State.SUCCEEDED, result=None))),
    (invariants.attempt_counts_claims, taken(RUNNING, COMPLETE, job(State.SUCCEEDED, attempt=2))),
    (invariants.rev_moves_with_every_mutation, taken(RUNNING, COMPLETE, job(State.SUCCEEDED, version=7), STARTED)),
    (invariants.rev_moves_with_every_mutation, taken(RUNNING, COMPLETE, replace(RUNNING, failures=1))),
    (invariants.rev_moves_with_every_mutation, taken(RUNNING, COMPLETE, replace(RUNNING, renewals=-1, failures=1))),
    (invariants.only_the_holder_writes_as_owner, taken(RUNNING, COMPLETE, job(State.SUCCEEDED))),
    (invariants.only_the_holder_writes_as_owner, taken(QUEUED, COMPLETE, job(State.SUCCEEDED))),
    (invariants.requests_are_remembered, taken(job(State.QUEUED, requests={"r": "x"}), COMPLETE, QUEUED)),
    (invariants.keepers_do_not_rob, taken(RUNNING, c.Stall(by=KEEPER), job(State.STALLED))),
    (invariants.a_soft_cancellation_asks, taken(RUNNING, c.Cancel(by=CLIENT), job(State.CANCELLED))),
    (
        invariants.answers_stand,
        taken(
            job(State.QUEUED, answers={"go": Answer()}),
            COMPLETE,
            job(State.QUEUED, answers={"go": Answer(expired=True)}),
        ),
    ),
    (invariants.answers_stand, taken(RUNNING, COMPLETE, job(State.WAITING, answers={"go": Answer()}))),
]

BAD_STEPS: list[tuple[Callable[[Step], str | None], Step]] = [
    (invariants.one_event_per_transition, STARTED._replace(after=replace(RUNNING, version=7))),
    (invariants.one_event_per_transition, step(QUEUED, e.Started(), QUEUED)),
    (invariants.one_event_per_transition, step(RUNNING, e.Progress(fraction=0.1), QUEUED)),
    (
        invariants.attempts_never_go_back,
        step(RUNNING, e.Claimed(token="y", lease=1), job(State.CLAIMED, attempt=1)),
    ),
    (invariants.attempts_never_go_back, step(job(State.QUEUED, attempt=2), e.Started(), RUNNING)),
    (invariants.leases_are_new, step(RUNNING, e.Claimed(token="y", lease=1), job(State.CLAIMED))),
    (
        invariants.leases_are_new,
        step(job(State.QUEUED, due=11), e.Claimed(token="y", lease=1), job(State.CLAIMED)),
    ),
    (
        invariants.leases_are_new,
        step(
            job(
                State.QUEUED,
                last_lease=LastLease(owner="x", token="t", until=1, ended_by=e.Released(due=1), ended_by_owner=True),
            ),
            e.Claimed(token="t", lease=1),
            job(State.CLAIMED),
        ),
    ),
    (invariants.the_budget_holds, step(RUNNING, e.Retried(error=ERROR, due=1), job(State.RETRYING, failures=5))),
    (
        invariants.the_budget_holds,
        step(job(State.STALLED), e.Requeued(due=1), job(State.QUEUED, failures=5), Who.KEEPER),
    ),
    (invariants.dead_letters_are_complete, step(RUNNING, replace(LETTER, attempts=2), DEAD)),
    (invariants.dead_letters_are_complete, step(RUNNING, replace(LETTER, last_owner=None), DEAD)),
    (invariants.dead_letters_are_complete, step(RUNNING, replace(LETTER, last_lease_expires_at=None), DEAD)),
    (
        invariants.dead_letters_are_complete,
        Step(RUNNING, replace(record(LETTER), data='{"reason_code":"timeout"}'), DEAD),
    ),
    (invariants.ended_means_ended, step(job(State.SUCCEEDED), e.Requeued(due=1, reason="x"), QUEUED, Who.OPERATOR)),
    (invariants.ended_means_ended, step(job(State.CANCELLED), e.Custom(name="x"), job(State.CANCELLED), Who.OPERATOR)),
    (invariants.ended_means_ended, step(DEAD, e.Requeued(due=1), QUEUED, Who.OPERATOR)),
    (invariants.ended_means_ended, step(job(State.FAILED), e.Requeued(due=1, reason="x"), QUEUED, Who.KEEPER)),
    (invariants.states_have_their_event, step(QUEUED, e.Claimed(token="y", lease=1), RUNNING)),
    (invariants.states_have_their_event, step(RUNNING, e.Parked(wait=WAIT), job(State.WAITING))),
    (invariants.blocked_jobs_are_not_reclaimed, step(job(State.WAITING), e.Requeued(due=1), QUEUED, Who.KEEPER)),
    (invariants.blocked_jobs_are_not_reclaimed, step(job(State.PARKED), e.Resumed(key="go"), QUEUED, Who.KEEPER)),
    (invariants.cancellation_is_heeded, step(job(State.RUNNING, cancel_requested_at=1), e.Released(due=1), QUEUED)),
    (
        invariants.a_wait_ends_as_it_should,
        step(job(State.WAITING), e.Resumed(key="go", expired=True), QUEUED, Who.KEEPER),
    ),
    (
        invariants.a_wait_ends_as_it_should,
        step(
            job(State.WAITING, wait=Wait(until=WaitFor.JOBS, key="after", jobs=("a", "b"))),
            e.Resumed(key="after", outcomes={"a": "failed"}),
            QUEUED,
            Who.KEEPER,
        ),
    ),
    (invariants.a_wait_ends_as_it_should, step(job(State.WAITING), e.Resumed(key="stop"), QUEUED, Who.CLIENT)),
    (
        invariants.a_wait_ends_as_it_should,
        step(
            job(State.WAITING, wait=Wait(until=WaitFor.TIMER, key="go", deadline=1)),
            e.Resumed(key="go"),
            QUEUED,
            Who.CLIENT,
        ),
    ),
    (invariants.time_does_not_fall, step(job(State.CLAIMED), e.Started(), job(State.RUNNING, updated_at=9), at=9)),
    (invariants.time_does_not_fall, step(job(State.CLAIMED), e.Started(), job(State.RUNNING), at=11)),
]


@pytest.mark.parametrize(("invariant", "bad"), BAD_MOVES)
def test_a_bad_move_is_named(invariant: Callable[[Taken], str | None], bad: Taken) -> None:
    assert invariant(bad)


@pytest.mark.parametrize(("invariant", "bad"), BAD_STEPS)
def test_a_bad_step_is_named(invariant: Callable[[Step], str | None], bad: Step) -> None:
    assert invariant(bad)
    problem = invariants.check_move(taken(None, COMPLETE, bad.after, bad))
    assert problem is not None


def test_a_request_that_makes_a_difference_or_acts_twice_is_named() -> None:
    cancelled = job(State.CANCELLED)
    ended = step(QUEUED, e.Cancelled(mode=CancelMode.SOFT), cancelled)
    cancel = c.Cancel(by=CLIENT, request_id="r")
    plain, asked = taken(QUEUED, cancel, cancelled, ended), taken(QUEUED, cancel, cancelled, ended)
    once = replace(cancelled, requests={"r": c.fingerprint(cancel)})
    assert invariants.a_request_happens_once(plain, taken(QUEUED, cancel, once, ended)) is None
    assert "second effect" in str(invariants.a_request_happens_once(plain, asked))
    assert "a difference" in str(invariants.a_request_happens_once(plain, taken(QUEUED, cancel, once)))
    assert "another job" in str(invariants.a_request_happens_once(plain, taken(QUEUED, cancel, QUEUED, ended)))


def test_no_invariant_is_without_a_bad_example() -> None:
    assert {invariant for invariant, _ in BAD_MOVES} == set(invariants.ON_MOVES)
    assert {invariant for invariant, _ in BAD_STEPS} == set(invariants.ON_STEPS)


FAIL = c.Fail(by=owner(0, 0, 1), error=ERROR)
BAD_DUTIES_OF_MOVES: list[tuple[Callable[[Taken], str | None], Taken]] = [
    (duties.leases_last, taken(RUNNING, c.Heartbeat(by=owner(0, 0, 1)), replace(RUNNING, renewals=1))),
    (duties.leases_last, taken(QUEUED, c.Claim(by=WORKER, token="t"), job(State.CLAIMED))),
    (duties.attempts_end_as_the_policy_says, taken(RUNNING, FAIL, job(State.FAILED), STARTED)),
    (duties.attempts_end_as_the_policy_says, taken(replace(RUNNING, failures=4), FAIL, job(State.RETRYING), STARTED)),
    (
        duties.attempts_end_as_the_policy_says,
        taken(replace(RUNNING, cancel_requested_at=1), FAIL, job(State.RETRYING), STARTED),
    ),
    (duties.attempts_end_as_the_policy_says, taken(RUNNING, c.Stall(by=KEEPER), job(State.STALLED), STARTED)),
    (duties.attempts_end_as_the_policy_says, taken(RUNNING, c.Stall(by=OPERATOR), QUEUED, STARTED)),
]
BAD_DUTIES_OF_STEPS: list[tuple[Callable[[Step], str | None], Step]] = [
    (duties.the_right_one_speaks, step(RUNNING, e.Stalled(owner="x", lease_until=1), job(State.STALLED), Who.CLIENT)),
    (duties.the_right_one_speaks, step(QUEUED, LETTER, DEAD, Who.CLIENT)),
    (duties.failures_are_charged, step(RUNNING, e.Released(due=1), replace(QUEUED, failures=1))),
    (duties.failures_are_charged, step(RUNNING, e.Retried(error=ERROR, due=1), job(State.RETRYING))),
    (duties.failures_are_charged, step(replace(DEAD, failures=2), e.Requeued(due=1), replace(QUEUED, failures=2))),
    (duties.answers_are_kept, step(job(State.WAITING), e.Resumed(key="go"), QUEUED, Who.CLIENT)),
    (
        duties.answers_are_kept,
        step(job(State.WAITING), e.Resumed(key="go", payload=Raw(b"1")), job(State.QUEUED, answers={"go": Answer()})),
    ),
]
REFUSED_IN_VAIN: list[tuple[Job, c.AnyCommand]] = [
    (RUNNING, COMPLETE),
    (RUNNING, c.Heartbeat(by=owner(0, 0, 1))),
    (RUNNING, c.Suspend(by=owner(0, 0, 1), wait=WAIT)),
    (QUEUED, c.Claim(by=WORKER, token="t")),
    (job(State.STALLED), c.Claim(by=WORKER, token="t", direct=True)),
    (QUEUED, c.Signal(by=CLIENT, key="go")),
    (job(State.PARKED), c.Signal(by=CLIENT, key="go")),
    (RUNNING, c.Cancel(by=CLIENT)),
    (RUNNING, c.DeadLetter(by=OPERATOR, error=ERROR, reason_code=Reason.TIMEOUT)),
    (DEAD, c.Requeue(by=OPERATOR, reason="x")),
    (RUNNING, c.Stall(by=OPERATOR)),
    (job(State.RUNNING, lease=replace(LEASE, until=10)), c.Stall(by=KEEPER)),
    (job(State.WAITING, wait=replace(WAIT, deadline=10)), c.Expire(by=KEEPER)),
    (
        job(State.WAITING, wait=Wait(until=WaitFor.JOBS, key="k", jobs=("a",))),
        c.Resume(by=KEEPER, outcomes={"a": "failed"}),
    ),
    (QUEUED, c.Note(by=CLIENT, note=e.Custom(name="n"))),
    (job(State.INBOX), c.Admit(by=CLIENT)),
]


@pytest.mark.parametrize(("duty", "bad"), BAD_DUTIES_OF_MOVES)
def test_a_neglected_duty_of_a_move_is_named(duty: Callable[[Taken], str | None], bad: Taken) -> None:
    assert duty(bad)
    assert duties.check_move(bad)


@pytest.mark.parametrize(("duty", "bad"), BAD_DUTIES_OF_STEPS)
def test_a_neglected_duty_of_a_step_is_named(duty: Callable[[Step], str | None], bad: Step) -> None:
    assert duty(bad)
    assert duties.check_move(taken(None, COMPLETE, bad.after, bad))


@pytest.mark.parametrize(("heard", "command"), REFUSED_IN_VAIN, ids=lambda each: getattr(each, "wire", ""))
def test_a_command_that_must_be_heard_is_named_when_refused(heard: Job, command: c.AnyCommand) -> None:
    assert duties.check_refusal(heard, command, 10)
    assert duties.check_refusal(job(State.SUCCEEDED, attempt=1), command, 10) is None


def test_no_duty_is_without_a_bad_example() -> None:
    assert {duty for duty, _ in BAD_DUTIES_OF_MOVES} == set(duties.ON_MOVES)
    assert {duty for duty, _ in BAD_DUTIES_OF_STEPS} == set(duties.ON_STEPS)


def test_an_unused_request_is_not_taken_for_one_of_the_second_job() -> None:
    first = beginning(Scope(2, 1, 1))
    asked = [first, *(first._replace(asked=(index, COMPLETE)) for index in (0, 1))]
    assert len({identity(each) for each in asked}) == 3


def world(job_now: Job, records: tuple[Record, ...] = (), **fields: Any) -> World:
    first = beginning(Scope(1, 1, 1))._replace(now=10)
    return first.with_job(0, job_now).with_records(0, records)._replace(**fields)


def enqueued() -> Applied:
    return apply(None, c.Enqueue(by=CLIENT, job_id="job0", spec=Spec(kind="k")), 10)


def test_a_job_that_is_not_its_fold_is_named() -> None:
    applied = enqueued()
    assert guards.check_state(world(applied.job, applied.records), 0) is None
    assert "not the fold" in str(guards.check_state(world(replace(applied.job, failures=1), applied.records), 0))


def test_a_broken_chain_is_named() -> None:
    applied = enqueued()
    assert "chain" in str(guards.check_state(world(applied.job, applied.records, heads=(b"",)), 0))


def test_a_request_that_was_answered_but_left_no_trace_is_named() -> None:
    applied = enqueued()
    cancel = c.Cancel(by=CLIENT, request_id="r")
    assert "second effect" in str(guards.check_state(world(applied.job, applied.records, asked=(0, cancel)), 0))


def test_a_refusal_that_fences_off_the_holder_or_lets_in_another_is_named() -> None:
    here = world(job(State.RUNNING, attempt=1))
    holder, stale = (Move("", 0, c.Start(by=owner(0, 0, n)), c.Start(by=owner(0, 0, n))) for n in (1, 2))
    assert guards.check_refusal(here, holder, LeaseConflictError())
    assert guards.check_refusal(here, stale, JobEndedError())
    assert guards.check_refusal(here, holder, JobEndedError()) is None
    assert guards.check_refusal(here, stale, LeaseConflictError()) is None
