"""What the core answers to one job, the stores answer too: the same reply again, or the reason, never "try again"."""

from functools import partial

import pytest
from tests.store.world import CLIENT, KEEPER, OPERATOR, Place, World, single, told

from leftfold.asking import NewJob
from leftfold.core import commands as c
from leftfold.core.errors import DialectRefusedError, KeyTakenError, NotPermittedError, RequestReusedError
from leftfold.core.lifecycle import Who
from leftfold.core.values import Spec
from leftfold.dialects import DIALECTS
from leftfold.store.replies import Receipt


def test_a_resume_that_is_asked_again_has_the_same_answer(world: World) -> None:
    first = single(world)
    second = single(world, after=(first,))
    world.tell(first, c.Cancel(by=CLIENT))
    resume = c.Resume(by=KEEPER, outcomes={first: "cancelled"}, request_id="once")
    assert isinstance(world.tell(second, resume), Receipt)
    for side in world.sides:
        receipt = side.engine.resume(second, by=KEEPER, request_id="once")
        assert (receipt.version, receipt.changed) == (3, False)


def test_a_claim_under_the_id_of_another_request_on_the_job_says_so_or_passes_over_it(world: World) -> None:
    job_id = single(world)
    world.tell(job_id, c.Signal(by=CLIENT, key="go", request_id="once"))
    for side in world.sides:
        assert told(partial(side.engine.claim, "worker", request_id="once")) in (RequestReusedError, [])
    world.check()


def test_a_claim_under_the_id_of_another_tenants_request_says_so_or_passes_over_it(world: World) -> None:
    single(world, Spec(kind="work", tenant="acme"), request_id="once")
    for side in world.sides:
        assert told(partial(side.engine.claim, "worker", request_id="once")) in (RequestReusedError, [])
    world.check()


def test_a_claim_under_the_id_of_the_jobs_last_renewal_says_so_or_passes_over_it(world: World) -> None:
    job_id = single(world)
    (claim,) = world.claim("worker")
    world.tell(job_id, c.Heartbeat(by=claim.actor, request_id="once"))
    world.tell(job_id, c.Release(by=claim.actor))
    for side in world.sides:
        assert told(partial(side.engine.claim, "worker", request_id="once")) in (RequestReusedError, [])
    world.check()


def test_a_job_is_not_admitted_under_a_key_that_another_one_holds(world: World) -> None:
    single(world, Spec(kind="work", key="k"))
    received = world.receive(Spec(kind="work"))
    for side in world.sides:
        with pytest.raises(KeyTakenError):
            side.engine.admit(received.job_id, job=NewJob("work", key="k"))
    world.check()


@pytest.mark.parametrize("by", [KEEPER, OPERATOR, c.Actor(who=Who.WORKER, name="worker")], ids=lambda by: by.who)
def test_nobody_but_a_client_enqueues(by: c.Actor, world: World) -> None:
    assert world.enqueue([Spec(kind="work")], by=by) is NotPermittedError


@pytest.mark.parametrize("dialect", ["formal", "contract"])
def test_a_job_is_not_replaced_where_the_dialect_has_no_such_cancellation(dialect: str, place: Place) -> None:
    with World(place, DIALECTS[dialect].forbidden()) as world:
        single(world, Spec(kind="work", key="k"))
        assert world.enqueue([Spec(kind="work", key="k")], "replace") is DialectRefusedError
