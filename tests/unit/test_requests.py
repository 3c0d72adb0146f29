"""`request_id` makes a command happen once; `expected_rev` makes it happen to the job that was read."""

from hashlib import sha256

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.unit.scene import APPROVAL, BROKEN, CLIENT, FLAKY, JOB, KEEPER, NOW, OPERATOR, SPEC, WORKER, Scene, owner_of

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import (
    JobExistsError,
    LeaseConflictError,
    RequestReusedError,
    RevisionConflictError,
)
from leftfold.core.letters import Reason
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import DAY, MINUTE
from leftfold.core.values import CancelMode, Spec

AGAIN = "req-1"

#: From each of these states this command, then the same id with other arguments.
REPEATED: list[tuple[State | None, c.AnyCommand, c.AnyCommand]] = [
    (
        None,
        c.Receive(by=CLIENT, request_id=AGAIN, job_id=JOB, spec=SPEC),
        c.Receive(by=CLIENT, request_id=AGAIN, job_id=JOB, spec=Spec(kind="other")),
    ),
    (
        None,
        c.Enqueue(by=CLIENT, request_id=AGAIN, job_id=JOB, spec=SPEC, after=("a",)),
        c.Enqueue(by=CLIENT, request_id=AGAIN, job_id=JOB, spec=SPEC, after=("b",)),
    ),
    (
        State.INBOX,
        c.Admit(by=CLIENT, request_id=AGAIN, due=1),
        c.Admit(by=CLIENT, request_id=AGAIN, due=2),
    ),
    (
        State.QUEUED,
        c.Claim(by=WORKER, request_id=AGAIN, token="one"),
        c.Claim(by=WORKER, request_id=AGAIN, token="one", lease=DAY),
    ),
    (
        State.PARKED,
        c.Signal(by=CLIENT, request_id=AGAIN, key="approved"),
        c.Signal(by=CLIENT, request_id=AGAIN, key="other"),
    ),
    (
        State.RUNNING,
        c.Cancel(by=CLIENT, request_id=AGAIN),
        c.Cancel(by=CLIENT, request_id=AGAIN, mode=CancelMode.HARD),
    ),
    (
        State.RUNNING,
        c.Stall(by=OPERATOR, request_id=AGAIN),
        c.Stall(by=KEEPER, request_id=AGAIN),
    ),
    (
        State.FAILED,
        c.Requeue(by=OPERATOR, request_id=AGAIN, reason="fixed"),
        c.Cancel(by=OPERATOR, request_id=AGAIN, reason="fixed"),
    ),
    (
        State.QUEUED,
        c.DeadLetter(by=KEEPER, request_id=AGAIN, error=FLAKY, reason_code=Reason.TIMEOUT),
        c.DeadLetter(by=KEEPER, request_id=AGAIN, error=BROKEN, reason_code=Reason.TIMEOUT),
    ),
]


@pytest.mark.parametrize(("state", "command", "other"), REPEATED, ids=[row[1].wire for row in REPEATED])
def test_a_request_happens_once_and_its_id_serves_no_other(
    state: State | None, command: c.AnyCommand, other: c.AnyCommand
) -> None:
    scene = Scene.at(state)
    assert len(scene.do(command)) >= 1
    job, records = scene.job, len(scene.log)
    scene.now += DAY
    assert scene.do(command) == []
    assert (scene.job, len(scene.log)) == (job, records)
    scene.refuse(other, RequestReusedError, "was used for something else")


def test_the_id_stands_on_the_first_record_of_a_command_only() -> None:
    scene = Scene.empty()
    command = c.Enqueue(by=CLIENT, request_id=AGAIN, job_id=JOB, spec=SPEC, after=("a",))
    scene.do(command)
    first, second = scene.log
    assert (first.request_id, first.request_hash) == (AGAIN, c.fingerprint(command))
    assert (second.request_id, second.request_hash) == (None, None)
    assert scene.job.requests == {AGAIN: c.fingerprint(command)}


def test_a_request_is_known_however_much_happened_since() -> None:
    scene = Scene.at(State.PARKED)
    command = c.Signal(by=CLIENT, request_id=AGAIN, key="approved")
    scene.do(command)
    scene.do(c.Complete(by=scene.run()))
    assert scene.do(command) == []
    assert scene.job.state is State.SUCCEEDED


