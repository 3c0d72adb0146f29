"""Waits and what ends them: signals before, during and after, deadlines, and one winner each time."""

import pytest
from msgspec import Raw
from tests.unit.scene import APPROVAL, CLIENT, KEEPER, NOW, OPERATOR, TIMED_APPROVAL, TIMER, WORKER, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import (
    IllegalTransitionError,
    JobEndedError,
    LimitExceededError,
    NotDueError,
    NotPermittedError,
    SignalConflictError,
)
from leftfold.core.lifecycle import ENDED, State
from leftfold.core.limits import EVENTS_PER_JOB_MAX, MINUTE, SIGNALS_PER_JOB_MAX
from leftfold.core.values import Answer, Wait, WaitFor

YES, NO = Raw(b"true"), Raw(b"false")
JOBS = Wait(until=WaitFor.JOBS, key="children", jobs=("a",))


def signal(key: str = "approved", payload: Raw = YES) -> c.Signal:
    return c.Signal(by=CLIENT, key=key, payload=payload)


@pytest.mark.parametrize(
    ("wait", "event", "state"),
    [
        (APPROVAL, "parked", State.PARKED),
        (TIMED_APPROVAL, "suspended", State.WAITING),
        (TIMER, "suspended", State.WAITING),
        (JOBS, "suspended", State.WAITING),
    ],
)
def test_only_a_signal_wait_without_a_deadline_is_parked(wait: Wait, event: str, state: State) -> None:
    scene = Scene()
    owner = scene.run()
    assert scene.do(c.Suspend(by=owner, wait=wait)) == [event]
    job = scene.job
    assert (job.state, job.wait, job.lease, job.due, job.failures) == (state, wait, None, None, 0)
    assert job.last_lease is not None
    assert (job.last_lease.owner, job.last_lease.ended_by.wire) == (owner.name, event)


@pytest.mark.parametrize("state", [State.WAITING, State.PARKED])
def test_a_signal_ends_the_wait_and_is_kept_under_its_key(state: State) -> None:
    scene = Scene.at(state)
    scene.now += 5
    assert scene.do(signal()) == ["resumed"]
    assert scene.log[-1].event == e.Resumed(key="approved", payload=YES)
    job = scene.job
    assert (job.state, job.due, job.wait) == (State.QUEUED, NOW + 5, None)
    assert job.answers == {"approved": Answer(payload=YES)}
    owner = scene.run()
    assert (owner.attempt, scene.job.failures) == (2, 0)
    assert scene.do(c.Suspend(by=owner, wait=APPROVAL)) == []  # the replayed handler finds its answer
    assert scene.job.state is State.RUNNING


@pytest.mark.parametrize(
    "state", [State.INBOX, State.QUEUED, State.RETRYING, State.CLAIMED, State.RUNNING, State.STALLED]
)
def test_a_signal_before_the_wait_is_kept(state: State) -> None:
    scene = Scene.at(state)
    assert scene.do(signal()) == ["signalled"]
    assert (scene.job.state, scene.job.answers) == (state, {"approved": Answer(payload=YES)})


@pytest.mark.parametrize("wait", [APPROVAL, TIMED_APPROVAL])
def test_a_wait_whose_answer_is_there_does_not_begin(wait: Wait) -> None:
    scene = Scene()
    scene.do(signal())
    owner = scene.run()
    assert scene.do(c.Suspend(by=owner, wait=wait)) == []
    assert scene.job.lease is not None
    other = Wait(until=WaitFor.SIGNAL, key="paid")
    assert scene.do(c.Suspend(by=owner, wait=other)) == ["parked"]


@pytest.mark.parametrize("state", [State.QUEUED, State.WAITING, State.PARKED])
def test_the_same_signal_twice_is_one_and_another_payload_is_refused(state: State) -> None:
    scene = Scene.at(state)
    assert len(scene.do(signal())) == 1
    version = scene.job.version
    assert scene.do(signal()) == []
    assert scene.job.version == version
    scene.refuse(signal(payload=NO), SignalConflictError, "otherwise")


def test_a_duplicate_of_an_answer_stays_one_after_the_end() -> None:
    scene = Scene.at(State.RUNNING)
    scene.do(signal())
    scene.do(c.Complete(by=scene.owner))
    assert scene.do(signal()) == []
    scene.refuse(signal(payload=NO), SignalConflictError)


@pytest.mark.parametrize("state", [State.WAITING, State.PARKED])
def test_a_signal_with_the_wrong_key_is_refused_while_another_is_awaited(state: State) -> None:
    Scene.at(state).refuse(signal("aproved"), SignalConflictError, "waits for signal 'approved'")


