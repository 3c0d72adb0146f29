"""SIGTERM and SIGINT: the first lets a worker leave, the second stops it now, also where a handler blocks the loop."""

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

from leftfold.app.context import current_or_none

F = TypeVar("F", bound=Callable[..., Any])

_HEEDED: Final = (signal.SIGTERM, signal.SIGINT)
#: Ours, but with nothing in it that must not be cut short: users' code may stand below it.
_CLEAR: Final = ("leftfold.app.depends", "leftfold.app.handler", "leftfold.app.signature", "leftfold.app.wire")


class Signals:
    """Signals, for as long as a loop runs. A loop's own handlers would end before the loop does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self._loop, self._stop = loop, stop
        self._heard = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there are signals heard
            self._before = {number: signal.signal(number, self._heed) for number in _HEEDED}
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _heed(self, _number: int, frame: FrameType | None) -> None:
        self._heard += 1
        with suppress(RuntimeError):  # it is closed: that is what the signal asks for
            self._loop.call_soon_threadsafe(self._stop)
        if self._heard > 1 and (user := _caller_of_user(frame)) is not None:
            user.cut_short()
            raise asyncio.CancelledError  # into whatever users' code stands there


#: The functions of ours that call what users wrote, by their code; whose they are can be cut short.
_CALLERS: Final[set[CodeType]] = set()


def calls_users(function: F) -> F:
    """Mark a method from which users' code is called on the loop. Its object has a `cut_short()`."""
    _CALLERS.add(function.__code__)
    return function


#: The functions of ours that run the loop.
_LOOPS: Final[set[CodeType]] = set()


def runs_the_loop(function: F) -> F:
    """Mark a function below which there is nothing of ours but the loop."""
    _LOOPS.add(function.__code__)
    return function


def _caller_of_user(frame: FrameType | None) -> Any:
    """Give whoever called the code that runs, if that is users' code: our own is not to be torn from its work."""
    innermost = frame
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("leftfold.") and module not in _CLEAR:
            if frame is innermost:
                return None
            if frame.f_code in _CALLERS:
                return frame.f_locals.get("self")
            # Behind the loop itself: a task that a handler began. It knows whose it is.
            return current_or_none() if frame.f_code in _LOOPS else None
        frame = frame.f_back
    return None
