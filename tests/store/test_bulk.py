"""Jobs that are alike take shorter ways: many at once in parts that are sealed here, and one alone from a mold.

Whichever way it came, a job is the one that `decide` gives.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from msgspec import Raw
from tests.places import Place, file_in, schema_on

import leftfold
from leftfold import App, Engine, NewJob, Policy
from leftfold.core import commands as c
from leftfold.core.decide import apply
from leftfold.core.errors import LimitExceededError, StoreError, ValidationError
from leftfold.core.lifecycle import Who
from leftfold.core.limits import PAYLOAD_BYTES_MAX, SECOND
from leftfold.core.record import Record
from leftfold.core.values import Spec
from leftfold.store.creating import PART
from leftfold.store.query import Operation, Query, Steps
from leftfold.store.rows import read_logs, row_of
from leftfold.testing.clock import FakeClock
from leftfold.testing.postgres import Server

MANY = PART + 57
POLICY = Policy(lease=7 * SECOND, max_failures=2)
LANE = {"queue": "mail", "priority": 7, "tenant": "acme"}
#: How jobs are asked for, and what the command for each of them says.
ASKED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "at once": ({}, {}),
    "later": ({"due": 60}, {"delay": 60 * SECOND}),
    "in a lane": (LANE, {}),
    "of a conversation": ({"correlation_id": 'mail "7" \\u0000', "cause": "a \\ b"}, {}),
    "with a policy": ({"policy": POLICY}, {"policy": POLICY}),
}  # fmt: skip


@pytest.fixture(params=["file", "postgres", "unprepared"])
def place(request: pytest.FixtureRequest, postgres: Server, tmp_path: Any) -> Iterator[tuple[Place, dict[str, Any]]]:
    if request.param == "file":
        yield file_in(tmp_path), {}
        return
    with schema_on(postgres) as found:
        yield found, {"prepare": request.param == "postgres"}


def _stored(engine: Engine, job_ids: Sequence[str]) -> dict[str, Any]:
    def load() -> Steps[list[Any]]:
        return (yield Query("load", columns=("id",), rows=[(job_id,) for job_id in job_ids]))

    return read_logs(engine.store.run(Operation(load, apart=True, reads=True)))


def _told(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    return [(each.version, each.at, each.who, each.actor, each.data, each.request_id) for each in records]


def _held_to_the_core(engine: Engine, job_ids: Sequence[str], payloads: Sequence[Any], asked: str, now: int) -> None:
    """Compare what is stored with what `decide` gives for each job by itself."""
    given, said = ASKED[asked]
    spec = {name: value for name, value in given.items() if name not in {"due", "policy"}}
    logs = _stored(engine, job_ids)
    for job_id, payload in zip(job_ids, payloads, strict=True):
        by = c.Actor(who=Who.CLIENT, name="client")
        whole = Spec(kind="work", payload=Raw(str(payload).encode()), **spec)
        job, records = apply(None, c.Enqueue(by=by, job_id=job_id, spec=whole, **said), now, frozenset())
        log = logs[job_id]
        assert _told(log.records) == _told(records)
        assert row_of(log.job, log.records, log.head) == row_of(job, records, log.head)
    verdict = engine.verify()
    assert verdict.findings == ()
    assert verdict.jobs == len(job_ids)
    assert sum(count.jobs for count in engine.counts()) == len(job_ids)


@pytest.mark.parametrize("asked", ASKED)
def test_jobs_that_are_alike_are_what_each_of_them_would_be_alone(
    asked: str, place: tuple[Place, dict[str, Any]]
) -> None:
    where, settings = place
    clock = FakeClock()
    with where.open(clock=clock, actor="client", **settings) as engine:
        receipts = engine.enqueue_many([NewJob("work", number, **ASKED[asked][0]) for number in range(MANY)])
        job_ids = [receipt.job_id for receipt in receipts if receipt]
        assert job_ids == sorted(set(job_ids))
        _held_to_the_core(engine, job_ids, range(MANY), asked, clock.now)


@pytest.mark.parametrize("asked", ASKED)
def test_so_is_one_alone_the_first_time_and_later(asked: str, place: tuple[Place, dict[str, Any]]) -> None:
    where, settings = place
    clock = FakeClock()
    with where.open(clock=clock, actor="client", **settings) as engine:
        receipts = [engine.enqueue("work", number, **ASKED[asked][0]) for number in range(4)]
        _held_to_the_core(engine, [receipt.job_id for receipt in receipts], range(4), asked, clock.now)


@pytest.mark.parametrize("kinds", [1, 2], ids=["alike", "mixed"])
@pytest.mark.parametrize("jobs", [PART // 4 + 1, PART + 1, PART + PART // 4, PART + PART // 4 + 1])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_last_part_of_one_job_goes_the_way_of_the_others(
    jobs: int, kinds: int, is_async: bool, postgres: Server
) -> None:
    new = [NewJob(f"work.{number % kinds}", number) for number in range(jobs)]

    async def main(place: Place) -> None:
        async with await place.aopen(pool_size=1) as engine:
            for _ in range(3):  # then the server keeps a plan for one alone
                await engine.enqueue("work.0")
            await engine.enqueue_many(new)
            await engine.enqueue("work.0")

    with schema_on(postgres) as place, place.open(pool_size=1) as engine:
        if is_async:
            asyncio.run(main(place))
        else:
            for _ in range(3):
                engine.enqueue("work.0")
            engine.enqueue_many(new)
            engine.enqueue("work.0")
        verdict = engine.verify()
        assert (verdict.findings, verdict.jobs) == ((), jobs + 4)


class Kind(str, Enum):  # noqa: UP042 - as many still write it: it does not call itself by its value
    SEND = "send"


class Rank(int, Enum):
    HIGH = 7


@pytest.mark.parametrize("many", [1, MANY])
def test_members_of_enums_stand_for_their_values(many: int, place: tuple[Place, dict[str, Any]]) -> None:
    where, settings = place
    with where.open(actor=Kind.SEND, **settings) as engine:
        new = NewJob(Kind.SEND, queue=Kind.SEND, priority=Rank.HIGH, tenant=Kind.SEND)
        for _ in range(4):
            engine.enqueue_many([new] * many)
        assert engine.verify().findings == ()
        (shown,) = engine.list(limit=1).jobs
        assert (shown.kind, shown.queue, shown.priority, shown.tenant) == ("send", "send", 7, "send")
        assert [record.actor for record in engine.history(shown.id)] == ["send"]


def test_an_hour_that_comes_twice_is_two_hours(place: tuple[Place, dict[str, Any]]) -> None:
    where, settings = place
    once = datetime(2030, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    with where.open(**settings) as engine:
        receipts = engine.enqueue_many([NewJob("work", due=once.replace(fold=n % 2)) for n in range(MANY)])
        first, second = [engine.get(receipt.job_id).due for receipt in receipts[:2] if receipt]
        assert (first, second) == (int(once.timestamp()) * SECOND, int(once.timestamp() + 3600) * SECOND)


def test_many_calls_of_a_function_are_jobs_of_its_kind(place: tuple[Place, dict[str, Any]]) -> None:
    where, settings = place
    with App(where.url, schema=where.schema, **settings) as app:
        leftfold.migrate(where.url, schema=where.schema)

        @app.job(queue="mail", lease=7)
        def send(to: str, copies: int = 1) -> None: ...

        handles = app.enqueue_many(send.call(f"to {number}") for number in range(MANY))
        found = [handle.get() for handle in (handles[0], handles[PART], handles[-1])]
        assert [bytes(job.spec.payload) for job in found] == [
            b'{"to":"to %d"}' % number for number in (0, PART, MANY - 1)
        ]
        assert {(job.spec.kind, job.spec.queue, job.policy.lease) for job in found} == {("send", "mail", 7 * SECOND)}
        assert all(handle.created for handle in handles)
        assert len({handle.id for handle in handles}) == MANY
        assert app.engine.verify().findings == ()


def test_what_is_equal_and_yet_another_is_not_taken_for_alike(place: tuple[Place, dict[str, Any]]) -> None:
    where, settings = place
    jobs = [NewJob("work", number, priority=1) for number in range(MANY)]
    with where.open(**settings) as engine:
        with pytest.raises(ValidationError, match="priority"):
            engine.enqueue_many([*jobs, NewJob("work", priority=True)])
        assert engine.list().jobs == ()


REFUSED: dict[str, tuple[Raw, str]] = {
    "a NUL": (Raw(b'"\\u0000"'), "payload"),
    "no JSON": (Raw(b"[1,"), "not JSON"),
    "two values": (Raw(b"1 2"), "not JSON"),
    "nothing": (Raw(b""), "not JSON"),
    "blanks": (Raw(b" 1"), "blanks"),
    "no UTF-8": (Raw(b'"\xff"'), "not JSON"),
    "a number of 20 digits": (Raw(b"99999999999999999999"), "64 bits"),
    "half of a pair": (Raw(b'"\\ud800"'), "surrogate"),
    "too deep": (Raw(b"[" * 101 + b"]" * 101), "nested"),
    "too large": (Raw(b'"' + b"a" * PAYLOAD_BYTES_MAX + b'"'), "payload"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_payload_that_cannot_be_leaves_no_job(name: str, place: tuple[Place, dict[str, Any]]) -> None:
    where, settings = place
    bad, why = REFUSED[name]
    with where.open(**settings) as engine:
        for at in (0, MANY - 1):
            payloads: list[Any] = list(range(MANY))
            payloads[at] = bad
            with pytest.raises((ValidationError, LimitExceededError), match=why):
                engine.enqueue_many([NewJob("work", payload) for payload in payloads])
        with pytest.raises((ValidationError, LimitExceededError), match=why):
            engine.enqueue("work", bad)
        assert engine.list().jobs == ()


def test_two_halves_of_a_value_are_not_one(place: tuple[Place, dict[str, Any]]) -> None:
    # Read on end they are two values, as many as there are payloads.
    where, settings = place
    halves = [Raw(b"[1,"), Raw(b"2] 3"), *[Raw(b"4")] * MANY]
    with where.open(**settings) as engine:
        with pytest.raises(ValidationError, match="not JSON"):
            engine.enqueue_many([NewJob("work", payload) for payload in halves])
        assert engine.list().jobs == ()


def test_payloads_of_many_lines_and_languages_are_kept_as_they_are(place: tuple[Place, dict[str, Any]]) -> None:
    where, settings = place
    texts = ['{\n  "a": 1\n}', '"Zürich, 東京 \N{SNOWMAN}"', '"\\\\ \\" {},"', "null", *["0"] * MANY]
    with where.open(**settings) as engine:
        receipts = engine.enqueue_many([NewJob("work", Raw(text.encode())) for text in texts])
        found = [bytes(engine.get(receipt.job_id).spec.payload).decode() for receipt in receipts[:5] if receipt]
        assert found == texts[:5]
        assert engine.verify().findings == ()


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "SQL_ASCII"])
def test_a_caller_whose_connection_speaks_another_encoding_is_understood(encoding: str, postgres: Server) -> None:
    with schema_on(postgres) as place, place.open() as engine:
        with psycopg.connect(place.url, client_encoding=encoding) as connection:
            receipts = engine.enqueue_many([NewJob("work", f"Zürich {n}") for n in range(5)], within=connection)
            connection.commit()
        payloads = [bytes(engine.get(receipt.job_id).spec.payload).decode() for receipt in receipts if receipt]
        assert payloads == [f'"Zürich {n}"' for n in range(5)]
        assert engine.verify().findings == ()


def test_our_own_connections_speak_utf_8_whatever_the_environment_says(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with schema_on(postgres) as place, place.open() as engine:
        for _ in range(3):
            receipt = engine.enqueue("work", "Zürich 東京")
            assert bytes(engine.get(receipt.job_id).spec.payload).decode() == '"Zürich 東京"'


def test_a_server_that_refuses_one_job_says_why_and_goes_on(postgres: Server) -> None:
    with schema_on(postgres) as place, place.open() as engine:
        for _ in range(3):
            engine.enqueue("work")
        with psycopg.connect(place.url, autocommit=True) as connection:
            connection.execute(f"ALTER TABLE \"{place.schema}\".jobs ADD CHECK (kind <> 'bad')".encode())
        for _ in range(3):
            with pytest.raises(StoreError, match="violates check constraint"):
                engine.enqueue("bad")
            engine.enqueue("work")
        assert len(engine.list().jobs) == 6
        assert engine.verify().findings == ()


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_plans_that_the_server_forgot_are_made_anew(is_async: bool, postgres: Server) -> None:
    # psycopg lets it forget all of them behind a transaction that was rolled back.
    async def main(place: Place) -> None:
        async with await place.aopen(pool_size=1) as engine:
            for _ in range(3):
                await engine.enqueue("work")
                with pytest.raises(ValidationError):
                    await engine.enqueue_many([*new, NewJob("work", Raw(b"["))])
                await engine.enqueue("work")

    new = [NewJob("work")] * MANY
    with schema_on(postgres) as place, place.open(pool_size=1) as engine:
        if is_async:
            asyncio.run(main(place))
        else:
            for _ in range(3):
                engine.enqueue("work")
                with pytest.raises(ValidationError):
                    engine.enqueue_many([*new, NewJob("work", Raw(b"["))])
                engine.enqueue("work")
        verdict = engine.verify()
        assert (verdict.findings, verdict.jobs) == ((), 6)
