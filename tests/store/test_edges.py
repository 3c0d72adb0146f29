"""Every edge of the lifecycle, taken on both stores: the shortest way to it through the table, then the edge itself."""

from collections import deque
from collections.abc import Callable, Mapping

import pytest
from msgspec import Raw
from tests.store.world import CLIENT, KEEPER, OPERATOR, World, edges_of, single

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.letters import Reason
from leftfold.core.lifecycle import EDGES, TARGETS, Edge, State, Who
from leftfold.core.limits import MINUTE
from leftfold.core.retry import Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor
from leftfold.store.replies import Receipt

ERROR = Failure(code="transient", message="no route")
Step = Callable[[World, str, c.Actor], object]


def _suspend(world: World, job_id: str, by: c.Actor, timeout: int | None) -> object:
    return world.tell(job_id, c.Suspend(by=by, wait=Wait(until=WaitFor.SIGNAL, key="approved"), timeout=timeout))


def _claim(world: World, job_id: str) -> object:
    due = world.model.job(job_id).due
    world.clock.now = max(world.clock(), due or 0)
    return world.claim("worker", job_id=job_id)


def _resume(world: World, job_id: str) -> object:
    wait = world.model.job(job_id).wait
    assert wait is not None
    if wait.until is WaitFor.SIGNAL:
        return world.tell(job_id, c.Signal(by=CLIENT, key=wait.key, payload=Raw(b"1")))
    for other in wait.jobs:
        world.tell(other, c.Cancel(by=CLIENT))
    return world.tell(job_id, c.Resume(by=KEEPER, outcomes={}))


def _fail(world: World, job_id: str, by: c.Actor) -> object:
    if world.model.job(job_id).state is State.STALLED:  # its budget is spent: the keeper closes it
        return world.tell(job_id, c.Requeue(by=KEEPER))
    return world.tell(job_id, c.Fail(by=by, error=ERROR, permanent=True))


#: What is said so that the event happens, by the owner of the last claim where an owner is needed.
SAID: Mapping[type[e.AnyTransition], Step] = {
    e.Claimed:      lambda world, job_id, _: _claim(world, job_id),
    e.Started:      lambda world, job_id, by: world.tell(job_id, c.Start(by=by)),
    e.Suspended:    lambda world, job_id, by: _suspend(world, job_id, by, MINUTE),
    e.Parked:       lambda world, job_id, by: _suspend(world, job_id, by, None),
    e.Resumed:      lambda world, job_id, _: _resume(world, job_id),
    e.Succeeded:    lambda world, job_id, by: world.tell(job_id, c.Complete(by=by, result=Raw(b"42"))),
    e.Retried:      lambda world, job_id, by: world.tell(job_id, c.Fail(by=by, error=ERROR)),
    e.Released:     lambda world, job_id, by: world.tell(job_id, c.Release(by=by)),
    e.Stalled:      lambda world, job_id, _: world.tell(job_id, c.Stall(by=OPERATOR)),
    e.Requeued:     lambda world, job_id, _: world.tell(job_id, c.Requeue(by=OPERATOR, reason="again")),
    e.Failed:       _fail,
    e.DeadLettered: lambda world, job_id, _: world.tell(
                        job_id, c.DeadLetter(by=OPERATOR, error=ERROR, reason_code=Reason.POLICY_VIOLATION)),
    e.Cancelled:    lambda world, job_id, _: world.tell(job_id, c.Cancel(by=CLIENT, mode=CancelMode.HARD)),
    e.Enqueued:     lambda world, job_id, _: world.tell(job_id, c.Admit(by=CLIENT)),
}  # fmt: skip


def ways() -> dict[State | None, tuple[Edge, ...]]:
    """Give the shortest way to each state, breadth first."""
    found: dict[State | None, tuple[Edge, ...]] = {None: ()}
    frontier: deque[State | None] = deque([None])
    while frontier:
        state = frontier.popleft()
        for edge in EDGES:
            if edge.source is state and edge.target not in found:
                found[edge.target] = (*found[state], edge)
                frontier.append(edge.target)
    return found


def way_to(edge: Edge) -> tuple[Edge, ...]:
    """Give the way that ends with this edge; only an attempt that ran spends the budget that a keeper finds spent."""
    if (edge.source, edge.event) == (State.STALLED, e.Failed):
        running = ways()[State.RUNNING]
        return (*running, Edge(State.RUNNING, e.Stalled, State.STALLED), edge)
    return (*ways()[edge.source], edge)


def policy_for(way: tuple[Edge, ...]) -> Policy:
    """Let an attempt be retried where the way asks for it, else fail at once."""
    retried = any(edge.event is e.Retried for edge in way)
    return Policy(max_failures=3 if retried else 1, on_exhausted="fail")


def walk(world: World, way: tuple[Edge, ...]) -> str:
    """Take the edges one by one and give the job."""
    policy, rest = policy_for(way), list(way[1:])
    if way[0].event is e.Received:
        receipt = world.receive(Spec(kind="walk"))
        assert isinstance(receipt, Receipt)
        job_id = receipt.job_id
    elif rest and rest[0].event is e.Suspended:  # one command takes both edges
        job_id = single(world, Spec(kind="walk"), policy, after=(single(world),))
        rest = rest[1:]
    else:
        job_id = single(world, Spec(kind="walk"), policy)
    for edge in rest:
        job = world.model.job(job_id)
        held = job.lease is not None
        by = c.Actor(who=Who.OWNER, name="worker", attempt=job.attempt, token=world.last_token) if held else CLIENT
        SAID[edge.event](world, job_id, by)
    return job_id


@pytest.mark.timeout(300)
def test_every_edge_of_the_lifecycle_is_taken_on_both_stores(world: World) -> None:
    taken: set[Edge] = set()
    for edge in EDGES:
        job_id = walk(world, way_to(edge))
        assert edges_of(world.model.logs[job_id].records) == way_to(edge), str(edge)
        taken.update(edges_of(world.model.logs[job_id].records))
    assert taken == set(EDGES)


def test_every_state_is_reached_and_every_event_has_its_words() -> None:
    assert set(ways()) == {None, *State}
    assert {*SAID, e.Received} == set(TARGETS)
