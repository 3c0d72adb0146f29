"""How a job comes to be: received, admitted, enqueued, after other jobs."""

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.unit.scene import CLIENT, JOB, KEEPER, NOW, OPERATOR, SPEC, WORKER, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.answers import paths
from leftfold.core.errors import (
    DialectRefusedError,
    IllegalTransitionError,
    JobExistsError,
    JobNotFoundError,
    NotDueError,
    NotPermittedError,
)
from leftfold.core.lifecycle import Edge, State
from leftfold.core.limits import DAY, MINUTE
from leftfold.core.retry import Policy
from leftfold.core.values import Answer, Spec, Wait, WaitFor

AFTER_TWO = c.Enqueue(by=CLIENT, job_id=JOB, spec=SPEC, after=("a", "b"))


def test_an_enqueued_job_carries_its_spec_and_policy_and_is_due_now() -> None:
    scene = Scene.empty()
    policy = Policy(max_failures=2)
    assert scene.do(c.Enqueue(by=CLIENT, job_id=JOB, spec=SPEC, policy=policy)) == ["enqueued"]
    job = scene.job
    assert (job.id, job.state, job.version, job.rev) == (JOB, State.QUEUED, 1, 1)
    assert (job.spec, job.policy, job.due, job.created_at, job.updated_at) == (SPEC, policy, NOW, NOW, NOW)
    assert (job.attempt, job.failures, job.renewals) == (0, 0, 0)


@pytest.mark.parametrize(("given", "due"), [(None, NOW), (0, NOW), (NOW - 1, NOW), (NOW + DAY, NOW + DAY)])
def test_due_is_never_in_the_past(given: int | None, due: int) -> None:
    enqueued, admitted = Scene.empty(), Scene.at(State.INBOX)
    enqueued.do(c.Enqueue(by=CLIENT, job_id=JOB, spec=SPEC, due=given))
    admitted.do(c.Admit(by=CLIENT, due=given))
    assert enqueued.job.due == admitted.job.due == due


def test_a_job_is_not_claimed_before_it_is_due() -> None:
    scene = Scene.empty()
    scene.do(c.Enqueue(by=CLIENT, job_id=JOB, spec=SPEC, due=NOW + MINUTE))
    scene.refuse(c.Claim(by=WORKER, token="a"), NotDueError, "another 60000000 µs")
    scene.now += MINUTE - 1
    scene.refuse(c.Claim(by=WORKER, token="a", direct=True), NotDueError, "another 1 µs")
    scene.now += 1
    assert scene.claim().attempt == 1


def test_admission_may_put_the_spec_in_order() -> None:
    kept, ordered = Scene.at(State.INBOX), Scene.at(State.INBOX)
    policy = Policy(lease=2 * MINUTE)
    better = Spec(kind="better", payload=Raw(b"2"))
    assert kept.do(c.Admit(by=CLIENT)) == ordered.do(c.Admit(by=CLIENT, spec=better, policy=policy)) == ["enqueued"]
    assert (kept.job.spec, kept.job.policy) == (SPEC, Policy())
    assert (ordered.job.spec, ordered.job.policy) == (better, policy)
    kept.refuse(c.Admit(by=CLIENT), IllegalTransitionError, "a job that is queued cannot be enqueued")


def test_only_a_client_creates_and_admits() -> None:
    for by in (WORKER, KEEPER, OPERATOR):
        Scene.empty().refuse(c.Enqueue(by=by, job_id=JOB, spec=SPEC), NotPermittedError)
        Scene.at(State.INBOX).refuse(c.Admit(by=by), NotPermittedError)


def test_a_job_is_created_once() -> None:
    for command in (c.Enqueue(by=CLIENT, job_id=JOB, spec=SPEC), c.Receive(by=CLIENT, job_id=JOB, spec=SPEC)):
        Scene().refuse(command, JobExistsError, "job job-1 exists already")


def test_a_command_about_no_job_finds_none() -> None:
    Scene.empty().refuse(c.Cancel(by=CLIENT), JobNotFoundError, "no such job to cancel")


def test_a_job_enqueued_after_others_waits_for_them() -> None:
    scene = Scene.empty()
    assert scene.do(AFTER_TWO) == ["enqueued", "suspended"]
    assert scene.job.wait == Wait(until=WaitFor.JOBS, key="after", jobs=("a", "b"), not_before=NOW)
    assert (scene.job.state, scene.job.version, scene.job.due) == (State.WAITING, 2, None)
    scene.refuse(c.Resume(by=KEEPER, outcomes={"a": "failed"}), NotDueError, "waits for b")
    scene.refuse(c.Expire(by=KEEPER), NotDueError, "has not run out")
    scene.now += MINUTE
    assert scene.do(c.Resume(by=KEEPER, outcomes={"c": "failed", "b": "succeeded", "a": "failed"})) == ["resumed"]
    assert (scene.job.state, scene.job.due) == (State.QUEUED, NOW + MINUTE)
    assert scene.job.answers == {"after": Answer(payload=Raw(b'{"a":"failed","b":"succeeded"}'), until=WaitFor.JOBS)}


def test_a_job_whose_wait_ends_early_is_still_not_due_before_its_time() -> None:
    scene = Scene.empty()
    scene.do(replace(AFTER_TWO, due=NOW + DAY))
    scene.now += MINUTE
    scene.do(c.Resume(by=KEEPER, outcomes={"a": "succeeded", "b": "succeeded"}))
    assert (scene.job.state, scene.job.due) == (State.QUEUED, NOW + DAY)


def test_resume_is_for_waits_for_jobs_only() -> None:
    Scene.at(State.PARKED).refuse(c.Resume(by=CLIENT, outcomes={}), NotDueError, "waits for signal")
    Scene().refuse(c.Resume(by=CLIENT, outcomes={}), IllegalTransitionError, "waits for nothing")


def test_an_enforced_dialect_without_the_wait_refuses_the_whole_creation() -> None:
    edge = Edge(State.QUEUED, e.Suspended, State.WAITING)
    Scene.empty(forbidden=frozenset({edge})).refuse(AFTER_TWO, DialectRefusedError, "queued -suspended-> waiting")


def test_a_creation_is_not_asked_of_a_job_that_is_there() -> None:
    with pytest.raises(TypeError, match="answered by creation"):
        paths(Scene().job, AFTER_TWO, NOW)
