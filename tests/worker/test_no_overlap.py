"""A job is given away when nobody works on it any more, and not before; and what is left to do is done."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from tests.worker.real import sound, until, working

from leftfold import App, Context, Depends, SyncContext
from leftfold.aengine import AsyncEngine
from leftfold.core import events as e
from leftfold.core.errors import LimitExceededError, ValidationError
from leftfold.worker import Worker


def test_a_job_that_comes_back_at_the_last_moment_is_not_left_behind(
    file_app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts are read while its lease still runs; then a keeper puts it back into the queue."""

    @file_app.job(lease=0.2)
    async def work() -> int:
        return 7

    handle = work.enqueue()
    file_app.engine.claim("the dead", start=True)
    real = AsyncEngine.counts

    async def late(self: AsyncEngine) -> Any:
        found = await real(self)
        await asyncio.sleep(0.5)
        return found

    monkeypatch.setattr(AsyncEngine, "counts", late)
    file_app.run_worker(until_idle=True, poll=0.05)
    assert handle.result(timeout=0) == 7


def test_a_thread_is_waited_for_before_its_job_is_given_back(file_app: App) -> None:
    entered, told = threading.Event(), threading.Event()
    state_while_it_ran: list[str] = []

    @file_app.job
    def dig(ctx: SyncContext) -> None:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.005)  # the handler at work
        state_while_it_ran.append(handle.get().state)
        told.set()
        raise asyncio.CancelledError

    handle = dig.enqueue()

    async def main() -> None:
        async with working(file_app, grace=0.05) as worker:
            await until(entered.is_set)
            worker.stop()

    asyncio.run(main())
    assert told.is_set()
    assert state_while_it_ran == ["running"]
    assert handle.status() == "queued"
    sound(file_app.engine)


def test_a_thread_that_finishes_while_the_worker_leaves_has_finished(file_app: App) -> None:
    entered = threading.Event()

    @file_app.job
    def dig(ctx: SyncContext) -> str:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.005)  # the handler at work
        return "done all the same"

    handle = dig.enqueue()

    async def main() -> None:
        async with working(file_app, grace=0.05) as worker:
            await until(entered.is_set)
            worker.stop()

    asyncio.run(main())
    assert handle.result(timeout=0) == "done all the same"


def test_a_thread_hears_of_its_lost_lease_while_the_loop_is_blocked(file_app: App) -> None:
    entered, heard = threading.Event(), threading.Event()

    @file_app.job(lease=1)
    def dig(ctx: SyncContext) -> None:
        entered.set()
        while not ctx.cancelled:
            time.sleep(0.005)  # the handler at work
        heard.set()

    @file_app.job(lease=30)
    async def block() -> bool:
        await asyncio.to_thread(entered.wait)
        file_app.engine.cancel(handle.id, mode="hard")
        return heard.wait(5)  # on the loop

    handle = dig.enqueue()
    blocked = block.enqueue()
    file_app.run_worker(until_idle=True)
    assert blocked.result(timeout=0) is True
    assert handle.status() == "cancelled"


def test_what_a_thread_works_with_is_closed_when_it_has_ended(file_app: App) -> None:
    release, closed = threading.Event(), threading.Event()
    closed_too_soon: list[bool] = []

    async def session() -> AsyncIterator[str]:
        yield "open"
        closed.set()

    @file_app.job(timeout=0.1, max_failures=1)
    def dig(held: str = Depends(session)) -> None:
        release.wait(10)
        closed_too_soon.append(closed.is_set())

    handle = dig.enqueue()

    async def main() -> None:
        async with working(file_app):
            await until(lambda: handle.get().state == "dead_lettered")
            release.set()
            await until(closed.is_set)

    asyncio.run(main())
    assert closed_too_soon == [False]


def test_a_timeout_that_the_handler_ignores_is_one(file_app: App) -> None:
    @file_app.job(timeout=0.05, max_failures=1)
    async def deaf() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
        return "late"

    handle = deaf.enqueue()
    file_app.run_worker(until_idle=True)
    assert handle.status() == "dead_lettered"
    error = handle.get().error
    assert error is not None
    assert error.code == "timeout"


def test_a_dead_letter_says_at_which_stage_it_died(file_app: App) -> None:
    @file_app.job(max_failures=1)
    def give(what: str) -> Any:
        if what == "exec":
            raise ValueError("broken")
        return object()

    unread = file_app.engine.enqueue("give", {"nothing": 1})
    jobs = {"exec": give.enqueue("exec").id, "output": give.enqueue("output").id, "input": unread.job_id}
    file_app.run_worker(until_idle=True)
    for stage, job_id in jobs.items():
        letter = file_app.engine.history(job_id)[-1].event
        assert isinstance(letter, e.DeadLettered)
        assert letter.stage == stage


def test_a_keeper_that_has_just_begun_takes_no_job_from_the_living(
    file_app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was set ahead before it began to watch: it cannot know."""
    ahead = 0
    real = time.time_ns
    monkeypatch.setattr("leftfold.store.sqlite.driver.time.time_ns", lambda: real() + ahead * 1_000_000_000)

    @file_app.job(lease=4, max_failures=1)
    async def long(ctx: Context) -> int:
        nonlocal ahead
        ahead = 3600
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(working(file_app))  # another worker, with a keeper of its own
            await asyncio.sleep(4.5)
        return ctx.attempt

    handle = long.enqueue()

    async def main() -> None:
        async with working(file_app):
            await until(lambda: handle.get().state in {"succeeded", "dead_lettered"})

    asyncio.run(main())
    assert handle.result(timeout=0) == 1


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"grace": "30"}, ValidationError),
        ({"grace": -1}, LimitExceededError),
        ({"poll": 0}, LimitExceededError),
        ({"poll": float("nan")}, ValidationError),
    ],
)
def test_settings_that_make_no_sense_are_refused(file_app: App, settings: Any, error: type[Exception]) -> None:
    @file_app.job
    def work() -> None: ...

    with pytest.raises(error):
        Worker(file_app, **settings)
    Worker(file_app, grace=timedelta(seconds=30), poll=timedelta(seconds=1))
