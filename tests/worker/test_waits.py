"""Waits: a job that waits holds nothing, and runs again from the top with its answer."""

import asyncio
from typing import Any

import pytest
from msgspec import Struct
from tests.worker.real import SECONDS, sound, until, working

from leftfold import App, Context, CurrentJob, SyncContext, WaitExpired
from leftfold.core.errors import DesignError, JobEndedError, SignalConflictError
from leftfold.core.lifecycle import State


class Approval(Struct):
    """What somebody decided."""

    by: str
    amount: int = 0


async def ended(app: App, *handles: Any, **settings: Any) -> None:
    """Run a worker until these have come to their ends."""
    async with working(app, **settings):
        await until(
            lambda: all(handle.get().state in {"succeeded", "dead_lettered", "cancelled"} for handle in handles)
        )


async def waiting(handle: Any) -> None:
    await until(lambda: handle.get().wait is not None)


def test_a_job_that_waits_holds_nothing_and_goes_on_with_the_answer(app: App) -> None:
    runs: list[tuple[str, int]] = []

    @app.job
    async def pay(ctx: Context, to: str) -> str:
        runs.append(("pay", ctx.attempt))
        approval = await ctx.wait("approved", Approval)
        return f"{to}: {approval.by}"

    @app.job
    def pay_too(ctx: SyncContext, to: str) -> str:
        runs.append(("pay_too", ctx.attempt))
        approval = ctx.wait("approved", Approval)
        return f"{to}: {approval.by}"

    @app.job
    async def other() -> int:
        return 1

    async def main() -> None:
        async with working(app, concurrency=1):
            handles = [await pay.aenqueue("ann"), await pay_too.aenqueue("bob")]
            for handle in handles:
                await waiting(handle)
                job = handle.get()
                assert (job.state, job.lease, job.failures) == (State.PARKED, None, 0), "nothing polls it"
            assert await (await other.aenqueue()).aresult(timeout=SECONDS) == 1, "the only slot is free"
            for handle in handles:
                await handle.asignal("approved", {"by": "eve"})
            assert [await handle.aresult(timeout=SECONDS) for handle in handles] == ["ann: eve", "bob: eve"]
            wires = [record.event.wire for record in handles[0].history()]
            run = ["claimed", "started"]
            assert wires == ["enqueued", *run, "parked", "resumed", *run, "succeeded"]

    asyncio.run(main())
    assert sorted(runs) == [("pay", 1), ("pay", 2), ("pay_too", 1), ("pay_too", 2)]
    sound(app.engine)


def test_a_deadline_that_passes_is_told_to_the_handler(app: App) -> None:
    @app.job
    async def caught(ctx: Context) -> str:
        try:
            await ctx.wait("go", timeout=0.05)
        except WaitExpired:
            return "too late"
        return "never"

    @app.job(max_failures=9)
    def uncaught(ctx: SyncContext) -> None:
        ctx.wait("go", timeout=0.05)

    handles = [caught.enqueue(), uncaught.enqueue()]
    asyncio.run(ended(app, *handles))
    assert handles[0].result() == "too late"
    letter = handles[1].history()[-1].event
    assert (letter.wire, letter.reason_code, letter.error.code) == ("dead_lettered", "timeout", "wait_expired")  # type: ignore[union-attr]
    assert handles[1].get().attempt == 2, "another try would hear the same"
    assert [record.event.wire for record in handles[0].history()].count("suspended") == 1
    sound(app.engine)


def test_an_answer_stands_however_often_it_is_waited_for(app: App) -> None:
    seen: list[Any] = []

    @app.job(max_failures=5, retry_delay=0.01)
    async def often(ctx: Context) -> list[Any]:
        given = [await ctx.wait("a"), await ctx.wait("b"), await ctx.wait("a")]
        seen.append((ctx.attempt, given))
        if ctx.failures < 2:
            raise RuntimeError("try again")
        return given

    handle = often.enqueue()
    handle.signal("b", 2)  # before anybody waits for it
    handle.signal("b", 2)  # and again: so it is already

    async def main() -> None:
        async with working(app):
            await waiting(handle)
            with pytest.raises(SignalConflictError, match="waits for signal 'a', not for signal 'c'"):
                handle.signal("c", 3)
            handle.signal("a", None)
            with pytest.raises(SignalConflictError, match="answered before"):
                handle.signal("a", 1)
            assert await handle.aresult(timeout=SECONDS) == [None, 2, None]

    asyncio.run(main())
    assert [given for _, given in seen] == [[None, 2, None]] * 3
    with pytest.raises(JobEndedError):
        handle.signal("later")
    sound(app.engine)


def test_an_answer_that_comes_while_the_handler_is_unwound_is_not_missed(app: App) -> None:
    """The store knows the answer by then: nothing is suspended, and the job is given back to run again."""
    signalled: list[str] = []

    @app.job
    async def unlucky(ctx: Context) -> str:
        try:
            return str(await ctx.wait("go"))
        finally:
            if not signalled:
                signalled.append(ctx.job_id)
                await (await ctx.app.aengine()).signal(ctx.job_id, "go", "went")

    handle = unlucky.enqueue()
    asyncio.run(ended(app, handle))
    assert handle.result() == "went"
    wires = [record.event.wire for record in handle.history()]
    assert wires == ["enqueued", "claimed", "started", "signalled", "released", "claimed", "started", "succeeded"]
    assert handle.get().failures == 0
    sound(app.engine)


