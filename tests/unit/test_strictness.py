"""The fold is as strict as the decision, and equal requests are equal however they are spelled."""

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.unit.scene import APPROVAL, BROKEN, CLIENT, JOB, KEEPER, NOW, OPERATOR, SPEC, WORKER, Scene, owner_of

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import (
    CorruptLogError,
    NotPermittedError,
    RequestReusedError,
    SignalConflictError,
    ValidationError,
)
from leftfold.core.job import Job, evolve
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import DAY, SECOND
from leftfold.core.record import Record, encode
from leftfold.core.retry import QUALITY_ALLOWANCES, Allowance, Backoff, Policy
from leftfold.core.values import CancelMode, Spec, Wait, WaitFor


def said(job: Job, event: e.AnyEvent, who: Who) -> Record:
    return Record(
        job_id=job.id, version=job.version + 1, at=job.updated_at, who=who, actor="x", event=event, data=encode(event)
    )


LETTER = e.DeadLettered(
    error=BROKEN, reason_code=Reason.TIMEOUT, stage=Stage.EXEC, last_error=None, attempts=7, last_owner=None,
    last_lease_expires_at=None, correlation_id=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("state", "event", "who", "why"),
    [
        (State.WAITING, e.Resumed(key="another"), Who.CLIENT, "answers 'another'"),
        (State.RUNNING, e.Stalled(owner="another", lease_until=1), Who.KEEPER, "names another"),
        (State.FAILED, e.Requeued(due=1), Who.OPERATOR, "without a reason"),
        (State.RUNNING, LETTER, Who.OWNER, "counts 7 attempts"),
        (State.QUEUED, e.CancelRequested(), Who.CLIENT, "nobody holds the job"),
        (State.QUEUED, e.Progress(fraction=0.1), Who.OWNER, "nobody holds the job"),
        (State.RUNNING, e.Progress(fraction=0.1), Who.CLIENT, "the owner's to say"),
    ],
)
def test_a_legal_move_that_contradicts_the_job_is_corrupt(state: State, event: e.AnyEvent, who: Who, why: str) -> None:
    job = Scene.at(state).job
    with pytest.raises(CorruptLogError, match=why):
        evolve(job, said(job, event, who))


@pytest.mark.parametrize("who", [who for who in Who if who is not Who.CLIENT])
def test_a_log_begins_with_a_client(who: Who) -> None:
    for event in (e.Received(spec=SPEC), e.Enqueued(due=1, spec=SPEC)):
        record = Record(job_id=JOB, version=1, at=0, who=who, actor="x", event=event, data=encode(event))
        with pytest.raises(CorruptLogError, match="begin"):
            evolve(None, record)


def test_equal_requests_are_equal_however_they_are_spelled() -> None:
    plain = c.Enqueue(by=CLIENT, job_id=JOB, spec=Spec(kind="k"), request_id="r")
    spelled = c.Enqueue(
        by=c.Actor(who=Who.CLIENT, name=CLIENT.name, attempt=0),
        job_id=JOB,
        spec=Spec(kind="k", payload=Raw(b"null"), queue="default"),
        policy=Policy(backoff=Backoff(), by_error={}, max_failures=5),
        request_id="r",
    )
    assert plain == spelled
    assert c.fingerprint(plain) == c.fingerprint(spelled)
    forth, back = (dict(items) for items in (QUALITY_ALLOWANCES.items(), reversed([*QUALITY_ALLOWANCES.items()])))
    tables = [replace(plain, policy=Policy(by_error=table)) for table in (forth, back)]
    assert c.fingerprint(tables[0]) == c.fingerprint(tables[1])


def test_other_requests_have_other_fingerprints() -> None:
    base = c.Enqueue(by=CLIENT, job_id=JOB, spec=Spec(kind="k"), request_id="r")
    others: list[c.AnyCommand] = [
        replace(base, due=NOW),
        replace(base, delay=0),
        replace(base, delay=1),
        replace(base, spec=Spec(kind="l")),
        replace(base, spec=Spec(kind="k", payload=Raw(b"1"))),
        replace(base, policy=Policy(by_error={"network": Allowance(max_failures=2, delays=(1, 2))})),
        replace(base, policy=Policy(by_error={"network": Allowance(max_failures=2, delays=(2, 1))})),
        replace(base, after=("a",)),
        replace(base, by=OPERATOR),
        c.Receive(by=CLIENT, job_id=JOB, spec=Spec(kind="k"), request_id="r"),
    ]
    assert len({c.fingerprint(each) for each in (base, *others)}) == len(others) + 1
    scene = Scene.empty()
    scene.do(base)
    scene.refuse(others[0], RequestReusedError)


