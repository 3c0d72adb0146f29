"""What a handler may know of the attempt that it runs in, and what it may say and ask meanwhile."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload

import msgspec

from leftfold.app import wire
from leftfold.core import events as e
from leftfold.core import limits
from leftfold.core.errors import DesignError, NoCurrentJobError, ValidationError, WaitExpired
from leftfold.core.values import Answer, Spec
from leftfold.store.replies import Claim
from leftfold.times import Span, microseconds

if TYPE_CHECKING:
    from leftfold.app.app import App

T = TypeVar("T")

_CURRENT: Final[ContextVar["CurrentJob"]] = ContextVar("leftfold_current_job")


class Desk(Protocol):
    """Where a worker takes what its handlers say and ask. For any thread."""

    def tell(self, claim: Claim, note: e.AnyNote) -> None:
        """Put a note on the job's log with the next flush."""

    async def answers(self, claim: Claim) -> Mapping[str, Answer]:
        """Give what the job's waits were answered with so far. On the loop."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Give the loop on which the worker runs."""

    @property
    def thread(self) -> int:
        """Give the thread of that loop."""


class Suspension(BaseException):
    """Unwinds a handler whose job is to wait. No `except Exception` is meant to catch it."""

    def __init__(self, key: str, timeout: int | None) -> None:
        super().__init__(f"waits for {key!r}")
        self.key = key
        self.timeout = timeout


class CurrentJob:
    """The attempt that a handler runs in: from `current_job()`, however deep inside."""

    def __init__(self, app: "App", claim: Claim, desk: Desk, state: Any = None) -> None:
        self.app = app
        self.state = state  # what the lifespan gave
        self.suspended_on: str | None = None  # what a `wait` unwinds the handler for
        self.on_cut_short: Callable[[], None] | None = None
        self._claim = claim
        self._desk = desk
        self._stopped = False
        self._answers: Mapping[str, Answer] | None = None

    def __repr__(self) -> str:
        return f"<{self.kind} {self.job_id}, attempt {self.attempt}>"

    @property
    def job_id(self) -> str:
        """Give the job's id: the same in every attempt."""
        return self._claim.job_id

    @property
    def kind(self) -> str:
        """Give what kind of job it is."""
        return self._claim.kind

    @property
    def attempt(self) -> int:
        """Give the number of this attempt, from 1 on."""
        return self._claim.attempt

    @property
    def failures(self) -> int:
        """Give how much of the retry budget is used."""
        return self._claim.failures

    @property
    def spec(self) -> Spec:
        """Give what was asked for: queue, priority, key, tenant, correlation id, the payload as text."""
        return self._claim.spec

    @property
    def job(self) -> Claim:
        """Give the job as it was claimed: what the engine's commands for owners take."""
        return self._claim

    @property
    def log(self) -> logging.Logger:
        """Give the logger of this kind of job."""
        return logging.getLogger(f"leftfold.job.{self.kind}")

    @property
    def cancelled(self) -> bool:
        """Tell whether to stop: somebody asked for it, the worker leaves, time is up, or the lease is lost.

        `def` handlers look here, or call `raise_if_cancelled()`.
        """
        return self._stopped

    def raise_if_cancelled(self) -> None:
        """Stop here if the handler is to stop: raises what says so. To return instead would say that it is done."""
        if self.cancelled:
            raise asyncio.CancelledError

    def progress(self, fraction: float, message: str | None = None) -> None:
        """Say how far the handler is, from 0 to 1. It is written with the next flush, twice a second at most."""
        given: object = fraction  # whatever the caller's types may say
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0.0 <= given <= 1.0:
            raise ValidationError(f"progress is a fraction from 0 to 1, not {fraction!r}")
        limits.text("message", message)
        self._desk.tell(self._claim, e.Progress(fraction=float(fraction), message=message))

    def idempotency_key(self, step: str) -> str:
        """Give a key for one step with an outside effect: the same in every attempt of this job, and in no other job.

        For services that do a request with such a key once, however often they hear it.
        """
        limits.name("step", step)
        return f"{self.job_id}:{step}"

    def seen_as(self, kind: "type[CurrentJob]") -> "CurrentJob":
        """Give the same for a handler of the other kind, which this one calls."""
        if isinstance(self, kind):
            return self
        other = kind.__new__(kind)
        other.__dict__ = self.__dict__  # one attempt, whoever looks at it
        return other

    def stop(self) -> None:
        """Ask the handler to stop."""
        self._stopped = True

    def cut_short(self) -> None:
        """Stop now: a second signal found users' code that blocks the loop."""
        (self.on_cut_short or self.stop)()

    def enter(self) -> None:
        """Be the current job from here on, in this task or thread."""
        _CURRENT.set(self)

    def _answer(self, answers: Mapping[str, Answer], key: str, type_: Any, timeout: Span | None) -> Any:
        self._answers = answers
        answer = answers.get(key)
        if answer is None:
            length = None if timeout is None else microseconds("timeout", timeout)
            if length is not None:
                limits.span("timeout", length, 0, limits.DELAY_MAX)
            self.suspended_on = key
            raise Suspension(key, length)
        if answer.expired:
            raise WaitExpired(f"nobody answered {key!r} in time")
        try:
            return wire.decoder(f"the answer to {key!r}", type_).decode(answer.payload)
        except msgspec.MsgspecError as problem:
            raise ValidationError(f"the answer to {key!r} is not what the handler waits for: {problem}") from problem


