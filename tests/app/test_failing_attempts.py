"""What a handler raises, and what becomes of its job."""

import asyncio
import logging
import os
import threading
from typing import Any, ClassVar

import pytest

from leftfold import (
    App,
    Context,
    JobCancelled,
    JobFailed,
    PermanentError,
    Retry,
    Snooze,
    SyncContext,
    TransientError,
    ValidationError,
)
from leftfold.core import events as e
from leftfold.core.limits import TEXT_CHARS_MAX
from leftfold.core.values import Failure


def errors(app: App, job_id: str) -> list[Failure]:
    """Give what the log says of every attempt that failed."""
    return [
        record.event.error
        for record in app.engine.history(job_id)
        if isinstance(record.event, e.Retried | e.DeadLettered | e.Failed)
    ]


def run(app: App, problems: list[Any], **settings: Any) -> tuple[str, list[Failure]]:
    """Raise one after the other, a problem per attempt; tells how the job ends, and what its log says."""

    @app.job(**{"retry_delay": 0, **settings})
    def work(ctx: SyncContext) -> int:
        for problem in problems[ctx.attempt - 1 : ctx.attempt]:
            raise problem
        return ctx.attempt

    handle = work.enqueue()
    app.run_worker(until_idle=True)
    return handle.status().value, errors(app, handle.id)


class WorseError(ConnectionError):
    """Closer to what happened than its base."""


class DeclinedError(PermanentError):
    """A verdict with a code of its own."""

    code: ClassVar[str] = "card_declined"


class UnwellError(TransientError):
    """An exception whose code no log could keep."""

    code: ClassVar[str] = "two words!"


@pytest.mark.parametrize(
    ("problems", "settings", "state", "attempts"),
    [
        ([OSError()] * 2, {"max_failures": 3}, "succeeded", 2),
        ([OSError()] * 9, {"max_failures": 3}, "dead_lettered", 3),
        ([OSError()] * 9, {"max_failures": 2, "on_exhausted": "fail"}, "failed", 2),
        ([ConnectionError()] * 9, {"retries": {ConnectionError: 1}}, "dead_lettered", 2),
        ([ConnectionError()] * 7, {"retries": {ConnectionError: 7}}, "succeeded", 7),
        ([ValueError()] * 9, {"retries": {ConnectionError: 7, ValueError: 0}}, "dead_lettered", 1),
        ([WorseError()] * 9, {"retries": {ConnectionError: 2}}, "dead_lettered", 3),
        ([WorseError()] * 9, {"retries": {ConnectionError: 0, WorseError: 2}}, "dead_lettered", 3),
        ([WorseError()] * 9, {"retries": {Exception: 5, WorseError: 0}}, "dead_lettered", 1),
        (
            [OSError(), WorseError(), OSError(), WorseError()],
            {"max_failures": 3, "retries": {WorseError: 2}},
            "succeeded",
            4,
        ),
        ([OSError()] * 9, {"retries": {OSError: [0, 0.001, 0]}}, "dead_lettered", 4),
        ([OSError()] * 9, {"retries": {OSError: []}}, "dead_lettered", 1),
        ([PermanentError()], {}, "dead_lettered", 1),
        ([DeclinedError()], {}, "dead_lettered", 1),
        ([DeclinedError()], {"retries": {Exception: 5}}, "dead_lettered", 1),
        ([ValidationError()], {}, "dead_lettered", 1),
        ([TransientError(), UnwellError()], {}, "succeeded", 2),
        ([SystemExit(1), KeyboardInterrupt()], {}, "succeeded", 2),
        ([asyncio.CancelledError(), StopIteration()], {}, "succeeded", 2),
        ([Retry(after=0.01), Retry("again", after=0)], {}, "succeeded", 2),
        ([Retry(after=0)] * 9, {"max_failures": 2}, "dead_lettered", 2),
        ([Retry(after=-1)], {}, "dead_lettered", 1),
        ([Retry(after="soon")], {}, "dead_lettered", 1),  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too
        ([Snooze(0)] * 9, {"max_failures": 1}, "succeeded", 0),
        ([Snooze(-1)], {}, "dead_lettered", 1),
        ([Snooze("soon")], {}, "dead_lettered", 1),  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too
        ([Snooze(0, reason=3)], {}, "succeeded", 0),  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too
    ],
)
def test_a_failure_costs_what_its_class_costs(
    file_app: App, problems: list[Any], settings: Any, state: str, attempts: int
) -> None:
    ended, found = run(file_app, problems, **settings)
    assert (ended, len(found)) == (state, attempts)


