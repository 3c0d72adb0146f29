"""The lifecycle, cell by cell: each operation in each state does what the table says, or is refused without a trace."""

from typing import Final

import pytest

from leftfold.core import events as e
from leftfold.core.lifecycle import EDGES, SHAPE, Edge, State, Who
from leftfold.core.retry import Policy
from leftfold.testing.conformance.matrix import MATRIX, Move
from leftfold.testing.conformance.scene import KEEPER, Scene

CELLS: Final = [
    pytest.param(state, move, id=f"{move.name} by {move.who}, {state}") for move in MATRIX for state in State
]
#: Edges that no cell walks: the births of jobs, and what the keeper makes of one whose budget is spent.
WALKED_APART: Final = {
    Edge(None, e.Received, State.INBOX),
    Edge(None, e.Enqueued, State.QUEUED),
    Edge(State.QUEUED, e.Suspended, State.WAITING),
    Edge(State.CLAIMED, e.Failed, State.FAILED),
    Edge(State.RUNNING, e.Failed, State.FAILED),
    Edge(State.STALLED, e.Failed, State.FAILED),
}


class TestEveryCell:
    """Every operation in every state."""

    @pytest.mark.parametrize(("state", "move"), CELLS)
    def test_it_does_what_the_table_says_or_nothing(self, scene: Scene, state: State, move: Move) -> None:
        reached = scene.reach(state)
        expected = move.expect(state, move.who)
        if expected.error is not None:
            with scene.refuses(expected.error):
                move.act(scene, reached)
            return
        before = scene.engine.history(reached.job_id)
        move.act(scene, reached)
        after = scene.engine.history(reached.job_id)
        assert after[: len(before)] == before
        assert tuple(record.event.wire for record in after[len(before) :]) == expected.wires
        assert {record.who for record in after[len(before) :]} <= {move.who}
        assert scene.job(reached.job_id).state is (expected.target or state)

    def test_the_cells_walk_every_edge_of_the_lifecycle(self) -> None:
        walked = {edge for move in MATRIX for state in State for edge in move.expect(state, move.who).edges}
        assert walked | WALKED_APART == set(EDGES)


class TestTheEdgesApart:
    """The edges that no cell walks."""

    def test_a_job_is_received(self, scene: Scene) -> None:
        job_id = scene.engine.receive("email.send").job_id
        assert scene.wires(job_id) == ["received"]

    def test_a_job_is_enqueued(self, scene: Scene) -> None:
        assert scene.wires(scene.enqueued()) == ["enqueued"]

    def test_a_job_waits_for_others_from_its_birth(self, scene: Scene) -> None:
        job_id = scene.enqueued(after=[scene.enqueued()])
        assert scene.wires(job_id) == ["enqueued", "suspended"]
        assert scene.job(job_id).state is State.WAITING

    @pytest.mark.parametrize("state", [State.CLAIMED, State.RUNNING])
    def test_an_owner_fails_a_job_for_good(self, scene: Scene, state: State) -> None:
        reached = scene.reach(state, policy=Policy(on_exhausted="fail"))
        receipt = scene.engine.fail(reached.claim, "broken", permanent=True)
        assert receipt.state is State.FAILED
        assert scene.wires(reached.job_id)[-1] == "failed"
        assert scene.job(reached.job_id).failures == 1

    def test_a_keeper_fails_a_stalled_job_whose_budget_is_spent(self, scene: Scene) -> None:
        reached = scene.reach(State.STALLED, policy=Policy(on_exhausted="fail", max_failures=1))
        receipt = scene.engine.requeue(reached.job_id, by=KEEPER)
        assert receipt.state is State.FAILED
        assert scene.wires(reached.job_id) == ["enqueued", "claimed", "started", "stalled", "failed"]


@pytest.mark.parametrize("state", State)
class TestEveryState:
    """Every state is reached, has its shape, and is counted and listed as itself."""

    def test_a_job_has_the_shape_of_its_state(self, scene: Scene, state: State) -> None:
        job = scene.job(scene.reach(state).job_id)
        shape = {field: getattr(job, field) is not None for field in SHAPE[state]._asdict()}
        assert shape == SHAPE[state]._asdict()

    def test_a_job_is_counted_once_and_listed_under_its_state_alone(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        (count,) = scene.engine.counts()
        assert (count.queue, count.kind, count.state, count.jobs) == ("default", "email.send", state, 1)
        assert [job.id for job in scene.engine.list(states=state).jobs] == [job_id]
        assert scene.engine.list(states=[other for other in State if other is not state]).jobs == ()

    def test_a_claim_by_queue_takes_only_what_is_queued_or_retrying(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        taken = [claim.job_id for claim in scene.engine.claim("worker-2", limit=10)]
        assert taken == ([job_id] if state in {State.QUEUED, State.RETRYING} else [])

    def test_a_second_engine_sees_the_same_job(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        other = scene.another()
        assert other.get(job_id) == scene.job(job_id)
        assert other.history(job_id) == scene.engine.history(job_id)
        assert other.list() == scene.engine.list()
        assert other.counts() == scene.engine.counts()


def test_the_roles_that_speak_are_those_of_the_lifecycle() -> None:
    assert {move.who for move in MATRIX} == set(Who)
