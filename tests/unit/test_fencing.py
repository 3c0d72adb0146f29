"""The fence: only the holder of (attempt, token) writes, and a repeated call of it is known again."""

from typing import cast

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.unit.scene import APPROVAL, BROKEN, CLIENT, FLAKY, KEEPER, NOW, OPERATOR, TIMER, WORKER, Scene, owner_of

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import (
    IllegalTransitionError,
    LeaseConflictError,
    NotDueError,
    NotPermittedError,
    ValidationError,
)
from leftfold.core.job import LastLease, Lease
from leftfold.core.letters import Reason
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import DAY, MINUTE, SECOND
from leftfold.core.values import CancelMode, Wait

SHARED_BY_OWNER: list[c.AnyCommand] = [
    c.Cancel(by=owner_of(1)),
    c.Cancel(by=owner_of(1), mode=CancelMode.HARD),
    c.DeadLetter(by=owner_of(1), error=BROKEN, reason_code=Reason.TIMEOUT),
    c.Note(by=owner_of(1), note=e.Progress(fraction=0.5)),
    c.Signal(by=owner_of(1), key="go"),
    c.Stall(by=owner_of(1)),
]
OWNERS: list[c.AnyCommand] = [
    c.Start(by=owner_of(1)),
    c.Heartbeat(by=owner_of(1)),
    c.Complete(by=owner_of(1)),
    c.Fail(by=owner_of(1), error=FLAKY),
    c.Release(by=owner_of(1)),
    c.Suspend(by=owner_of(1), wait=TIMER),
]


