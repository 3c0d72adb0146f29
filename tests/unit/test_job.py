"""The left fold: what a log makes of a job, and the logs that it will not read."""

from typing import cast

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.unit.scene import BROKEN, CLIENT, FLAKY, JOB, NOW, OPERATOR, SPEC, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import CorruptLogError
from leftfold.core.job import Job, evolve, fold, logged, renew
from leftfold.core.letters import Reason
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.record import Record, encode
from leftfold.core.retry import Allowance, Policy
from leftfold.core.values import Answer, CancelMode, Spec, Wait


def after(job: Job | None, event: e.AnyEvent, who: Who = Who.CLIENT) -> Record:
    version, at = (job.version + 1, job.updated_at) if job else (1, NOW)
    return Record(job_id=JOB, version=version, at=at, who=who, actor="x", event=event, data=encode(event))


def test_an_empty_log_is_no_job() -> None:
    assert fold([]) is None


def test_a_job_is_the_fold_of_its_log() -> None:
    scene = Scene()
    scene.fail()
    scene.now = scene.job.due or 0
    scene.do(c.Complete(by=scene.run(), result=Raw(b"[1]")))
    job = fold(scene.log)
    assert job == scene.job
    assert job is not None
    assert (job.state, job.version, job.attempt, job.failures) == (State.SUCCEEDED, 7, 2, 1)
    assert (job.result, job.error, job.last_error, job.lease) == (Raw(b"[1]"), None, FLAKY, None)
    assert [record.version for record in scene.log] == list(range(1, 8))


def test_each_prefix_of_a_log_is_the_job_as_it_was() -> None:
    scene = Scene()
    jobs = [scene.job]
    owner = scene.claim()
    jobs.append(scene.job)
    for command in (c.Start(by=owner), c.Fail(by=owner, error=FLAKY), c.Cancel(by=CLIENT)):
        scene.do(command)
        jobs.append(scene.job)
    assert [fold(scene.log[: length + 1]) for length in range(5)] == jobs


def test_a_null_is_a_result_like_any_other() -> None:
    scene = Scene()
    scene.do(c.Complete(by=scene.run()))
    assert scene.job.result == Raw(b"null")


@pytest.mark.parametrize(
    "event",
    [e.Started(), e.Enqueued(due=1), e.Custom(name="x"), e.Cancelled(mode=CancelMode.HARD)],
    ids=lambda event: event.wire,
)
def test_a_log_begins_with_a_spec(event: e.AnyEvent) -> None:
    with pytest.raises(CorruptLogError, match="a log cannot begin with"):
        evolve(None, after(None, event))


@pytest.mark.parametrize("event", [e.Received(spec=SPEC), e.Enqueued(due=1, spec=SPEC)], ids=["received", "enqueued"])
def test_a_log_begins_with_version_one(event: e.AnyEvent) -> None:
    assert evolve(None, after(None, event)).version == 1
    for version in (0, 2):
        with pytest.raises(CorruptLogError, match=f"as version {version}"):
            evolve(None, replace(after(None, event), version=version))


@pytest.mark.parametrize("event", [e.Custom(name="x"), e.Requeued(due=1)], ids=["note", "transition"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 1}, "version 1 of job-1 does not follow 1 of job-1"),
        ({"version": 3}, "does not follow"),
        ({"job_id": "job-2"}, "version 2 of job-2 does not follow 1 of job-1"),
        ({"at": NOW - 1}, "is older than the one before it"),
    ],
    ids=["twice", "gap", "other-job", "older"],
)
def test_a_record_must_follow(event: e.AnyEvent, changes: dict[str, object], message: str) -> None:
    job = Scene().job
    record = after(job, event, Who.OPERATOR)
    assert evolve(job, record).version == 2
    with pytest.raises(CorruptLogError, match=message):
        evolve(job, replace(record, **changes))


