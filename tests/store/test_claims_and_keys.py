"""The statements that make jobs and give them away do what `decide` says of each; keys are those of live jobs."""

from typing import Any

import pytest
from msgspec import Raw
from tests.store.stories import put, tell
from tests.store.world import CLIENT, OPERATOR, Place, World, single

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden
from leftfold.core.errors import JobNotFoundError, KeyTakenError, LeaseConflictError, LeftfoldError, RequestReusedError
from leftfold.core.lifecycle import CLAIMABLE, CLOSED, EDGES, ENDED, State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.record import encode
from leftfold.core.retry import Backoff, Policy
from leftfold.core.values import Spec
from leftfold.dialects import DIALECTS
from leftfold.store.claiming import Trail, Wanted, claim, claims_of
from leftfold.store.creating import OnConflict

SIZES = (1, 2, 50, 1000)
ENFORCED: dict[str, Forbidden] = {
    "full": NOTHING_FORBIDDEN,
    **{name: dialect.forbidden() for name, dialect in DIALECTS.items()},
    "no claim of what is queued": frozenset(e_ for e_ in EDGES if (e_.source, e_.event) == (State.QUEUED, e.Claimed)),
    "no claim": frozenset(edge for edge in EDGES if edge.event is e.Claimed),
    "no enqueue": frozenset(edge for edge in EDGES if edge.event is e.Enqueued),
}


def specs(size: int) -> list[Spec]:
    """Give jobs of several kinds and priorities in one queue."""
    return [
        Spec(
            kind=f"kind-{number % 3}",
            priority=(0, 10, -5, 32_767, -32_767)[number % 5],
            payload=Raw(f"[{number}]".encode()),
            tenant="acme" if number % 2 else "",
            correlation_id=f'"{number}" {{1,2}} \\ ☃' if number % 4 else None,
        )
        for number in range(size)
    ]


# --- claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("enforced", ENFORCED)
def test_a_claim_takes_what_decide_lets_it_take_and_nothing_else(enforced: str, place: Place, low_limit: int) -> None:
    with World(place, ENFORCED[enforced]) as world:
        stories = [tell(number, state, queue=f"q-{state}") for number, state in enumerate(State)]
        stories += [
            tell(100 + number, state, queue=f"full-{state}", events=low_limit) for number, state in enumerate(State)
        ]
        put(world, stories)
        dues = sorted({story.job.due for story in stories if story.job.due is not None})
        for now in (dues[0] - 1, dues[0], dues[-1] - 1, dues[-1]):
            world.clock.now = now
            for story in stories:
                with world.unchecked():
                    claims = world.claim("worker", queues=(story.spec.queue,))
                assert not claims or story.job.state in CLAIMABLE
            world.check()


@pytest.mark.parametrize("enforced", ENFORCED)
def test_a_claim_by_id_takes_what_decide_lets_it_take_and_nothing_else(enforced: str, place: Place) -> None:
    with World(place, ENFORCED[enforced]) as world:
        stories = [tell(number, state) for number, state in enumerate(State)]
        put(world, stories)
        world.clock.now += MINUTE
        for story in stories:
            world.claim("worker", job_id=story.id)
        world.claim("worker", job_id=world.new_ids(1)[0])


@pytest.mark.parametrize("size", SIZES)
def test_a_claim_of_many_takes_them_in_order(size: int, world: World) -> None:
    with world.unchecked():
        for place, spec in enumerate(specs(min(size, 20))):
            world.enqueue([spec], delay=(place * 7 % 10) * SECOND)
        world.enqueue(specs(size), policy=Policy(lease=MINUTE))
        world.clock.now += 5 * SECOND
        for limit in (1, 2, size):
            world.claim("worker", limit=limit, kinds=("kind-0", "kind-2"), lease=30 * SECOND)
            world.claim("worker", limit=limit, queues=("default", "default", "none"))
    world.check()


