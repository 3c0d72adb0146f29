"""Dead letters by what went wrong, and what operators do with many of them."""

from typing import Any

import pytest

from leftfold import Receipt
from leftfold.core import events as e
from leftfold.core.errors import (
    IllegalTransitionError,
    JobEndedError,
    JobNotFoundError,
    LimitExceededError,
    NotPermittedError,
    RequestReusedError,
    RevisionConflictError,
    ValidationError,
)
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import ENDED, FINAL, State, Who
from leftfold.core.values import Failure
from leftfold.testing.conformance.scene import KIND, NOBODY, Scene, refused

WRONG = Failure(code="bank", message="card 4711 of 'ann' was declined")
LIKE_WRONG = Failure(code="bank", message="card 815 of 'bob' was declined")
OTHER = Failure(code="bank", message="no such account")


def set_aside(scene: Scene, error: Failure = WRONG, **job: Any) -> str:
    """Make a dead letter, a second behind the one before."""
    claim = scene.started(**job)
    scene.clock.advance(1)
    scene.engine.fail(claim, error, permanent=True)
    return claim.job_id


class TestIncidents:
    """All of them."""

    def test_letters_that_the_same_thing_went_wrong_with_are_one(self, scene: Scene) -> None:
        first, second, other = set_aside(scene), set_aside(scene, LIKE_WRONG), set_aside(scene, OTHER)
        newest, oldest = scene.engine.incidents()
        assert (newest.open, newest.resolved, newest.error, newest.oldest, newest.newest) == (1, 0, OTHER, other, other)
        assert (oldest.open, oldest.error, oldest.oldest, oldest.newest) == (2, LIKE_WRONG, first, second)
        assert (oldest.kind, oldest.reason_code, oldest.stage) == (KIND, Reason.POLICY_VIOLATION, Stage.EXEC)
        assert (oldest.first_at, oldest.last_at) == (scene.last(first).at, scene.last(second).at)
        assert oldest.id == scene.job(first).incident == scene.job(second).incident != scene.job(other).incident

    def test_without_dead_letters_there_are_none(self, scene: Scene) -> None:
        for state in set(State) - {State.DEAD_LETTERED}:
            scene.reach(state)
        assert scene.engine.incidents() == []

    @pytest.mark.parametrize(
        ("asked", "found"),
        [({}, {"a", "b", "c"}), ({"kind": "a"}, {"a"}), ({"queue": "slow"}, {"b", "c"}), ({"tenant": "acme"}, {"c"}),
         ({"queue": "slow", "tenant": ""}, {"b"}), ({"kind": "none"}, set())],
        ids=str,
    )  # fmt: skip
    def test_they_are_chosen(self, scene: Scene, asked: dict[str, Any], found: set[str]) -> None:
        set_aside(scene, kind="a")
        set_aside(scene, kind="b", queue="slow")
        set_aside(scene, kind="c", queue="slow", tenant="acme")
        assert {each.kind for each in scene.engine.incidents(**asked)} == found

    def test_one_letter_of_another_queue_is_not_counted(self, scene: Scene) -> None:
        set_aside(scene)
        set_aside(scene, queue="slow")
        assert [each.open for each in scene.engine.incidents(queue="slow")] == [1]
        assert [each.open for each in scene.engine.incidents()] == [2]

    @pytest.mark.parametrize("of", ["queue", "tenant"])
    def test_of_others_nothing_is_shown(self, scene: Scene, of: str) -> None:
        us: dict[str, Any] = {of: "ours"}
        ours = [set_aside(scene, **us), set_aside(scene, LIKE_WRONG, **us)]
        secret = Failure(code="bank", message="card 9 of 'eve' was declined")
        set_aside(scene, secret, queue="theirs", tenant="theirs")
        (incident,) = scene.engine.incidents(**us)
        assert (incident.oldest, incident.newest, incident.error) == (*ours, LIKE_WRONG)
        assert (incident.first_at, incident.last_at) == (scene.last(ours[0]).at, scene.last(ours[1]).at)

    def test_they_are_given_page_by_page(self, scene: Scene) -> None:
        for number in range(5):
            set_aside(scene, kind=f"k{number}")
        everything = scene.engine.incidents()
        first = scene.engine.incidents(limit=2)
        second = scene.engine.incidents(limit=2, after=first[-1])
        third = scene.engine.incidents(limit=2, after=second[-1])
        assert first + second + third == everything
        assert scene.engine.incidents(after=everything[-1]) == []

    def test_one_that_is_resolved_is_asked_for(self, scene: Scene) -> None:
        settled, other = set_aside(scene), set_aside(scene, OTHER)
        scene.engine.resolve_many([settled], reason="paid by hand")
        name, of_other = scene.job(settled).incident, scene.job(other).incident
        assert [each.id for each in scene.engine.incidents()] == [of_other]
        assert [(each.id, each.open, each.resolved) for each in scene.engine.incidents(resolved=True)] == [(name, 0, 1)]
        assert {each.id for each in scene.engine.incidents(resolved=None)} == {name, of_other}
        set_aside(scene)
        assert {(each.id, each.open, each.resolved) for each in scene.engine.incidents()} == {
            (name, 1, 1), (of_other, 1, 0),
        }  # fmt: skip

    def test_what_is_tried_again_leaves_it_and_may_come_back(self, scene: Scene) -> None:
        job_id = set_aside(scene)
        (before,) = scene.engine.incidents()
        scene.engine.requeue(job_id, reason="the bank is back")
        assert scene.engine.incidents(resolved=None) == []
        assert scene.job(job_id).incident is None
        claim = scene.started(job_id)
        scene.clock.advance(1)
        scene.engine.fail(claim, LIKE_WRONG, permanent=True)
        (after,) = scene.engine.incidents()
        assert (after.id, after.open) == (before.id, 1)
        assert after.last_at > before.last_at

    def test_what_is_frozen_is_left_to_verify(self, scene: Scene) -> None:
        job_id, other = set_aside(scene), set_aside(scene)
        scene.drift(job_id, failures=7)
        assert scene.engine.verify().frozen == (job_id,)
        (incident,) = scene.engine.incidents()
        assert (incident.open, incident.oldest) == (1, other)
        scene.engine.rebuild(reason="enough seen")

    def test_a_limit_is_a_limit(self, scene: Scene) -> None:
        for limit in (0, 1_001):
            with scene.refuses(LimitExceededError):
                scene.engine.incidents(limit=limit)


