"""Keys: one live job per tenant, kind and key, and what `on_conflict` makes of a second one."""

from typing import Any, Final

import pytest

from leftfold import NewJob
from leftfold.core.errors import KeyTakenError
from leftfold.core.lifecycle import CLOSED, ENDED, State
from leftfold.testing.conformance.scene import KIND, Scene, shown

KEY: Final = "order:42"
LIVE: Final = [state for state in State if state not in ENDED]
REPLACEABLE: Final = [State.INBOX, State.QUEUED, State.RETRYING]
HELD: Final = [state for state in LIVE if state not in REPLACEABLE]
#: What makes a key another one.
DIFFERENT: Final[list[dict[str, Any]]] = [
    {"tenant": "acme"},
    {"kind": "sms.send"},
    {"key": "order:43"},
    {"key": "Order:42"},
    {"key": "order:42 "},
    {"key": "order:４２"},
    {"key": "%"},
]


@pytest.mark.parametrize("state", LIVE)
class TestAKeyThatIsTaken:
    """While a job lives, in whatever state, its key is its own."""

    def test_the_job_that_holds_it_is_given(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state, key=KEY).job_id
        with scene.unchanged():
            receipt = scene.engine.enqueue(KIND, "other", key=KEY)
        job = scene.job(job_id)
        assert (receipt.job_id, receipt.state, receipt.changed) == (job_id, state, False)
        assert (receipt.version, receipt.rev, receipt.attempt) == (job.version, job.rev, job.attempt)

    def test_a_second_job_is_refused(self, scene: Scene, state: State) -> None:
        scene.reach(state, key=KEY)
        with scene.refuses(KeyTakenError):
            scene.engine.enqueue(KIND, key=KEY, on_conflict="raise")

    def test_a_second_job_is_skipped(self, scene: Scene, state: State) -> None:
        scene.reach(state, key=KEY)
        with scene.unchanged():
            assert scene.engine.enqueue(KIND, key=KEY, on_conflict="skip") is None

    def test_a_second_job_is_not_received_either(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state, key=KEY).job_id
        with scene.unchanged():
            assert scene.engine.receive(KIND, key=KEY).job_id == job_id
        with scene.refuses(KeyTakenError):
            scene.engine.receive(KIND, key=KEY, on_conflict="raise")


@pytest.mark.parametrize("on_conflict", ["return", "raise", "skip", "replace"])
class TestAKeyThatIsFree:
    """Whatever is to happen on a conflict: without one, a job is made."""

    @pytest.mark.parametrize("state", sorted(ENDED))
    def test_a_job_that_ended_has_freed_it(self, scene: Scene, state: State, on_conflict: Any) -> None:
        old = scene.reach(state, key=KEY).job_id
        receipt = scene.engine.enqueue(KIND, key=KEY, on_conflict=on_conflict)
        assert receipt.changed
        assert receipt.job_id != old
        assert scene.job(old).state is state

    def test_jobs_without_a_key_never_meet(self, scene: Scene, on_conflict: Any) -> None:
        receipts = scene.engine.enqueue_many([NewJob(KIND)] * 3, on_conflict=on_conflict)
        assert len({receipt.job_id for receipt in receipts if receipt}) == 3


@pytest.mark.parametrize("other", DIFFERENT, ids=shown)
def test_another_key_is_another_key(scene: Scene, other: dict[str, Any]) -> None:
    scene.enqueued(key=KEY)
    receipt = scene.engine.enqueue(**{"kind": KIND, "key": KEY, **other}, on_conflict="raise")
    assert receipt.changed
    assert len(scene.everything()) == 2


class TestReplacing:
    """`replace` cancels what nobody works on, and nothing else."""

    @pytest.mark.parametrize("state", REPLACEABLE)
    def test_what_nobody_works_on_is_replaced(self, scene: Scene, state: State) -> None:
        old = scene.reach(state, key=KEY).job_id
        receipt = scene.engine.enqueue(KIND, "new", key=KEY, on_conflict="replace")
        assert (receipt.state, receipt.version, receipt.changed) == (State.QUEUED, 1, True)
        assert scene.job(old).state is State.CANCELLED
        assert scene.wires(old)[-1] == "cancelled"
        assert receipt.job_id in scene.last(old).data
        assert scene.job(receipt.job_id).payload == "new"

    def test_a_job_that_waits_for_others_from_its_birth_is_replaced(self, scene: Scene) -> None:
        old = scene.enqueued(key=KEY, after=[scene.enqueued()])
        receipt = scene.engine.enqueue(KIND, key=KEY, on_conflict="replace")
        assert receipt.job_id != old
        assert scene.job(old).state is State.CANCELLED

    @pytest.mark.parametrize("state", HELD)
    def test_what_somebody_works_on_is_not(self, scene: Scene, state: State) -> None:
        scene.reach(state, key=KEY)
        with scene.refuses(KeyTakenError):
            scene.engine.enqueue(KIND, key=KEY, on_conflict="replace")

    def test_the_new_job_may_be_replaced_in_turn(self, scene: Scene) -> None:
        made = [scene.enqueued(payload=number, key=KEY, on_conflict="replace") for number in range(4)]
        assert [scene.job(job_id).state for job_id in made] == ["cancelled"] * 3 + ["queued"]


