"""What only the row knows, what only the clock did, and what must be remembered or forgotten: on both stores alike."""

import pytest
from tests.store.stories import QUICK, SECOND_CLAIM, put, tell
from tests.store.world import CLIENT, KEEPER, World, single

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import RequestReusedError
from leftfold.core.lifecycle import State
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.values import Failure, Spec
from leftfold.store.replies import Receipt


def test_what_renewals_changed_outlives_the_next_commands(world: World) -> None:
    job_id = single(world)
    (claim,) = world.claim("worker")
    for _ in range(3):
        world.clock.now += SECOND
        world.tell(job_id, c.Heartbeat(by=claim.actor))
    world.tell(job_id, c.Signal(by=CLIENT, key="go"))
    world.tell(job_id, c.Start(by=claim.actor))
    until = world.clock() + MINUTE
    world.tell(job_id, c.Fail(by=claim.actor, error=Failure(code="transient")))
    for side in world.sides:
        job = side.engine.get(job_id)
        assert (job.renewals, job.rev) == (3, job.version + 3)
        assert job.last_lease is not None
        assert job.last_lease.until == until


def test_a_renewal_under_a_request_is_known_until_the_next_renewal(world: World) -> None:
    job_id = single(world)
    (claim,) = world.claim("worker")
    asked = c.Heartbeat(by=claim.actor, request_id="once")
    for _ in range(2):
        world.clock.now += SECOND
        world.tell(job_id, asked)
    assert world.model.job(job_id).renewals == 1
    assert world.tell(job_id, c.Signal(by=CLIENT, key="go", request_id="once")) is RequestReusedError
    world.tell(job_id, c.Heartbeat(by=claim.actor))
    assert isinstance(world.tell(job_id, c.Signal(by=CLIENT, key="go", request_id="once")), Receipt)


def test_a_keeper_takes_a_job_when_its_renewed_lease_has_run_out_and_not_before(world: World) -> None:
    job_id = single(world)
    (claim,) = world.claim("worker", lease=10 * SECOND)
    world.tell(job_id, c.Start(by=claim.actor))
    world.clock.now += 9 * SECOND
    world.tell(job_id, c.Heartbeat(by=claim.actor, lease=10 * SECOND))
    for passing, state in ((9 * SECOND, State.RUNNING), (SECOND, State.QUEUED)):
        world.clock.now += passing
        world.tell(job_id, c.Stall(by=KEEPER))
        assert world.model.job(job_id).state is state
    world.tell(job_id, c.Complete(by=claim.actor))


@pytest.mark.parametrize("said", QUICK)
def test_what_an_owner_says_under_a_request_stands_on_the_log_with_it(said: str, world: World) -> None:
    story = tell(1, State.CLAIMED if said == "start" else State.RUNNING)
    put(world, [story])
    quick = QUICK[said](SECOND_CLAIM)
    fields = {name: getattr(quick, name) for name in quick.__struct_fields__}
    asked = type(quick)(**{**fields, "request_id": "once"})
    for _ in range(2):
        world.tell(story.id, asked)
    assert world.tell(story.id, c.Cancel(by=SECOND_CLAIM, request_id="once")) is RequestReusedError


def test_a_clock_that_was_set_back_ages_no_event_and_shortens_no_lease(world: World) -> None:
    job_id = single(world)
    world.clock.now += MINUTE
    world.tell(job_id, c.Note(by=CLIENT, note=e.Custom(name="later")))
    later = world.clock()
    world.clock.now -= 30 * SECOND
    (claim,) = world.claim("worker")
    assert claim.until == later + MINUTE
    for command in (
        c.Start(by=claim.actor),
        c.Heartbeat(by=claim.actor),
        c.Heartbeat(by=claim.actor, request_id="once"),
        c.Signal(by=CLIENT, key="go"),
        c.Note(by=claim.actor, note=e.Progress(fraction=0.5)),
        c.Complete(by=claim.actor),
    ):
        world.tell(job_id, command)
    assert {record.at for record in world.model.logs[job_id].records[1:]} == {later}


def test_folding_the_counters_changes_no_count(world: World) -> None:
    for kind in ("x", "x", "y"):
        single(world, Spec(kind=kind))
    for claim in world.claim("worker", limit=2):
        world.tell(claim.job_id, c.Start(by=claim.actor))
    for _ in range(2):
        world.fold_counts()


def test_a_claim_that_found_nothing_is_not_remembered(world: World) -> None:
    assert world.claim("worker", request_id="once") == []
    job_id = single(world)
    assert [claim.job_id for claim in world.claim("worker", request_id="once")] == [job_id]


def test_a_job_that_is_admitted_is_counted_where_it_then_is(world: World) -> None:
    receipt = world.receive(Spec(kind="x", queue="a"))
    assert isinstance(receipt, Receipt)
    world.tell(receipt.job_id, c.Admit(by=CLIENT, spec=Spec(kind="y", queue="b", priority=3)))
    (claim,) = world.claim("worker", queues=("b",))
    assert (claim.kind, claim.spec.priority) == ("y", 3)


def test_new_jobs_are_counted_where_they_are(world: World) -> None:
    lanes = [("x", "a"), ("x", "a"), ("y", "a"), ("x", "b")]
    world.enqueue([Spec(kind=kind, queue=queue) for kind, queue in lanes])
    world.enqueue([Spec(kind="x", queue="a", key="k")] * 2, "skip")
    world.enqueue([Spec(kind="x", queue="a")])  # alone
    world.receive(Spec(kind="x", queue="a"))
    for side in world.sides:
        counts = {(count.kind, count.queue, count.state): count.jobs for count in side.engine.counts()}
        assert counts == {
            ("x", "a", "queued"): 4, ("y", "a", "queued"): 1, ("x", "b", "queued"): 1, ("x", "a", "inbox"): 1,
        }  # fmt: skip