@pytest.mark.parametrize("wait", [TIMER, JOBS])
def test_other_waits_are_not_ended_by_a_signal_and_keep_those_under_other_keys(wait: Wait) -> None:
    scene = Scene()
    scene.do(c.Suspend(by=scene.run(), wait=wait))
    scene.refuse(signal(wait.key), SignalConflictError, f"waits for {wait.until}")
    assert scene.do(signal()) == ["signalled"]
    assert (scene.job.state, scene.job.wait) == (State.WAITING, wait)


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_job_takes_no_signal(state: State) -> None:
    Scene.at(state).refuse(signal(), JobEndedError, f"is {state} and takes no signal")


def test_a_wait_ends_at_its_deadline_and_not_before() -> None:
    scene = Scene.at(State.WAITING)
    scene.now = NOW + MINUTE - 1
    scene.refuse(c.Expire(by=KEEPER), NotDueError, "has not run out")
    scene.now += 1
    assert scene.do(c.Expire(by=KEEPER)) == ["resumed"]
    assert scene.job.answers == {"approved": Answer(expired=True)}
    assert (scene.job.state, scene.job.due, scene.job.failures) == (State.QUEUED, NOW + MINUTE, 0)


def test_a_timer_ends_at_its_deadline() -> None:
    scene = Scene()
    scene.do(c.Suspend(by=scene.run(), wait=TIMER))
    scene.now = NOW + MINUTE
    assert scene.do(c.Expire(by=KEEPER)) == ["resumed"]
    assert scene.job.answers == {"nap": Answer(expired=True, until=WaitFor.TIMER)}
    assert scene.do(c.Suspend(by=scene.run(), wait=TIMER)) == []


def test_nothing_expires_that_has_no_deadline_or_does_not_wait() -> None:
    parked = Scene.at(State.PARKED)
    parked.now += 10 * MINUTE
    parked.refuse(c.Expire(by=CLIENT), NotDueError)
    Scene.at(State.RUNNING).refuse(c.Expire(by=KEEPER), IllegalTransitionError, "waits for nothing")


def test_of_a_signal_and_a_deadline_the_first_wins() -> None:
    signal_first, deadline_first = Scene.at(State.WAITING), Scene.at(State.WAITING)
    for scene in (signal_first, deadline_first):
        scene.now = NOW + 2 * MINUTE
    assert signal_first.do(signal()) == ["resumed"]
    signal_first.refuse(c.Expire(by=KEEPER), IllegalTransitionError)
    assert signal_first.job.answers == {"approved": Answer(payload=YES)}
    assert deadline_first.do(c.Expire(by=KEEPER)) == ["resumed"]
    deadline_first.refuse(signal(), SignalConflictError, "by the passing of its deadline")
    deadline_first.refuse(signal(payload=Raw(b"null")), SignalConflictError)
    assert deadline_first.job.answers == {"approved": Answer(expired=True)}


def test_who_may_signal_depends_on_the_wait() -> None:
    assert Scene.at(State.WAITING).do(c.Signal(by=KEEPER, key="approved")) == ["resumed"]
    Scene.at(State.PARKED).refuse(c.Signal(by=KEEPER, key="approved"), NotPermittedError)
    for state in (State.WAITING, State.PARKED):
        for by in (OPERATOR, WORKER):
            Scene.at(state).refuse(c.Signal(by=by, key="approved"), NotPermittedError, "not for a")


def test_a_job_keeps_so_many_signals_and_no_more() -> None:
    scene = Scene()
    for number in range(SIGNALS_PER_JOB_MAX):
        assert scene.do(signal(f"key-{number}")) == ["signalled"]
    scene.refuse(signal("one-more"), LimitExceededError, "keeps 100 signals already")
    assert scene.do(signal("key-0")) == []
    # The answer to a wait is not refused for it.
    scene.do(c.Suspend(by=scene.run(), wait=APPROVAL))
    assert scene.do(signal()) == ["resumed"]


def test_a_job_with_too_many_events_does_not_suspend_but_wakes() -> None:
    running, parked = Scene.at(State.RUNNING), Scene.at(State.PARKED)
    for scene in (running, parked):
        scene.pretend(version=EVENTS_PER_JOB_MAX)
    for wait in (APPROVAL, TIMER):
        running.refuse(c.Suspend(by=running.owner, wait=wait), LimitExceededError)
    running.refuse(signal(), LimitExceededError)
    assert parked.do(signal()) == ["resumed"]


def test_the_wait_of_a_claimed_job_has_not_begun() -> None:
    scene = Scene.at(State.CLAIMED)
    scene.refuse(c.Suspend(by=scene.owner, wait=TIMER), IllegalTransitionError, "claimed cannot be suspended")