def test_the_highest_priority_goes_first_then_the_longest_due(world: World) -> None:
    low, late, soon, high = (
        single(world, Spec(kind="k", priority=priority), delay=delay)
        for priority, delay in ((-5, 0), (0, 2 * SECOND), (0, SECOND), (5, 3 * SECOND))
    )
    world.clock.now += MINUTE
    taken = [claim.job_id for _ in range(4) for claim in world.claim("worker", limit=1)]
    assert taken == [high, soon, late, low]


def test_a_claim_takes_only_the_kinds_and_queues_that_it_names(world: World) -> None:
    for queue in ("a", "b"):
        for kind in ("x", "y"):
            single(world, Spec(kind=kind, queue=queue))
    assert [claim.kind for claim in world.claim("worker", kinds=("y",), limit=9)] == ["y", "y"]
    assert [claim.spec.queue for claim in world.claim("worker", queues=("b",), limit=9)] == ["b"]
    assert world.claim("worker", queues=(), limit=9) == []
    assert world.claim("worker", kinds=(), limit=9) == []


def test_nobody_claims_from_a_queue_that_is_paused(world: World) -> None:
    single(world, Spec(kind="x", queue="a"))
    single(world, Spec(kind="x", queue="b"))
    world.pause("a", paused=True)
    assert [claim.spec.queue for claim in world.claim("worker", limit=9)] == ["b"]
    assert world.claim("worker", queues=("a",), limit=9) == []
    world.pause("a", paused=False)
    assert [claim.spec.queue for claim in world.claim("worker", limit=9)] == ["a"]


def test_a_lease_ends_as_long_after_the_claim_as_it_is_asked_for(world: World) -> None:
    for lease in (None, 5 * SECOND):
        job_id = single(world, policy=Policy(lease=20 * SECOND))
        (claim,) = world.claim("worker", lease=lease)
        assert (claim.job_id, claim.until) == (job_id, world.clock() + (lease or 20 * SECOND))


def test_a_claim_that_is_asked_again_is_given_again(world: World) -> None:
    single(world)
    single(world)
    first = world.claim("worker", limit=1, request_id="once")
    assert world.claim("worker", limit=1, request_id="once") == first
    assert world.claim("worker", limit=2, request_id="once") == []
    assert sum(log.job.attempt for log in world.model.logs.values()) == 1


def test_a_claim_that_is_over_is_given_again_as_it_was_and_opens_nothing(world: World) -> None:
    job_id = single(world)
    (first,) = world.claim("worker", request_id="once")
    world.tell(job_id, c.Release(by=first.actor))
    (second,) = world.claim("another")
    (again,) = world.claim("worker", request_id="once")
    assert (again.attempt, again.token, second.attempt) == (1, first.token, 2)
    assert world.tell(job_id, c.Start(by=again.actor)) is LeaseConflictError


# --- new jobs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "enforced"), [*[(size, "full") for size in SIZES], *[(3, enforced) for enforced in ENFORCED]]
)
def test_a_batch_of_new_jobs_is_what_decide_makes_of_each(size: int, enforced: str, place: Place) -> None:
    with World(place, ENFORCED[enforced]) as world:
        ids, now = world.new_ids(size), world.clock()
        moments: list[dict[str, Any]] = [
            {}, {"due": now - MINUTE}, {"due": now + MINUTE}, {"delay": 0}, {"delay": MINUTE}
        ]  # fmt: skip
        policies = [Policy(), Policy(max_failures=2, lease=SECOND), Policy(backoff=Backoff(base=0), timeout=5)]
        world.create(
            [
                c.Enqueue(by=CLIENT, job_id=id_, spec=spec, policy=policies[n % 3], **moments[n % 5])
                for n, (id_, spec) in enumerate(zip(ids, specs(size), strict=True))
            ],
            "return",
        )
        world.receive(Spec(kind="received"))


def test_a_request_happens_once_and_stands_on_every_job_that_it_made(world: World) -> None:
    receipts = world.enqueue(specs(5), request_id="once")
    assert world.enqueue(specs(5), request_id="once") == receipts
    assert world.enqueue(specs(4), request_id="once") is RequestReusedError
    assert world.enqueue(specs(5), "raise", request_id="once") is RequestReusedError
    assert len(world.model.logs) == 5


