"""What handlers may do to a worker: raise anything, give anything, never end. Each attempt comes to an outcome."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.worker.real import SECONDS, sound, until, working

from leftfold import App, Context, Retry, Snooze, SyncContext
from leftfold.core import decide, endings
from leftfold.core.errors import LeaseConflictError, LeftfoldError


class LiarError(Exception):
    """Its text raises what nobody expects of a text."""

    def __str__(self) -> str:
        raise SystemExit("from a text")


HOSTILE = "\x00\x1b[2J\udc80\r\n2026-01-01T00:00:00.000Z INFO    leftfold.worker forged" + "x" * 100_000


def raising(problem: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise problem

    return act


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


ODD: dict[str, tuple[Callable[[], Any], str | None]] = {
    "SystemExit": (raising(SystemExit(3)), "SystemExit"),
    "KeyboardInterrupt": (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
    "GeneratorExit": (raising(GeneratorExit()), "GeneratorExit"),
    "CancelledError of its own": (raising(asyncio.CancelledError()), "asyncio.exceptions.CancelledError"),
    "hostile text": (raising(ValueError(HOSTILE)), "ValueError"),
    "a text that raises": (raising(LiarError()), "SystemExit"),
    "a name that nobody can write": (raising(type("N", (Exception,), {"__qualname__": "\x00" * 9})()), None),
    "an endless name": (raising(type("N", (Exception,), {"__qualname__": "n" * 100_000})()), None),
    "a group": (raising(BaseExceptionGroup("many", [SystemExit(), ValueError("x")])), "BaseExceptionGroup"),
    "a snooze of less than nothing": (raising(Snooze(-1)), "leftfold.core.errors.LimitExceededError"),
    "a snooze of no number": (raising(Snooze(float("nan"))), "leftfold.core.errors.ValidationError"),
    "a snooze without an end": (raising(Snooze(1e300)), None),
    "a retry before now": (raising(Retry(after=-5)), "leftfold.core.errors.LimitExceededError"),
    "an object": (object, "leftfold.core.errors.ValidationError"),
    "a NaN": (lambda: float("nan"), "leftfold.core.errors.ValidationError"),
    "half of a pair": (lambda: "\ud800", "leftfold.core.errors.ValidationError"),
    "too much": (lambda: "x" * 300_000, "leftfold.core.errors.LimitExceededError"),
    "too deep": (lambda: nested(500), None),
    "a huge number": (lambda: 10**400, "leftfold.core.errors.ValidationError"),
}


@pytest.fixture
def quiet() -> Iterator[None]:
    """No log lines: with the texts of this test pytest could not report them."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_whatever_a_handler_raises_or_gives_is_a_failure_of_the_job_alone(app: App, quiet: None) -> None:
    @app.job(max_failures=1)
    async def odd(name: str) -> Any:
        return ODD[name][0]()

    @app.job(max_failures=1)
    def odd_too(name: str) -> Any:
        return ODD[name][0]()

    @app.job
    async def fine() -> int:
        return 1

    calls = [(name, handler.enqueue(name)) for name in ODD for handler in (odd, odd_too)]
    last = fine.enqueue()

    async def main() -> None:
        async with working(app, until_idle=True), asyncio.timeout(SECONDS):
            await until(lambda: last.get().state == "succeeded")

    asyncio.run(main())
    for name, handle in calls:
        job = handle.get()
        assert job.state == "dead_lettered", name
        assert job.error is not None
        assert ODD[name][1] in {None, job.error.type}, (name, job.error)
    sound(app.engine)