def test_several_waits_at_once_are_answered_in_any_order(app: App) -> None:
    @app.job
    async def both(ctx: Context) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.wait(key)) for key in ("a", "b")]
        return [task.result() for task in tasks]

    handle = both.enqueue()

    async def main() -> None:
        async with working(app):
            answered: set[str] = set()
            for _ in range(2):
                await until(lambda: (wait := handle.get().wait) is not None and wait.key not in answered)
                answered.add(handle.get().wait.key)
                for key in answered:
                    handle.signal(key, key.upper())
            assert await handle.aresult(timeout=SECONDS) == ["A", "B"]

    asyncio.run(main())
    sound(app.engine)


def test_who_goes_on_behind_a_wait_is_told_so(app: App) -> None:
    @app.job(max_failures=9)
    async def deaf(ctx: Context) -> str:
        try:
            await ctx.wait("go")
        except BaseException:  # noqa: BLE001 - that is what it does wrong
            return "went on"
        return "never"

    @app.job(max_failures=9)
    def mistyped(ctx: SyncContext) -> None:
        ctx.wait("go", Approval)

    @app.job(max_failures=9)
    async def unnamed(ctx: Context) -> None:
        await ctx.wait("two words")

    @app.job(max_failures=9)
    async def endless(ctx: Context) -> None:
        await ctx.wait("go", timeout=-1)

    handles = [deaf.enqueue(), mistyped.enqueue(), unnamed.enqueue(), endless.enqueue()]
    handles[1].signal("go", {"by": 7})
    asyncio.run(ended(app, *handles))
    told = [handle.get().error for handle in handles]
    messages = [error.message for error in told if error]
    assert "went on behind ctx.wait('go')" in messages[0]
    assert "not what the handler waits for" in messages[1]
    assert "'two words' is not a name" in messages[2]
    assert "timeout is -1 s" in messages[3]
    assert {handle.get().attempt for handle in handles} == {1}, "to try again would not help"


def test_a_job_that_waits_is_cancelled_at_once(app: App) -> None:
    @app.job
    async def stuck(ctx: Context) -> None:
        await ctx.wait("never")

    handle = stuck.enqueue()

    async def main() -> None:
        async with working(app):
            await waiting(handle)
            handle.cancel(reason="enough")
            assert handle.get().state is State.CANCELLED

    asyncio.run(main())
    sound(app.engine)


def test_a_plain_function_inside_of_an_async_handler_does_not_block_its_loop(app: App) -> None:
    @app.job
    def inner(ctx: SyncContext) -> Any:
        return ctx.wait("go")

    @app.job(max_failures=1)
    async def outer(ctx: Context) -> Any:
        return inner()

    @app.job
    async def in_a_thread(ctx: Context) -> Any:
        return await asyncio.to_thread(inner)

    handles = [outer.enqueue(), in_a_thread.enqueue()]
    handles[1].signal("go", "went")
    asyncio.run(ended(app, *handles))
    assert "would block the event loop" in handles[0].get().error.message
    assert handles[1].result() == "went"


# --- progress, keys ---------------------------------------------------------------------------------------------------


def fractions(handle: Any) -> list[tuple[float, str | None]]:
    return [
        (record.event.fraction, record.event.message) for record in handle.history() if record.event.wire == "progress"
    ]


def test_progress_is_on_the_log_and_the_last_word_counts(app: App) -> None:
    @app.job
    async def chatty(ctx: Context) -> None:
        for number in range(1000):
            ctx.progress(number / 1000, f"page {number}")
        ctx.progress(1, "done")

    @app.job
    def plain(ctx: SyncContext) -> None:
        ctx.progress(0.5)
        raise ValueError("at half")

    @app.job(max_failures=1)
    async def wrong(ctx: CurrentJob) -> None:
        ctx.progress(1.5)

    handles = [chatty.enqueue(), plain.options().enqueue(), wrong.enqueue()]
    asyncio.run(ended(app, handles[0], handles[2]))
    told = fractions(handles[0])
    assert told[-1] == (1.0, "done")
    assert len(told) < 5, "a thousand of them are a handful on the log"
    assert (0.5, None) in fractions(handles[1])
    assert "a fraction from 0 to 1" in handles[2].get().error.message  # type: ignore[union-attr]
    sound(app.engine)


def test_the_last_word_of_every_job_is_written_before_its_end(app: App) -> None:
    @app.job
    async def short(ctx: Context) -> None:
        ctx.progress(1.0, "last")

    handles = app.enqueue_many(short.call() for _ in range(100))
    asyncio.run(ended(app, *handles, concurrency=20))
    assert all(fractions(handle) == [(1.0, "last")] for handle in handles)


def test_a_key_for_outside_effects_is_the_same_in_every_attempt(app: App) -> None:
    keys: list[str] = []

    @app.job(max_failures=3, retry_delay=0.01)
    async def charge(ctx: Context) -> None:
        keys.append(ctx.idempotency_key("charge"))
        assert ctx.idempotency_key("refund") != keys[-1]
        if ctx.attempt < 3:
            raise RuntimeError("the reply was lost")

    handles = [charge.enqueue(), charge.enqueue()]
    asyncio.run(ended(app, *handles))
    assert sorted(keys) == sorted([f"{handle.id}:charge" for handle in handles] * 3)


def test_an_async_handler_is_not_let_block_the_loop_for_a_result(app: App) -> None:
    @app.job
    def other() -> int:
        return 7

    @app.job
    async def waits() -> int:
        handle = await other.aenqueue()
        with pytest.raises(DesignError, match=r"await handle\.aresult"):
            handle.result()
        return await handle.aresult(SECONDS)

    @app.job
    def may_wait() -> int:
        return other.enqueue().result(SECONDS)

    first, second = waits.enqueue(), may_wait.enqueue()
    app.run_worker(until_idle=True)
    assert (first.result(), second.result()) == (7, 7)