def test_failures_are_on_the_log_of_both_stores(app: App) -> None:
    state, found = run(app, [ConnectionError("reset"), DeclinedError("no money")], retries={ConnectionError: 3})
    assert state == "dead_lettered"
    assert [(each.code, each.type, each.message) for each in found] == [
        ("ConnectionError", "ConnectionError", "reset"),
        ("card_declined", f"{__name__}.DeclinedError", "no money"),
    ]


def test_a_code_that_no_log_could_keep_is_left_out(file_app: App) -> None:
    _, (failure,) = run(file_app, [UnwellError("x")])
    assert (failure.code, failure.type) == ("job_error", f"{__name__}.UnwellError")


def test_retry_after_waits_at_least_so_long(file_app: App) -> None:
    @file_app.job(retry_delay=0)
    def work(ctx: SyncContext) -> None:
        if ctx.attempt == 1:
            raise Retry("busy", after=0.05)

    handle = work.enqueue()
    file_app.run_worker(until_idle=True)
    ((at, retried),) = [(each.at, each.event) for each in handle.history() if isinstance(each.event, e.Retried)]
    assert (retried.due - at, retried.error.message) == (50_000, "busy")


def test_a_snooze_is_no_failure_and_the_job_is_due_later(app: App) -> None:
    @app.job(max_failures=1)
    async def work(ctx: Context) -> None:
        raise Snooze(3600, "not\x00yet")

    handle = work.enqueue()
    app.run_worker(until_idle=True)
    job = handle.get()
    assert (job.state.value, job.failures, job.attempt) == ("queued", 0, 1)
    ((at, released),) = [(each.at, each.event) for each in handle.history() if isinstance(each.event, e.Released)]
    assert (released.due - at, released.reason) == (3_600_000_000, "not\N{SYMBOL FOR NULL}yet")


def test_every_attempt_leaves_its_traceback_from_the_users_code_on(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "leftfold.worker")  # pytest could not pass half of a surrogate pair on

    def deeper(n: int) -> None:
        raise ValueError(f"attempt {n} \x00 \ud800")

    @app.job(max_failures=2, retry_delay=0)
    def plain(ctx: SyncContext) -> None:
        deeper(ctx.attempt)

    @app.job(max_failures=2, retry_delay=0)
    async def unplain(ctx: Context) -> None:
        deeper(ctx.attempt)

    handles = [plain.enqueue(), unplain.enqueue()]
    app.run_worker(until_idle=True)
    for handle in handles:
        first, second = errors(app, handle.id)
        for n, failure in enumerate((first, second), 1):
            assert failure.message == f"attempt {n} \N{SYMBOL FOR NULL} \\ud800"
            assert failure.traceback is not None
            assert "in deeper" in failure.traceback
            assert "leftfold/worker" not in failure.traceback
            assert failure.traceback.rstrip().endswith(failure.message)


def test_a_long_traceback_keeps_its_end(file_app: App) -> None:
    @file_app.job(max_failures=1)
    def work() -> None:
        raise ValueError("a" * TEXT_CHARS_MAX + "the end")

    handle = work.enqueue()
    file_app.run_worker(until_idle=True)
    (failure,) = errors(file_app, handle.id)
    assert failure.traceback is not None
    for text in (failure.message, failure.traceback):
        assert len(text) == TEXT_CHARS_MAX
        assert text.startswith("[…]\n")
        assert text.rstrip().endswith("the end")


def test_an_exception_that_cannot_be_printed_is_a_failure_as_well(file_app: App) -> None:
    class Mute(Exception):  # noqa: N818 - named for what it does
        def __str__(self) -> str:
            raise RuntimeError

    _, (failure,) = run(file_app, [Mute()], max_failures=1)
    assert failure.message == "(the error could not be printed: RuntimeError)"


