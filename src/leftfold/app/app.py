"""The app: where the jobs are, and which functions do them."""

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from leftfold import opening
from leftfold.app.context import Context, CurrentJob, SyncContext
from leftfold.app.decorating import Anything, Decorator, Retries
from leftfold.app.handle import Handle
from leftfold.app.handler import (
    AsyncHandler,
    Call,
    Enqueuing,
    Handler,
    OnConflict,
    SyncHandler,
    check_conflict,
)
from leftfold.core.errors import DesignError, JobNotFoundError, ValidationError
from leftfold.core.retry import DEFAULT_POLICY
from leftfold.engine import Engine
from leftfold.times import Span

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from leftfold.aengine import AsyncEngine
    from leftfold.worker.loop import WorkerSettings

P = ParamSpec("P")
R = TypeVar("R")

#: Runs around every attempt: does what it likes, and awaits the next one for the result.
Middleware = Callable[[CurrentJob, Callable[[], Awaitable[Any]]], Awaitable[Any]]
#: Opens what a worker process needs while it lives; what it yields is `ctx.state`.
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]


class App:
    """Handlers by kind, and the store that their jobs are in.

    Without a URL, LEFTFOLD_DATABASE_URL says where, else it is `leftfold.db` in the working directory. `lifespan` is an
    async context manager that every worker process enters once. `enforce` holds all jobs to a dialect.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        actor: str | None = None,
        enforce: str | None = None,
        prepare: bool | None = None,
        lifespan: Lifespan | None = None,
    ) -> None:
        self.url = url or opening.default_url()
        opening.address_of(self.url)
        self.settings: dict[str, Any] = {"schema": schema, "enforce": enforce, "prepare": prepare}
        self.handlers: dict[str, Handler[..., Any]] = {}
        self.middlewares: list[Middleware] = []
        if inspect.isasyncgenfunction(lifespan) or inspect.isgeneratorfunction(lifespan):
            raise DesignError("the lifespan is a bare generator: decorate it with contextlib.asynccontextmanager")
        self.lifespan = lifespan
        self._actor = actor
        self._engine: Engine | None = None
        self._opening = threading.Lock()
        self._aengines: dict[asyncio.AbstractEventLoop, _Opened] = {}

    def __repr__(self) -> str:
        return f"<app on {opening.masked(self.url)} with {len(self.handlers)} kinds of jobs>"

    # --- the store --------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The store, opened when it is first asked for."""
        if self._engine is None:
            with self._opening:
                if self._engine is None:
                    self._engine = opening.open(self.url, actor=self._actor, wake=True, **self.settings)
        return self._engine

    async def aengine(self) -> "AsyncEngine":
        """Give the store for the running event loop: opened when it is first asked for, closed when the loop ends."""
        loop = asyncio.get_running_loop()
        if loop not in self._aengines:
            self._aengines[loop] = _Opened(self._open(loop))
        found = self._aengines[loop]
        try:
            return await asyncio.shield(found.task)
        except BaseException:
            if found.task.done() and self._aengines.get(loop) is found:
                del self._aengines[loop]  # the next one tries again
            raise

    async def _open(self, loop: asyncio.AbstractEventLoop) -> "AsyncGenerator[AsyncEngine, None]":
        """Keep the store open: a loop that ends closes the generators that nobody has closed."""
        engine = await opening.aopen(self.url, actor=self._actor, wake=True, **self.settings)
        try:
            yield engine
        finally:
            self._aengines.pop(loop, None)
            await engine.close()

    def close(self) -> None:
        """Close the store, as far as it was opened outside of asyncio: an event loop closes its own when it ends."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    async def aclose(self) -> None:
        """Close the store."""
        found = self._aengines.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await asyncio.gather(found.task, return_exceptions=True)
            await found.generator.aclose()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- the handlers -----------------------------------------------------------------------------------------------

    # An async function is a function, too, and what takes anything takes a context: the first that fits counts.
    @overload
    def job(  # type: ignore[overload-overlap]  # an async function is a function, too
        self, function: Callable[Concatenate[Anything, P], Coroutine[Any, Any, R]], /
    ) -> AsyncHandler[..., R]: ...
    @overload
    def job(self, function: Callable[Concatenate[Anything, P], R], /) -> SyncHandler[..., R]: ...
    @overload
    def job(  # type: ignore[overload-overlap]  # an async function is a function, too
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncHandler[P, R]: ...
    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncHandler[P, R]: ...  # type: ignore[overload-overlap]  # an async function is a function, too
    @overload
    def job(self, function: Callable[Concatenate[SyncContext, P], R], /) -> SyncHandler[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> SyncHandler[P, R]: ...
    @overload
    def job(
        self, function: None = None, /, *, name: str | None = None, queue: str = "default", priority: int | str = 0,
        max_failures: int = DEFAULT_POLICY.max_failures, retry_delay: Span = 0.5, retry_delay_max: Span = 60,
        retries: Retries | None = None, lease: Span = 60,
        timeout: Span | None = None, on_exhausted: Literal["dead_letter", "fail"] = "dead_letter",
        hold_stalled: bool = False, isolation: Literal["process"] | None = None,
    ) -> Decorator: ...  # fmt: skip

    def job(self, function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
        """Make a function a kind of job: `@app.job`, or `@app.job(queue="mail", max_failures=3, lease=30)`.

        The kind is called as the function is, or `name`. An attempt that fails is tried again after `retry_delay`
        seconds, then after twice as long and so on, until there were `max_failures`; `retries` says for some exceptions
        how often they are tried again, 0 for never, and counts each apart. `lease` is how long a worker may be silent
        before the job is taken from it, `timeout` how long an attempt may take. `isolation="process"` runs each attempt
        in a process of its own: for what computes for long, or may crash its interpreter.
        """
        decorator = Decorator(self, **settings)
        return decorator if function is None else decorator(function)

    def add(self, handler: Handler[..., Any]) -> None:
        """Take in a kind of job. Two of one name would be one too many."""
        there = self.handlers.get(handler.kind)
        if there is not None:
            raise DesignError(f"there are two jobs called {handler.kind!r}: give one of them another name=")
        self.handlers[handler.kind] = handler

    def handler(self, kind: str) -> Handler[..., Any]:
        """Give the handler of a kind."""
        if kind not in self.handlers:
            raise ValidationError(f"this app has no job called {kind!r}: it has {', '.join(sorted(self.handlers))}")
        return self.handlers[kind]

    def middleware(self, function: Middleware) -> Middleware:
        """Run a function around every attempt; the first that was added is the outermost."""
        given: object = function  # whatever the caller's types may say
        name = getattr(given, "__name__", repr(given))
        if not callable(given) or not _takes_two(given):
            raise DesignError(f"middleware {name} must take (ctx, call), and await call()")
        self.middlewares.append(function)
        return function

    # --- jobs -------------------------------------------------------------------------------------------------------

    def enqueue_many(
        self,
        calls: Iterable[Call[R]],
        *,
        on_conflict: OnConflict = "return",
        request_id: str | None = None,
        within: object = None,
    ) -> list[Handle[R]]:
        """Make jobs of many calls in one transaction: `app.enqueue_many(send.call(to) for to in everybody)`."""
        made = self._batch(calls, on_conflict)
        if request_id is None and within is None and _are_of_one(made):
            job, give = made[0].job, made[0].of.handler.handle
            payloads = [call.payload for call in made]
            return self.engine._enqueue_alike(job, payloads, on_conflict, give)  # noqa: SLF001 - its own part for apps
        receipts = self.engine.enqueue_many(
            [call.job for call in made], on_conflict=on_conflict, request_id=request_id, within=within
        )
        return [call.of.handler.handle(receipt) for call, receipt in zip(made, receipts, strict=True)]

    async def aenqueue_many(
        self,
        calls: Iterable[Call[R]],
        *,
        on_conflict: OnConflict = "return",
        request_id: str | None = None,
        within: object = None,
    ) -> list[Handle[R]]:
        """Make jobs of many calls in one transaction."""
        made = self._batch(calls, on_conflict)
        engine = await self.aengine()
        if request_id is None and within is None and _are_of_one(made):
            job, give = made[0].job, made[0].of.handler.handle
            payloads = [call.payload for call in made]
            return await engine._enqueue_alike(job, payloads, on_conflict, give)  # noqa: SLF001 - its own part for apps
        receipts = await engine.enqueue_many(
            [call.job for call in made], on_conflict=on_conflict, request_id=request_id, within=within
        )
        return [call.of.handler.handle(receipt) for call, receipt in zip(made, receipts, strict=True)]

    def _batch(self, calls: Iterable[Call[R]], on_conflict: str) -> list[Call[R]]:
        """Give calls as a list. What holds for a whole batch is said once, so no call may say something of its own."""
        made = list(calls)
        check_conflict(on_conflict)
        last: Enqueuing[..., Any] | None = None
        for each in made:
            given: object = each  # whatever the caller's types may say
            if isinstance(given, Call) and given.of is last:
                continue
            if not isinstance(given, Call) or given.of.handler.app is not self:
                raise ValidationError(f"{given!r} is no call of a job of this app: write send.call(…)")
            if not given.of.given.is_for_one_of_many:
                raise ValidationError("on_conflict, request_id and within hold for all: give them to enqueue_many")
            last = given.of
        return made

    def handle(self, job_id: str) -> Handle[Any]:
        """Give the handle of a job that is there already."""
        job = self.engine.get(job_id)
        return self._handle(job.id, job.spec.kind)

    async def ahandle(self, job_id: str) -> Handle[Any]:
        """Give the handle of a job that is there already."""
        job = await (await self.aengine()).get(job_id)
        return self._handle(job.id, job.spec.kind)

    def _handle(self, job_id: str, kind: str) -> Handle[Any]:
        if kind not in self.handlers:
            raise JobNotFoundError(f"job {job_id} is a {kind!r}, which this app does not know")
        return self.handlers[kind].handle_of(job_id)

    def run_worker(self, **settings: "Unpack[WorkerSettings]") -> None:
        """Run a worker in this process until a signal ends it; see `leftfold.worker.Worker` for the settings."""
        from leftfold.worker import Worker  # noqa: PLC0415 - only who works needs one

        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - without an exception if there is none
            raise DesignError("an event loop runs here: await app.arun_worker(…) instead")
        if "LEFTFOLD_CELL" in os.environ:  # the app is imported once more, for attempts in a process of their own
            raise DesignError('put app.run_worker() behind `if __name__ == "__main__":`')
        Worker(self, **settings).run()

    async def arun_worker(self, **settings: "Unpack[WorkerSettings]") -> None:
        """Do the same inside of an event loop, until it is cancelled; signals are the caller's."""
        from leftfold.worker import Worker  # noqa: PLC0415 - only who works needs one

        await Worker(self, **settings).arun()


def _are_of_one(calls: list[Call[Any]]) -> bool:
    """Tell whether they are calls of one function, to be enqueued in one way."""
    return bool(calls) and all(call.of is calls[0].of for call in calls)


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # something built in, which does not tell
        pass
    return True


class _Opened:
    """A store on its way to be opened, and what closes it."""

    def __init__(self, generator: "AsyncGenerator[AsyncEngine, None]") -> None:
        self.generator = generator
        self.task = asyncio.ensure_future(self._first())

    async def _first(self) -> "AsyncEngine":
        return await anext(self.generator)
