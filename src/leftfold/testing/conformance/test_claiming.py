"""Claiming: who gets which job, in which order, and what comes with it."""

from datetime import timedelta
from typing import Any, Final

import pytest

from leftfold import NewJob, Policy
from leftfold.core import events as e
from leftfold.core.commands import digest
from leftfold.core.errors import JobNotFoundError, LimitExceededError, NotDueError, ValidationError
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import FLAKY, KIND, NOBODY, Scene, shown

OWNERS: Final = [
    "w", "worker 1", 'quote"d', "back\\slash", "'; DROP TABLE jobs; --", "%(now)s {x} :now $1", "Zoë 😀 漢字",
    "\u202eabc", "x" * 500,
]  # fmt: skip
BAD_ARGUMENTS: Final[list[tuple[dict[str, Any], type[Exception]]]] = [
    ({"owner": ""}, ValidationError),
    ({"owner": "tab\t"}, ValidationError),
    ({"owner": "nul\x00"}, ValidationError),
    ({"owner": "half \ud800"}, ValidationError),
    ({"owner": "x" * 501}, LimitExceededError),
    ({"owner": 7}, ValidationError),
    ({"limit": 0}, LimitExceededError),
    ({"limit": -1}, LimitExceededError),
    ({"limit": 10_001}, LimitExceededError),
    ({"limit": 2**63}, LimitExceededError),
    ({"limit": 1.5}, ValidationError),
    ({"lease": 0}, LimitExceededError),
    ({"lease": -1}, LimitExceededError),
    ({"lease": 0.01}, LimitExceededError),
    ({"lease": 86_401}, LimitExceededError),
    ({"lease": 10**12}, LimitExceededError),
    ({"lease": 2**63}, ValidationError),
    ({"lease": float("nan")}, ValidationError),
    ({"lease": float("inf")}, ValidationError),
    ({"lease": "60"}, ValidationError),
    ({"queues": "default"}, ValidationError),
    ({"kinds": KIND}, ValidationError),
    ({"queues": ["no name"]}, ValidationError),
    ({"kinds": ["nul\x00"]}, ValidationError),
    ({"queues": ["x" * 201]}, LimitExceededError),
    ({"request_id": ""}, ValidationError),
    ({"job_id": "no id"}, ValidationError),
    ({"job_id": NOBODY, "queues": ["default"]}, ValidationError),
    ({"job_id": NOBODY, "kinds": [KIND]}, ValidationError),
    ({"job_id": NOBODY, "kinds": []}, ValidationError),
]


class TestClaim:
    """Taking jobs that are due."""

    def test_it_gives_what_a_handler_needs(self, scene: Scene) -> None:
        job_id = scene.enqueued(payload={"to": "ann"})
        (claim,) = scene.engine.claim("worker-1")
        assert (claim.job_id, claim.attempt, claim.failures, claim.owner) == (job_id, 1, 0, "worker-1")
        assert (claim.kind, claim.payload, claim.policy) == (KIND, {"to": "ann"}, Policy())
        assert claim.until == START + MINUTE

    def test_the_job_is_claimed_and_one_record_says_by_whom(self, scene: Scene) -> None:
        claim = scene.held()
        job, record = scene.job(claim.job_id), scene.last(claim.job_id)
        assert (job.state, job.version, job.rev, job.attempt, job.due) == (State.CLAIMED, 2, 2, 1, None)
        assert job.lease is not None
        assert (job.lease.owner, job.lease.until) == ("worker-1", START + MINUTE)
        assert (record.who, record.actor, record.version) == (Who.WORKER, "worker-1", 2)
        assert record.event == e.Claimed(token=digest(claim.token), lease=MINUTE)

    def test_the_token_itself_is_on_no_log(self, scene: Scene) -> None:
        scene.enqueued()
        (claim,) = scene.engine.claim("worker-1")
        assert claim.token not in str(scene.raw([claim.job_id]))

    def test_the_jobs_of_one_call_share_a_token_and_no_others_do(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob(KIND)] * 4)
        first, second = scene.engine.claim("worker-1", limit=2), scene.engine.claim("worker-1", limit=2)
        assert [len({claim.token for claim in claims}) for claims in (first, second)] == [1, 1]
        assert first[0].token != second[0].token

    def test_a_job_is_given_once(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob(KIND)] * 5)
        given = [claim.job_id for _ in range(4) for claim in scene.engine.claim("worker-1", limit=2)]
        assert len(given) == len(set(given)) == 5

    @pytest.mark.parametrize("owner", OWNERS, ids=shown)
    def test_an_owner_may_have_any_printable_name(self, scene: Scene, owner: str) -> None:
        claim = scene.held(owner=owner)
        assert claim.owner == owner
        assert scene.engine.list(owner=owner).jobs[0].id == claim.job_id
        scene.engine.start(claim)
        assert scene.last(claim.job_id).actor == owner

    @pytest.mark.parametrize(("arguments", "error"), BAD_ARGUMENTS, ids=shown)
    def test_what_cannot_be_meant_is_refused(
        self, scene: Scene, arguments: dict[str, Any], error: type[Exception]
    ) -> None:
        scene.enqueued()
        with scene.refuses(error):
            scene.engine.claim(**{"owner": "worker-1", **arguments})

    @pytest.mark.parametrize(
        ("policy", "lease", "length"),
        [(30, None, 30), (60, 5, 5), (60, 0.1, 0.1), (60, timedelta(hours=1), 3600), (60, 86_400, 86_400)],
    )
    def test_the_lease_is_the_policys_or_the_callers(
        self, scene: Scene, policy: int, lease: Any, length: float
    ) -> None:
        scene.enqueued(policy=Policy(lease=policy * SECOND))
        (claim,) = scene.engine.claim("worker-1", lease=lease)
        assert claim.until == START + length * SECOND
        assert scene.job(claim.job_id).lease is not None

    def test_each_job_of_a_batch_has_the_lease_of_its_own_policy(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(KIND, policy=Policy(lease=length * SECOND)) for length in (10, 20, 30))
        assert [claim.until - START for claim in scene.engine.claim("w", limit=3)] == [10**7, 2 * 10**7, 3 * 10**7]

    def test_a_hundred_at_once(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(KIND, number) for number in range(120))
        claims = scene.engine.claim("worker-1", limit=100)
        assert [claim.payload for claim in claims] == list(range(100))


