"""Making jobs of calls, one or many, and what a handle tells of them; sync and async."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.places import Place

from leftfold import Allowance, App, Handle, JobCancelled, JobFailed, ValidationError
from leftfold.core.errors import (
    JobNotFoundError,
    KeyTakenError,
    NoCurrentJobError,
    RequestReusedError,
    ResultTimeoutError,
    StoreError,
)
from leftfold.core.lifecycle import State
from leftfold.store.sqlite.library import sqlite


def echo(what: str) -> str:
    return what


def fails() -> None:
    raise ValueError("not today")


def test_options_say_how_one_job_differs_from_its_kind(app: App) -> None:
    job = app.job(queue="usual", priority=5)(echo)
    cause = job.enqueue("cause")
    due = datetime(2100, 1, 1, tzinfo=UTC)
    other = job.options(
        queue="other", priority="P0", due=due, key="k", tenant="t", correlation_id="c", cause=cause.id
    ).enqueue("other")  # fmt: skip
    usual, spec = cause.get(), other.get().spec
    assert (usual.spec.queue, usual.spec.priority, usual.spec.key) == ("usual", 5, None)
    assert (spec.kind, spec.queue, spec.priority, spec.key) == ("echo", "other", 30, "k")
    assert (spec.tenant, spec.correlation_id, spec.cause) == ("t", "c", cause.id)
    assert other.get().due == due.timestamp() * 1_000_000
    app.run_worker(until_idle=True)
    assert (cause.status(), other.status()) == (State.SUCCEEDED, State.QUEUED)


def test_options_keep_what_they_do_not_name(file_app: App) -> None:
    job = file_app.job(queue="usual", priority=5)(echo)
    spec = job.options(key="k").enqueue("x").get().spec
    assert (spec.queue, spec.priority) == ("usual", 5)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"queue": "two words"}, "queue 'two words' is not a name"),
        ({"priority": "urgent"}, "priority 'urgent' must be"),
        ({"due": datetime(2100, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is the case
        ({"due": "soon"}, "due must be"),
        ({"key": ""}, "must be a non-empty text"),
        ({"on_conflict": "skip"}, "on_conflict 'skip' is none of return, raise, replace"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_written(file_app: App, options: Any, why: str) -> None:
    job = file_app.job(echo)
    with pytest.raises(ValidationError, match=why):
        job.options(**options).enqueue("x")
    assert file_app.engine.counts() == []


def test_a_key_that_is_taken_gives_that_job_or_raises_or_replaces(app: App) -> None:
    job = app.job(echo)
    first = job.options(key="k").enqueue("first")
    same = job.options(key="k").enqueue("second")
    assert (same.id, same.created, first.created) == (first.id, False, True)
    with pytest.raises(KeyTakenError):
        job.options(key="k", on_conflict="raise").enqueue("third")
    other = job.options(key="k", on_conflict="replace").enqueue("fourth")
    assert other.id != first.id
    assert first.status() is State.CANCELLED


def test_the_same_request_makes_no_second_job(app: App) -> None:
    job = app.job(echo)
    first = job.options(request_id="r").enqueue("x")
    assert job.options(request_id="r").enqueue("x").id == first.id
    with pytest.raises(RequestReusedError):
        job.options(request_id="r").enqueue("y")


@contextmanager
def connection_to(place: Place) -> Iterator[Any]:
    if place.is_file:
        with closing(sqlite.connect(place.path, isolation_level=None)) as lite:
            lite.execute("BEGIN IMMEDIATE")
            yield lite
    else:
        with psycopg.connect(place.url) as post:
            yield post
            post.rollback()


def test_a_job_may_be_part_of_the_callers_transaction(app: App, place: Place) -> None:
    job = app.job(echo)
    app.engine.counts()
    with connection_to(place) as connection:
        job.options(within=connection).enqueue("one")
        app.enqueue_many([job.call("two"), job.call("three")], within=connection)
        connection.rollback()
    assert app.engine.counts() == []
    with connection_to(place) as connection:
        handle = job.options(within=connection).enqueue("one")
        connection.commit()
    assert handle.status() is State.QUEUED


def test_many_calls_of_many_kinds_are_one_batch(app: App) -> None:
    @app.job
    def doubled(n: int) -> int:
        return 2 * n

    @app.job
    async def shouted(what: str) -> str:
        return what.upper()

    handles = app.enqueue_many([doubled.call(1), shouted.options(key="k").call("a"), doubled.call(2)])
    again = app.enqueue_many([doubled.call(3), shouted.options(key="k").call("b")])
    assert [each.created for each in again] == [True, False]
    with pytest.raises(KeyTakenError):
        app.enqueue_many([doubled.call(4), shouted.options(key="k").call("c")], on_conflict="raise")
    app.run_worker(until_idle=True)
    assert [each.result(0) for each in handles] == [2, "A", 4]
    assert {count.kind: count.jobs for count in app.engine.counts()} == {"doubled": 3, "shouted": 1}
    assert app.enqueue_many([]) == []
    first = app.enqueue_many([doubled.call(5)], request_id="r")
    assert app.enqueue_many([doubled.call(5)], request_id="r")[0].id == first[0].id


def test_a_batch_takes_only_calls_of_its_app_without_settings_of_their_own(file_app: App) -> None:
    job, other = file_app.job(echo), App("sqlite:///:memory:").job(echo)
    wrong: list[tuple[Any, str]] = [
        (job, "is no call"),
        (other.call("x"), "is no call of a job of this app"),
        (job.options(on_conflict="raise").call("x"), "hold for all"),
        (job.options(request_id="r").call("x"), "hold for all"),
        (job.options(within=object()).call("x"), "hold for all"),
    ]
    for call, why in wrong:
        with pytest.raises(ValidationError, match=why):
            file_app.enqueue_many([job.call("x"), call])
    with pytest.raises(ValidationError, match="on_conflict 'skip' is none of"):
        file_app.enqueue_many([job.call("x")], on_conflict="skip")  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too
    assert file_app.engine.counts() == []


def test_policy_is_recorded_with_the_job(app: App) -> None:
    @app.job(
        max_failures=7, retry_delay=2, retry_delay_max=timedelta(minutes=5), lease=30, timeout=10,
        on_exhausted="fail", hold_stalled=True, retries={ConnectionError: 10, OSError: [1, timedelta(minutes=1)]},
    )  # fmt: skip
    def send() -> None: ...

    policy = send.enqueue().get().policy
    assert (policy.max_failures, policy.backoff.base, policy.backoff.cap) == (7, 2_000_000, 300_000_000)
    assert (policy.lease, policy.timeout, policy.on_exhausted, policy.hold_stalled) == (
        30_000_000, 10_000_000, "fail", True,
    )  # fmt: skip
    slowly = Allowance(max_failures=3, delays=(1_000_000, 60_000_000))
    timeouts = slowly  # a TimeoutError is an OSError
    assert policy.by_error == {"ConnectionError": Allowance(max_failures=11), "OSError": slowly, "timeout": timeouts}
    batched = app.enqueue_many([send.call()])
    assert batched[0].get().policy == policy


# --- handles -----------------------------------------------------------------------------------------------------


def test_a_handle_tells_where_its_job_stands_and_what_became_of_it(app: App) -> None:
    good, bad = app.job(echo).enqueue("x"), app.job(max_failures=1)(fails).enqueue()
    assert good.status() is State.QUEUED
    with pytest.raises(ResultTimeoutError, match="has not ended within 0 s; it goes on"):
        good.result(timeout=0)
    with pytest.raises(TimeoutError):
        good.result(timeout=timedelta(milliseconds=1))
    with pytest.raises(ValidationError, match="timeout must be seconds"):
        good.result(timeout="soon")  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too
    app.run_worker(until_idle=True)
    assert (good.status(), good.result(), good.get().attempt) == (State.SUCCEEDED, "x", 1)
    assert [record.event.wire for record in good.history()] == ["enqueued", "claimed", "started", "succeeded"]
    with pytest.raises(JobFailed, match="is dead_lettered: ValueError: not today") as raised:
        bad.result()
    assert (raised.value.job_id, raised.value.state) == (bad.id, "dead_lettered")
    assert raised.value.error is not None
    assert raised.value.error.type == "ValueError"


def test_a_handle_cancels_and_signals(app: App) -> None:
    handle = app.job(echo).enqueue("x")
    assert handle.signal("approved", {"by": "ann"}).changed
    assert bytes(handle.get().answers["approved"].payload) == b'{"by":"ann"}'
    handle.cancel(reason="nobody wants it")
    with pytest.raises(JobCancelled, match=handle.id):
        handle.result(0)


def test_a_handle_can_be_had_again_by_its_id(app: App) -> None:
    made = app.job(echo).enqueue("x")
    app.run_worker(until_idle=True)
    again: Handle[Any] = app.handle(made.id)
    assert (again.id, again.result(0), repr(again)) == (made.id, "x", f"<handle of job {made.id}>")
    with pytest.raises(JobNotFoundError):
        app.handle("12345678-1234-5678-1234-567812345678")
    stranger = app.engine.enqueue("stranger")
    with pytest.raises(JobNotFoundError, match="'stranger', which this app does not know"):
        app.handle(stranger.job_id)


def test_a_result_that_is_not_what_the_handler_promises_is_told(file_app: App) -> None:
    @file_app.job
    def promised() -> int:
        return "two"  # type: ignore[return-value]  # it lies: that is the case

    handle = promised.enqueue()
    file_app.run_worker(until_idle=True)
    with pytest.raises(JobFailed, match=r"promised returned what its annotation does not say: Expected `int`"):
        handle.result(0)
    assert handle.get().attempt == 1, "it would lie again"
    file_app.engine.enqueue("promised")
    (claim,) = file_app.engine.claim("somebody else", start=True)
    file_app.engine.complete(claim, "two")
    with pytest.raises(ValidationError, match=r"not what .*promised says it gives"):
        promised.handle_of(claim.job_id).result(0)


def test_everything_has_an_async_twin(app: App) -> None:
    job = app.job(echo)
    bad = app.job(max_failures=1)(fails)

    async def main() -> None:
        async with app:
            one = await job.options(priority=3, key="k").aenqueue("one")
            assert (await job.options(key="k").aenqueue("one")).created is False
            many = await app.aenqueue_many(job.call(str(n)) for n in range(3))
            failed = await bad.aenqueue()
            cancelled = await job.aenqueue("cancelled")
            with pytest.raises(ResultTimeoutError):
                await one.aresult(timeout=0)
            await cancelled.asignal("key", 1)
            await cancelled.acancel()
            assert await one.astatus() is State.QUEUED
            await app.arun_worker(until_idle=True)
            assert [await each.aresult(0) for each in (one, *many)] == ["one", "0", "1", "2"]
            assert (await one.aget()).spec.priority == 3
            assert len(await one.ahistory()) == 4
            with pytest.raises(JobFailed):
                await failed.aresult()
            with pytest.raises(JobCancelled):
                await cancelled.aresult()
            assert await (await app.ahandle(one.id)).aresult(0) == "one"
            again = job.options(key="x").call("x")
            await app.aenqueue_many([again])
            with pytest.raises(KeyTakenError):
                await app.aenqueue_many([again], on_conflict="raise")

    asyncio.run(main())


def test_a_result_is_waited_for_while_a_worker_works(app: App) -> None:
    job = app.job(echo)

    async def main() -> str:
        async with app:
            handle = await job.aenqueue("x")
            result, _ = await asyncio.gather(handle.aresult(timeout=30), app.arun_worker(until_idle=True))
            return result

    assert asyncio.run(main()) == "x"


def test_an_event_loop_closes_its_store_when_it_ends(app: App) -> None:
    job = app.job(echo)

    @app.job
    async def parent() -> str:
        return (await job.aenqueue("child")).id

    engines = [asyncio.run(app.aengine()), asyncio.run(app.aengine())]
    handle = asyncio.run(parent.aenqueue())
    app.run_worker(until_idle=True)
    assert app.handle(handle.result(0)).result(0) == "child"
    assert app._aengines == {}
    assert engines[0] is not engines[1]
    for engine in engines:
        with pytest.raises(StoreError, match="closed"):
            asyncio.run(engine.counts())


def test_a_store_that_is_not_there_is_asked_again(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'later' / 'jobs.db'}")
    job = app.job(echo)

    async def main() -> None:
        async with app:
            with pytest.raises(StoreError):
                await job.aenqueue("x")
            (tmp_path / "later").mkdir()
            assert await (await job.aenqueue("x")).astatus() is State.QUEUED
            await app.aclose()
            assert await (await job.aenqueue("y")).astatus() is State.QUEUED

    asyncio.run(main())


def test_no_job_runs_outside_of_handlers(file_app: App) -> None:
    from leftfold import current_job  # noqa: PLC0415 - loaded when asked for, as everybody gets it

    with pytest.raises(NoCurrentJobError, match="no job runs here"):
        current_job()
