"""Delays and timeouts count from the moment of the command, so that its caller needs no clock."""

from typing import Final, get_args

import pytest
from msgspec.structs import replace
from tests.unit.scene import APPROVAL, CLIENT, JOB, KEEPER, NOW, OPERATOR, SPEC, TIMER, WORKER, Scene, owner_of

from leftfold.core import commands as c
from leftfold.core.errors import LeaseConflictError, NotDueError, RequestReusedError, ValidationError
from leftfold.core.lifecycle import State
from leftfold.core.limits import DAY, DELAY_MAX, MINUTE, SECOND
from leftfold.core.values import Answer, Wait, WaitFor

#: Every command that says when a job may be claimed, and the state in which it does.
SAYS_WHEN: Final[list[tuple[State | None, c.AnyCommand]]] = [
    (None, c.Enqueue(by=CLIENT, job_id=JOB, spec=SPEC)),
    (State.INBOX, c.Admit(by=CLIENT)),
    (State.CLAIMED, c.Release(by=owner_of(1))),
    (State.RUNNING, c.Release(by=owner_of(1), reason="snooze")),
    (State.RETRYING, c.Requeue(by=OPERATOR)),
    (State.STALLED, c.Requeue(by=KEEPER)),
    (State.DEAD_LETTERED, c.Requeue(by=OPERATOR, reason="again")),
]
says_when = pytest.mark.parametrize(("state", "command"), SAYS_WHEN, ids=[str(state) for state, _ in SAYS_WHEN])

NAP: Final = replace(TIMER, deadline=None)
CHILDREN: Final = Wait(until=WaitFor.JOBS, key="children", jobs=("a",))
WAITS: Final = [APPROVAL, NAP, CHILDREN]
each_wait = pytest.mark.parametrize("wait", WAITS, ids=[str(wait.until) for wait in WAITS])


def said(scene: Scene, command: c.AnyCommand, **arguments: object) -> c.AnyCommand:
    """Give the command with these arguments, said by whoever is its speaker in this scene."""
    return replace(command, by=scene.by(command.by.who), **arguments)


def test_the_commands_that_say_when_are_all_here() -> None:
    assert {type(command) for _, command in SAYS_WHEN} == {
        kind for kind in get_args(c.AnyCommand) if {"due", "delay"} <= set(kind.__struct_fields__)
    }


@says_when
@pytest.mark.parametrize("delay", [0, 1, MINUTE, DELAY_MAX])
def test_a_delay_comes_to_the_same_as_the_due_time_that_it_ends_at(
    state: State | None, command: c.AnyCommand, delay: int
) -> None:
    delayed, dated = Scene.at(state), Scene.at(state)
    for scene in (delayed, dated):
        scene.now += SECOND
    assert delayed.do(said(delayed, command, delay=delay)) == dated.do(said(dated, command, due=dated.now + delay))
    assert delayed.job.due == delayed.now + delay
    assert (delayed.job, delayed.log) == (dated.job, dated.log)


@says_when
def test_a_delayed_job_is_claimed_when_the_delay_is_over(state: State | None, command: c.AnyCommand) -> None:
    scene = Scene.at(state)
    scene.do(said(scene, command, delay=MINUTE))
    scene.now += MINUTE - 1
    scene.refuse(c.Claim(by=WORKER, token="t"), NotDueError, "another 1 µs")
    scene.now += 1
    scene.claim()


@says_when
@pytest.mark.parametrize(("due", "delay"), [(0, 0), (0, MINUTE), (NOW + DAY, 0), (NOW + DAY, DAY)])
def test_a_due_time_and_a_delay_are_two_things(
    state: State | None, command: c.AnyCommand, due: int, delay: int
) -> None:
    scene = Scene.at(state)
    with pytest.raises(ValidationError, match="a due time or a delay, not both"):
        said(scene, command, due=due, delay=delay)


@says_when
def test_a_repeated_request_does_not_put_a_job_off_again(state: State | None, command: c.AnyCommand) -> None:
    scene = Scene.at(state)
    first = said(scene, command, delay=MINUTE, request_id="r")
    assert len(scene.do(first)) == 1
    due = scene.job.due
    scene.now += DAY
    assert scene.do(first) == []
    assert scene.job.due == due
    scene.refuse(said(scene, command, delay=2 * MINUTE, request_id="r"), RequestReusedError)
    scene.refuse(said(scene, command, due=due, request_id="r"), RequestReusedError)


def test_a_delay_outlives_the_wait_for_other_jobs() -> None:
    scene = Scene.empty()
    scene.do(c.Enqueue(by=CLIENT, job_id=JOB, spec=SPEC, delay=DAY, after=("a",)))
    assert scene.job.wait is not None
    assert scene.job.wait.not_before == NOW + DAY
    scene.now += MINUTE
    scene.do(c.Resume(by=KEEPER, outcomes={"a": "succeeded"}))
    assert scene.job.due == NOW + DAY