class TestDuplicatesWithinABatch:
    """A batch may take a key from itself."""

    def test_the_second_is_the_first(self, scene: Scene) -> None:
        first, second = scene.engine.enqueue_many([NewJob(KIND, 1, key=KEY), NewJob(KIND, 2, key=KEY)])
        assert first is not None
        assert second is not None
        assert (first.changed, second.changed) == (True, False)
        assert first.job_id == second.job_id
        assert scene.job(first.job_id).payload == 1

    def test_the_second_is_skipped(self, scene: Scene) -> None:
        first, second = scene.engine.enqueue_many([NewJob(KIND, key=KEY)] * 2, on_conflict="skip")
        assert first is not None
        assert second is None

    def test_the_second_is_refused_and_the_first_with_it(self, scene: Scene) -> None:
        with scene.refuses(KeyTakenError):
            scene.engine.enqueue_many([NewJob(KIND, key=KEY)] * 2, on_conflict="raise")

    def test_the_last_one_stands(self, scene: Scene) -> None:
        jobs = [NewJob(KIND, number, key=KEY) for number in range(4)]
        receipts = scene.engine.enqueue_many(jobs, on_conflict="replace")
        assert [receipt and receipt.state for receipt in receipts] == ["cancelled"] * 3 + ["queued"]
        (live,) = scene.engine.list(states="queued").jobs
        assert scene.job(live.id).payload == 3
        assert len(scene.engine.list(states="cancelled").jobs) == 3

    def test_each_is_replaced_by_the_one_behind_it(self, scene: Scene) -> None:
        others = scene.enqueued()
        old = scene.enqueued(key=KEY)
        jobs = [NewJob(KIND, 0, key=KEY), NewJob("other", key=KEY), NewJob(KIND, 1, key=KEY, after=[others])]
        jobs += [NewJob(KIND, 2, key=KEY)]
        receipts = scene.engine.enqueue_many(jobs, on_conflict="replace")
        first, other, second, third = (receipt.job_id for receipt in receipts if receipt)
        for job_id, successor in ((old, first), (first, second), (second, third)):
            assert scene.job(job_id).state is State.CANCELLED
            assert f"replaced by {successor}" in scene.last(job_id).data
        assert scene.wires(first) == ["enqueued", "cancelled"]
        assert scene.wires(second) == ["enqueued", "suspended", "cancelled"]
        assert [scene.job(job_id).state for job_id in (other, third)] == [State.QUEUED, State.QUEUED]
        assert [receipt.version for receipt in receipts if receipt] == [2, 1, 3, 1]


@pytest.mark.parametrize("state", sorted(CLOSED))
class TestReopening:
    """A closed job that is reopened needs its key back."""

    def test_the_key_is_its_own_again(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state, key=KEY).job_id
        scene.engine.requeue(job_id, reason="again")
        assert scene.engine.enqueue(KIND, key=KEY).job_id == job_id

    def test_a_key_that_is_another_jobs_by_now_is_refused(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state, key=KEY).job_id
        scene.enqueued(key=KEY)
        with scene.refuses(KeyTakenError):
            scene.engine.requeue(job_id, reason="again")

    @pytest.mark.parametrize("other", DIFFERENT, ids=shown)
    def test_another_key_is_in_nobodys_way(self, scene: Scene, state: State, other: dict[str, Any]) -> None:
        job_id = scene.reach(state, key=KEY).job_id
        scene.enqueued(**{"key": KEY, **other})
        assert scene.engine.requeue(job_id, reason="again").state is State.QUEUED

    def test_once_that_job_has_ended_it_is_reopened(self, scene: Scene, state: State) -> None:
        job_id = scene.reach(state, key=KEY).job_id
        scene.engine.cancel(scene.enqueued(key=KEY))
        assert scene.engine.requeue(job_id, reason="again").state is State.QUEUED


class TestKeysThatMove:
    """An admission may give a job another key."""

    def test_the_new_key_is_taken_and_the_old_one_free(self, scene: Scene) -> None:
        job_id = scene.engine.receive(KIND, key="old").job_id
        scene.engine.admit(job_id, job=NewJob(KIND, key="new"))
        assert scene.engine.enqueue(KIND, key="new").job_id == job_id
        assert scene.engine.enqueue(KIND, key="old").job_id != job_id

    def test_a_holder_is_shown_with_its_renewals(self, scene: Scene) -> None:
        claim = scene.started(key=KEY)
        scene.engine.heartbeat(claim)
        assert scene.engine.enqueue(KIND, key=KEY).rev == scene.job(claim.job_id).rev == 4
