"""A function that is a kind of job: it can be called, and it can be enqueued."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar

from msgspec import Raw

from leftfold.app.depends import resolved
from leftfold.app.handle import Handle
from leftfold.app.signature import Signature
from leftfold.asking import NewJob
from leftfold.core.retry import Policy
from leftfold.store.replies import Receipt
from leftfold.times import Moment

if TYPE_CHECKING:
    from leftfold.app.app import App

P = ParamSpec("P")
R = TypeVar("R")


class Options(NamedTuple):
    """How a job is enqueued, where it differs from how its kind says."""

    queue: str = "default"
    priority: int | str = 0
    due: Moment | None = None
    key: str | None = None
    on_conflict: Literal["return", "raise", "replace"] = "return"
    tenant: str = ""
    correlation_id: str | None = None
    cause: str | None = None
    after: Sequence[str] = ()
    request_id: str | None = None
    within: object = None


class Call(NamedTuple, Generic[R]):
    """A call that is not made yet: for `App.enqueue_many`."""

    handler: "Handler[..., R]"
    payload: Raw
    options: Options

    def new_job(self) -> NewJob:
        """Give it as a job to be enqueued."""
        given = self.options
        return NewJob(
            self.handler.kind, self.payload, given.queue, given.priority, given.due, given.key, given.correlation_id,
            given.cause, given.tenant, given.after, self.handler.policy,
        )  # fmt: skip


class Enqueuing(Generic[P, R]):
    """What can be enqueued, in some way."""

    def __init__(self, handler: "Handler[P, R]", options: Options) -> None:
        self._handler = handler
        self._options = options

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Give the call without making it, its arguments checked."""
        return Call(self._handler, self._handler.signature.to_payload(args, kwargs), self._options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Make a job of this call."""
        call, given = self.call(*args, **kwargs), self._options
        (receipt,) = self._handler.app.engine.enqueue_many(
            [call.new_job()], on_conflict=given.on_conflict, request_id=given.request_id, within=given.within
        )
        return self._handler.handle(receipt)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Make a job of this call."""
        call, given = self.call(*args, **kwargs), self._options
        engine = await self._handler.app.aengine()
        (receipt,) = await engine.enqueue_many(
            [call.new_job()], on_conflict=given.on_conflict, request_id=given.request_id, within=given.within
        )
        return self._handler.handle(receipt)


class Handler(Enqueuing[P, R]):
    """A kind of job, with the function that does it."""

    def __init__(self, app: "App", function: Callable[..., Any], kind: str, policy: Policy, options: Options) -> None:
        super().__init__(self, options)
        self.app = app
        self.function = function
        self.kind = kind
        self.policy = policy
        self.signature = Signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.permanent: tuple[type[BaseException], ...] = ()
        self.codes: dict[type[BaseException], str] = {}
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", kind)
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<handler of {self.kind!r}>"

    def options(
        self,
        *,
        queue: str | None = None,
        priority: int | str | None = None,
        due: Moment | None = None,
        key: str | None = None,
        on_conflict: Literal["return", "raise", "replace"] = "return",
        tenant: str = "",
        correlation_id: str | None = None,
        cause: str | None = None,
        after: Sequence[str] = (),
        request_id: str | None = None,
        within: object = None,
    ) -> Enqueuing[P, R]:
        """Give the same, to be enqueued otherwise: `send.options(due=60, key="ann").enqueue(…)`."""
        usual = self._options
        return Enqueuing(self, Options(
            usual.queue if queue is None else queue, usual.priority if priority is None else priority, due, key,
            on_conflict, tenant, correlation_id, cause, after, request_id, within,
        ))  # fmt: skip

    def handle(self, receipt: Receipt | None) -> Handle[R]:
        """Give the handle of a job of this kind."""
        if receipt is None:
            raise TypeError("a job was skipped that nobody asked to skip")
        return Handle(self.app, receipt.job_id, self.signature.of_result, created=receipt.changed)

    def handle_of(self, job_id: str) -> Handle[R]:
        """Give the handle of a job of this kind that is there already."""
        return Handle(self.app, job_id, self.signature.of_result)


class SyncHandler(Handler[P, R]):
    """A kind of job that a plain function does."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now: no job is made of it."""
        given: R
        if not self.signature.missing(kwargs):
            given = self.function(*args, **kwargs)
            return given
        given = asyncio.run(_with_dependencies(self, args, kwargs))
        return given


class AsyncHandler(Handler[P, R]):
    """A kind of job that an async function does."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function here and now: no job is made of it."""
        return _with_dependencies(self, args, kwargs)


async def _with_dependencies(handler: Handler[..., R], args: Sequence[Any], kwargs: dict[str, Any]) -> R:
    async with AsyncExitStack() as stack:
        made = await resolved(handler.signature.missing(kwargs), stack)
        given: Awaitable[R] | R = handler.function(*args, **{**kwargs, **made})
        return await given if isinstance(given, Awaitable) else given