@pytest.mark.parametrize(
    "note", [kind for kind in e.NOTES if issubclass(kind, e.OwnersNote)], ids=lambda kind: kind.wire
)
def test_what_only_the_handler_can_know_is_noted_by_the_owner_alone(note: type[e.AnyNote]) -> None:
    values = {name: Raw(b"1") if name in {"data", "result", "plan"} else "x" for name in note.__struct_fields__}
    made = e.Progress(fraction=0.5) if note is e.Progress else note(**values)  # type: ignore[arg-type]  # generic
    scene = Scene.at(State.RUNNING)
    for by in (CLIENT, WORKER, KEEPER, OPERATOR):
        scene.refuse(c.Note(by=by, note=made), NotPermittedError)
    assert scene.do(c.Note(by=scene.owner, note=made)) == [note.wire]


def test_a_second_soft_cancellation_is_a_no_op_for_those_who_may_cancel() -> None:
    scene = Scene.at(State.RUNNING)
    scene.do(c.Cancel(by=CLIENT))
    assert scene.do(c.Cancel(by=OPERATOR)) == []
    for by in (WORKER, KEEPER):
        scene.refuse(c.Cancel(by=by), NotPermittedError)
    assert scene.do(c.Cancel(by=CLIENT, mode=CancelMode.HARD)) == ["cancelled"]


def test_a_small_factor_still_reaches_the_cap() -> None:
    slow = Backoff(base=SECOND, factor=1.05, cap=DAY, jitter=False)
    delays = [slow.delay(failures, "") for failures in (1, 2, 100, 200, 300, 10_000)]
    assert delays == sorted(delays)
    assert delays[2] > 100 * SECOND
    assert delays[-1] == DAY
    assert Backoff(base=0, factor=2.0, cap=DAY, jitter=False).delay(10**9, "") == 0


def test_the_due_time_of_a_job_outlives_its_wait_for_others() -> None:
    for due, expected in ((NOW + DAY, NOW + DAY), (None, NOW + SECOND)):
        scene = Scene.empty()
        scene.do(c.Enqueue(by=CLIENT, job_id=JOB, spec=SPEC, due=due, after=("other",)))
        scene.now += SECOND
        scene.do(c.Resume(by=KEEPER, outcomes={"other": "succeeded"}))
        assert scene.job.due == expected


def test_a_suspension_on_an_answered_key_leaves_the_job_to_its_owner() -> None:
    scene = Scene.at(State.RUNNING)
    scene.do(c.Signal(by=CLIENT, key="approved"))
    assert scene.do(c.Suspend(by=scene.owner, wait=APPROVAL)) == []
    assert scene.job.lease is not None
    assert owner_of(1).attempt == scene.job.attempt


def test_an_early_signal_does_not_cut_a_sleep_or_a_wait_for_jobs_short() -> None:
    for wait in (
        Wait(until=WaitFor.TIMER, key="approved", deadline=NOW + DAY),
        Wait(until=WaitFor.JOBS, key="approved", jobs=("other",)),
    ):
        scene = Scene.at(State.RUNNING)
        scene.do(c.Signal(by=CLIENT, key="approved"))
        scene.refuse(c.Suspend(by=scene.owner, wait=wait), SignalConflictError, "by a signal")


def test_a_handler_cannot_wait_for_its_own_job() -> None:
    scene = Scene.at(State.RUNNING)
    wait = Wait(until=WaitFor.JOBS, key="me", jobs=(JOB,))
    scene.refuse(c.Suspend(by=scene.owner, wait=wait), ValidationError, "itself")


def test_a_reopened_job_may_be_approved_though_its_approval_had_expired() -> None:
    scene = Scene.at(State.WAITING)
    scene.now += DAY
    scene.do(c.Expire(by=KEEPER))
    scene.do(c.Fail(by=scene.run(), error=BROKEN, permanent=True))
    scene.refuse(c.Signal(by=CLIENT, key="approved"), SignalConflictError)
    scene.do(c.Requeue(by=OPERATOR, reason="asked again"))
    assert scene.do(c.Signal(by=CLIENT, key="approved")) == ["signalled"]


def test_a_letter_names_the_owner_of_the_attempt_that_runs() -> None:
    scene = Scene.at(State.RETRYING)
    scene.run()
    scene.do(c.Release(by=scene.owner))
    claimer = c.Actor(who=Who.WORKER, name="worker-2")
    scene.do(c.Claim(by=claimer, token="t"))
    scene.do(c.DeadLetter(by=OPERATOR, error=BROKEN, reason_code=Reason.TIMEOUT))
    letter = scene.log[-1].event
    assert isinstance(letter, e.DeadLettered)
    assert letter.last_owner == "worker-2"


def test_a_retry_waits_its_delay_also_when_the_clock_was_set_back() -> None:
    scene = Scene.at(State.RUNNING)
    written = scene.job.updated_at
    scene.now -= DAY
    scene.do(c.Fail(by=scene.owner, error=BROKEN))
    assert scene.job.due is not None
    assert scene.job.due > written