class TestWhetherAnAttemptWasLost:
    """A job whose attempt was lost with its worker may have killed it: who claims it is told so."""

    @pytest.mark.parametrize("direct", [False, True])
    def test_behind_a_stall(self, scene: Scene, direct: bool) -> None:
        first = scene.started()
        assert not first.lost
        scene.engine.stall(first.job_id)
        scene.engine.requeue(first.job_id)
        (again,) = scene.engine.claim("worker-2", job_id=first.job_id if direct else None)
        assert again.lost
        scene.engine.release(again)
        (later,) = scene.engine.claim("worker-3")
        assert later.lost, "it is not known yet whether it was this one"

    def test_a_failure_of_its_own_is_none(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.fail(claim, FLAKY)
        scene.clock.advance(3600)
        (again,) = scene.engine.claim("worker-2")
        assert (again.failures, again.lost) == (1, False)

    def test_a_job_that_was_not_started_did_nothing(self, scene: Scene) -> None:
        claim = scene.held()
        scene.engine.stall(claim.job_id)
        scene.engine.requeue(claim.job_id)
        (again,) = scene.engine.claim("worker-2")
        assert not again.lost

    def test_whoever_reopens_it_begins_anew(self, scene: Scene) -> None:
        claim = scene.started(policy=Policy(max_failures=1))
        scene.clock.advance(3600)
        scene.engine.reap()
        scene.engine.requeue(claim.job_id, reason="mended")
        (again,) = scene.engine.claim("worker-2")
        assert not again.lost


class TestTheOrderOfClaims:
    """More is sooner, then the longest due, then the oldest."""

    def test_the_highest_priority_comes_first(self, scene: Scene) -> None:
        given: list[int | str] = [0, "P1", -7, "P0", 15, "P2", 32_767, -32_767]
        scene.engine.enqueue_many(NewJob(KIND, priority, priority=priority) for priority in given)
        claims = scene.engine.claim("worker-1", limit=10)
        assert [claim.payload for claim in claims] == [32_767, "P0", "P1", 15, "P2", 0, -7, -32_767]

    def test_one_at_a_time_the_order_is_the_same(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(KIND, number, priority=number % 5) for number in range(10))
        claims = [claim for _ in range(10) for claim in scene.engine.claim("worker-1")]
        assert [claim.payload for claim in claims] == [4, 9, 3, 8, 2, 7, 1, 6, 0, 5]

    def test_of_one_priority_the_longest_due_comes_first(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(KIND, due, due=due) for due in (30, 10, 50, 20, 40))
        scene.clock.advance(60)
        assert [claim.payload for claim in scene.engine.claim("w", limit=5)] == [10, 20, 30, 40, 50]

    def test_one_at_a_time_the_longest_due_comes_first_too(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(KIND, due, due=due) for due in (30, 10, 50, 20, 40))
        scene.clock.advance(60)
        claims = [claim for _ in range(5) for claim in scene.engine.claim("w")]
        assert [claim.payload for claim in claims] == [10, 20, 30, 40, 50]

    def test_of_one_moment_the_oldest_comes_first(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(KIND, number) for number in range(10))
        assert [claim.payload for claim in scene.engine.claim("w", limit=10)] == list(range(10))

    def test_priority_counts_before_the_due_time(self, scene: Scene) -> None:
        scene.enqueued(payload="old")
        scene.clock.advance(3600)
        scene.enqueued(payload="urgent", priority="P0")
        assert [claim.payload for claim in scene.engine.claim("w", limit=2)] == ["urgent", "old"]

    def test_priority_counts_across_queues(self, scene: Scene) -> None:
        scene.engine.enqueue_many(NewJob(KIND, n, queue=f"q{n % 3}", priority=n) for n in (3, 1, 4, 5, 9, 2, 6))
        assert [claim.payload for claim in scene.engine.claim("w", limit=5)] == [9, 6, 5, 4, 3]

    def test_a_retried_job_takes_its_place_among_the_queued_ones(self, scene: Scene) -> None:
        claim = scene.started(payload="retried")
        scene.engine.fail(claim, FLAKY)
        retried_at = scene.job(claim.job_id).due or 0
        scene.clock.now = retried_at - 1
        scene.enqueued(payload="before")
        scene.clock.now = retried_at + 1
        scene.enqueued(payload="after")
        claims = scene.engine.claim("w", limit=3)
        assert [claim.payload for claim in claims] == ["before", "retried", "after"]


class TestWhatIsDue:
    """Nothing is claimed before its time."""

    def test_a_job_is_due_at_its_moment_and_not_before(self, scene: Scene) -> None:
        scene.enqueued(due=60)
        scene.clock.now = START + MINUTE - 1
        assert scene.engine.claim("worker-1") == []
        scene.clock.now = START + MINUTE
        assert len(scene.engine.claim("worker-1")) == 1

    def test_a_job_that_is_not_due_stands_in_nobodys_way(self, scene: Scene) -> None:
        scene.enqueued(due=60, priority="P0")
        low = scene.enqueued(priority=-5)
        assert [claim.job_id for claim in scene.engine.claim("worker-1", limit=10)] == [low]

    def test_a_retried_job_waits_for_its_due_time(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.fail(claim, FLAKY)
        assert scene.engine.claim("worker-1") == []
        scene.clock.advance(60)
        (again,) = scene.engine.claim("worker-2")
        assert (again.job_id, again.attempt, again.failures) == (claim.job_id, 2, 1)
        assert scene.job(claim.job_id).error is None


class TestWhatIsWanted:
    """Only the queues and kinds that were asked for."""

    @pytest.mark.parametrize(
        ("wanted", "given"),
        [
            ({}, {"a-x", "a-y", "b-x", "b-y"}),
            ({"queues": ["a"]}, {"a-x", "a-y"}),
            ({"kinds": ["x"]}, {"a-x", "b-x"}),
            ({"queues": ["a"], "kinds": ["y"]}, {"a-y"}),
            ({"queues": ["a", "b"]}, {"a-x", "a-y", "b-x", "b-y"}),
            ({"queues": ["a", "a"], "kinds": ["x", "x"]}, {"a-x"}),
            ({"queues": ["b", "nowhere"]}, {"b-x", "b-y"}),
            ({"queues": ["nowhere"]}, set()),
            ({"kinds": ["nothing"]}, set()),
            ({"queues": []}, set()),
            ({"kinds": []}, set()),
            ({"queues": ["A"]}, set()),
        ],
        ids=shown,
    )
    def test_what_is_given_is_what_was_asked_for(self, scene: Scene, wanted: dict[str, Any], given: set[str]) -> None:
        scene.engine.enqueue_many(NewJob(kind, f"{queue}-{kind}", queue=queue) for queue in "ab" for kind in "xy")
        assert {claim.payload for claim in scene.engine.claim("w", limit=10, **wanted)} == given

    def test_jobs_of_other_kinds_do_not_use_up_the_limit(self, scene: Scene) -> None:
        scene.engine.enqueue_many([NewJob("x", priority=9)] * 5 + [NewJob("y")] * 2)
        assert [claim.kind for claim in scene.engine.claim("w", kinds=["y"], limit=2)] == ["y", "y"]


class TestClaimingByItsId:
    """One very job, a stalled one too."""

    def test_it_is_given_whatever_stands_before_it(self, scene: Scene) -> None:
        scene.enqueued(priority="P0")
        job_id = scene.enqueued()
        assert scene.held(job_id).job_id == job_id

    def test_an_id_may_be_spelled_in_capitals(self, scene: Scene) -> None:
        job_id = scene.enqueued()
        assert scene.held(job_id.upper()).job_id == job_id

    def test_a_stalled_job_is_given(self, scene: Scene) -> None:
        reached = scene.reach(State.STALLED)
        claim = scene.held(reached.job_id, owner="worker-2")
        assert (claim.attempt, claim.failures) == (2, 1)
        assert scene.wires(reached.job_id)[-2:] == ["stalled", "claimed"]

    def test_a_job_that_is_not_due_is_refused(self, scene: Scene) -> None:
        job_id = scene.enqueued(due=60)
        with scene.refuses(NotDueError):
            scene.engine.claim("worker-1", job_id=job_id)

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.claim("worker-1", job_id=NOBODY)

    def test_the_caller_may_give_the_lease(self, scene: Scene) -> None:
        (claim,) = scene.engine.claim("worker-1", job_id=scene.enqueued(), lease=5)
        assert claim.until == START + 5 * SECOND