def test_an_attempt_that_takes_too_long_is_stopped_and_tried_again(app: App) -> None:
    @app.job(timeout=0.05, max_failures=2, retry_delay=0)
    async def waits() -> None:
        await asyncio.Event().wait()

    returned = threading.Semaphore(0)

    @app.job(timeout=0.05, max_failures=2, retry_delay=0)
    def spins(ctx: SyncContext) -> None:
        while not ctx.cancelled:
            os.sched_yield()
        returned.release()

    handles = [waits.enqueue(), spins.enqueue()]
    app.run_worker(until_idle=True)
    for handle in handles:
        found = errors(app, handle.id)
        assert [(each.code, each.type) for each in found] == [("timeout", "TimeoutError")] * 2
        assert found[0].message == "the attempt took longer than 0.05 s"
    assert [returned.acquire(timeout=10) for _ in range(2)] == [True, True]  # both threads were asked to stop


def test_a_timeout_of_the_attempt_costs_what_a_timeout_error_costs(file_app: App) -> None:
    @file_app.job(timeout=0.05, retries={TimeoutError: 0})
    async def waits() -> None:
        await asyncio.Event().wait()

    @file_app.job(timeout=30, retries={TimeoutError: 0})
    async def raises() -> None:
        raise TimeoutError("somebody else's")

    handles = [waits.enqueue(), raises.enqueue()]
    file_app.run_worker(until_idle=True)
    assert [len(errors(file_app, handle.id)) for handle in handles] == [1, 1]
    assert errors(file_app, handles[1].id)[0].message == "somebody else's"


def test_a_result_that_json_cannot_say_fails_the_job_for_good(app: App) -> None:
    @app.job
    def gives(what: str) -> Any:
        return {"object": object(), "nan": float("nan"), "large": "x" * 300_000}[what]

    handles = [gives.enqueue(what) for what in ("object", "nan", "large")]
    app.run_worker(until_idle=True)
    found = [errors(app, handle.id) for handle in handles]
    assert [[each.code for each in failures] for failures in found] == [
        ["validation_failed"], ["validation_failed"], ["limit_exceeded"],
    ]  # fmt: skip
    assert "gives cannot be written as JSON: a object has no form in JSON" in found[0][0].message


def test_a_plain_handler_that_returns_a_coroutine_is_told_so(file_app: App) -> None:
    async def inside() -> int:
        return 1

    file_app.job(name="hidden")(lambda: inside())  # noqa: PLW0108 - a lambda is the case
    handle = file_app.handler("hidden").enqueue()
    file_app.run_worker(until_idle=True)
    with pytest.raises(JobFailed, match="returned a coroutine: write `async def`"):
        handle.result(0)


def test_a_payload_that_the_handler_cannot_read_is_not_tried_again(app: App) -> None:
    @app.job
    def send(to: str) -> None: ...

    payloads: list[Any] = [{"to": 1}, {"cc": "ann"}, [], None]
    ids = [app.engine.enqueue("send", payload).job_id for payload in payloads]
    app.run_worker(until_idle=True)
    for job_id in ids:
        assert [each.code for each in errors(app, job_id)] == ["validation_failed"]


def test_a_running_handler_stops_on_request(app: App) -> None:
    @app.job(lease=2)
    async def waits(ctx: Context) -> None:
        await (await ctx.app.ahandle(ctx.job_id)).acancel()
        await asyncio.Event().wait()

    @app.job(lease=2)
    def spins(ctx: SyncContext) -> None:
        ctx.app.handle(ctx.job_id).cancel()
        while not ctx.cancelled:
            os.sched_yield()
        raise TransientError("stopped")

    async def main() -> None:
        async with app:
            handles = [await waits.aenqueue(), await spins.aenqueue()]
            await app.arun_worker(until_idle=True)
            for handle in handles:
                with pytest.raises(JobCancelled):
                    await handle.aresult(0)

    asyncio.run(main())