class Context(CurrentJob):
    """The attempt that an `async def` handler runs in: for a first parameter of this type."""

    @overload
    async def wait(self, key: str, *, timeout: Span | None = None) -> Any: ...  # noqa: ASYNC109 - it is durable
    @overload
    async def wait(self, key: str, type: type[T], *, timeout: Span | None = None) -> T: ...  # noqa: ASYNC109 - it is durable

    async def wait(self, key: str, type: Any = Any, *, timeout: Span | None = None) -> Any:  # noqa: A002, ASYNC109 - it is durable
        """Give what this key was signalled with, as a `type` if one is named.

        Until then the job is suspended: it holds no lease and no place in a worker. The handler ends here and runs
        again from the top when the signal is there, or the timeout over: then this raises `WaitExpired`. A key is
        answered once per job: who waits for it again gets the same answer.
        """
        limits.name("wait key", key)
        answers = self._answers
        if answers is None or key not in answers:
            answers = await self._desk.answers(self._claim)
        return self._answer(answers, key, type, timeout)


class SyncContext(CurrentJob):
    """The attempt that a `def` handler runs in: for a first parameter of this type."""

    @overload
    def wait(self, key: str, *, timeout: Span | None = None) -> Any: ...
    @overload
    def wait(self, key: str, type: type[T], *, timeout: Span | None = None) -> T: ...

    def wait(self, key: str, type: Any = Any, *, timeout: Span | None = None) -> Any:  # noqa: A002 - as msgspec calls it
        """Give what this key was signalled with: see `Context.wait`."""
        limits.name("wait key", key)
        answers = self._answers
        if answers is None or key not in answers:
            if threading.get_ident() == self._desk.thread:
                raise DesignError(
                    "this would block the event loop: await ctx.wait(…) in the async handler, and hand it over"
                )
            answers = asyncio.run_coroutine_threadsafe(self._desk.answers(self._claim), self._desk.loop).result()
        return self._answer(answers, key, type, timeout)


def current_job() -> CurrentJob:
    """Give the context of the job whose handler calls this, however deep inside."""
    found = _CURRENT.get(None)
    if found is None:
        raise NoCurrentJobError("no job runs here: current_job() is for handlers, and for what they call")
    return found


def current_or_none() -> CurrentJob | None:
    """Give the same, or None outside of any job."""
    return _CURRENT.get(None)