def test_a_note_after_the_end_is_corrupt_but_for_an_operators_on_a_closed_job() -> None:
    note = e.Custom(name="x")
    for state in (State.SUCCEEDED, State.CANCELLED, State.FAILED, State.DEAD_LETTERED):
        job = Scene.at(state).job
        for who in Who:
            record = after(job, note, who)
            if who is Who.OPERATOR and state in {State.FAILED, State.DEAD_LETTERED}:
                assert evolve(job, record).version == job.version + 1
            else:
                with pytest.raises(CorruptLogError, match="stands after the end"):
                    evolve(job, record)


def test_a_state_is_not_entered_without_what_it_requires() -> None:
    job = Scene.at(State.RUNNING).job
    forged = replace(after(job, e.Started()), event=e.Parked(wait=cast("Wait", None)), who=Who.OWNER)
    with pytest.raises(CorruptLogError, match="cannot be parked without wait"):
        evolve(job, forged)


def test_a_renewal_needs_a_lease_and_changes_nothing_else() -> None:
    job = Scene.at(State.RUNNING).job
    renewed = renew(job, e.Renewed(until=NOW + 9 * MINUTE))
    assert renewed.lease is not None
    assert (renewed.lease.until, renewed.renewals, renewed.rev) == (NOW + 9 * MINUTE, 1, job.rev + 1)
    assert logged(renewed) == logged(job) != job
    with pytest.raises(CorruptLogError, match="no lease to renew"):
        renew(Scene().job, e.Renewed(until=NOW))


def test_what_the_log_alone_says_leaves_out_renewals_and_ends_of_leases() -> None:
    scene = Scene.at(State.RUNNING)
    scene.do(c.Heartbeat(by=scene.owner, lease=5 * MINUTE))
    scene.do(c.Release(by=scene.owner))
    refolded = fold(scene.log)
    assert refolded is not None
    assert refolded != scene.job
    assert logged(refolded) == logged(scene.job)
    assert logged(Scene().job) == Scene().job


def test_requests_are_kept_by_id() -> None:
    scene = Scene.empty()
    create = c.Enqueue(by=CLIENT, request_id="a", job_id=JOB, spec=SPEC)
    signal = c.Signal(by=CLIENT, request_id="b", key="go")
    scene.do(create)
    scene.do(signal)
    scene.do(c.Signal(by=CLIENT, key="stop"))
    assert scene.job.requests == {"a": c.fingerprint(create), "b": c.fingerprint(signal)}


def test_failures_are_counted_per_budget() -> None:
    job = replace(Scene().job, failures=5, tally={"network": 2}, policy=Policy(by_error={
        "network": Allowance(max_failures=9), "timeout": Allowance(max_failures=9),
    }))  # fmt: skip
    assert [job.failures_of(code) for code in ("network", "timeout", "other")] == [2, 0, 3]


def test_an_admission_without_a_spec_keeps_the_received_one() -> None:
    inbox = Scene.at(State.INBOX).job
    other = Spec(kind="other")
    assert evolve(inbox, after(inbox, e.Enqueued(due=1))).spec == SPEC
    assert evolve(inbox, after(inbox, e.Enqueued(due=1, spec=other))).spec == other


def test_a_wait_is_answered_with_a_payload_with_outcomes_or_with_its_end() -> None:
    waiting = Scene.at(State.WAITING).job
    answers = [
        (e.Resumed(key="approved", payload=Raw(b"1")), Answer(payload=Raw(b"1"))),
        (e.Resumed(key="approved", outcomes={"a": "failed"}), Answer(payload=Raw(b'{"a":"failed"}'))),
        (e.Resumed(key="approved", expired=True), Answer(expired=True)),
    ]
    for event, answer in answers:
        job = evolve(waiting, after(waiting, event))
        assert (job.answers["approved"], job.due, job.wait) == (answer, NOW, None)


def test_an_operators_dead_letter_of_a_running_job_is_not_charged() -> None:
    scene = Scene.at(State.RUNNING)
    scene.now += SECOND
    scene.do(c.DeadLetter(by=OPERATOR, error=BROKEN, reason_code=Reason.TIMEOUT))
    assert (scene.job.failures, scene.job.error, scene.job.last_error) == (0, BROKEN, None)
    assert scene.job.updated_at == NOW + SECOND