class TestIncident:
    """One of them."""

    def test_it_is_found_by_its_name_or_the_beginning_of_it(self, scene: Scene) -> None:
        set_aside(scene)
        (incident,) = scene.engine.incidents()
        assert scene.engine.incident(incident.id) == scene.engine.incident(incident.id[:4]) == incident
        assert scene.engine.incidents(incident=incident.id[:4]) == [incident]

    def test_a_beginning_that_two_share_is_too_short(self, scene: Scene) -> None:
        for number in range(17):  # one more than there are digits
            set_aside(scene, kind=f"k{number}")
        names = [incident.id[0] for incident in scene.engine.incidents()]
        shared = next(digit for digit in names if names.count(digit) > 1)
        with scene.refuses(ValidationError):
            scene.engine.incident(shared)

    def test_what_is_not_there_is_said(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.incident("0123456789ab")
        for name in ("", "x", "0123456789abc", "AB"):
            with scene.refuses(ValidationError):
                scene.engine.incident(name)

    def test_its_letters_are_listed(self, scene: Scene) -> None:
        first, second, other = set_aside(scene), set_aside(scene), set_aside(scene, OTHER)
        name = scene.job(first).incident
        assert [job.id for job in scene.engine.list(incident=name).jobs] == [second, first]
        scene.engine.resolve_many([first], reason="known")
        assert [job.id for job in scene.engine.list(incident=name, resolved=False).jobs] == [second]
        (settled,) = scene.engine.list(states=State.DEAD_LETTERED, resolved=True).jobs
        assert (settled.id, settled.incident, settled.resolved_at) == (first, name, scene.last(first).at)
        assert {job.id for job in scene.engine.list(resolved=False).jobs} == {second, other}


class TestRequeueMany:
    """Many jobs once more."""

    def test_all_are_claimable_and_the_reason_stands_on_each_log(self, scene: Scene) -> None:
        ids = [set_aside(scene) for _ in range(3)]
        outcomes = scene.engine.requeue_many(ids, reason="the bank is back", by="ann", request_id="r")
        assert [outcome.state for outcome in outcomes if isinstance(outcome, Receipt)] == [State.QUEUED] * 3
        for job_id in ids:
            record = scene.last(job_id)
            assert (record.who, record.actor, record.request_id) == (Who.OPERATOR, "ann", "r")
            assert record.event == e.Requeued(due=record.at, reason="the bank is back")
        assert len(scene.engine.claim("worker-1", limit=10)) == 3

    def test_what_is_refused_is_its_own(self, scene: Scene) -> None:
        letter, done = set_aside(scene), scene.reach(State.SUCCEEDED).job_id
        outcomes = scene.engine.requeue_many([letter, done, NOBODY], reason="again")
        assert isinstance(outcomes[0], Receipt)
        assert refused(outcomes[1], JobEndedError)
        assert refused(outcomes[2], JobNotFoundError)

    def test_one_that_a_list_showed_must_be_as_it_was_shown(self, scene: Scene) -> None:
        first, second = set_aside(scene), set_aside(scene)
        page = scene.engine.list(states=State.DEAD_LETTERED)
        scene.engine.remark_many([first], "wait for me")
        outcomes = scene.engine.requeue_many(page.jobs, reason="again")
        assert isinstance(outcomes[0], Receipt)
        assert refused(outcomes[1], RevisionConflictError)
        assert (scene.job(first).state, scene.job(second).state) == (State.DEAD_LETTERED, State.QUEUED)

    def test_the_same_request_happens_once(self, scene: Scene) -> None:
        job_id = set_aside(scene)
        scene.engine.requeue_many([job_id], reason="again", request_id="r")
        claim = scene.started(job_id)
        scene.engine.fail(claim, WRONG, permanent=True)
        with scene.unchanged():
            (outcome,) = scene.engine.requeue_many([job_id], reason="again", request_id="r")
            assert isinstance(outcome, Receipt)
            assert (outcome.state, outcome.changed) == (State.DEAD_LETTERED, False)
            (other,) = scene.engine.requeue_many([job_id], reason="another", request_id="r")
            assert refused(other, RequestReusedError)

    def test_they_may_be_due_later(self, scene: Scene) -> None:
        ids = [set_aside(scene) for _ in range(2)]
        scene.engine.requeue_many(ids, reason="again", due=60)
        assert scene.engine.claim("worker-1", limit=2) == []
        scene.clock.advance(60)
        assert len(scene.engine.claim("worker-1", limit=2)) == 2

    def test_a_closed_job_needs_a_reason(self, scene: Scene) -> None:
        job_id = set_aside(scene)
        with scene.unchanged():
            (outcome,) = scene.engine.requeue_many([job_id])
            assert refused(outcome, ValidationError)

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.requeue_many([], reason="again") == []


class TestRemarkMany:
    """What others should know."""

    @pytest.mark.parametrize("state", [state for state in State if state not in FINAL], ids=str)
    def test_it_stands_on_the_log_and_changes_nothing(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        before = scene.job(job_id)
        (outcome,) = scene.engine.remark_many([job_id], "asked the bank\nthey look into it", by="ann")
        assert isinstance(outcome, Receipt)
        assert (outcome.state, outcome.version) == (state, before.version + 1)
        record = scene.last(job_id)
        assert (record.who, record.actor) == (Who.OPERATOR, "ann")
        assert record.event == e.Remarked(text="asked the bank\nthey look into it")
        assert scene.job(job_id).ended_at == before.ended_at

    @pytest.mark.parametrize("state", sorted(FINAL))
    def test_a_final_job_takes_none(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        with scene.unchanged():
            (outcome,) = scene.engine.remark_many([job_id], "too late")
            assert refused(outcome, JobEndedError)

    def test_what_says_nothing_is_refused(self, scene: Scene) -> None:
        job_id = set_aside(scene)
        for text in ("", " \n", "\x00"):
            with scene.refuses(ValidationError):
                scene.engine.remark_many([job_id], text)

    def test_it_is_an_operators_to_say(self, scene: Scene) -> None:
        claim = scene.started()
        for note in (e.Remarked(text="so"), e.Resolved(reason="so")):
            with scene.refuses(NotPermittedError):
                scene.engine.note(claim, note)
            with scene.refuses(NotPermittedError):
                scene.engine.note(claim.job_id, note)

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.remark_many([], "so") == []


class TestResolveMany:
    """Dead letters that nobody has to look at any more."""

    def test_they_stay_as_they_are_and_are_settled(self, scene: Scene) -> None:
        ids = [set_aside(scene) for _ in range(2)]
        outcomes = scene.engine.resolve_many(ids, reason="paid by hand", by="ann")
        assert [outcome.state for outcome in outcomes if isinstance(outcome, Receipt)] == [State.DEAD_LETTERED] * 2
        for job_id in ids:
            job, record = scene.job(job_id), scene.last(job_id)
            assert (record.who, record.actor, record.event) == (Who.OPERATOR, "ann", e.Resolved(reason="paid by hand"))
            assert (job.resolved_at, job.error) == (record.at, WRONG)
            assert (job.ended_at or 0) <= record.at

    def test_to_say_it_again_is_fine(self, scene: Scene) -> None:
        job_id = set_aside(scene)
        scene.engine.resolve_many([job_id], reason="paid by hand")
        with scene.unchanged():
            (outcome,) = scene.engine.resolve_many([job_id], reason="for another reason")
            assert isinstance(outcome, Receipt)
            assert not outcome.changed

    def test_a_request_with_an_id_happens_once_even_if_it_was_so_already(self, scene: Scene) -> None:
        job_id = set_aside(scene)
        scene.engine.resolve_many([job_id], reason="known")
        scene.engine.resolve_many([job_id], reason="known", request_id="r")
        scene.engine.requeue(job_id, reason="again")
        scene.engine.fail(scene.started(job_id), WRONG, permanent=True)
        with scene.unchanged():
            scene.engine.resolve_many([job_id], reason="known", request_id="r")
        assert scene.job(job_id).resolved_at is None

    def test_one_that_is_tried_again_is_settled_no_more(self, scene: Scene) -> None:
        job_id = set_aside(scene)
        scene.engine.resolve_many([job_id], reason="known")
        scene.engine.requeue(job_id, reason="after all")
        assert (scene.job(job_id).incident, scene.job(job_id).resolved_at) == (None, None)

    @pytest.mark.parametrize("state", [state for state in State if state is not State.DEAD_LETTERED], ids=str)
    def test_what_is_no_dead_letter_is_refused(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        with scene.unchanged():
            (outcome,) = scene.engine.resolve_many([job_id], reason="known")
            assert refused(outcome, JobEndedError if state in ENDED else IllegalTransitionError)

    def test_a_reason_is_needed(self, scene: Scene) -> None:
        job_id = set_aside(scene)
        for reason in ("", "  "):
            with scene.refuses(ValidationError):
                scene.engine.resolve_many([job_id], reason=reason)

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.resolve_many([], reason="known") == []
