"""Several worker processes under one parent, which passes signals on and starts anew what crashed."""

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

_LOG: Final = logging.getLogger("leftfold.worker")
_LOOK_EVERY: Final = 0.2
_PAUSE_FIRST: Final = 0.5
_PAUSE_MOST: Final = 30.0
_WELL_AFTER: Final = 60.0  # who ran so long crashes for a new reason
_PARENT: Final = "LEFTFOLD_WORKER_PARENT"


def is_child() -> bool:
    """Tell whether this process is one of several under a parent; if so, leave with the parent, however it ends."""
    parent = os.environ.pop(_PARENT, None)  # what our handlers start are no children of it
    if parent is None:
        return False

    def follow() -> None:
        while os.getppid() == int(parent):
            time.sleep(_LOOK_EVERY)
        _LOG.warning("the parent is gone: leaving as well")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, name="leftfold-follow", daemon=True).start()
    return True


class _Child:
    """A place for a process, and what became of those that were in it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.start_at = 0.0
        self._began = 0.0
        self._pause = _PAUSE_FIRST

    def start(self) -> None:
        self._began = time.monotonic()
        surroundings = {**os.environ, _PARENT: str(os.getpid())}
        # In a group of its own: else Ctrl-C would reach it twice, from the terminal and from us, and stop it at once.
        self.process = subprocess.Popen(self._command, env=surroundings, process_group=0)  # noqa: S603 - this very command

    def crashed(self, code: int) -> None:
        if time.monotonic() - self._began > _WELL_AFTER:
            self._pause = _PAUSE_FIRST
        _LOG.error("a worker process ended with code %d: the next one starts in %.1f s", code, self._pause)
        self.process, self.start_at = None, time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _PAUSE_MOST)


class Processes:
    """The parent of some workers."""

    def __init__(self, count: int, command: Sequence[str], *, until_idle: bool = False) -> None:
        self._children = [_Child(command) for _ in range(count)]
        self._until_idle = until_idle
        self._stopping = False
        self._signals: list[int] = []

    def run(self) -> None:
        """Run until a signal, or until all workers ended by themselves. Passes every signal on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        while self._children:
            while self._signals:
                self._pass_on(self._signals.pop(0))
            for child in list(self._children):
                self._look_after(child)
            time.sleep(_LOOK_EVERY)

    def _look_after(self, child: _Child) -> None:
        if child.process is None:
            if self._stopping:
                self._children.remove(child)
            elif time.monotonic() >= child.start_at:
                child.start()
            return
        code = child.process.poll()
        if code is not None and (self._stopping or (code == 0 and self._until_idle)):
            self._children.remove(child)
        elif code == 0:  # somebody recycles one of them
            child.start()
        elif code is not None:
            child.crashed(code)

    def _note(self, number: int, _: FrameType | None) -> None:
        """Pass it on soon, but not in the middle of a start: a child that nobody knows yet would miss it."""
        self._signals.append(number)

    def _pass_on(self, number: int) -> None:
        self._stopping = True
        for child in self._children:
            if child.process is not None:
                with suppress(ProcessLookupError):
                    child.process.send_signal(number)