def each(commands: list[c.AnyCommand]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("command", commands, ids=[command.wire for command in commands])


def test_the_commands_of_owners_are_all_here() -> None:
    assert {type(command) for command in OWNERS} == set(c.OwnerCommand.__subclasses__())


@each(OWNERS + SHARED_BY_OWNER)
@pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
def test_the_wrong_token_or_the_wrong_attempt_is_refused(state: State, command: c.AnyCommand) -> None:
    scene = Scene.at(state)
    right = scene.owner
    for wrong in (
        replace(right, token=f"{right.token}x"),
        replace(right, attempt=right.attempt + 1),
        replace(right, attempt=right.attempt + 1, token=f"{right.token}x"),
    ):
        scene.refuse(replace(command, by=wrong), LeaseConflictError, "stop working on it")


@each(OWNERS + SHARED_BY_OWNER)
def test_a_stale_attempt_is_refused_while_another_has_the_job(command: c.AnyCommand) -> None:
    scene = Scene.at(State.RUNNING)
    stale = scene.owner
    scene.now += DAY
    assert scene.do(c.Stall(by=KEEPER)) == ["stalled", "requeued"]
    scene.refuse(replace(command, by=stale), LeaseConflictError)
    fresh = scene.run()
    scene.refuse(replace(command, by=stale), LeaseConflictError)
    scene.refuse(replace(command, by=replace(stale, attempt=fresh.attempt)), LeaseConflictError)
    scene.refuse(replace(command, by=replace(fresh, attempt=stale.attempt)), LeaseConflictError)
    assert scene.job.attempt == 2


@each(OWNERS)
def test_nobody_but_an_owner_gives_an_owners_command(command: c.AnyCommand) -> None:
    for by in (CLIENT, WORKER, KEEPER, OPERATOR):
        Scene.at(State.RUNNING).refuse(replace(command, by=by), NotPermittedError, "only the owner")


def test_a_claim_makes_a_lease_of_the_policys_length_or_the_given_one() -> None:
    scene = Scene()
    owner = scene.claim("w-1")
    assert scene.job.lease == Lease(owner="w-1", token=c.digest(owner.token), until=NOW + MINUTE)
    assert owner.token not in scene.log[-1].data
    other = Scene()
    other.claim(lease=5 * SECOND)
    assert other.job.lease is not None
    assert other.job.lease.until == NOW + 5 * SECOND


def test_a_claimed_job_is_not_claimed_again() -> None:
    scene = Scene.at(State.CLAIMED)
    scene.now += DAY  # the lease ran out, but nobody took the job away
    scene.refuse(c.Claim(by=WORKER, token="b", direct=True), IllegalTransitionError, "claimed cannot be claimed")


def test_only_a_worker_claims() -> None:
    for by in (CLIENT, KEEPER, OPERATOR):
        Scene().refuse(c.Claim(by=by, token="b"), NotPermittedError)


def test_a_stalled_job_is_claimed_by_its_id_only() -> None:
    scene = Scene.at(State.STALLED)
    scene.refuse(c.Claim(by=WORKER, token="b"), NotDueError, "claim it by its id")
    assert scene.claim(direct=True).attempt == 2


@pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
def test_a_heartbeat_moves_the_lease_and_writes_nothing(state: State) -> None:
    scene = Scene.at(state)
    scene.now += 40 * SECOND
    assert scene.do(c.Heartbeat(by=scene.owner)) == []
    assert scene.job.lease is not None
    assert scene.job.lease.until == NOW + 40 * SECOND + MINUTE
    assert scene.do(c.Heartbeat(by=scene.owner, lease=2 * MINUTE)) == []
    assert scene.job.lease.until == NOW + 40 * SECOND + 2 * MINUTE
    assert scene.job.renewals == 2
    scene.now = NOW + MINUTE  # past the first end, not past the renewed one
    scene.refuse(c.Stall(by=KEEPER), NotDueError)


@pytest.mark.parametrize("command", [*OWNERS[1:], *SHARED_BY_OWNER[:4]], ids=lambda command: command.wire)
def test_a_late_call_is_accepted_if_nobody_took_the_job(command: c.AnyCommand) -> None:
    scene = Scene.at(State.RUNNING)
    scene.now += DAY
    records = len(scene.log) + (not isinstance(command, c.Heartbeat))
    scene.do(replace(command, by=scene.owner))
    assert len(scene.log) == records


def test_a_late_complete_from_a_stale_attempt_is_refused() -> None:
    scene = Scene.at(State.RUNNING)
    scene.now += DAY
    scene.do(c.Stall(by=KEEPER))
    scene.refuse(c.Complete(by=scene.owner), LeaseConflictError, "queued in attempt 1")
    stale, fresh = scene.owner, scene.run()
    scene.do(c.Complete(by=fresh, result=Raw(b"2")))
    scene.refuse(c.Complete(by=stale, result=Raw(b"2")), LeaseConflictError)


def test_a_second_start_is_one() -> None:
    scene = Scene.at(State.RUNNING)
    assert scene.do(c.Start(by=scene.owner)) == []


OTHER_WAIT = Wait(until=APPROVAL.until, key="other")

#: What an owner says, and what is not the same.
ENDINGS: list[tuple[c.AnyCommand, c.AnyCommand, str]] = [
    (c.Complete(by=owner_of(1), result=Raw(b"1")), c.Complete(by=owner_of(1), result=Raw(b"2")), "succeeded"),
    (c.Fail(by=owner_of(1), error=FLAKY), c.Fail(by=owner_of(1), error=BROKEN), "retried"),
    (
        c.Fail(by=owner_of(1), error=FLAKY, permanent=True),
        c.Fail(by=owner_of(1), error=BROKEN, permanent=True),
        "dead_lettered",
    ),
    (c.Release(by=owner_of(1)), c.Complete(by=owner_of(1)), "released"),
    (c.Suspend(by=owner_of(1), wait=TIMER), c.Suspend(by=owner_of(1), wait=OTHER_WAIT), "suspended"),
    (c.Suspend(by=owner_of(1), wait=APPROVAL), c.Suspend(by=owner_of(1), wait=OTHER_WAIT), "parked"),
    (c.Cancel(by=owner_of(1)), c.Complete(by=owner_of(1)), "cancelled"),
    (
        c.DeadLetter(by=owner_of(1), error=BROKEN, reason_code=Reason.TIMEOUT),
        c.DeadLetter(by=owner_of(1), error=FLAKY, reason_code=Reason.TIMEOUT),
        "dead_lettered",
    ),
]


@pytest.mark.parametrize(("command", "other", "event"), ENDINGS, ids=[row[0].wire + "-" + row[2] for row in ENDINGS])
def test_a_call_whose_reply_was_lost_is_known_again(command: c.AnyCommand, other: c.AnyCommand, event: str) -> None:
    scene = Scene.at(State.RUNNING)
    owner = scene.owner
    assert scene.do(replace(command, by=owner)) == [event]
    job = scene.job
    assert job.last_lease == LastLease(
        owner=owner.name,
        token=c.digest(owner.token),
        until=NOW + MINUTE,
        ended_by=cast("e.AnyTransition", scene.log[-1].event),
        ended_by_owner=True,
    )
    assert scene.do(replace(command, by=owner)) == []
    assert scene.job == job
    scene.refuse(replace(other, by=owner), LeaseConflictError)
    for stranger in (replace(owner, token="stolen"), replace(owner, attempt=2)):
        scene.refuse(replace(command, by=stranger), LeaseConflictError)
    for never_repeated in (c.Start(by=owner), c.Heartbeat(by=owner)):
        scene.refuse(never_repeated, LeaseConflictError)


@pytest.mark.parametrize(
    "command", [c.Fail(by=owner_of(1), error=FLAKY), c.Release(by=owner_of(1)), c.Suspend(by=owner_of(1), wait=TIMER)],
    ids=lambda command: command.wire,
)  # fmt: skip
def test_a_call_that_ended_in_the_asked_cancellation_is_known_again(command: c.AnyCommand) -> None:
    scene = Scene.at(State.RUNNING)
    scene.ask_to_stop()
    assert scene.do(replace(command, by=scene.owner)) == ["cancelled"]
    assert scene.do(replace(command, by=scene.owner)) == []


def test_a_suspension_is_known_again_after_its_wait_is_over() -> None:
    scene = Scene.at(State.PARKED)
    scene.do(c.Signal(by=CLIENT, key="approved"))
    assert scene.do(c.Suspend(by=scene.owner, wait=APPROVAL)) == []
    assert scene.job.state is State.QUEUED


def test_a_failure_is_known_again_until_the_next_claim() -> None:
    scene = Scene.at(State.RETRYING)
    first = scene.owner
    assert scene.do(c.Fail(by=first, error=FLAKY)) == []
    assert scene.job.failures == 1
    scene.claim()
    scene.refuse(c.Fail(by=first, error=FLAKY), LeaseConflictError)
    scene.refuse(c.Fail(by=replace(first, attempt=2), error=FLAKY), LeaseConflictError)


def test_a_failure_that_failed_the_job_is_known_again() -> None:
    scene = Scene.at(State.FAILED)
    assert scene.do(c.Fail(by=scene.owner, error=BROKEN)) == []
    scene.refuse(c.Fail(by=scene.owner, error=FLAKY), LeaseConflictError)


def test_an_owner_has_both_an_attempt_and_a_token() -> None:
    assert owner_of(1).who is Who.OWNER
    with pytest.raises(ValidationError, match="token"):
        c.Actor(who=Who.OWNER, name="w", attempt=1)
    with pytest.raises(ValidationError, match="token"):
        c.Actor(who=Who.OWNER, name="w", attempt=1, token="\ud800")
    with pytest.raises(ValidationError, match="attempt"):
        c.Actor(who=Who.OWNER, name="w", token="t")
    for stray in ({"attempt": 3}, {"token": "t"}):
        with pytest.raises(ValidationError, match="an owner shows"):
            c.Actor(who=Who.CLIENT, name="ann", **stray)


@pytest.mark.parametrize(
    "call", [c.Release(by=owner_of(1)), c.Cancel(by=owner_of(1)), c.Suspend(by=owner_of(1), wait=APPROVAL)],
    ids=lambda call: call.wire,
)  # fmt: skip
def test_what_somebody_else_ended_is_no_repetition_of_the_owners_call(call: c.AnyCommand) -> None:
    scene = Scene.at(State.RUNNING)
    scene.do(c.Cancel(by=CLIENT, mode=CancelMode.HARD))
    scene.refuse(replace(call, by=scene.owner), LeaseConflictError)


def test_an_operators_dead_letter_is_not_taken_for_the_owners_failure() -> None:
    scene = Scene.at(State.RETRYING)
    owner = scene.run()
    scene.do(c.DeadLetter(by=OPERATOR, error=BROKEN, reason_code=Reason.TIMEOUT))
    assert scene.job.last_error == FLAKY
    scene.refuse(c.Fail(by=owner, error=FLAKY), LeaseConflictError)


def test_a_repeated_call_with_other_arguments_is_another_call() -> None:
    released, suspended, retried = Scene.at(State.RUNNING), Scene.at(State.PARKED), Scene.at(State.RETRYING)
    released.do(c.Release(by=released.owner, reason="shutdown", due=NOW + DAY))
    assert released.do(c.Release(by=released.owner, reason="shutdown", due=NOW + DAY)) == []
    for other in (c.Release(by=released.owner, reason="snooze"), c.Release(by=released.owner, due=NOW + 2 * DAY)):
        released.refuse(other, LeaseConflictError)
    suspended.do(c.Signal(by=CLIENT, key="approved"))
    suspended.refuse(c.Suspend(by=suspended.owner, wait=TIMER), LeaseConflictError)
    retried.refuse(c.Fail(by=retried.owner, error=FLAKY, permanent=True), LeaseConflictError)


def test_an_owner_is_held_to_its_fence_and_not_to_a_rev() -> None:
    with pytest.raises(ValidationError, match="not to a rev"):
        c.Cancel(by=owner_of(1), expected_rev=3)


def test_a_clock_that_was_set_back_does_not_shorten_a_lease() -> None:
    scene = Scene.at(State.RUNNING)
    assert scene.job.lease is not None
    until = scene.job.lease.until
    scene.now -= MINUTE
    assert scene.do(c.Heartbeat(by=scene.owner)) == []
    assert scene.job.lease is not None
    assert scene.job.lease.until == until
