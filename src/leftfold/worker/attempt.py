"""One attempt of one job: call its handler, and say what came of it."""

import asyncio
import functools
import inspect
import logging
import time
from contextlib import AsyncExitStack, ExitStack
from enum import Enum, auto
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from leftfold import asking
from leftfold.app.context import CurrentJob, Suspension
from leftfold.app.depends import resolved, resolved_here
from leftfold.app.handler import NEVER_RETRIED, Handler
from leftfold.core import commands as c
from leftfold.core import limits
from leftfold.core.errors import JobError, PermanentError, Retry, Snooze, ValidationError
from leftfold.core.letters import Stage
from leftfold.core.values import Failure, Wait, WaitFor
from leftfold.times import microseconds
from leftfold.worker.lease import Held
from leftfold.worker.signals import calls_users
from leftfold.worker.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from leftfold.app.app import Middleware

_LOG: Final = logging.getLogger("leftfold.worker")


class Stop(Enum):
    """Why an attempt is stopped from outside."""

    LOST = auto()  # the job is not ours any more: whatever we would write is refused
    LEAVING = auto()  # the worker shuts down: the job is given back
    ASKED = auto()  # somebody cancelled the job


class Attempt:
    """A handler at work."""

    def __init__(self, handler: Handler[..., Any], held: Held, context: CurrentJob, threads: Threads) -> None:
        self.held = held
        self.context = context
        context.on_cut_short = self.cut_short
        self._handler = handler
        self._threads = threads
        self._stopped: Stop | None = None
        self._entered = False
        self._stage = Stage.INPUT
        self._closing: asyncio.Future[None] | None = None
        self.has_died = False  # and its process with it
        self.task: asyncio.Task[None] | None = None
        self.thread: asyncio.Future[Any] | None = None  # of a `def` handler; it may outlive the attempt

    @property
    def stopped(self) -> Stop | None:
        """Why it was stopped, if it was."""
        return self._stopped

    @property
    def has_ended(self) -> bool:
        """Whether the handler came to its end, and what came of it waits to be written."""
        return self.task is not None and self.task.done()

    def stop(self, why: Stop) -> None:
        """Stop it: an async handler is cancelled, a `def` handler is asked to look at `ctx.cancelled`.

        A thread is waited for unless its job is lost: to give the job away while it goes on would run it twice.
        """
        if self._stopped in {None, Stop.ASKED}:
            self._stopped = why
        self.context.stop()
        waits_for_thread = self.thread is not None and not self.thread.done()
        # A task that is cancelled before its first step never takes one, and nobody would hear of the attempt again.
        if self.task is not None and self._entered and not (waits_for_thread and why is not Stop.LOST):
            self.task.cancel()

    def cut_short(self) -> None:
        """Give the job back: a second signal came while the handler blocks the loop, and tears it from its work."""
        self._stopped = self._stopped or Stop.LEAVING
        self.context.stop()

    def abandon(self) -> None:
        """Let it be: the job is somebody else's, whatever the handler comes to."""
        self._stopped = Stop.LOST

    async def run(self, middlewares: "list[Middleware]") -> c.AnyCommand | None:
        """Run the handler to its end, and give what is to be written. None: nothing, the job is not ours any more."""
        self._entered = True
        self.context.enter()
        began = time.monotonic()
        try:
            given = await self._called(middlewares)
            if self._stopped is Stop.LOST:
                return None
            self._check_not_suspended()
            self._stage = Stage.OUTPUT
            return self._completed(given, time.monotonic() - began)
        except Suspension as wait:
            return self._said(self._of_suspension, wait)
        except BaseExceptionGroup as group:  # of a TaskGroup in which somebody waits
            waits, others = group.split(Suspension)
            if waits is None or others is not None:
                return self._said(self._of_failure, group)
            return self._said(self._of_suspension, _first_of(waits))
        except Snooze as snooze:
            return self._said(self._of_snooze, snooze)
        except asyncio.CancelledError as cancelled:
            return self._said(self._of_cancellation, cancelled)
        except BaseException as problem:  # noqa: BLE001 - SystemExit, too, is the job's failure and not the worker's
            return self._said(self._of_failure, problem)
        finally:
            self.context.on_cut_short = None  # else they know each other, and only the collector would part them

    def _completed(self, given: Any, seconds: float) -> c.Complete:
        command = c.Complete(by=self.held.claim.actor, result=self._handler.signature.to_result(given))
        _LOG.info("succeeded in %.3f s", seconds)
        return command

    def _check_not_suspended(self) -> None:
        if self.context.suspended_on is not None:
            raise PermanentError(_SWALLOWED.format(key=self.context.suspended_on))

    def failed(self, problem: BaseException) -> c.AnyCommand | None:
        """Say what is to be written where even `run` was brought down."""
        return self._said(self._of_failure, problem)

    @calls_users
    async def _called(self, middlewares: "list[Middleware]") -> Any:
        if self._stopped is not None:
            raise asyncio.CancelledError  # it was stopped before it began
        timeout = self.held.claim.policy.timeout
        call: Callable[[], Awaitable[Any]] = self._call
        for middleware in reversed(middlewares):
            call = functools.partial(middleware, self.context, call)
        if timeout is None:
            return await call()
        late: TimeoutError | None = None
        given: Any = None
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout / 1_000_000) as limit:
                given = await call()
        except TimeoutError as problem:
            if not limit.expired():
                raise
            late = problem
        if limit.expired() or time.monotonic() - began > timeout / 1_000_000:  # it took no notice, or kept the loop
            self.context.stop()
            raise TimedOut(f"the attempt took longer than {timeout / 1_000_000:g} s") from late
        return given

    @calls_users
    async def _call(self) -> Any:
        handler, signature = self._handler, self._handler.signature
        arguments = signature.of_payload(self.held.claim.spec.payload)
        self._stage = Stage.EXEC
        if signature.context is not None:
            arguments[signature.context] = self.context
        if handler.is_async and not signature.depends:
            return await signature.call(handler.function, arguments)
        async with AsyncExitStack() as stack:
            if handler.is_async:
                arguments.update(await resolved(signature.depends, stack))
                return await signature.call(handler.function, arguments)
            theirs = {name: each for name, each in signature.depends.items() if each.is_async}
            arguments.update(await resolved(theirs, stack))
            ours = {name: each for name, each in signature.depends.items() if not each.is_async}

            def call() -> Any:
                with ExitStack() as inner:
                    given = signature.call(handler.function, {**arguments, **resolved_here(ours, inner)})
                return _awaited_by_nobody(given) if inspect.iscoroutine(given) else given

            self.thread = self._threads.run(call)
            try:
                return await asyncio.shield(self.thread)
            except asyncio.CancelledError:
                if self.thread.done():
                    return self.thread.result()  # it had finished first
                self._close_behind(self.thread, stack.pop_all())
                raise

    def _close_behind(self, thread: asyncio.Future[Any], stack: AsyncExitStack) -> None:
        """Put away what a thread works with when it has ended, and not before."""

        def close(_: object) -> None:
            self._closing = asyncio.ensure_future(stack.aclose())

        thread.add_done_callback(close)

    def _said(self, say: "Callable[[Any], c.AnyCommand | None]", raised: BaseException) -> c.AnyCommand | None:
        """Say what a handler raised. A snooze of -1 s, or an error whose text raises, is a failure of its own."""
        try:
            return say(raised)
        except BaseException as problem:  # noqa: BLE001 - whatever it is, the attempt must come to an end
            try:
                return self._of_failure(problem)
            except BaseException:  # noqa: BLE001 - and this, too
                _LOG.warning("failed, in a way that cannot be told")
                error = Failure(code="error", message="the handler raised what cannot be told")
                return c.Fail(by=self.held.claim.actor, error=error)

    def _of_cancellation(self, cancelled: asyncio.CancelledError) -> c.AnyCommand | None:
        claim = self.held.claim
        match self._stopped:
            case Stop.LOST:
                return None
            case Stop.LEAVING:
                _LOG.info("given back: the worker leaves")
                return c.Release(by=claim.actor, reason="the worker left")
            case Stop.ASKED:
                _LOG.info("cancelled on request")
                return c.Cancel(by=claim.actor, reason="the handler stopped on request")
            case None:
                return self._of_failure(cancelled)

    def _of_suspension(self, wait: Suspension) -> c.AnyCommand | None:
        if self._stopped is Stop.LOST:
            return None
        _LOG.info("waits for %r", wait.key)
        return c.Suspend(by=self.held.claim.actor, wait=Wait(until=WaitFor.SIGNAL, key=wait.key), timeout=wait.timeout)

    def _of_snooze(self, snooze: Snooze) -> c.AnyCommand | None:
        if self._stopped is Stop.LOST:
            return None
        try:
            delay = _delay("Snooze", snooze.seconds)
        except ValidationError as problem:
            return self._of_failure(problem)
        _LOG.info("snoozed for %s s", snooze.seconds)
        reason = None if snooze.reason is None else asking.printable(str(snooze.reason))
        return c.Release(by=self.held.claim.actor, delay=delay, reason=reason)

    def _of_failure(self, problem: BaseException) -> c.AnyCommand | None:
        claim = self.held.claim
        if self._stopped is Stop.LOST:
            return None
        if self._stopped is Stop.LEAVING:  # many an error is only how a cancellation looks from outside
            _LOG.info("given back: the worker leaves, and the handler said %s", type(problem).__name__)
            return c.Release(by=claim.actor, reason="the worker left")
        delay = None
        if isinstance(problem, Retry):
            try:
                delay = _delay("Retry(after=…)", problem.after)
            except ValidationError as wrong:
                problem = wrong.with_traceback(problem.__traceback__)
        problem = problem.with_traceback(_of_handler(problem.__traceback__))
        failure = self._failure(problem)
        _LOG.warning("failed: %s: %s", failure.type or failure.code, failure.message, exc_info=problem)
        never = isinstance(problem, NEVER_RETRIED)
        return c.Fail(by=claim.actor, error=failure, delay=delay, permanent=never, stage=self._stage)

    def _failure(self, problem: BaseException) -> Failure:
        """Give what went wrong as the log keeps it, under the code that the job's policy knows it by."""
        failure, codes = asking.failure_of(problem), self._handler.codes
        code = next((codes[each] for each in type(problem).__mro__ if each in codes), None)  # the closest class counts
        kind = failure.type
        if isinstance(problem, TimedOut):
            code, kind = "timeout", "TimeoutError"
        if code is None:
            code = failure.code if _is_name(failure.code) else JobError.code
        return Failure(code=code, message=failure.message, type=kind, traceback=failure.traceback)