def test_without_an_id_a_second_creation_is_refused() -> None:
    scene = Scene.empty()
    scene.do(c.Enqueue(by=CLIENT, request_id=AGAIN, job_id=JOB, spec=SPEC))
    scene.refuse(c.Enqueue(by=CLIENT, job_id=JOB, spec=SPEC), JobExistsError)
    scene.refuse(c.Enqueue(by=CLIENT, request_id="req-2", job_id=JOB, spec=SPEC), JobExistsError)


def test_a_repeated_claim_is_answered_to_the_one_who_holds_the_token() -> None:
    scene = Scene()
    claim = c.Claim(by=WORKER, request_id=AGAIN, token="one")
    assert scene.do(claim) == ["claimed"]
    assert scene.do(claim) == []
    assert scene.job.attempt == 1
    # A fresh token would make the caller believe that it holds what it does not.
    scene.refuse(c.Claim(by=WORKER, request_id=AGAIN, token="two"), LeaseConflictError)
    another = c.Actor(who=Who.WORKER, name="another")
    scene.refuse(c.Claim(by=another, request_id=AGAIN, token="one"), RequestReusedError)
    scene.now += DAY
    scene.do(c.Stall(by=KEEPER))
    scene.refuse(claim, LeaseConflictError)


def test_a_repeated_heartbeat_renews_once() -> None:
    scene = Scene.at(State.RUNNING)
    beat = c.Heartbeat(by=scene.owner, request_id=AGAIN)
    rev = scene.job.rev
    assert scene.do(beat) == scene.do(beat) == []
    assert scene.job.rev == rev + 1
    scene.refuse(c.Complete(by=scene.owner, request_id=AGAIN), RequestReusedError)


def test_a_second_request_to_cancel_leaves_a_trace_and_is_not_done_anew_later() -> None:
    scene = Scene.at(State.RUNNING)
    first, second = (c.Cancel(by=CLIENT, request_id=name) for name in ("req-1", "req-2"))
    assert [scene.do(first), scene.do(second)] == [["cancel_requested"]] * 2
    asked_at = scene.job.cancel_requested_at
    scene.do(c.Fail(by=scene.owner, error=BROKEN, permanent=True))
    scene.do(c.Requeue(by=OPERATOR, reason="again"))
    assert asked_at == NOW
    assert scene.do(second) == []
    assert scene.job.state is State.QUEUED


def test_notes_of_another_kind_are_other_requests() -> None:
    scene = Scene.at(State.RUNNING)
    started, finished = e.NodeStarted(node="a"), e.NodeFinished(node="a")
    scene.do(c.Note(by=scene.owner, note=started, request_id=AGAIN))
    scene.refuse(c.Note(by=scene.owner, note=finished, request_id=AGAIN), RequestReusedError)


def test_a_retry_may_have_read_the_job_again() -> None:
    scene = Scene.at(State.RUNNING)
    cancel = c.Cancel(by=CLIENT, request_id=AGAIN, expected_rev=scene.job.rev)
    assert scene.do(cancel) == ["cancel_requested"]
    assert scene.do(replace(cancel, expected_rev=scene.job.rev)) == []


def test_an_owners_request_is_known_after_its_lease_is_gone() -> None:
    scene = Scene.at(State.RUNNING)
    complete = c.Complete(by=scene.owner, request_id=AGAIN)
    scene.do(complete)
    assert scene.do(complete) == []
    scene.refuse(c.Complete(by=scene.owner, request_id=AGAIN, result=Raw(b"2")), RequestReusedError)


def test_a_refused_request_leaves_its_id_free() -> None:
    scene = Scene.at(State.RUNNING)
    stranger = c.Actor(who=Who.OWNER, name="stranger", attempt=1, token="wrong")
    scene.refuse(c.Release(by=stranger, request_id=AGAIN), LeaseConflictError)
    assert scene.do(c.Release(by=scene.owner, request_id=AGAIN)) == ["released"]


@pytest.mark.parametrize(
    "command",
    [
        c.Signal(by=CLIENT, key="go", expected_rev=1),
        c.Note(by=CLIENT, note=e.Custom(name="seen"), expected_rev=1),
        c.Requeue(by=OPERATOR, expected_rev=1),
        c.Cancel(by=CLIENT, expected_rev=1),
        c.DeadLetter(by=OPERATOR, error=BROKEN, reason_code=Reason.TIMEOUT, expected_rev=1),
    ],
    ids=lambda command: command.wire,
)
def test_the_expected_rev_must_be_the_jobs(command: c.AnyCommand) -> None:
    scene = Scene()
    for stale in (0, 2):
        scene.refuse(replace(command, expected_rev=stale), RevisionConflictError, f"is at rev 1, not {stale}")
    assert len(scene.do(command)) == 1
    scene.refuse(command, RevisionConflictError, "is at rev 2, not 1")


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (State.INBOX, c.Admit(by=CLIENT)),
        (State.WAITING, c.Expire(by=KEEPER)),
        (State.WAITING, c.Resume(by=KEEPER, outcomes={})),
        (State.RUNNING, c.Stall(by=OPERATOR)),
    ],
    ids=lambda value: str(getattr(value, "wire", value)),
)
def test_a_stale_rev_is_told_before_anything_else(state: State, command: c.AnyCommand) -> None:
    Scene.at(state).refuse(replace(command, expected_rev=99), RevisionConflictError)


