"""Is it true? verify, is_frozen, rebuild, export_jobs, import_jobs."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from leftfold import NewJob
from leftfold.core.errors import CorruptLogError, JobFrozenError, JobNotFoundError, LimitExceededError, ValidationError
from leftfold.core.lifecycle import State
from leftfold.store.audit import What
from leftfold.store.query import ids
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import KIND, NOBODY, Scene, shown
from leftfold.testing.conformance.worlds import ACTOR

AT_START = datetime.fromtimestamp(START / 1_000_000, UTC)


def some_jobs(scene: Scene) -> list[str]:
    """Give jobs in several states."""
    return [scene.reach(state).job_id for state in (State.QUEUED, State.RUNNING, State.PARKED, State.SUCCEEDED)]


class TestVerify:
    """Everything is derived anew."""

    def test_an_empty_world_is_clean(self, scene: Scene) -> None:
        verdict = scene.engine.verify()
        assert (verdict.is_clean, verdict.jobs, verdict.events, verdict.frozen) == (True, 0, 0, ())

    def test_it_looks_at_every_event_of_every_job(self, scene: Scene) -> None:
        jobs = some_jobs(scene)
        events = sum(len(scene.engine.history(job_id)) for job_id in jobs)
        verdict = scene.engine.verify()
        assert (verdict.is_clean, verdict.jobs, verdict.events) == (True, len(jobs), events)

    @pytest.mark.parametrize("state", State)
    def test_a_job_in_any_state_is_clean(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        assert scene.engine.verify(job=job_id).is_clean

    def test_a_row_that_differs_is_found_and_its_job_frozen(self, scene: Scene) -> None:
        good, bad = scene.enqueued(), scene.enqueued(priority="P0")
        scene.drift(bad, attempt=7)
        verdict = scene.engine.verify()
        assert [(found.what, found.job_id) for found in verdict.findings] == [(What.ROW, bad)]
        assert (verdict.total, verdict.frozen) == (1, (bad,))
        with scene.refuses(JobFrozenError):
            scene.engine.cancel(bad)
        assert [claim.job_id for claim in scene.engine.claim("w", limit=10)] == [good]
        scene.engine.rebuild(reason="enough seen")

    def test_it_writes_nothing_if_it_shall_not_freeze(self, scene: Scene) -> None:
        bad = scene.enqueued()
        scene.drift(bad, attempt=7)
        with scene.unchanged():
            verdict = scene.engine.verify(freeze=False)
        assert (verdict.total, verdict.frozen) == (1, ())
        scene.engine.rebuild(reason="enough seen")

    def test_what_is_frozen_is_found_again_and_not_frozen_again(self, scene: Scene) -> None:
        bad = scene.enqueued()
        scene.drift(bad, attempt=7)
        first = scene.engine.verify()
        with scene.unchanged():
            second = scene.engine.verify()
        assert (second.findings, second.frozen) == (first.findings, ())
        scene.engine.rebuild(reason="enough seen")

    def test_one_job_is_looked_at_alone(self, scene: Scene) -> None:
        good, bad = scene.enqueued(), scene.enqueued()
        scene.drift(bad, attempt=7)
        assert scene.engine.verify(job=good).is_clean
        assert scene.engine.verify(job=bad.upper()).frozen == (bad,)
        scene.engine.rebuild(reason="enough seen")

    @pytest.mark.parametrize(("seconds", "jobs"), [(-1, 3), (0, 3), (10, 2), (20, 1), (21, 0)])
    def test_since_leaves_out_what_did_not_change(self, scene: Scene, seconds: int, jobs: int) -> None:
        for _ in range(3):
            scene.enqueued()
            scene.clock.advance(10)
        assert scene.engine.verify(since=AT_START + timedelta(seconds=seconds)).jobs == jobs

    def test_a_job_that_did_not_change_since_is_left_out_also_by_its_id(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        verdict = scene.engine.verify(job=job_id, since=AT_START + timedelta(seconds=1))
        assert (verdict.jobs, verdict.findings) == (0, ())

    def test_progress_hears_how_many_were_looked_at(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob(KIND) for _ in range(1_200)])
        heard: list[int] = []
        scene.engine.verify(progress=heard.append)
        assert heard == sorted(heard)
        assert (heard[-1], len(heard) > 1) == (1_200, True)

    @pytest.mark.parametrize(("by", "actor"), [(None, ACTOR), ("ann", "ann")])
    def test_by_is_who_freezes(self, scene: Scene, by: str | None, actor: str) -> None:
        bad = scene.enqueued()
        scene.drift(bad, attempt=7)
        assert scene.engine.verify(by=by).frozen == (bad,)
        scene.engine.rebuild(reason="enough seen", by=actor)

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.verify(job=NOBODY)

    @pytest.mark.parametrize("job", ["", "x", 7, "0" * 31], ids=shown)
    def test_what_is_no_id_is_refused(self, scene: Scene, job: Any) -> None:
        with scene.refuses(ValidationError):
            scene.engine.verify(job=job)

    @pytest.mark.parametrize("since", [datetime(2026, 1, 1), "2026-01-01", 7], ids=shown)  # noqa: DTZ001 - that is it
    def test_what_is_no_moment_is_refused(self, scene: Scene, since: Any) -> None:
        with scene.refuses(ValidationError):
            scene.engine.verify(since=since)


class TestIsFrozen:
    """Whether a job is left alone until somebody has settled what is wrong with it."""

    def test_a_job_is_frozen_from_when_it_is_found_wrong_until_it_is_mended(self, scene: Scene) -> None:
        good, bad = scene.enqueued(), scene.enqueued()
        scene.drift(bad, attempt=7)
        assert not scene.engine.is_frozen(bad)
        scene.engine.verify()
        assert [scene.engine.is_frozen(job_id) for job_id in (good, bad)] == [False, True]
        scene.engine.rebuild(reason="enough seen")
        assert not scene.engine.is_frozen(bad)

    def test_it_writes_nothing(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        with scene.unchanged():
            scene.engine.is_frozen(job_id.upper())

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.is_frozen(NOBODY)

    @pytest.mark.parametrize("job", ["", "x", 7], ids=shown)
    def test_what_is_no_id_is_refused(self, scene: Scene, job: Any) -> None:
        with scene.refuses(ValidationError):
            scene.engine.is_frozen(job)


class TestRebuild:
    """Rows are brought to what their logs say."""

    @pytest.mark.parametrize(
        "changes",
        [{"attempt": 7}, {"priority": 9}, {"updated_at": 5}, {"queue": "other"}, {"failures": 1}, {"kind": "else"}],
        ids=lambda changes: next(iter(changes)),
    )
    def test_a_row_that_differs_is_mended(self, scene: Scene, changes: dict[str, Any]) -> None:
        job_id = scene.enqueued()
        before = scene.trace()
        scene.drift(job_id, **changes)
        mended = scene.engine.rebuild(job_id, reason="an edit by hand")
        assert What.ROW in [finding.what for finding in mended]
        assert scene.trace()[:3] == before[:3]
        assert scene.engine.verify().is_clean

    def test_a_mended_job_goes_on(self, scene: Scene) -> None:
        claim = scene.started()
        scene.drift(claim.job_id, attempt=7)
        scene.engine.verify()
        with scene.refuses(JobFrozenError):
            scene.engine.complete(claim)
        scene.engine.rebuild(reason="an edit by hand")
        assert scene.engine.complete(claim).state is State.SUCCEEDED

    def test_without_a_job_all_are_mended(self, scene: Scene) -> None:
        jobs = some_jobs(scene)
        before = scene.trace()
        for job_id in jobs:
            scene.drift(job_id, priority=9)
        assert {finding.job_id for finding in scene.engine.rebuild(reason="an edit by hand")} == set(jobs)
        assert scene.trace() == before

    def test_with_a_job_only_that_one_is_mended(self, scene: Scene) -> None:
        one, other = scene.enqueued(), scene.enqueued()
        scene.drift(one, priority=9)
        scene.drift(other, priority=9)
        scene.engine.rebuild(one, reason="an edit by hand")
        assert [finding.job_id for finding in scene.engine.verify(freeze=False).findings] == [other]
        scene.engine.rebuild(reason="the rest")

    def test_what_renewals_did_stays(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.advance(5)
        renewed = scene.engine.heartbeat(claim)
        scene.drift(claim.job_id, priority=9)
        scene.engine.rebuild(reason="an edit by hand")
        job = scene.job(claim.job_id)
        assert (job.rev, job.lease and job.lease.until) == (renewed.rev, renewed.until)

    def test_a_lease_that_no_renewal_can_have_moved_is_as_the_log_says(self, scene: Scene) -> None:
        claim = scene.started()
        scene.drift(claim.job_id, until=claim.until + 1)
        assert [found.what for found in scene.engine.rebuild(reason="an edit by hand")] == [What.ROW]
        lease = scene.job(claim.job_id).lease
        assert lease is not None
        assert lease.until == claim.until

    def test_a_frozen_job_whose_row_is_right_is_free_again(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        scene.past_the_engine(ids("freeze", [job_id]))
        assert scene.engine.claim("w", limit=10) == []
        assert scene.engine.rebuild(job_id, reason="it was nothing") == []
        assert [claim.job_id for claim in scene.engine.claim("w", limit=10)] == [job_id]

    def test_where_nothing_differs_nothing_happens(self, scene: Scene) -> None:
        some_jobs(scene)
        with scene.unchanged():
            assert scene.engine.rebuild(reason="to be sure") == []

    def test_a_log_that_is_not_sound_is_refused_by_its_id(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        scene.drift(job_id, head=bytes(32))
        with scene.refuses(CorruptLogError):
            scene.engine.rebuild(job_id, reason="hope")
        with scene.unchanged():
            assert scene.engine.rebuild(reason="hope") == []
        assert [finding.what for finding in scene.engine.verify(freeze=False).findings] == [What.HEAD]
        scene.drift(job_id, head=scene.head(job_id))

    @pytest.mark.parametrize(
        ("reason", "error"),
        [("", ValidationError), (None, ValidationError), (7, ValidationError), ("x" * 100_001, LimitExceededError)],
        ids=shown,
    )
    def test_it_needs_a_reason(self, scene: Scene, reason: Any, error: type[Exception]) -> None:
        with scene.refuses(error):
            scene.engine.rebuild(reason=reason)

    @pytest.mark.parametrize("job", ["", "x", 7], ids=shown)
    def test_what_is_no_id_is_refused(self, scene: Scene, job: Any) -> None:
        with scene.refuses(ValidationError):
            scene.engine.rebuild(job, reason="why not")


def exported(lines: Iterator[str]) -> list[str]:
    """Give the ids of the jobs in an export, which begins and ends as it should."""
    first, *jobs, last = (msgspec.json.decode(line) for line in lines)
    assert (first["is"], last["is"], last["jobs"]) == ("leftfold export", "end", len(jobs))
    return [job["id"] for job in jobs]


class TestExportJobs:
    """Whole jobs as lines."""

    def test_an_empty_world_is_two_lines(self, scene: Scene) -> None:
        assert exported(scene.engine.export_jobs()) == []

    def test_every_job_is_a_line_in_the_order_of_ids(self, scene: Scene) -> None:
        assert exported(scene.engine.export_jobs()) == [] != sorted(some_jobs(scene))
        assert exported(scene.engine.export_jobs()) == sorted(job.id for job in scene.everything())

    def test_it_writes_nothing(self, scene: Scene) -> None:
        some_jobs(scene)
        with scene.unchanged():
            list(scene.engine.export_jobs())

    def test_a_line_ends_as_lines_do(self, scene: Scene) -> None:
        some_jobs(scene)
        assert all(line.endswith("}\n") and line.count("\n") == 1 for line in scene.engine.export_jobs())

    def test_many_jobs_come_over_several_pages(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob(KIND) for _ in range(1_100)])
        assert len(exported(scene.engine.export_jobs())) == 1_100

    @pytest.mark.parametrize("column", ["queue", "kind", "tenant"])
    def test_a_filter_gives_what_it_says_and_no_more(self, scene: Scene, column: str) -> None:
        wanted = scene.enqueued(**{column: "other"})
        scene.enqueued()
        assert exported(scene.engine.export_jobs(**{column: "other"})) == [wanted]  # type: ignore[arg-type]

    @pytest.mark.parametrize("states", ["parked", State.PARKED, ["parked"], {State.PARKED, "running"}], ids=shown)
    def test_states_are_one_or_many(self, scene: Scene, states: Any) -> None:
        queued, running, parked, _ = some_jobs(scene)
        found = exported(scene.engine.export_jobs(states=states))
        assert set(found) == ({running, parked} if len(states) == 2 and not isinstance(states, str) else {parked})
        assert queued not in found

    def test_jobs_are_meant_by_their_ids(self, scene: Scene) -> None:
        jobs = sorted(some_jobs(scene))
        assert exported(scene.engine.export_jobs(jobs=[jobs[2].upper(), jobs[0], jobs[0], NOBODY])) == [
            jobs[0],
            jobs[2],
        ]
        assert exported(scene.engine.export_jobs(jobs=[])) == []

    def test_more_ids_than_a_page_holds_are_all_meant(self, scene: Scene) -> None:
        made = [each.job_id for each in scene.engine.enqueue_many([NewJob(KIND) for _ in range(1_100)]) if each]
        assert exported(scene.engine.export_jobs(jobs=made[::-1])) == sorted(made)

    def test_arguments_are_all_meant(self, scene: Scene) -> None:
        queued, running, *_ = some_jobs(scene)
        assert exported(scene.engine.export_jobs(jobs=[queued, running], states="queued")) == [queued]
        assert exported(scene.engine.export_jobs(jobs=[queued], queue="other")) == []

    def test_since_leaves_out_what_did_not_change(self, scene: Scene) -> None:
        scene.enqueued()
        scene.clock.advance(10)
        later = scene.enqueued()
        assert exported(scene.engine.export_jobs(since=AT_START + timedelta(seconds=1))) == [later]

    @pytest.mark.parametrize(
        "arguments",
        [{"jobs": ["x"]}, {"states": "lost"}, {"queue": 7}, {"kind": 7}, {"tenant": 7}, {"since": 7}],
        ids=shown,
    )
    def test_what_cannot_be_meant_is_refused(self, scene: Scene, arguments: Any) -> None:
        with scene.refuses(ValidationError):
            next(scene.engine.export_jobs(**arguments))


class TestImportJobs:
    """Whole jobs come in, as they are."""

    def test_what_is_there_already_is_left_alone(self, scene: Scene) -> None:
        jobs = some_jobs(scene)
        lines = list(scene.engine.export_jobs())
        with scene.unchanged():
            done = scene.engine.import_jobs(lines)
        assert (done.imported, done.present, done.refused) == (0, len(jobs), ())

    def test_jobs_come_as_they_were_and_go_on(self, scene: Scene) -> None:
        reached = {state: scene.reach(state) for state in State}
        before = {job.id: (scene.job(job.id), scene.engine.history(job.id)) for job in scene.everything()}
        lines = list(scene.engine.export_jobs())
        other = scene.elsewhere()
        done = other.engine.import_jobs(lines)
        assert (done.imported, done.present, done.refused) == (len(before), 0, ())
        assert {job_id: (other.job(job_id), other.engine.history(job_id)) for job_id in before} == before
        assert other.engine.counts() == scene.engine.counts()
        assert other.engine.verify().is_clean
        other.clock.now = scene.clock.now
        assert other.engine.complete(reached[State.RUNNING].claim).state is State.SUCCEEDED
        other.engine.start(other.held(reached[State.QUEUED].job_id))

    def test_a_job_that_went_on_is_refused_and_left_alone(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        lines = list(scene.engine.export_jobs())
        scene.held(job_id)
        with scene.unchanged():
            done = scene.engine.import_jobs(lines)
        assert [finding.job_id for finding in done.refused] == [job_id]

    def test_a_key_that_a_live_job_holds_is_refused(self, scene: Scene) -> None:
        job_id = scene.enqueued(key="k")
        lines = list(scene.engine.export_jobs())
        other = scene.elsewhere()
        other.enqueued(key="k")
        done = other.engine.import_jobs(lines)
        assert [(finding.what, finding.job_id) for finding in done.refused] == [(What.KEY, job_id)]
        assert other.engine.verify().is_clean

    def test_progress_hears_how_many_are_done(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob(KIND) for _ in range(1_100)])
        heard: list[int] = []
        done = scene.elsewhere().engine.import_jobs(list(scene.engine.export_jobs()), progress=heard.append)
        assert (heard[-1], len(heard) > 1, done.imported) == (1_100, True, 1_100)

    @pytest.mark.parametrize("lines", [[], [""], ["{}\n"], ["null\n"], ['{"is":"job"}\n'], ["\ud800"]], ids=shown)
    def test_what_is_no_export_is_refused(self, scene: Scene, lines: list[str]) -> None:
        with scene.refuses(ValidationError):
            scene.engine.import_jobs(lines)
