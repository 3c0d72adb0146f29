"""Cancellation, with proof: asked for, delivered, acknowledged or forced, each with its time on the log."""

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest
from tests.concurrency.crowd import eventually
from tests.worker.real import SECONDS, sound, until, working

from leftfold import App, Context, SyncContext
from leftfold.core import events as e
from leftfold.core.lifecycle import ENDED, State


def told(handle: Any) -> list[str]:
    """Give the log behind the start, with who ended it and how."""
    records = handle.history()
    start = max(place for place, record in enumerate(records) if record.event.wire == "started")
    return [
        f"{record.event.wire} by {record.who}" + (f", {record.event.mode}" if record.event.wire == "cancelled" else "")
        for record in records[start + 1 :]
    ]


def test_who_is_asked_to_stop_hears_it_long_before_the_lease_is_renewed(app: App) -> None:
    begun: list[str] = []  # a job is running before its handler is: who is cancelled in between never begins

    @app.job(lease=3600)
    async def wait(ctx: Context) -> None:
        begun.append("wait")
        await asyncio.sleep(SECONDS)

    @app.job(lease=3600)
    def look(ctx: SyncContext) -> None:
        begun.append("look")
        while not ctx.cancelled:
            threading.Event().wait(0.01)  # the handler at work
        raise asyncio.CancelledError

    handles = [wait.enqueue(), look.enqueue()]

    async def main() -> None:
        async with working(app, poll=0.1):
            await until(lambda: len(begun) == len(handles))
            for handle in handles:
                await handle.acancel(reason="enough")
            await until(lambda: all(handle.get().state is State.CANCELLED for handle in handles))

    asyncio.run(main())
    for handle in handles:
        assert told(handle) == ["cancel_requested by client", "cancel_delivered by owner", "cancelled by owner, soft"]
        times = [record.at for record in handle.history()]
        assert times == sorted(times)
    sound(app.engine)


@pytest.mark.parametrize("is_async", [True, False])
def test_who_does_not_stop_is_cancelled_without_its_handler(app: App, is_async: bool) -> None:
    begun, let_go = threading.Event(), threading.Event()

    @app.job(name="deaf", lease=3600)
    async def deaf() -> str:
        begun.set()
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        return "too late"

    @app.job(name="deaf_too", lease=3600)
    def deaf_too() -> str:
        begun.set()
        let_go.wait(SECONDS)
        return "too late"

    @app.job
    async def after() -> int:
        return 1

    handle = (deaf if is_async else deaf_too).enqueue()

    async def main() -> None:
        async with working(app, poll=0.1, cancel_grace=0.2, concurrency=1):
            await until(begun.is_set)
            await handle.acancel()
            await until(lambda: handle.get().state is State.CANCELLED)
            one = await after.aenqueue()
            engine = await app.aengine()
            assert (await engine.get(one.id)).state is State.QUEUED, "it goes on, and takes up room"
            let_go.set()
            assert await one.aresult(timeout=SECONDS) == 1

    asyncio.run(main())
    assert told(handle) == ["cancel_requested by client", "cancel_delivered by owner", "cancelled by owner, hard"]
    assert handle.history()[-1].event.reason == "the handler did not stop within 0.2 s"  # type: ignore[union-attr]
    sound(app.engine)


def test_who_finishes_first_has_finished(app: App) -> None:
    begun = threading.Event()

    @app.job(lease=3600)
    async def quick(ctx: Context) -> str:
        begun.set()
        try:
            await asyncio.sleep(SECONDS)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "done"

    handle = quick.enqueue()

    async def main() -> None:
        async with working(app, poll=0.1):
            await until(begun.is_set)
            await handle.acancel()
            assert await handle.aresult(timeout=SECONDS) == "done"

    asyncio.run(main())
    assert told(handle) == ["cancel_requested by client", "cancel_delivered by owner", "succeeded by owner"]
    sound(app.engine)


def test_a_hard_cancellation_is_heard_soon(app: App) -> None:
    begun, stopped = threading.Event(), threading.Event()

    @app.job(lease=3600)
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(SECONDS)
        finally:
            stopped.set()

    handle = wait.enqueue()

    async def main() -> None:
        async with working(app, poll=0.1):
            await until(begun.is_set)
            await handle.acancel(mode="hard")
            assert handle.get().state is State.CANCELLED, "at once"
            await until(stopped.is_set)

    asyncio.run(main())
    assert told(handle) == ["cancelled by client, hard"]
    sound(app.engine)


def test_who_blocks_the_event_loop_is_cancelled_all_the_same(app: App) -> None:
    begun, let_go = threading.Event(), threading.Event()

    @app.job(name="block", lease=3600)
    async def block(ctx: Context) -> str:
        begun.set()
        let_go.wait(SECONDS)  # the whole worker waits with it
        return "too late"

    handle = block.enqueue()

    def cancel() -> None:
        with suppress(TimeoutError):
            eventually(begun.is_set, SECONDS)
            handle.cancel(reason="enough")
            eventually(lambda: handle.get().state is State.CANCELLED, SECONDS)
        let_go.set()

    async def main() -> None:
        async with working(app, poll=0.1, cancel_grace=0.1):
            await until(lambda: handle.get().state in ENDED)

    boss = threading.Thread(target=cancel)
    boss.start()
    asyncio.run(main())
    boss.join()
    assert told(handle) == ["cancel_requested by client", "cancel_delivered by owner", "cancelled by owner, hard"]
    last = handle.history()[-1].event
    assert isinstance(last, e.Cancelled)
    assert last.reason == "the handler did not stop within 0.1 s, and blocks all others"
    sound(app.engine)
