"""`@app.job(…)`: from a function and its settings to a kind of job."""

import inspect
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, TypeVar, final, overload

from leftfold import asking
from leftfold.app.context import Context, SyncContext
from leftfold.app.functions import name_of
from leftfold.app.handler import NEVER_RETRIED, AsyncHandler, Handler, Options, SyncHandler
from leftfold.core import limits
from leftfold.core.errors import DesignError, ValidationError
from leftfold.core.retry import DEFAULT_POLICY, Allowance, Backoff, Policy
from leftfold.times import Span, microseconds

if TYPE_CHECKING:
    from leftfold.app.app import App

P = ParamSpec("P")
R = TypeVar("R")

#: How often to try again after an exception of a class, or after how many seconds each time: `{OSError: [1, 5, 30]}`.
Retries = Mapping[type[BaseException], int | Sequence[Span]]

_ON_EXHAUSTED: Final = ("dead_letter", "fail")
_DELAYS_MAX: Final = 1_000  # they are kept with every job
_UNNAMED: Final = re.compile(r"[^A-Za-z0-9_.]+")


@final
class Anything:
    """What only a parameter takes that takes anything: it is not to be mistaken for one that takes the context."""


class Decorator:
    """`@app.job(…)` with its settings."""

    def __init__(
        self,
        app: "App",
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int | str = 0,
        max_failures: int = DEFAULT_POLICY.max_failures,
        retry_delay: Span = 0.5,
        retry_delay_max: Span = 60,
        retries: Retries | None = None,
        lease: Span = 60,
        timeout: Span | None = None,
        on_exhausted: Literal["dead_letter", "fail"] = "dead_letter",
        hold_stalled: bool = False,
        isolation: Literal["process"] | None = None,
    ) -> None:
        limits.name("queue", queue)
        asking.priority_of(priority)
        self._app, self._name, self._options = app, name, Options(queue, priority)
        self._codes, allowances = _retries(retries)
        policy = Policy(
            max_failures=max_failures,
            backoff=Backoff(
                base=microseconds("retry_delay", retry_delay), cap=microseconds("retry_delay_max", retry_delay_max)
            ),
            by_error=allowances,
            lease=microseconds("lease", lease),
            timeout=None if timeout is None else microseconds("timeout", timeout),
            on_exhausted=on_exhausted,
            hold_stalled=hold_stalled,
        )
        policy.check()
        if on_exhausted not in _ON_EXHAUSTED:
            raise ValidationError(f"on_exhausted {on_exhausted!r} is none of {', '.join(_ON_EXHAUSTED)}")
        if isolation not in {None, "process"}:
            raise ValidationError(f"isolation {isolation!r} is none of None, 'process'")
        self._isolated = isolation is not None
        self._policy = DEFAULT_POLICY if policy == DEFAULT_POLICY else policy

    @overload
    def __call__(  # type: ignore[overload-overlap]  # an async function is a function, too
        self, function: Callable[Concatenate[Anything, P], Coroutine[Any, Any, R]]
    ) -> AsyncHandler[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Anything, P], R]) -> SyncHandler[..., R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # an async function is a function, too
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> AsyncHandler[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncHandler[P, R]: ...  # type: ignore[overload-overlap]  # an async function is a function, too
    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], R]) -> SyncHandler[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> SyncHandler[P, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Any:
        """Make a kind of job of it."""
        if isinstance(function, Handler):
            raise DesignError(f"{function!r} is a job already: for another one, take its .function")
        made = AsyncHandler if inspect.iscoroutinefunction(function) else SyncHandler
        kind = str(getattr(function, "__name__", "")) if self._name is None else self._name
        handler: Handler[..., Any] = made(self._app, function, kind, self._policy, self._options)
        try:
            limits.name("name", kind)
        except ValidationError as problem:
            raise DesignError(f"{name_of(function)} needs a name=: {problem}") from problem
        handler.codes = self._codes
        handler.isolated = self._isolated
        self._app.add(handler)
        return handler


def _retries(given: Retries | None) -> tuple[dict[type[BaseException], str], dict[str, Allowance]]:
    """Give the code of each exception, under which the log counts it, and what each code may cost."""
    codes: dict[type[BaseException], str] = {}
    allowances: dict[str, Allowance] = {}
    if not isinstance(given, Mapping | None):
        raise ValidationError(f"retries is a mapping, as in {{OSError: 3}}, not {given!r}")
    for error, allowed in dict[Any, Any](given or {}).items():
        if not isinstance(error, type) or not issubclass(error, BaseException):
            raise ValidationError(f"retries: {error!r} is no class of exceptions")
        if issubclass(error, NEVER_RETRIED):
            raise ValidationError(f"retries: {error.__name__} says by itself that there is no other attempt")
        codes[error] = _UNNAMED.sub("_", f"{error.__module__}.{error.__qualname__}".removeprefix("builtins."))
        allowances[codes[error]] = _allowance(f"retries of {error.__name__}", allowed)
    closest = next((each for each in TimeoutError.__mro__ if each in codes), None)
    if closest is not None:
        allowances["timeout"] = allowances[codes[closest]]  # of an attempt that took too long
    return codes, allowances


def _allowance(what: str, given: Any) -> Allowance:
    """Give what may fail, and when it is tried again. The first failure is no retry."""
    if isinstance(given, list | tuple):
        delays = tuple(microseconds(what, each) for each in given)
        limits.between(f"number of {what}", len(delays), 0, _DELAYS_MAX)
        return Allowance(max_failures=len(delays) + 1, delays=delays)
    limits.between(what, given, 0, limits.FAILURES_MAX - 1)
    return Allowance(max_failures=given + 1)
