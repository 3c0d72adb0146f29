"""Waits, and what ends them: suspend, suspend_many, signal, expire, resume."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from leftfold import Policy, Receipt
from leftfold.core import events as e
from leftfold.core.errors import (
    IllegalTransitionError,
    JobNotFoundError,
    LeaseConflictError,
    LimitExceededError,
    NotDueError,
    SignalConflictError,
    ValidationError,
)
from leftfold.core.lifecycle import ENDED, State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.values import Answer, Wait, WaitFor
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import NOBODY, Scene, forged, shown

DEADLINES: Final[list[Any]] = [60, timedelta(minutes=1), datetime(2023, 11, 14, 22, 14, 20, tzinfo=UTC)]


class TestSuspend:
    """A job that waits holds no lease."""

    def test_a_wait_for_a_signal_without_a_deadline_is_parked(self, scene: Scene) -> None:
        claim = scene.started()
        receipt = scene.engine.suspend(claim, "approved")
        assert (receipt.state, receipt.version, receipt.until) == (State.PARKED, 4, None)
        job = scene.job(claim.job_id)
        assert (job.wait, job.lease) == (Wait(until=WaitFor.SIGNAL, key="approved"), None)
        assert scene.wires(claim.job_id)[-1] == "parked"

    @pytest.mark.parametrize("until", ["signal", "timer"])
    @pytest.mark.parametrize("deadline", DEADLINES, ids=shown)
    def test_a_wait_with_a_deadline_is_suspended(self, scene: Scene, until: str, deadline: Any) -> None:
        claim = scene.started()
        receipt = scene.engine.suspend(claim, "approved", until=until, deadline=deadline)
        assert receipt.state is State.WAITING
        assert scene.job(claim.job_id).wait == Wait(until=WaitFor(until), key="approved", deadline=START + MINUTE)
        assert scene.everything()[0].deadline == START + MINUTE

    @pytest.mark.parametrize("deadline", [None, 60])
    def test_a_wait_for_jobs_is_suspended(self, scene: Scene, deadline: int | None) -> None:
        other = scene.enqueued(due=3600)
        claim = scene.started()
        scene.engine.suspend(claim, "children", jobs=[other.upper()], deadline=deadline)
        wait = scene.job(claim.job_id).wait
        assert wait is not None
        assert (wait.until, wait.jobs, scene.wires(claim.job_id)[-1]) == (WaitFor.JOBS, (other,), "suspended")

    def test_a_waiting_job_is_charged_nothing_and_never_claimed(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.suspend(claim, "approved", deadline=60)
        scene.clock.advance(3600)
        assert scene.engine.claim("worker-2", limit=10) == []
        assert scene.job(claim.job_id).failures == 0

    @pytest.mark.parametrize("deadline", [None, 60])
    def test_an_answer_that_is_there_needs_no_wait(self, scene: Scene, deadline: int | None) -> None:
        claim = scene.started()
        scene.engine.signal(claim.job_id, "approved", "yes")
        with scene.unchanged():
            receipt = scene.engine.suspend(claim, "approved", deadline=deadline)
        assert (receipt.state, receipt.changed) == (State.RUNNING, False)

    def test_an_answer_of_another_sort_is_a_conflict(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.signal(claim.job_id, "nap", "yes")
        with scene.refuses(SignalConflictError):
            scene.engine.suspend(claim, "nap", until="timer", deadline=60)

    def test_a_request_to_cancel_is_heeded(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.cancel(claim.job_id)
        assert scene.engine.suspend(claim, "approved").state is State.CANCELLED

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"key": "no name"}, ValidationError),
            ({"key": ""}, ValidationError),
            ({"key": "x" * 201}, LimitExceededError),
            ({"until": "timer"}, ValidationError),
            ({"until": "jobs"}, ValidationError),
            ({"until": "rain"}, ValidationError),
            ({"deadline": -1}, LimitExceededError),
            ({"deadline": datetime(2033, 1, 1)}, ValidationError),  # noqa: DTZ001 - naive is what is to be refused
            ({"jobs": [NOBODY]}, JobNotFoundError),
            ({"jobs": ["no id"]}, ValidationError),
            ({"jobs": [NOBODY] * 1_001}, LimitExceededError),
        ],
        ids=shown,
    )
    def test_what_cannot_be_meant_is_refused(
        self, scene: Scene, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        claim = scene.started()
        with scene.refuses(error):
            scene.engine.suspend(claim, **{"key": "approved", **arguments})

    def test_a_job_cannot_wait_for_itself(self, scene: Scene) -> None:
        claim = scene.started()
        with scene.refuses(ValidationError):
            scene.engine.suspend(claim, "children", jobs=[claim.job_id])


class TestSuspendMany:
    """Many jobs wait for the same."""

    def test_all_of_them_wait(self, scene: Scene) -> None:
        claims = [scene.started() for _ in range(3)]
        outcomes = scene.engine.suspend_many(claims, "approved", deadline=60)
        assert [outcome.state for outcome in outcomes if isinstance(outcome, Receipt)] == ["waiting"] * 3
        assert {scene.everything()[place].deadline for place in range(3)} == {START + MINUTE}

    def test_one_refusal_does_not_stop_the_others(self, scene: Scene) -> None:
        first, second, third = scene.started(), scene.started(), scene.held()
        outcomes = scene.engine.suspend_many([forged(first.job_id), second, third, forged(NOBODY)], "approved")
        expected = [LeaseConflictError, Receipt, IllegalTransitionError, JobNotFoundError]
        assert [type(outcome) for outcome in outcomes] == expected

    def test_a_claim_that_stands_twice_waits_once(self, scene: Scene) -> None:
        claim = scene.started()
        first, second = scene.engine.suspend_many([claim, claim], "approved")
        assert isinstance(first, Receipt)
        assert isinstance(second, Receipt)
        assert (first.changed, second.changed) == (True, False)

    def test_a_job_that_is_not_there_cannot_be_waited_for(self, scene: Scene) -> None:
        claims = [scene.started() for _ in range(2)]
        with scene.refuses(JobNotFoundError):
            scene.engine.suspend_many(claims, "children", jobs=[NOBODY])

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.suspend_many([], "approved") == []


class TestSignal:
    """An answer, now or before it is asked for."""

    @pytest.mark.parametrize("state", [State.WAITING, State.PARKED])
    def test_it_ends_the_wait_and_the_job_is_due_now(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        scene.clock.advance(5)
        receipt = scene.engine.signal(job_id, "approved", {"by": "ann"})
        assert (receipt.state, receipt.changed) == (State.QUEUED, True)
        job = scene.job(job_id)
        assert (job.due, job.wait) == (START + 5 * SECOND, None)
        assert bytes(job.answers["approved"].payload) == b'{"by":"ann"}'
        assert scene.wires(job_id)[-1] == "resumed"

    def test_before_the_wait_it_is_kept(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        receipt = scene.engine.signal(job_id, "approved", 1)
        assert (receipt.state, receipt.version) == (State.QUEUED, 2)
        assert scene.last(job_id).event.wire == "signalled"
        assert bytes(scene.job(job_id).answers["approved"].payload) == b"1"

    @pytest.mark.parametrize("state", [State.INBOX, State.QUEUED, State.RUNNING, State.WAITING, State.PARKED])
    def test_the_same_answer_again_changes_nothing(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        scene.engine.signal(job_id, "approved", "yes")
        with scene.unchanged():
            assert not scene.engine.signal(job_id, "approved", "yes").changed

    @pytest.mark.parametrize("state", [State.QUEUED, State.WAITING, State.PARKED])
    def test_another_answer_is_a_conflict(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        scene.engine.signal(job_id, "approved", "yes")
        with scene.refuses(SignalConflictError):
            scene.engine.signal(job_id, "approved", "no")

    @pytest.mark.parametrize("state", sorted(ENDED))
    def test_an_answer_that_was_given_is_known_after_the_end(self, scene: Scene, state: State) -> None:
        job_id = scene.enqueued(policy=Policy(on_exhausted="fail" if state is State.FAILED else "dead_letter"))
        scene.engine.signal(job_id, "approved", "yes")
        claim = scene.started(job_id)
        if state is State.SUCCEEDED:
            scene.engine.complete(claim)
        elif state is State.CANCELLED:
            scene.engine.cancel_claim(claim)
        else:
            scene.engine.fail(claim, "x", permanent=True)
        assert scene.job(job_id).state is state
        with scene.unchanged():
            assert not scene.engine.signal(job_id, "approved", "yes").changed

    def test_a_wait_for_another_key_is_a_conflict_for_its_own_key_of_another_sort(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.suspend(claim, "nap", until="timer", deadline=60)
        with scene.refuses(SignalConflictError):
            scene.engine.signal(claim.job_id, "nap")

    def test_a_job_keeps_a_hundred_signals_and_no_more(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        for number in range(100):
            scene.engine.signal(job_id, f"key-{number}", number)
        with scene.refuses(LimitExceededError):
            scene.engine.signal(job_id, "one-more")
        assert not scene.engine.signal(job_id, "key-7", 7).changed

    @pytest.mark.parametrize("key", ["", "no name", "nul\x00", "x" * 201])
    def test_a_bad_key_is_refused(self, scene: Scene, key: str) -> None:
        job_id = scene.enqueued()
        with scene.refuses(LimitExceededError if len(key) > 200 else ValidationError):
            scene.engine.signal(job_id, key)

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.signal(NOBODY, "approved")


class TestExpire:
    """A wait whose deadline has passed."""

    @pytest.mark.parametrize("until", ["signal", "timer", "jobs"])
    def test_the_job_goes_on_and_is_told(self, scene: Scene, until: str) -> None:
        jobs = [scene.enqueued(due=3600)] if until == "jobs" else []
        claim = scene.started()
        scene.engine.suspend(claim, "approved", until=until, deadline=60, jobs=jobs)
        scene.clock.advance(60)
        receipt = scene.engine.expire(claim.job_id)
        assert receipt.state is State.QUEUED
        job, record = scene.job(claim.job_id), scene.last(claim.job_id)
        assert job.answers == {"approved": Answer(expired=True, until=WaitFor(until))}
        assert (record.who, record.event) == (Who.KEEPER, e.Resumed(key="approved", expired=True))

    def test_not_a_microsecond_before_its_deadline(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.suspend(claim, "approved", deadline=60)
        scene.clock.now = START + MINUTE - 1
        with scene.refuses(NotDueError):
            scene.engine.expire(claim.job_id)

    def test_between_a_signal_and_the_deadline_there_is_one_winner(self, scene: Scene) -> None:
        late, early = scene.reach(State.WAITING), scene.reach(State.WAITING)
        scene.engine.signal(early.job_id, "approved", "yes")
        scene.clock.advance(3600)
        with scene.refuses(IllegalTransitionError):
            scene.engine.expire(early.job_id)
        scene.engine.expire(late.job_id)
        with scene.refuses(SignalConflictError):
            scene.engine.signal(late.job_id, "approved", "yes")

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.expire(NOBODY)


class TestResume:
    """A wait for other jobs."""

    @pytest.mark.parametrize("end", sorted(ENDED))
    def test_it_ends_once_they_have_ended_however_that_was(self, scene: Scene, end: State) -> None:
        child = scene.enqueued(policy=Policy(on_exhausted="fail" if end is State.FAILED else "dead_letter"))
        job_id = scene.enqueued(after=[child])
        with scene.refuses(NotDueError):
            scene.engine.resume(job_id)
        claim = scene.started(child)
        if end is State.SUCCEEDED:
            scene.engine.complete(claim)
        elif end is State.CANCELLED:
            scene.engine.cancel_claim(claim)
        else:
            scene.engine.fail(claim, "x", permanent=True)
        receipt = scene.engine.resume(job_id)
        assert receipt.state is State.QUEUED
        assert scene.last(job_id).event == e.Resumed(key="after", outcomes={child: end.value})
        assert scene.wires(job_id) == ["enqueued", "suspended", "resumed"]

    def test_it_waits_for_the_last_of_them(self, scene: Scene) -> None:
        children = [scene.enqueued() for _ in range(3)]
        job_id = scene.enqueued(after=children)
        for child in children:
            with scene.refuses(NotDueError):
                scene.engine.resume(job_id)
            scene.engine.cancel(child)
        assert scene.engine.resume(job_id).state is State.QUEUED

    def test_it_is_not_due_before_it_was_enqueued_for(self, scene: Scene) -> None:
        child = scene.enqueued()
        job_id = scene.enqueued(after=[child], due=3600)
        scene.engine.cancel(child)
        scene.engine.resume(job_id)
        assert scene.job(job_id).due == START + 3600 * SECOND

    def test_a_handler_that_waited_finds_the_outcomes(self, scene: Scene) -> None:
        child, claim = scene.enqueued(due=60), scene.started()
        scene.engine.suspend(claim, "children", jobs=[child])
        scene.engine.cancel(child)
        scene.engine.resume(claim.job_id)
        assert child in bytes(scene.job(claim.job_id).answers["children"].payload).decode()

    @pytest.mark.parametrize("after", [[NOBODY], ["no id"]])
    def test_a_job_that_is_not_there_cannot_be_waited_for(self, scene: Scene, after: list[str]) -> None:
        with scene.refuses(JobNotFoundError if after == [NOBODY] else ValidationError):
            scene.enqueued(after=after)

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.resume(NOBODY)
