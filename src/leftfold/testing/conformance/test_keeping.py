"""What keepers do: reap."""

from typing import Any

import pytest

from leftfold import Policy
from leftfold.core.commands import Actor
from leftfold.core.errors import LimitExceededError, NotPermittedError, ValidationError
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import SECOND
from leftfold.store.query import ids
from leftfold.store.replies import Receipt
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import KEEPER, Scene, refused, shown
from leftfold.testing.conformance.worlds import ACTOR

HOUR = 3600


def done(outcomes: Any) -> list[str]:
    """Give the jobs that something was done about; nothing was refused."""
    assert all(isinstance(each, Receipt) for each in outcomes), outcomes
    return sorted(each.job_id for each in outcomes)


class TestReap:
    """Jobs are taken from owners whose leases ran out, and waits end whose deadlines passed."""

    @pytest.mark.parametrize("state", State)
    def test_only_leases_and_waits_run_out(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state).job_id
        scene.clock.advance(HOUR)
        before = scene.job(job_id)
        outcomes = scene.engine.reap()
        if state in {State.CLAIMED, State.RUNNING, State.WAITING}:
            assert done(outcomes) == [job_id]
            assert scene.job(job_id).state is State.QUEUED
        else:
            assert (outcomes, scene.job(job_id)) == ([], before)

    @pytest.mark.parametrize(("seconds", "is_over"), [(59, False), (60, True), (61, True)])
    def test_a_lease_runs_out_at_its_end_and_not_before(self, scene: Scene, seconds: int, is_over: bool) -> None:
        claim = scene.started()
        scene.clock.advance(seconds)
        assert done(scene.engine.reap()) == ([claim.job_id] if is_over else [])

    @pytest.mark.parametrize(("watched", "is_judged"), [(0, True), (59, True), (60, False), (80, False), (-3600, True)])
    def test_who_did_not_watch_the_lease_run_out_waits_a_lease(
        self, scene: Scene, watched: int, is_judged: bool
    ) -> None:
        """It ran out at 60. Whoever has watched the clock only since then cannot know whether it jumped."""
        ended = scene.reach(State.SUCCEEDED).job_id
        claim = scene.started()
        began = START / SECOND
        scene.clock.advance(89)
        assert done(scene.engine.reap(watched=(began + watched, scene.engine.clock()))) == (
            [claim.job_id] if is_judged else []
        )
        if not is_judged:
            scene.clock.advance(watched + 60 - 89 - 1)
            assert scene.engine.reap(watched=(began + watched, scene.engine.clock())) == []
            scene.clock.advance(1)
            assert done(scene.engine.reap(watched=(began + watched, scene.engine.clock()))) == [claim.job_id]
        assert scene.job(ended).state is State.SUCCEEDED

    def test_a_short_lease_is_judged_sooner(self, scene: Scene) -> None:
        claim = scene.started(policy=Policy(lease=2 * SECOND))
        scene.clock.advance(10)
        began = START / SECOND + 10
        scene.clock.advance(1)
        assert scene.engine.reap(watched=(began, scene.engine.clock())) == []
        scene.clock.advance(1)
        assert done(scene.engine.reap(watched=(began, scene.engine.clock()))) == [claim.job_id]

    def test_a_jump_behind_the_last_look_at_the_clock_takes_no_lease(self, scene: Scene) -> None:
        claim = scene.started()
        began = scene.engine.clock()
        scene.clock.advance(59)
        seen = scene.engine.clock()
        scene.clock.advance(3600)
        assert scene.engine.reap(watched=(began, seen)) == []
        assert done(scene.engine.reap(watched=(began, seen + 1))) == [claim.job_id]

    def test_a_lease_that_was_renewed_is_left_alone(self, scene: Scene) -> None:
        claim, silent = scene.started(), scene.started()
        scene.clock.advance(30)
        scene.engine.heartbeat(claim)
        scene.clock.advance(30)
        assert done(scene.engine.reap()) == [silent.job_id]
        assert scene.engine.complete(claim).state is State.SUCCEEDED

    def test_its_owner_hears_that_it_is_no_longer_his(self, scene: Scene) -> None:
        claim = scene.started()
        scene.clock.advance(60)
        scene.engine.reap()
        assert scene.wires(claim.job_id)[-2:] == ["stalled", "requeued"]
        (outcome,) = scene.engine.complete_many([(claim, None)])
        assert not isinstance(outcome, Receipt)

    def test_whoever_shall_stop_has_stopped(self, scene: Scene) -> None:
        claim = scene.started()
        scene.engine.cancel(claim.job_id)
        scene.clock.advance(60)
        (outcome,) = scene.engine.reap()
        assert isinstance(outcome, Receipt)
        assert scene.job(claim.job_id).state is State.CANCELLED

    def test_a_wait_ends_without_an_answer(self, scene: Scene) -> None:
        job_id = scene.reach(State.WAITING).job_id
        scene.clock.advance(HOUR)
        scene.engine.reap()
        assert scene.wires(job_id)[-1] == "resumed"
        assert scene.job(job_id).answers["approved"].expired

    @pytest.mark.parametrize("limit", [1, 2, 5, 6])
    def test_it_does_no_more_than_its_limit_and_the_rest_the_next_time(self, scene: Scene, limit: int) -> None:
        held = [scene.reach(State.RUNNING).job_id for _ in range(3)]
        held += [scene.reach(State.WAITING).job_id for _ in range(2)]
        scene.clock.advance(HOUR)
        seen: list[str] = []
        while outcomes := scene.engine.reap(limit=limit):
            assert len(outcomes) <= limit
            seen += done(outcomes)
        assert sorted(seen) == sorted(held)

    def test_who_is_frozen_is_left_alone(self, scene: Scene) -> None:
        frozen, other = scene.started(), scene.started()
        scene.past_the_engine(ids("freeze", [frozen.job_id]))
        scene.clock.advance(60)
        assert done(scene.engine.reap()) == [other.job_id]
        scene.engine.rebuild(reason="free again")
        assert done(scene.engine.reap()) == [frozen.job_id]

    def test_where_nothing_is_over_nothing_happens(self, scene: Scene) -> None:
        scene.started()
        with scene.unchanged():
            assert scene.engine.reap() == []

    @pytest.mark.parametrize(("by", "name"), [(None, ACTOR), ("ann", "ann"), (KEEPER, KEEPER.name)], ids=shown)
    def test_by_is_who_says_it(self, scene: Scene, by: Any, name: str) -> None:
        claim = scene.started()
        scene.clock.advance(60)
        scene.engine.reap(by=by)
        record = scene.last(claim.job_id)
        assert (record.who, record.actor) == (Who.KEEPER, name)

    def test_a_client_is_no_keeper(self, scene: Scene) -> None:
        scene.started()
        scene.clock.advance(60)
        with scene.unchanged():
            (outcome,) = scene.engine.reap(by=Actor(who=Who.CLIENT, name="ann"))
        assert refused(outcome, NotPermittedError)

    @pytest.mark.parametrize(
        ("limit", "error"),
        [(0, LimitExceededError), (10_001, LimitExceededError), (None, ValidationError), ("7", ValidationError)],
        ids=shown,
    )
    def test_what_is_no_limit_is_refused(self, scene: Scene, limit: Any, error: type[Exception]) -> None:
        with scene.refuses(error):
            scene.engine.reap(limit=limit)
