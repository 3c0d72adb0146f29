"""Reading: get, history, find, list, counts. Nothing here writes."""

from typing import Any, Final
from uuid import UUID

import pytest

from leftfold import NewJob
from leftfold.core.errors import JobNotFoundError, LimitExceededError, ValidationError
from leftfold.core.job import fold, logged
from leftfold.core.lifecycle import State
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import KIND, NOBODY, Scene, shown

BAD_IDS: Final = ["", "no id", "1234", f"{NOBODY}0", "nul\x00", "half \ud800", None, 7]
#: A filter, and a value of it that only the second of three jobs has.
FILTERS: Final[dict[str, Any]] = {
    "queue": "mail",
    "kind": "sms.send",
    "tenant": "acme",
    "key": "order:42",
    "correlation_id": "order-7",
}


class TestGet:
    """One job, as it is now."""

    def test_it_is_the_fold_of_the_history(self, scene: Scene) -> None:
        job_id = scene.reach(State.RETRYING).job_id
        folded = fold(scene.engine.history(job_id))
        assert folded is not None
        assert logged(scene.engine.get(job_id)) == logged(folded)

    def test_an_id_may_be_spelled_in_other_ways(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        other: list[Any] = [job_id.upper(), job_id.replace("-", ""), UUID(job_id)]
        assert {scene.engine.get(spelled).id for spelled in other} == {job_id}

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.get(NOBODY)

    @pytest.mark.parametrize("job_id", BAD_IDS, ids=shown)
    def test_what_is_no_id_is_refused(self, scene: Scene, job_id: Any) -> None:
        with scene.refuses(ValidationError):
            scene.engine.get(job_id)

    def test_it_writes_nothing(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        with scene.unchanged():
            scene.engine.get(job_id)


class TestHistory:
    """A job's log."""

    def test_the_versions_count_from_one_without_gaps(self, scene: Scene) -> None:
        job_id = scene.reach(State.SUCCEEDED).job_id
        log = scene.engine.history(job_id)
        assert [record.version for record in log] == [1, 2, 3, 4]
        assert {record.job_id for record in log} == {job_id}
        assert [record.id for record in log] == [f"{job_id}:{version}" for version in (1, 2, 3, 4)]

    def test_each_record_tells_its_moment(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        scene.clock.advance(1)
        claim = scene.held(job_id)
        scene.clock.advance(0.000001)
        scene.engine.start(claim)
        assert [record.at - START for record in scene.engine.history(job_id)] == [0, 1_000_000, 1_000_001]

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.history(NOBODY)

    @pytest.mark.parametrize("job_id", BAD_IDS, ids=shown)
    def test_what_is_no_id_is_refused(self, scene: Scene, job_id: Any) -> None:
        with scene.refuses(ValidationError):
            scene.engine.history(job_id)


class TestHistories:
    """The logs of many jobs, in one look."""

    def test_each_is_what_history_gives(self, scene: Scene) -> None:
        job_ids = [scene.enqueued(), scene.started().job_id, scene.enqueued()]
        found = scene.engine.histories(reversed(job_ids))
        assert list(found) == job_ids[::-1], "in the order in which they were asked for"
        assert found == {job_id: scene.engine.history(job_id) for job_id in job_ids}

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.histories([]) == {}

    def test_one_that_is_not_there_is_told(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        with scene.refuses(JobNotFoundError):
            scene.engine.histories([job_id, NOBODY])

    def test_a_look_has_a_bound(self, scene: Scene) -> None:
        with scene.refuses(LimitExceededError):
            scene.engine.histories([NOBODY] * 1_001)


class TestFind:
    """The one id that begins so."""

    @pytest.mark.parametrize("length", [1, 8, 9, 13, 14, 35, 36])
    def test_a_beginning_is_enough(self, scene: Scene, length: int) -> None:
        job_id = scene.enqueued()
        assert scene.engine.find(job_id[:length]) == job_id
        assert scene.engine.find(job_id[:length].upper()) == job_id

    def test_more_than_one_is_refused(self, scene: Scene) -> None:
        first, second = scene.enqueued(), scene.enqueued()
        with scene.refuses(ValidationError):
            scene.engine.find(first[:8])
        assert scene.engine.find(second) == second

    @pytest.mark.parametrize("beginning", [NOBODY, NOBODY[:8], "f", "ffffffff-ffff"])
    def test_none_is_refused(self, scene: Scene, beginning: str) -> None:
        scene.enqueued()
        with scene.refuses(JobNotFoundError):
            scene.engine.find(beginning)

    @pytest.mark.parametrize(
        "beginning",
        ["", "xyz", "not-an-id", "0123-", f"{NOBODY}0", "%", "_", "nul\x00", "half \ud800", "０"],
        ids=ascii,
    )
    def test_what_is_no_beginning_is_refused(self, scene: Scene, beginning: str) -> None:
        scene.enqueued()
        with scene.refuses(ValidationError):
            scene.engine.find(beginning)


class TestList:
    """Pages of summaries, newest first."""

    def test_a_summary_tells_what_a_list_shows(self, scene: Scene) -> None:
        job_id = scene.enqueued(key="order:42", tenant="acme", correlation_id="order-7", priority="P1", due=60)
        (summary,) = scene.engine.list().jobs
        assert (summary.id, summary.kind, summary.queue, summary.tenant) == (job_id, KIND, "default", "acme")
        assert (summary.key, summary.priority, summary.correlation_id) == ("order:42", 20, "order-7")
        assert (summary.state, summary.version, summary.rev, summary.attempt) == (State.QUEUED, 1, 1, 0)
        assert (summary.created_at, summary.updated_at, summary.due) == (START, START, START + 60_000_000)
        assert (summary.owner, summary.until, summary.deadline, summary.cancel_requested) == (None, None, None, False)
        assert not summary.frozen

    def test_a_summary_follows_renewals(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.advance(30)
        scene.engine.heartbeat(claim)
        (summary,) = scene.engine.list().jobs
        assert (summary.owner, summary.until, summary.rev) == ("worker-1", START + 90_000_000, 4)

    def test_an_empty_world_is_an_empty_page(self, scene: Scene) -> None:
        page = scene.engine.list()
        assert (page.jobs, page.next) == ((), None)

    def test_some_are_listed_by_their_ids(self, scene: Scene) -> None:
        first, second, third = (scene.enqueued() for _ in range(3))
        assert [job.id for job in scene.engine.list(ids=[first, third.upper(), NOBODY]).jobs] == [third, first]
        assert scene.engine.list(ids=[second], states=State.RUNNING).jobs == ()
        assert scene.engine.list(ids=[]).jobs == ()
        with scene.refuses(ValidationError):
            scene.engine.list(ids=["nobody"])
        with scene.refuses(LimitExceededError):
            scene.engine.list(ids=[first] * 1_001)

    @pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 1_000])
    def test_pages_show_every_job_once_and_newest_first(self, scene: Scene, limit: int) -> None:
        made = [scene.enqueued() for _ in range(7)]
        shown_ids: list[str] = []
        after = None
        for _ in made:
            page = scene.engine.list(limit=limit, after=after)
            assert len(page.jobs) <= limit
            shown_ids += [job.id for job in page.jobs]
            after = page.next
            if after is None:
                break
        assert shown_ids == made[::-1]

    @pytest.mark.parametrize(("limit", "is_last"), [(2, False), (3, True), (4, True)])
    def test_the_last_page_says_that_it_is_the_last(self, scene: Scene, limit: int, is_last: bool) -> None:
        for _ in range(3):
            scene.enqueued()
        assert (scene.engine.list(limit=limit).next is None) is is_last

    def test_a_page_goes_on_where_the_last_one_ended_though_jobs_came_meanwhile(self, scene: Scene) -> None:
        made = [scene.enqueued() for _ in range(4)]
        page = scene.engine.list(limit=2)
        scene.enqueued()
        assert [job.id for job in scene.engine.list(limit=2, after=page.next).jobs] == made[1::-1]

    @pytest.mark.parametrize(("column", "value"), FILTERS.items())
    def test_a_filter_shows_what_it_says_and_no_more(self, scene: Scene, column: str, value: Any) -> None:
        scene.enqueued()
        wanted = scene.enqueued(**{column: value})
        scene.enqueued()
        assert [job.id for job in scene.engine.list(**{column: value}).jobs] == [wanted]
        others: list[dict[str, Any]] = [{column: "other"}, {column: value.upper()}]
        assert [scene.engine.list(**other).jobs for other in others] == [(), ()]

    def test_the_owner_is_who_holds_it_now(self, scene: Scene) -> None:
        claim = scene.held(owner="worker-7")
        assert [job.id for job in scene.engine.list(owner="worker-7").jobs] == [claim.job_id]
        scene.engine.release(claim)
        assert scene.engine.list(owner="worker-7").jobs == ()

    def test_no_tenant_is_a_tenant_too(self, scene: Scene) -> None:
        scene.enqueued(tenant="acme")
        own = scene.enqueued()
        assert [job.id for job in scene.engine.list(tenant="").jobs] == [own]

    def test_filters_are_all_meant(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(kind, queue=queue) for kind in ("x", "y") for queue in ("a", "b"))
        assert len(scene.engine.list(kind="x", queue="a", states=["queued", "claimed"]).jobs) == 1

    @pytest.mark.parametrize(
        ("states", "jobs"),
        [
            (None, 3), ("queued", 2), (State.QUEUED, 2), (["claimed"], 1), (["queued", "claimed"], 3),
            (["queued", "queued"], 2), ([], 0), (["failed"], 0),
        ],
        ids=shown,
    )  # fmt: skip
    def test_states_are_one_or_many(self, scene: Scene, states: Any, jobs: int) -> None:
        scene.enqueued(), scene.enqueued(), scene.held()
        assert len(scene.engine.list(states=states).jobs) == jobs

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"limit": 0}, LimitExceededError),
            ({"limit": 1_001}, LimitExceededError),
            ({"limit": "ten"}, ValidationError),
            ({"states": "gone"}, ValidationError),
            ({"states": ["queued", "gone"]}, ValidationError),
            ({"after": "no id"}, ValidationError),
            ({"queue": "nul\x00"}, ValidationError),
            ({"kind": "half \ud800"}, ValidationError),
            ({"tenant": "nul\x00"}, ValidationError),
            ({"key": "nul\x00"}, ValidationError),
            ({"correlation_id": "half \ud800"}, ValidationError),
            ({"owner": "nul\x00"}, ValidationError),
            ({"key": 7}, ValidationError),
        ],
        ids=shown,
    )
    def test_what_cannot_be_meant_is_refused(
        self, scene: Scene, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        with scene.refuses(error):
            scene.engine.list(**arguments)


class TestCounts:
    """How many jobs are where."""

    def test_an_empty_world_counts_nothing(self, scene: Scene) -> None:
        assert scene.engine.counts() == []

    def test_they_are_told_apart_by_queue_kind_and_state(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob("x"), NewJob("x"), NewJob("y"), NewJob("x", queue="mail")])
        scene.held(kind="x")
        found = [(count.queue, count.kind, count.state, count.jobs) for count in scene.engine.counts()]
        assert found == [
            ("default", "x", "queued", 2), ("default", "x", "claimed", 1), ("default", "y", "queued", 1),
            ("mail", "x", "queued", 1),
        ]  # fmt: skip

    def test_a_state_that_all_have_left_is_not_told(self, scene: Scene) -> None:
        scene.engine.cancel(scene.enqueued())
        assert [count.state for count in scene.engine.counts()] == [State.CANCELLED]

    def test_they_still_add_up_after_many_hundreds_of_writes(self, scene: Scene) -> None:
        claims = [scene.started() for _ in range(10)]
        for _ in range(500):
            scene.engine.heartbeat(claims[0])
        for claim in claims:
            scene.engine.release(claim)
        (count,) = scene.engine.counts()
        assert (count.state, count.jobs) == (State.QUEUED, 10)
