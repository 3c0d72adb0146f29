"""A function that is a kind of job: it can be called, and it can be enqueued."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, ParamSpec, TypeVar, get_args

from msgspec import Raw

from leftfold.app.depends import Dependencies, resolved, resolved_here
from leftfold.app.handle import Handle
from leftfold.app.signature import Signature
from leftfold.asking import NewJob
from leftfold.core.errors import DesignError, PermanentError, ValidationError, WaitExpired
from leftfold.core.retry import Policy
from leftfold.store.replies import Receipt
from leftfold.times import Moment

if TYPE_CHECKING:
    from leftfold.app.app import App

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

#: What a handler raises to say that another attempt would not help, whatever the policy allows.
NEVER_RETRIED: Final = (PermanentError, ValidationError, WaitExpired)
#: What if the key is taken. There is always a handle, so a job is never skipped.
OnConflict = Literal["return", "raise", "replace"]
_ON_CONFLICT: Final[tuple[str, ...]] = get_args(OnConflict)


def check_conflict(given: str) -> None:
    """Refuse what an engine might know, but a handle could not stand for."""
    if given not in _ON_CONFLICT:
        raise ValidationError(f"on_conflict {given!r} is none of {', '.join(_ON_CONFLICT)}")


class Options(NamedTuple):
    """How a job is enqueued, where it differs from how its kind says."""

    queue: str = "default"
    priority: int | str = 0
    due: Moment | None = None
    key: str | None = None
    on_conflict: OnConflict = "return"
    tenant: str = ""
    correlation_id: str | None = None
    cause: str | None = None
    request_id: str | None = None
    within: object = None

    @property
    def is_for_one_of_many(self) -> bool:
        """Whether it says nothing about the statement that makes the job, which others may share."""
        return (self.on_conflict, self.request_id, self.within) == ("return", None, None)


class Call(NamedTuple, Generic[R_co]):
    """A call that is not made yet: for `App.enqueue_many`."""

    of: "Enqueuing[..., R_co]"
    payload: Raw  # the arguments as they are stored

    @property
    def job(self) -> NewJob:
        """Give it as a job to be enqueued."""
        return self.of.job(self.payload)


class Enqueuing(Generic[P, R_co]):
    """What can be enqueued, in some way."""

    def __init__(self, handler: "Handler[P, R_co]", options: Options) -> None:
        self.handler = handler
        self.given = options
        self._rest = (  # what its jobs have in common, behind kind and payload
            options.queue, options.priority, options.due, options.key, options.correlation_id, options.cause,
            options.tenant, (), handler.policy,
        )  # fmt: skip

    def job(self, payload: Raw) -> NewJob:
        """Give a job of this kind, to be enqueued in this way."""
        return NewJob(self.handler.kind, payload, *self._rest)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Give the call without making it, its arguments checked."""
        return Call(self, self.handler.signature.to_payload(args, kwargs))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Make a job of this call."""
        job, given = self.job(self.handler.signature.to_payload(args, kwargs)), self.given
        receipt = self.handler.app.engine._enqueue_new(  # noqa: SLF001 - its own part for apps
            job, given.on_conflict, given.request_id, None, given.within
        )
        return self.handler.handle(receipt)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Make a job of this call."""
        job, given = self.job(self.handler.signature.to_payload(args, kwargs)), self.given
        engine = await self.handler.app.aengine()
        receipt = await engine._enqueue_new(  # noqa: SLF001 - its own part for apps
            job, given.on_conflict, given.request_id, None, given.within
        )
        return self.handler.handle(receipt)


class Handler(Enqueuing[P, R_co]):
    """A kind of job, with the function that does it."""

    def __init__(self, app: "App", function: Callable[..., Any], kind: str, policy: Policy, options: Options) -> None:
        self.kind = kind
        self.policy = policy
        super().__init__(self, options)
        self.app = app
        self.function = function
        self.signature = Signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.isolated = False  # whether each attempt runs in a process of its own
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
        on_conflict: OnConflict = "return",
        tenant: str = "",
        correlation_id: str | None = None,
        cause: str | None = None,
        request_id: str | None = None,
        within: object = None,
    ) -> Enqueuing[P, R_co]:
        """Give the same, to be enqueued otherwise: `send.options(due=60, key="ann").enqueue(…)`."""
        check_conflict(on_conflict)
        usual = self.given
        return Enqueuing(self, Options(
            usual.queue if queue is None else queue, usual.priority if priority is None else priority, due, key,
            on_conflict, tenant, correlation_id, cause, request_id, within,
        ))  # fmt: skip

    def handle(self, receipt: Receipt | None) -> Handle[R_co]:
        """Give the handle of a job of this kind."""
        if receipt is None:
            raise TypeError("a job was skipped that nobody asked to skip")
        return Handle(self.app, receipt.job_id, self.signature.of_result, created=receipt.changed)

    def handle_of(self, job_id: str) -> Handle[R_co]:
        """Give the handle of a job of this kind that is there already."""
        return Handle(self.app, job_id, self.signature.of_result)


class SyncHandler(Handler[P, R_co]):
    """A kind of job that a plain function does."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here and now: no job is made of it."""
        given: R_co
        if self.signature.is_bare:
            given = self.function(*args, **kwargs)
            return given
        arguments = self.signature.called(args, kwargs)
        missing = self.signature.missing(arguments)
        if any(each.is_async for each in missing.values()):
            given = self._in_a_loop(arguments, missing)
            return given
        with ExitStack() as stack:
            given = self.signature.call(self.function, {**arguments, **resolved_here(missing, stack)})
            return given

    def _in_a_loop(self, arguments: dict[str, Any], missing: Dependencies) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(_with_dependencies(self, arguments, missing))
        raise DesignError(
            f"{self.kind!r} is no async function, but {', '.join(n for n, each in missing.items() if each.is_async)} "
            "must be awaited: inside of an event loop, give it with the call"
        )


class AsyncHandler(Handler[P, R_co]):
    """A kind of job that an async function does."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call the function here and now: no job is made of it."""
        given: Coroutine[Any, Any, R_co]
        if self.signature.is_bare:
            given = self.function(*args, **kwargs)
            return given
        arguments = self.signature.called(args, kwargs)
        return _with_dependencies(self, arguments, self.signature.missing(arguments))


async def _with_dependencies(handler: Handler[..., R_co], arguments: dict[str, Any], missing: Dependencies) -> R_co:
    async with AsyncExitStack() as stack:
        made = await resolved(missing, stack)
        given: Awaitable[R_co] | R_co = handler.signature.call(handler.function, {**arguments, **made})
        return await given if handler.is_async else given  # type: ignore[misc, return-value]  # the handler's own kind says which of the two it is
