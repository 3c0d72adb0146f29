"""The app: where the jobs are, and which functions do them."""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, Self, TypeVar, overload
from weakref import WeakKeyDictionary

from leftfold import opening
from leftfold.app.context import Context
from leftfold.app.handle import Handle
from leftfold.app.handler import AsyncHandler, Call, Handler, Options, SyncHandler
from leftfold.core import limits
from leftfold.core.errors import DesignError, JobNotFoundError, ValidationError
from leftfold.core.retry import DEFAULT_POLICY, Allowance, Backoff, Policy
from leftfold.engine import Engine
from leftfold.times import Span, microseconds

if TYPE_CHECKING:
    from leftfold.aengine import AsyncEngine

P = ParamSpec("P")
R = TypeVar("R")

#: Runs around every attempt: does what it likes, and awaits the next one for the result.
Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
#: Opens what a worker process needs while it lives; what it yields is `ctx.state`.
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]

_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_.]+")


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
        self.lifespan = lifespan
        self._actor = actor
        self._engine: Engine | None = None
        self._opening = threading.Lock()
        self._aengines: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[AsyncEngine]] = WeakKeyDictionary()

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
        """Give the store for the running event loop, opened when it is first asked for."""
        loop = asyncio.get_running_loop()
        if loop not in self._aengines:
            opened = opening.aopen(self.url, actor=self._actor, wake=True, **self.settings)
            self._aengines[loop] = loop.create_task(opened)
        task = self._aengines[loop]
        try:
            return await asyncio.shield(task)
        except BaseException:
            if task.done() and self._aengines.get(loop) is task:
                del self._aengines[loop]  # the next one tries again
            raise

    def close(self) -> None:
        """Close the store, as far as it was opened outside of asyncio."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    async def aclose(self) -> None:
        """Close the store."""
        task = self._aengines.pop(asyncio.get_running_loop(), None)
        if task is not None:
            await (await task).close()
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

    # An async function is a function, too: the type checker takes the first that fits.
    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncHandler[P, R]: ...
    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncHandler[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def job(self, function: Callable[Concatenate[Context, P], R], /) -> SyncHandler[P, R]: ...
    @overload
    def job(self, function: Callable[P, R], /) -> SyncHandler[P, R]: ...
    @overload
    def job(
        self, function: None = None, /, *, name: str | None = None, queue: str = "default", priority: int | str = 0,
        max_failures: int = DEFAULT_POLICY.max_failures, retry_delay: Span = 0.5, retry_delay_max: Span = 60,
        retries: Mapping[type[BaseException], int | Allowance] | None = None, lease: Span = 60,
        timeout: Span | None = None, on_exhausted: Literal["dead_letter", "fail"] = "dead_letter",
        hold_stalled: bool = False,
    ) -> "_Decorator": ...  # fmt: skip

    def job(self, function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
        """Make a function a kind of job: `@app.job`, or `@app.job(queue="mail", max_failures=3, lease=30)`.

        The kind is called as the function is, or `name`. An attempt that fails is tried again after `retry_delay`
        seconds, then after twice as long and so on, until there were `max_failures`; `retries` says otherwise for some
        exceptions, 0 for never. `lease` is how long a worker may be silent before the job is taken from it, `timeout`
        how long an attempt may take.
        """
        decorator = _Decorator(self, **settings)
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
        self.middlewares.append(function)
        return function

    # --- jobs -------------------------------------------------------------------------------------------------------

    def enqueue_many(self, calls: Iterable[Call[R]], *, within: object = None) -> list[Handle[R]]:
        """Make jobs of many calls in one transaction: `app.enqueue_many(send.call(to) for to in everybody)`."""
        made = list(calls)
        receipts = self.engine.enqueue_many([call.new_job() for call in made], within=within)
        return [call.handler.handle(receipt) for call, receipt in zip(made, receipts, strict=True)]

    async def aenqueue_many(self, calls: Iterable[Call[R]], *, within: object = None) -> list[Handle[R]]:
        """Make jobs of many calls in one transaction."""
        made = list(calls)
        engine = await self.aengine()
        receipts = await engine.enqueue_many([call.new_job() for call in made], within=within)
        return [call.handler.handle(receipt) for call, receipt in zip(made, receipts, strict=True)]

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

    def run_worker(self, **settings: Any) -> None:
        """Run a worker in this process until a signal ends it; see `leftfold.worker.Worker` for the settings."""
        from leftfold.worker import Worker  # noqa: PLC0415 - only who works needs one

        Worker(self, **settings).run()

    async def arun_worker(self, **settings: Any) -> None:
        """Do the same inside of an event loop, until it is cancelled; signals are the caller's."""
        from leftfold.worker import Worker  # noqa: PLC0415 - only who works needs one

        await Worker(self, **settings).arun()


class _Decorator:
    """`@app.job(…)` with its settings."""

    def __init__(
        self,
        app: App,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int | str = 0,
        max_failures: int = DEFAULT_POLICY.max_failures,
        retry_delay: Span = 0.5,
        retry_delay_max: Span = 60,
        retries: Mapping[type[BaseException], int | Allowance] | None = None,
        lease: Span = 60,
        timeout: Span | None = None,
        on_exhausted: Literal["dead_letter", "fail"] = "dead_letter",
        hold_stalled: bool = False,
    ) -> None:
        self._app, self._name, self._options = app, name, Options(queue, priority)
        given = {error: allowed for error, allowed in (retries or {}).items() if allowed != 0}
        self._permanent = tuple(error for error, allowed in (retries or {}).items() if allowed == 0)
        self._codes = {error: _code_of(error) for error in given}
        policy = Policy(
            max_failures=max_failures,
            backoff=Backoff(
                base=microseconds("retry_delay", retry_delay), cap=microseconds("retry_delay_max", retry_delay_max)
            ),
            by_error={
                self._codes[error]: Allowance(max_failures=each) if isinstance(each, int) else each
                for error, each in given.items()
            },
            lease=microseconds("lease", lease),
            timeout=None if timeout is None else microseconds("timeout", timeout),
            on_exhausted=on_exhausted,
            hold_stalled=hold_stalled,
        )
        policy.check()
        limits.name("queue", queue)
        self._policy = DEFAULT_POLICY if policy == DEFAULT_POLICY else policy

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> AsyncHandler[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncHandler[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> SyncHandler[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> SyncHandler[P, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Any:
        kind = self._name or str(getattr(function, "__name__", ""))
        limits.name("name", kind)
        made = AsyncHandler if asyncio.iscoroutinefunction(function) else SyncHandler
        handler: Handler[..., Any] = made(self._app, function, kind, self._policy, self._options)
        handler.permanent, handler.codes = self._permanent, self._codes
        self._app.add(handler)
        return handler


def _code_of(error: type[BaseException]) -> str:
    """Give the code under which the log counts an exception."""
    return _UNNAMED.sub("_", f"{error.__module__}.{error.__qualname__}".removeprefix("builtins."))