def test_a_delayed_release_whose_reply_was_lost_is_known_again() -> None:
    scene = Scene.at(State.RUNNING)
    assert scene.do(c.Release(by=scene.owner, delay=MINUTE, reason="snooze")) == ["released"]
    job = scene.job
    scene.now += SECOND
    assert scene.do(c.Release(by=scene.owner, delay=MINUTE, reason="snooze")) == []
    assert scene.job == job
    scene.refuse(c.Release(by=scene.owner, delay=MINUTE), LeaseConflictError)


@each_wait
@pytest.mark.parametrize("timeout", [0, MINUTE, DELAY_MAX])
def test_a_timeout_comes_to_the_same_as_the_deadline_that_it_ends_at(wait: Wait, timeout: int) -> None:
    timed, dated = Scene.at(State.RUNNING), Scene.at(State.RUNNING)
    for scene in (timed, dated):
        scene.now += SECOND
    deadline = replace(wait, deadline=timed.now + timeout)
    assert timed.do(c.Suspend(by=timed.owner, wait=wait, timeout=timeout)) == ["suspended"]
    assert dated.do(c.Suspend(by=dated.owner, wait=deadline)) == ["suspended"]
    assert (timed.job.state, timed.job.wait) == (State.WAITING, deadline)
    assert (timed.job, timed.log) == (dated.job, dated.log)


@each_wait
def test_a_wait_expires_when_its_timeout_is_over(wait: Wait) -> None:
    scene = Scene.at(State.RUNNING)
    scene.do(c.Suspend(by=scene.owner, wait=wait, timeout=MINUTE))
    scene.now += MINUTE - 1
    scene.refuse(c.Expire(by=KEEPER), NotDueError, "has not run out")
    scene.now += 1
    assert scene.do(c.Expire(by=KEEPER)) == ["resumed"]
    assert scene.job.answers == {wait.key: Answer(expired=True, until=wait.until)}


@each_wait
def test_a_deadline_and_a_timeout_are_two_things(wait: Wait) -> None:
    owner = Scene.at(State.RUNNING).owner
    for deadline, timeout in ((0, 0), (0, MINUTE), (NOW + DAY, 0), (NOW + DAY, DAY)):
        with pytest.raises(ValidationError, match="a deadline or a timeout, not both"):
            c.Suspend(by=owner, wait=replace(wait, deadline=deadline), timeout=timeout)


def test_a_timer_needs_an_end() -> None:
    owner = Scene.at(State.RUNNING).owner
    with pytest.raises(ValidationError, match="a timer needs a deadline or a timeout"):
        c.Suspend(by=owner, wait=NAP)


@each_wait
def test_a_timed_wait_whose_reply_was_lost_is_known_again_and_does_not_begin_anew(wait: Wait) -> None:
    scene = Scene.at(State.RUNNING)
    suspend = c.Suspend(by=scene.owner, wait=wait, timeout=MINUTE)
    assert scene.do(suspend) == ["suspended"]
    job = scene.job
    scene.now += SECOND
    assert scene.do(suspend) == []
    assert scene.do(c.Suspend(by=scene.owner, wait=replace(wait, deadline=NOW + MINUTE))) == []
    assert scene.job == job
    others = (replace(suspend, wait=replace(wait, key="other")), replace(suspend, wait=replace(wait, not_before=1)))
    for other in others:
        scene.refuse(other, LeaseConflictError)


def test_a_wait_without_an_end_is_not_the_timed_one() -> None:
    scene = Scene.at(State.RUNNING)
    scene.do(c.Suspend(by=scene.owner, wait=APPROVAL, timeout=MINUTE))
    scene.refuse(c.Suspend(by=scene.owner, wait=APPROVAL), LeaseConflictError)
    later = replace(APPROVAL, deadline=NOW + DAY)
    scene.refuse(c.Suspend(by=scene.owner, wait=later), LeaseConflictError)


def test_a_repeated_request_does_not_prolong_a_wait() -> None:
    scene = Scene.at(State.RUNNING)
    suspend = c.Suspend(by=scene.owner, wait=APPROVAL, timeout=MINUTE, request_id="r")
    assert scene.do(suspend) == ["suspended"]
    job = scene.job
    scene.now += DAY
    assert scene.do(suspend) == []
    assert scene.job == job
    scene.refuse(replace(suspend, timeout=DAY), RequestReusedError)


def test_a_timed_wait_does_not_begin_where_its_answer_is_there_or_the_owner_is_to_stop() -> None:
    answered, stopped = Scene.at(State.RUNNING), Scene.at(State.RUNNING)
    answered.do(c.Signal(by=CLIENT, key=APPROVAL.key))
    stopped.ask_to_stop()
    assert answered.do(c.Suspend(by=answered.owner, wait=APPROVAL, timeout=MINUTE)) == []
    assert answered.job.state is State.RUNNING
    assert stopped.do(c.Suspend(by=stopped.owner, wait=APPROVAL, timeout=MINUTE)) == ["cancelled"]
    assert stopped.do(c.Suspend(by=stopped.owner, wait=APPROVAL, timeout=MINUTE)) == []
