"""Making jobs: enqueue, enqueue_many, receive, admit."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final
from uuid import UUID

import pytest
from msgspec import Raw
from msgspec.structs import replace

from leftfold import Allowance, Backoff, NewJob, Policy, Receipt
from leftfold.core import events as e
from leftfold.core.errors import JobNotFoundError, KeyTakenError, LimitExceededError, NotPermittedError, ValidationError
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.values import Spec
from leftfold.testing.clock import START
from leftfold.testing.conformance.scene import KIND, NOBODY, Scene, actor, shown
from leftfold.testing.conformance.worlds import ACTOR

#: One column of a job at a time, other than its default.
COLUMNS: Final[list[tuple[str, Any]]] = [
    ("kind", "sms.send"),
    ("payload", {"to": "ann", "tries": [1, 2.5, None, True]}),
    ("queue", "mail"),
    ("priority", 7),
    ("key", "order:42"),
    ("tenant", "acme"),
    ("correlation_id", "order-7"),
    ("cause", "event-9"),
]
POLICIES: Final = {
    "max_failures": Policy(max_failures=7),
    "backoff": Policy(backoff=Backoff(base=SECOND, factor=3.0, cap=MINUTE * 5, jitter=False)),
    "by_error": Policy(by_error={"network": Allowance(max_failures=4, delays=(SECOND, MINUTE))}),
    "lease": Policy(lease=30 * SECOND),
    "timeout": Policy(timeout=10 * MINUTE),
    "on_exhausted": Policy(on_exhausted="fail"),
    "hold_stalled": Policy(hold_stalled=True),
}
PAYLOADS: Final[list[Any]] = [
    None, True, False, 0, -1, 1.5, -0.25, 1e300, "", "text", [], {}, [[]], {"": ""}, [None], "null",
    2**63 - 1, -(2**63), "quote \" back \\ slash / tab \t line \n", "Zoë 😀 漢字 \u200b\u202e", {"ключ": "значение"},
    "'; DROP TABLE jobs; --", "%(now)s :now {schema} $1 ?", {"$ref": [{"a": {"b": [1, {"c": None}]}}]},
]  # fmt: skip
PRIORITIES: Final[list[tuple[int | str, int]]] = [
    ("P0", 30), ("P1", 20), ("P2", 10), ("P3", 0), ("5", 5), ("-5", -5), (0, 0), (-1, -1), (32_767, 32_767),
    (-32_767, -32_767),
]  # fmt: skip
NOON: Final = datetime(2033, 5, 18, 12, tzinfo=UTC)
DUES: Final[list[tuple[Any, int]]] = [
    (None, START),
    (0, START),
    (60, START + MINUTE),
    (0.25, START + SECOND // 4),
    (timedelta(minutes=1), START + MINUTE),
    (NOON, 2_000_030_400 * SECOND),
    (NOON.astimezone(timezone(timedelta(hours=-7))), 2_000_030_400 * SECOND),
    (NOON.replace(microsecond=1), 2_000_030_400 * SECOND + 1),
    (datetime(1999, 1, 1, tzinfo=UTC), START),
]


def spec_with(column: str, value: Any) -> Spec:
    """Give the spec of a job of which one column is other than its default."""
    kept = Raw(b'{"to":"ann","tries":[1,2.5,null,true]}') if column == "payload" else value
    return replace(Spec(kind=KIND), **{column: kept})


class TestEnqueue:
    """A job that may be claimed once it is due."""

    def test_a_new_job_is_queued_at_version_one(self, scene: Scene) -> None:
        receipt = scene.engine.enqueue(KIND)
        assert receipt == Receipt(job_id=receipt.job_id, state=State.QUEUED, version=1, rev=1, attempt=0)
        job = scene.job(receipt.job_id)
        assert (job.state, job.version, job.rev, job.attempt, job.failures) == (State.QUEUED, 1, 1, 0, 0)
        assert (job.created_at, job.updated_at, job.due) == (START, START, START)
        assert (job.spec, job.policy) == (Spec(kind=KIND), Policy())

    def test_one_record_says_who_made_it_and_when(self, scene: Scene) -> None:
        (record,) = scene.engine.history(scene.enqueued())
        assert (record.version, record.at, record.who, record.actor) == (1, START, Who.CLIENT, ACTOR)
        assert record.event == e.Enqueued(spec=Spec(kind=KIND))
        assert (record.request_id, record.request_hash) == (None, None)

    @pytest.mark.parametrize(("column", "value"), COLUMNS)
    def test_a_column_is_kept_and_no_other_moves(self, scene: Scene, column: str, value: Any) -> None:
        job_id = scene.enqueued(**{column: value})
        assert scene.job(job_id).spec == spec_with(column, value)
        (claim,) = scene.engine.claim("worker-1")
        assert claim.spec == spec_with(column, value)

    @pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
    def test_a_policy_is_kept_with_the_job(self, scene: Scene, policy: Policy) -> None:
        job_id = scene.enqueued(policy=policy)
        assert scene.job(job_id).policy == policy
        assert scene.held(job_id).policy == policy

    @pytest.mark.parametrize("payload", PAYLOADS, ids=shown)
    def test_a_payload_comes_back_as_it_was_given(self, scene: Scene, payload: Any) -> None:
        job_id = scene.enqueued(payload=payload)
        assert scene.job(job_id).payload == payload
        assert scene.held(job_id).payload == payload

    @pytest.mark.parametrize(("given", "kept"), PRIORITIES)
    def test_a_priority_has_a_name_or_is_a_number(self, scene: Scene, given: int | str, kept: int) -> None:
        assert scene.job(scene.enqueued(priority=given)).spec.priority == kept

    @pytest.mark.parametrize(("due", "kept"), DUES, ids=shown)
    def test_a_due_time_is_a_moment_or_a_span_and_never_past(self, scene: Scene, due: Any, kept: int) -> None:
        job_id = scene.enqueued(due=due)
        assert scene.job(job_id).due == kept

    def test_a_name_is_enough_to_say_who_speaks(self, scene: Scene) -> None:
        assert scene.last(scene.enqueued(by="ann")).actor == "ann"

    @pytest.mark.parametrize("who", [Who.WORKER, Who.KEEPER, Who.OPERATOR])
    def test_nobody_but_a_client_makes_jobs(self, scene: Scene, who: Who) -> None:
        with scene.refuses(NotPermittedError):
            scene.engine.enqueue(KIND, by=actor(who))

    def test_ids_are_uuids_of_version_seven_that_rise(self, scene: Scene) -> None:
        job_ids = [scene.enqueued() for _ in range(5)]
        assert {UUID(job_id).version for job_id in job_ids} == {7}
        assert job_ids == sorted(job_ids)
        assert {UUID(job_id).int >> 80 for job_id in job_ids} == {START // 1000}

    def test_an_unknown_way_out_of_a_conflict_is_refused(self, scene: Scene) -> None:
        with scene.refuses(ValidationError):
            scene.engine.enqueue(KIND, on_conflict="whatever")  # type: ignore[call-overload]

    def test_a_connection_that_is_none_is_refused(self, scene: Scene) -> None:
        with scene.refuses(ValidationError):
            scene.engine.enqueue(KIND, within=object())


class TestEnqueueMany:
    """Many jobs in one transaction: all of them, or none."""

    def test_the_receipts_stand_in_the_order_of_the_jobs(self, scene: Scene) -> None:
        receipts = scene.engine.enqueue_many(NewJob(KIND, number) for number in range(20))
        assert [scene.job(receipt.job_id).payload for receipt in receipts if receipt] == list(range(20))
        assert [job.id for job in reversed(scene.everything())] == [receipt.job_id for receipt in receipts if receipt]

    def test_no_jobs_are_no_receipts(self, scene: Scene) -> None:
        with scene.unchanged():
            assert scene.engine.enqueue_many([]) == []

    @pytest.mark.parametrize(("column", "value"), COLUMNS)
    def test_each_job_has_columns_of_its_own(self, scene: Scene, column: str, value: Any) -> None:
        plain = NewJob(KIND)
        receipts = scene.engine.enqueue_many([plain, plain._replace(**{column: value}), plain])
        specs = [scene.job(receipt.job_id).spec for receipt in receipts if receipt]
        assert specs == [Spec(kind=KIND), spec_with(column, value), Spec(kind=KIND)]

    def test_due_times_and_policies_are_each_jobs_own(self, scene: Scene) -> None:
        new = [NewJob(KIND, due=due) for due, _ in DUES] + [NewJob(KIND, policy=policy) for policy in POLICIES.values()]
        made = [scene.job(receipt.job_id) for receipt in scene.engine.enqueue_many(new) if receipt]
        assert [job.due for job in made] == [due for _, due in DUES] + [START] * len(POLICIES)
        assert [job.policy for job in made[len(DUES) :]] == list(POLICIES.values())

    def test_a_thousand_at_once(self, scene: Scene) -> None:
        receipts = scene.engine.enqueue_many(NewJob(KIND, number) for number in range(1_000))
        assert len({receipt.job_id for receipt in receipts if receipt}) == 1_000
        (count,) = scene.engine.counts()
        assert count.jobs == 1_000

    def test_a_batch_has_a_bound(self, scene: Scene) -> None:
        with scene.refuses(LimitExceededError):
            scene.engine.enqueue_many([NewJob(KIND)] * 10_001)

    @pytest.mark.parametrize("place", [0, 1, 2])
    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            (NewJob(""), ValidationError),
            (NewJob(KIND, float("nan")), ValidationError),
            (NewJob(KIND, priority=40_000), LimitExceededError),
            (NewJob(KIND, after=[NOBODY]), JobNotFoundError),
            (NewJob(KIND, key="taken"), KeyTakenError),
        ],
        ids=["name", "payload", "priority", "after", "key"],
    )
    def test_one_bad_job_keeps_all_from_being_made(
        self, scene: Scene, bad: NewJob, error: type[Exception], place: int
    ) -> None:
        scene.enqueued(key="taken")
        batch = [NewJob(KIND, key="one"), NewJob(KIND)]
        batch.insert(place, bad)
        with scene.refuses(error):
            scene.engine.enqueue_many(batch, on_conflict="raise")
        assert all(scene.engine.enqueue_many([NewJob(KIND, key="one")], on_conflict="raise"))

    def test_plain_jobs_keyed_ones_and_waiting_ones_in_one_batch(self, scene: Scene) -> None:
        first, holder = scene.enqueued(), scene.enqueued(key="taken")
        batch = [NewJob(KIND), NewJob(KIND, key="taken"), NewJob(KIND, after=[first]), NewJob(KIND, key="free")]
        receipts = scene.engine.enqueue_many(batch)
        assert [receipt and receipt.state for receipt in receipts] == ["queued", "queued", "waiting", "queued"]
        assert [receipt and receipt.changed for receipt in receipts] == [True, False, True, True]
        assert receipts[1] is not None
        assert receipts[1].job_id == holder


class TestReceive:
    """A job that nobody can claim before it is admitted."""

    def test_a_received_job_is_in_the_inbox(self, scene: Scene) -> None:
        receipt = scene.engine.receive(KIND, {"a": 1})
        assert receipt == Receipt(job_id=receipt.job_id, state=State.INBOX, version=1, rev=1, attempt=0)
        job = scene.job(receipt.job_id)
        assert (job.state, job.due, job.payload) == (State.INBOX, None, {"a": 1})
        assert scene.engine.claim("worker-1") == []

    @pytest.mark.parametrize(("column", "value"), COLUMNS)
    def test_a_column_is_kept_and_no_other_moves(self, scene: Scene, column: str, value: Any) -> None:
        job_id = scene.engine.receive(**{"kind": KIND, column: value}).job_id
        assert scene.job(job_id).spec == spec_with(column, value)
        assert scene.last(job_id).event == e.Received(spec=spec_with(column, value))

    @pytest.mark.parametrize("who", [Who.WORKER, Who.KEEPER, Who.OPERATOR])
    def test_nobody_but_a_client_hands_jobs_in(self, scene: Scene, who: Who) -> None:
        with scene.refuses(NotPermittedError):
            scene.engine.receive(KIND, by=actor(who))

    def test_a_bad_name_is_refused(self, scene: Scene) -> None:
        with scene.refuses(ValidationError):
            scene.engine.receive("no name")

    @pytest.mark.parametrize("on_conflict", ["skip", "replace", "whatever"])
    @pytest.mark.parametrize("taken", [False, True])
    def test_what_only_an_admitted_job_may_ask_is_refused(self, scene: Scene, taken: bool, on_conflict: Any) -> None:
        if taken:
            scene.enqueued(key="k")
        with scene.refuses(ValidationError):
            scene.engine.receive(KIND, key="k", on_conflict=on_conflict)


class TestAdmit:
    """Letting a received job in."""

    def test_an_admitted_job_is_due_now(self, scene: Scene) -> None:
        job_id = scene.engine.receive(KIND, "a").job_id
        scene.clock.advance(5)
        receipt = scene.engine.admit(job_id)
        assert receipt == Receipt(job_id=job_id, state=State.QUEUED, version=2, rev=2, attempt=0)
        assert scene.wires(job_id) == ["received", "enqueued"]
        assert scene.job(job_id).due == START + 5 * SECOND
        assert [claim.payload for claim in scene.engine.claim("worker-1")] == ["a"]

    @pytest.mark.parametrize(("due", "kept"), DUES, ids=shown)
    def test_it_may_be_due_later(self, scene: Scene, due: Any, kept: int) -> None:
        job_id = scene.engine.receive(KIND).job_id
        scene.engine.admit(job_id, due=due)
        assert scene.job(job_id).due == kept

    @pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
    def test_it_brings_the_policy(self, scene: Scene, policy: Policy) -> None:
        job_id = scene.engine.receive(KIND).job_id
        scene.engine.admit(job_id, policy=policy)
        assert [claim.policy for claim in scene.engine.claim("worker-1")] == [policy]
        assert scene.job(job_id).policy == policy

    @pytest.mark.parametrize(("column", "value"), COLUMNS)
    def test_it_may_put_the_job_in_order(self, scene: Scene, column: str, value: Any) -> None:
        job_id = scene.engine.receive(KIND).job_id
        scene.engine.admit(job_id, job=NewJob(KIND)._replace(**{column: value}))
        assert scene.job(job_id).spec == spec_with(column, value)
        assert [claim.spec for claim in scene.engine.claim("worker-1")] == [spec_with(column, value)]

    def test_a_claim_by_its_id_finds_the_job_that_was_put_in_order(self, scene: Scene) -> None:
        job_id = scene.engine.receive(KIND, "a").job_id
        scene.engine.admit(job_id, job=NewJob(KIND, "b"), policy=POLICIES["lease"])
        claim = scene.held(job_id)
        assert (claim.payload, claim.policy) == ("b", POLICIES["lease"])

    def test_the_counters_follow_a_job_to_another_queue(self, scene: Scene) -> None:
        job_id = scene.engine.receive(KIND).job_id
        scene.engine.admit(job_id, job=NewJob("sms.send", queue="mail"))
        (count,) = scene.engine.counts()
        assert (count.queue, count.kind, count.state, count.jobs) == ("mail", "sms.send", "queued", 1)

    def test_a_key_that_another_job_holds_is_refused(self, scene: Scene) -> None:
        scene.enqueued(key="order:42")
        job_id = scene.engine.receive(KIND).job_id
        with scene.refuses(KeyTakenError):
            scene.engine.admit(job_id, job=NewJob(KIND, key="order:42"))

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        with scene.refuses(JobNotFoundError):
            scene.engine.admit(NOBODY)

    def test_a_bad_job_is_refused(self, scene: Scene) -> None:
        job_id = scene.engine.receive(KIND).job_id
        with scene.refuses(ValidationError):
            scene.engine.admit(job_id, job=NewJob("no name"))