def _first_of(group: BaseExceptionGroup[Suspension]) -> Suspension:
    """Give one of those that wait: the others do again when the handler comes to them."""
    inner = group.exceptions[0]
    return inner if isinstance(inner, Suspension) else _first_of(inner)


_SWALLOWED: Final = (
    "the handler went on behind ctx.wait({key!r}), which had ended it until there is an answer: "
    "let what it raises pass, as `except Exception` does"
)


def _delay(what: str, seconds: float) -> int:
    """Give a delay that a handler asks for, or refuse one that the store would refuse."""
    delay = microseconds(what, seconds)
    limits.span(what, delay, 0, limits.DELAY_MAX)
    return delay


def _is_name(code: object) -> bool:
    """Tell whether a code that somebody gave to an exception of theirs can be written."""
    try:
        limits.name("code", str(code))
    except ValidationError:
        return False
    return isinstance(code, str)


def _awaited_by_nobody(given: "Coroutine[Any, Any, Any]") -> Any:
    given.close()
    raise PermanentError("the handler is no async function, but returned a coroutine: write `async def`, or await it")


def _of_handler(trace: TracebackType | None) -> TracebackType | None:
    """Give the part of a traceback that begins in the user's own code; all of it, if there is none."""
    theirs, ours = trace, ("leftfold.worker.", "leftfold.app.", "asyncio.")
    while theirs is not None and theirs.tb_frame.f_globals.get("__name__", "").startswith(ours):
        theirs = theirs.tb_next
    return theirs or trace


class TimedOut(TimeoutError):  # noqa: N818 - told apart from a handler's own
    """The attempt took longer than its kind allows."""
