"""What handlers get beside their arguments, what runs around them, and what lives as long as their worker."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from tests.places import Place

from leftfold import App, Context, CurrentJob, Depends, JobFailed, SyncContext, current_job
from leftfold.core.errors import DesignError, NoCurrentJobError

#: What happened, in order.
SEEN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def made() -> str:
    SEEN.append(f"made in {threading.current_thread().name.partition('-')[0]}")
    return "made"


async def awaited() -> str:
    SEEN.append("awaited")
    return "awaited"


def opened() -> Iterator[str]:
    SEEN.append("opened")
    try:
        yield "opened"
    except ValueError as problem:
        SEEN.append(f"saw {problem}")
        raise
    finally:
        SEEN.append("closed")


async def aopened() -> AsyncIterator[str]:
    SEEN.append("aopened")
    try:
        yield "aopened"
    finally:
        SEEN.append("aclosed")


managed = contextmanager(opened)
amanaged = asynccontextmanager(aopened)


def test_handlers_of_both_kinds_get_dependencies_of_all_kinds(app: App) -> None:
    @app.job
    def plain(
        n: int,
        a: str = Depends(made),
        b: str = Depends(opened),
        c: str = Depends(awaited),
        d: str = Depends(aopened),
        e: str = Depends(managed),
        f: str = Depends(amanaged),
    ) -> list[str]:
        SEEN.append("called")
        return [a, b, c, d, e, f]

    unplain_sees: list[str] = []

    @app.job
    async def unplain(
        n: int,
        a: str = Depends(made),
        b: str = Depends(opened),
        c: str = Depends(awaited),
        d: str = Depends(aopened),
        e: str = Depends(managed),
        f: str = Depends(amanaged),
    ) -> list[str]:
        unplain_sees.extend(SEEN)
        return [a, b, c, d, e, f]

    given = ["made", "opened", "awaited", "aopened", "opened", "aopened"]
    first = plain.enqueue(1)
    app.run_worker(until_idle=True)
    assert first.result(0) == given
    assert SEEN == [
        "awaited", "aopened", "aopened", "made in leftfold", "opened", "opened",
        "called", "closed", "closed", "aclosed", "aclosed",
    ]  # fmt: skip
    SEEN.clear()
    second = unplain.enqueue(1)
    app.run_worker(until_idle=True)
    assert second.result(0) == given
    assert unplain_sees == ["made in MainThread", "opened", "awaited", "aopened", "opened", "aopened"]
    assert SEEN[6:] == ["aclosed", "closed", "aclosed", "closed"]


def test_every_attempt_has_its_own_and_a_dependency_sees_what_went_wrong(file_app: App) -> None:
    @file_app.job(max_failures=2, retry_delay=0)
    def plain(ctx: SyncContext, it: str = Depends(opened)) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    plain.enqueue()
    file_app.run_worker(until_idle=True)
    assert SEEN == ["opened", "saw attempt 1", "closed", "opened", "saw attempt 2", "closed"]


def test_a_dependency_that_fails_fails_the_attempt_and_knows_its_job(file_app: App) -> None:
    def failing() -> Iterator[str]:
        yield current_job().kind
        raise RuntimeError("the commit failed")

    @file_app.job(max_failures=1)
    def plain(it: str = Depends(failing)) -> None:
        SEEN.append(it)

    handle = plain.enqueue()
    file_app.run_worker(until_idle=True)
    with pytest.raises(JobFailed, match="the commit failed"):
        handle.result(0)
    assert SEEN == ["plain"]


# --- the current job ---------------------------------------------------------------------------------------------


def test_the_current_job_is_known_however_deep_inside(app: App) -> None:
    def deep() -> list[Any]:
        job = current_job()
        return [job.job_id, job.kind, job.attempt, job.failures, job.spec.correlation_id, job.cancelled]

    @app.job(retry_delay=0)
    def plain(ctx: SyncContext) -> list[Any]:
        assert current_job() is ctx
        assert ctx.job.job_id == ctx.job_id
        if ctx.attempt == 1:
            raise ValueError
        return deep()

    @app.job
    async def unplain() -> list[Any]:
        return await asyncio.create_task(asyncio.to_thread(deep))

    handles = app.enqueue_many([plain.options(correlation_id="c").call(), unplain.call()])
    app.run_worker(until_idle=True)
    assert handles[0].result(0) == [handles[0].id, "plain", 2, 1, "c", False]
    assert handles[1].result(0) == [handles[1].id, "unplain", 1, 0, None, False]


def test_a_handler_enqueues_others(app: App) -> None:
    @app.job
    def leaf(n: int) -> int:
        return n

    @app.job
    def plain(ctx: SyncContext) -> str:
        return leaf.options(cause=ctx.job_id).enqueue(1).id

    @app.job
    async def unplain(ctx: Context) -> str:
        return (await leaf.options(cause=ctx.job_id).aenqueue(2)).id

    async def main() -> None:
        async with app:
            parents = await app.aenqueue_many([plain.call(), unplain.call()])
            await app.arun_worker(until_idle=True)
            children = [await app.ahandle(await parent.aresult(0)) for parent in parents]
            assert [await child.aresult(0) for child in children] == [1, 2]
            assert [(await child.aget()).spec.cause for child in children] == [parent.id for parent in parents]

    asyncio.run(main())


# --- direct calls ------------------------------------------------------------------------------------------------


def test_a_direct_call_runs_the_function_and_makes_no_job(file_app: App) -> None:
    @file_app.job
    def plain(n: int, /, *, by: int = 2) -> int:
        return n * by

    @file_app.job
    async def unplain(n: int) -> object:
        return [n]

    assert (plain(2, by=5), asyncio.run(unplain(2))) == (10, [2])
    assert plain("ab") == "abab"  # type: ignore[arg-type, comparison-overlap]  # nothing is checked: it is a call
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        plain()  # type: ignore[call-arg]  # what a type checker would refuse must be refused at run time, too
    assert file_app.engine.counts() == []
    assert (plain.__name__, repr(plain)) == ("plain", "<handler of 'plain'>")


def test_a_direct_call_gets_the_dependencies_that_it_does_not_bring(file_app: App) -> None:
    @file_app.job
    def plain(n: int, a: str = Depends(made), b: str = Depends(opened)) -> list[Any]:
        return [n, a, b]

    @file_app.job
    def mixed(a: str = Depends(awaited), b: str = Depends(opened)) -> list[Any]:
        return [a, b]

    @file_app.job
    async def unplain(a: str = Depends(made), /, *, b: str = Depends(aopened)) -> list[Any]:
        return [a, b]

    assert plain(1, "mine") == [1, "mine", "opened"]
    assert plain(1, b="mine") == [1, "made", "mine"]
    assert mixed() == ["awaited", "opened"]
    assert asyncio.run(unplain("mine")) == ["mine", "aopened"]
    assert (SEEN.count("opened"), SEEN.count("closed"), SEEN[-2:]) == (2, 2, ["aopened", "aclosed"])
    with pytest.raises(TypeError, match="missing a required argument: 'n'"):
        plain()  # type: ignore[call-arg]  # what a type checker would refuse must be refused at run time, too

    async def inside() -> None:
        assert plain(1) == [1, "made", "opened"]
        assert mixed("mine") == ["mine", "opened"]
        with pytest.raises(DesignError, match="but a must be awaited"):
            mixed()

    asyncio.run(inside())


def test_a_direct_call_inside_of_a_job_gets_its_context(file_app: App) -> None:
    @file_app.job
    def helper(ctx: SyncContext, n: int, it: str = Depends(made)) -> list[Any]:
        return [ctx.kind, n, it]

    @file_app.job
    async def ahelper(ctx: Context, n: int) -> list[Any]:
        return [ctx.kind, n]

    @file_app.job
    async def caller() -> list[Any]:
        return [helper(1), await ahelper(n=2)]

    handle = caller.enqueue()
    file_app.run_worker(until_idle=True)
    assert handle.result(0) == [["caller", 1, "made"], ["caller", 2]]
    with pytest.raises(NoCurrentJobError):
        helper(1)
    with pytest.raises(NoCurrentJobError):
        asyncio.run(ahelper(1))


# --- around attempts, and around workers -------------------------------------------------------------------------


def test_middleware_runs_around_every_attempt_the_first_outermost(app: App) -> None:
    @app.middleware
    async def outer(ctx: CurrentJob, call: Callable[[], Awaitable[Any]]) -> Any:
        SEEN.append(f"outer {ctx.kind} {ctx.attempt}")
        try:
            return await call()
        finally:
            SEEN.append("outer out")

    @app.middleware
    async def inner(ctx: CurrentJob, call: Callable[[], Awaitable[Any]]) -> Any:
        assert current_job() is ctx
        try:
            return [await call()]
        except ValueError:
            SEEN.append("inner saw it")
            raise

    @app.job(retry_delay=0)
    def plain(ctx: SyncContext) -> list[str]:
        if ctx.attempt == 1:
            raise ValueError
        return "result"  # type: ignore[return-value]  # the middleware makes a list of it

    handle = plain.enqueue()
    app.run_worker(until_idle=True)
    assert handle.result(0) == ["result"]
    assert SEEN == ["outer plain 1", "inner saw it", "outer out", "outer plain 2", "outer out"]


def test_middleware_may_answer_for_the_handler_or_refuse(file_app: App) -> None:
    @file_app.middleware
    async def gate(ctx: CurrentJob, call: Callable[[], Awaitable[Any]]) -> Any:
        if ctx.spec.tenant == "blocked":
            raise PermissionError("blocked")
        return "cached"

    @file_app.job(retries={PermissionError: 0})
    def plain() -> str:
        raise AssertionError

    good, bad = plain.enqueue(), plain.options(tenant="blocked").enqueue()
    file_app.run_worker(until_idle=True)
    assert good.result(0) == "cached"
    with pytest.raises(JobFailed, match="PermissionError: blocked"):
        bad.result(0)


def test_a_lifespan_is_entered_once_per_worker_and_its_state_is_everywhere(place: Place) -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[dict[str, int]]:
        SEEN.append(f"up with {len(app.handlers)}")
        yield {"answer": 42}
        SEEN.append("down")

    with App(place.url, schema=place.schema, lifespan=lifespan) as app:

        @app.job
        def plain(ctx: SyncContext) -> int:
            SEEN.append("called")
            return int(ctx.state["answer"])

        @app.job
        async def unplain() -> int:
            SEEN.append("called")
            return int(current_job().state["answer"])

        handles = app.enqueue_many([plain.call(), unplain.call()])
        app.run_worker(until_idle=True)
        assert [handle.result(0) for handle in handles] == [42, 42]
    assert SEEN == ["up with 2", "called", "called", "down"]


def test_a_worker_does_not_begin_if_its_lifespan_fails(on_sqlite: Place) -> None:
    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        if app.handlers:
            raise ConnectionError("no cache")
        yield

    with App(on_sqlite.url, lifespan=lifespan) as app:
        handle = app.job(made).enqueue()
        with pytest.raises(ConnectionError, match="no cache"):
            app.run_worker(until_idle=True)
        assert handle.status().value == "queued"