def test_a_request_is_looked_up_before_the_rev() -> None:
    scene = Scene()
    command = c.Signal(by=CLIENT, key="go", request_id=AGAIN, expected_rev=1)
    assert scene.do(command) == ["signalled"]
    assert scene.do(command) == []
    scene.refuse(replace(command, key="stop"), RequestReusedError)


def test_a_renewal_moves_the_rev_and_not_the_version() -> None:
    scene = Scene.at(State.RUNNING)
    version, seen = scene.job.version, scene.job.rev
    scene.now += MINUTE // 2
    assert scene.do(c.Heartbeat(by=scene.owner)) == []
    assert (scene.job.version, scene.job.rev) == (version, seen + 1)
    scene.refuse(c.Cancel(by=CLIENT, expected_rev=seen), RevisionConflictError)
    assert scene.do(c.Cancel(by=CLIENT, expected_rev=seen + 1)) == ["cancel_requested"]
    assert scene.job.rev == seen + 2
    scene.do(c.Suspend(by=scene.owner, wait=APPROVAL))
    assert scene.job.rev == seen + 3  # renewals are kept when the lease is gone: a rev never comes again


def test_an_owner_needs_no_rev() -> None:
    scene = Scene.at(State.RUNNING)
    for _ in range(3):
        scene.do(c.Heartbeat(by=scene.owner))
    assert scene.do(c.Complete(by=scene.owner)) == ["succeeded"]


def test_a_fingerprint_is_not_of_what_every_call_mints_anew() -> None:
    enqueue = c.Enqueue(by=CLIENT, request_id=AGAIN, job_id=JOB, spec=SPEC, after=("a",))
    claim = c.Claim(by=WORKER, request_id=AGAIN, token="one")
    receive = c.Receive(by=CLIENT, job_id=JOB, spec=SPEC)
    cancel = c.Cancel(by=CLIENT, expected_rev=1)
    assert c.fingerprint(enqueue) == c.fingerprint(replace(enqueue, job_id="job-2"))
    assert c.fingerprint(receive) == c.fingerprint(replace(receive, job_id="job-2"))
    assert c.fingerprint(claim) == c.fingerprint(replace(claim, token="two"))
    assert c.fingerprint(cancel) == c.fingerprint(replace(cancel, expected_rev=2))
    # The ids of other jobs are what was asked.
    assert c.fingerprint(enqueue) != c.fingerprint(replace(enqueue, after=("b",)))


def test_the_fingerprint_of_a_known_request_never_changes() -> None:
    known: list[tuple[c.AnyCommand, bytes]] = [
        (
            c.Release(by=owner_of(1)),
            b'["release",{"by":{"attempt":1,"name":"worker-1","token":"token-x","who":"owner"}}]',
        ),
        (
            c.Enqueue(by=CLIENT, request_id=AGAIN, job_id=JOB, spec=Spec(kind="k")),
            b'["enqueue",{"by":{"name":"ann","who":"client"},"request_id":"req-1","spec":{"kind":"k"}}]',
        ),
        (
            c.Requeue(by=OPERATOR, delay=7),
            b'["requeue",{"by":{"name":"olga","who":"operator"},"delay":7}]',
        ),
    ]
    for command, asked in known:
        assert c.fingerprint(command) == sha256(asked).hexdigest()[:32]


def test_a_fingerprint_is_of_what_was_asked() -> None:
    plain = c.Cancel(by=CLIENT)
    assert c.fingerprint(plain) == c.fingerprint(c.Cancel(by=CLIENT))
    different: list[c.AnyCommand] = [
        c.Cancel(by=OPERATOR),
        c.Cancel(by=CLIENT, reason="x"),
        c.Stall(by=CLIENT),
        c.Expire(by=CLIENT),
    ]
    assert len({c.fingerprint(command) for command in (plain, *different)}) == 5
    assert (len(c.fingerprint(plain)), len(c.digest("token"))) == (32, 16)