def test_a_job_waits_for_jobs_that_are_there(world: World) -> None:
    first, nobody = single(world), world.new_ids(1)[0]
    for side in world.sides:
        side.engine._ids.make(1)
    assert world.enqueue([Spec(kind="x")], after=(first, nobody)) is JobNotFoundError
    job_id = single(world, after=(first,), delay=MINUTE)
    world.tell(job_id, c.Resume(by=CLIENT, outcomes={}))
    world.tell(first, c.Cancel(by=CLIENT))
    world.tell(job_id, c.Resume(by=CLIENT, outcomes={}))
    assert world.model.job(job_id).due == world.clock() + MINUTE


# --- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_conflict", ["return", "raise", "skip", "replace"])
def test_a_key_is_taken_by_a_job_in_any_state_until_it_has_ended(on_conflict: OnConflict, world: World) -> None:
    stories = [tell(number, state, key=f"key of {state}") for number, state in enumerate(State)]
    put(world, stories)
    for story in stories:
        before = len(world.model.logs)
        world.enqueue([story.spec], on_conflict)
        made = len(world.model.logs) > before
        replaced = on_conflict == "replace" and story.job.state in {State.INBOX, State.QUEUED, State.RETRYING}
        assert made == (story.job.state in ENDED or replaced)
        world.enqueue([Spec(kind="other", key=story.spec.key)], "raise")
        world.enqueue([Spec(kind=story.spec.kind, tenant="acme", key=story.spec.key)], "raise")


@pytest.mark.parametrize("on_conflict", ["return", "raise", "skip", "replace"])
def test_a_key_that_stands_twice_in_a_batch_is_settled_within_it(on_conflict: OnConflict, world: World) -> None:
    keyed = [Spec(kind="x", key=key, payload=Raw(b"1")) for key in ("a", "b", "a", "a", "b")]
    answer = world.enqueue(keyed, on_conflict)
    live = [log.job for log in world.model.logs.values() if log.job.state not in ENDED]
    assert len(live) == (0 if on_conflict == "raise" else 2)
    assert (answer is KeyTakenError) == (on_conflict == "raise")


@pytest.mark.parametrize("state", sorted(CLOSED))
def test_a_closed_job_is_not_reopened_while_another_has_its_key(state: State, world: World) -> None:
    story = tell(1, state, key="k")
    put(world, [story])
    other = single(world, story.spec)
    again = c.Requeue(by=OPERATOR, reason="again")
    assert world.tell(story.id, again) is KeyTakenError
    world.tell(other, c.Cancel(by=CLIENT))
    answer = world.tell(story.id, again)
    assert not (isinstance(answer, type) and issubclass(answer, LeftfoldError))


def test_claims_are_in_order_however_the_database_gives_them() -> None:
    command = c.Claim(by=c.Actor(who=Who.WORKER, name="w"), token="t")
    data = encode(e.Enqueued(due=0, spec=Spec(kind="job")))
    lanes = {"d": (0, 1), "c": (0, 1), "b": (0, 0), "a": (9, 5)}  # id → priority and due time
    rows = [
        (job_id, 1, 0, 1, e.Enqueued.wire, 1, data, None, None, False, "default", priority, due, 1)
        for job_id, (priority, due) in lanes.items()
    ]
    trail = Trail()
    steps = claim(command, Wanted(None, None, 4), trail, start=True, request=None, forbidden=frozenset())
    next(steps)
    with pytest.raises(StopIteration) as done:
        steps.send(rows)
    claims, unread = claims_of(done.value.value, "w")
    assert ([given.job_id for given in claims], unread) == (["a", "b", "c", "d"], [])
    place = trail.place(Wanted(None, None, 4))
    assert place is not None
    assert (place.priority, place.due) == (0, 1), "behind the last one"


def test_a_claim_that_is_asked_again_shows_how_long_its_lease_is_by_now(world: World) -> None:
    job_id = single(world)
    (claim,) = world.claim("worker", job_id=job_id, request_id="once")
    world.clock.now += SECOND
    world.tell(job_id, c.Heartbeat(by=claim.actor))
    (again,) = world.claim("worker", job_id=job_id, request_id="once")
    assert again.until == claim.until + SECOND