def test_a_snooze_is_not_charged_and_says_why(app: App) -> None:
    @app.job(max_failures=1)
    async def later(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise Snooze(0.05, reason="not\x00 yet")
        return ctx.attempt

    handle = later.enqueue()
    asyncio.run(_until_done(app, handle))
    assert handle.result(timeout=0) == 3
    assert [record.event.wire for record in handle.history()].count("released") == 2
    sound(app.engine)


async def _until_done(app: App, *handles: Any, **settings: Any) -> None:
    async with working(app, **settings):
        await until(lambda: all(handle.get().result is not None or handle.get().error for handle in handles))


def test_a_soft_cancellation_comes_with_the_renewal(app: App) -> None:
    begun: list[str] = []

    @app.job(lease=0.5)
    async def wait(ctx: Context) -> None:
        begun.append("wait")
        await asyncio.sleep(SECONDS)

    @app.job(lease=0.5)
    def look(ctx: SyncContext) -> None:
        begun.append("look")
        while not ctx.cancelled:
            time.sleep(0.01)  # the handler at work
        raise asyncio.CancelledError

    @app.job(lease=0.5, max_failures=5)
    def look_and_fail(ctx: SyncContext) -> None:
        begun.append("look_and_fail")
        while not ctx.cancelled:
            time.sleep(0.01)  # the handler at work
        raise RuntimeError("stopped")

    @app.job(lease=0.5)
    async def ignore(ctx: Context) -> str:
        begun.append("ignore")
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
        return "finished first"

    handles = [wait.enqueue(), look.enqueue(), look_and_fail.enqueue(), ignore.enqueue()]

    async def main() -> None:
        async with working(app):
            await until(lambda: len(begun) == 4)
            for handle in handles:
                await handle.acancel(reason="enough")
            await until(lambda: {handle.get().state.value for handle in handles} == {"cancelled", "succeeded"})

    asyncio.run(main())
    assert [handle.get().state for handle in handles] == ["cancelled", "cancelled", "cancelled", "succeeded"]
    sound(app.engine)


def test_a_job_that_is_taken_away_stops_its_handler_and_nothing_of_it_is_written(app: App) -> None:
    stopped: list[str] = []

    @app.job(lease=0.5)
    async def heed(ctx: Context) -> None:
        try:
            await asyncio.sleep(SECONDS)
        finally:
            stopped.append("heed")

    @app.job(lease=0.5)
    def heed_too(ctx: SyncContext) -> None:
        while not ctx.cancelled:
            time.sleep(0.01)  # the handler at work
        stopped.append("heed_too")

    @app.job(lease=0.5)
    async def ignore(ctx: Context) -> str:
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            stopped.append("ignore")
        return "too late"

    @app.job
    async def after() -> int:
        return 1

    handles = [heed.enqueue(), heed_too.enqueue(), ignore.enqueue()]

    async def main() -> None:
        async with working(app, concurrency=3):
            await until(lambda: all(handle.get().state == "running" for handle in handles))
            for handle in handles:
                await handle.acancel(mode="hard")
            await until(lambda: len(stopped) == 3)
            one = await after.aenqueue()
            assert await one.aresult(timeout=SECONDS) == 1, "the slots are free again"

    asyncio.run(main())
    assert [handle.get().state for handle in handles] == ["cancelled"] * 3
    sound(app.engine)


def test_an_attempt_that_kept_the_loop_for_too_long_has_timed_out(file_app: App) -> None:
    @file_app.job(timeout=0.1, retries={TimeoutError: 1}, retry_delay=0.01)
    async def slow() -> str:
        time.sleep(0.3)  # noqa: ASYNC251 - that is what it does wrong
        return "too late"

    handle = slow.enqueue()
    file_app.run_worker(until_idle=True)
    job = handle.get()
    assert (job.state, job.attempt) == ("dead_lettered", 2), "as often as its class says"
    assert (job.error and job.error.code) == "timeout"
    assert handle.history()[-1].event.reason_code == "exhausted_retries"  # type: ignore[union-attr]


def test_a_plain_handler_says_that_it_stops(file_app: App) -> None:
    @file_app.job(lease=5)
    def dig(ctx: SyncContext) -> str:
        while True:
            ctx.raise_if_cancelled()
            time.sleep(0.01)  # the handler at work

    handle = dig.enqueue()

    async def main() -> None:
        async with working(file_app, grace=0):
            await until(lambda: handle.get().state == "running")

    asyncio.run(main())
    assert handle.get().state == "queued", "given back, and not taken for done"


def test_a_job_that_gives_itself_back_too_often_comes_to_an_end(file_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decide, endings):
        monkeypatch.setattr(module, "EVENTS_PER_JOB_MAX", 12)

    @file_app.job
    def snooze() -> None:
        raise Snooze(0)

    @file_app.job
    async def wait(ctx: Context) -> None:
        await ctx.wait(f"key-{ctx.attempt}", timeout=0)

    handles = [snooze.enqueue(), wait.enqueue()]
    asyncio.run(_until_done(file_app, *handles))
    for handle in handles:
        letter = handle.get()
        assert (letter.state, letter.error and letter.error.code) == ("dead_lettered", "limit_exceeded")
    sound(file_app.engine)


def test_a_late_write_is_refused_and_changes_nothing(app: App) -> None:
    refusals: list[BaseException] = []
    taken = asyncio.Event()

    @app.job(lease=0.5, max_failures=5)
    async def late(ctx: Context) -> str:
        if ctx.attempt > 1:
            return "second"
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            await taken.wait()
        engine = await ctx.app.aengine()
        for write in (engine.heartbeat(ctx.job), engine.complete(ctx.job, "first"), engine.release(ctx.job)):
            try:
                await write
            except LeftfoldError as refusal:
                refusals.append(refusal)
        return "first"

    handle = late.enqueue()

    async def main() -> None:
        async with working(app):
            await until(lambda: handle.get().state == "running")
            app.engine.stall(handle.id, reason="to see what happens")
            app.engine.requeue(handle.id)
            assert await handle.aresult(timeout=SECONDS) == "second"
            version = handle.get().version
            taken.set()
            await until(lambda: len(refusals) == 3)
            assert handle.get().version == version

    asyncio.run(main())
    assert [type(refusal) for refusal in refusals] == [LeaseConflictError] * 3
    sound(app.engine)


def test_a_timeout_ends_the_attempt_and_a_thread_that_goes_on_takes_up_room(file_app: App) -> None:
    released = threading.Event()
    running: list[str] = []

    @file_app.job(timeout=0.2, max_failures=1)
    async def slow() -> None:
        await asyncio.sleep(SECONDS)

    @file_app.job(timeout=0.2, max_failures=1)
    def stuck() -> None:
        running.append("stuck")
        released.wait(SECONDS)

    @file_app.job
    async def free() -> int:
        running.append("free")
        return 1

    async def main() -> None:
        async with working(file_app, concurrency=1):
            for handler in (slow, stuck):
                handle = await handler.aenqueue()
                await until(lambda handle=handle: handle.get().state == "dead_lettered")  # type: ignore[misc]  # mypy infers no type for a lambda's default
                error = handle.get().error
                assert error is not None
                assert error.code == "timeout"
            waiting = await free.aenqueue()
            assert running == ["stuck"]
            await asyncio.sleep(0.3)  # three looks
            assert waiting.get().state == "queued", "the thread is still there: there is no room"
            released.set()
            assert await waiting.aresult(timeout=SECONDS) == 1

    asyncio.run(main())
    sound(file_app.engine)


def test_an_error_by_which_a_handler_answers_our_cancellation_is_not_charged(file_app: App) -> None:
    @file_app.job(max_failures=1)
    async def translate() -> None:
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            raise ConnectionError("interrupted") from None

    handle = translate.enqueue()

    async def main() -> None:
        async with working(file_app, grace=0.0):
            await until(lambda: handle.get().state == "running")

    asyncio.run(main())
    assert (handle.get().state, handle.get().failures) == ("queued", 0)


def test_what_a_handler_finds_when_it_begins_is_a_job_that_is_started(app: App) -> None:
    @app.job
    async def look(ctx: Context) -> list[str]:
        records = await (await ctx.app.aengine()).history(ctx.job_id)
        return [record.event.wire for record in records]

    handle = look.enqueue()
    asyncio.run(_until_done(app, handle))
    assert handle.result(timeout=0) == ["enqueued", "claimed", "started"]
