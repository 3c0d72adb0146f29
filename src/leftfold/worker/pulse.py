"""When each loop of a worker last ran: what it tells the store of itself, so that a dead loop is seen."""

import os
import platform
import socket
from typing import Any, Final

from leftfold.worker.clocks import now
from leftfold.worker.suspects import Suspects

#: So often a loop says that it lives, also where there is nothing to do.
MARK_EVERY: Final = 5.0
_TEXT_MOST: Final = 500
_LOOPS: Final = ("claiming", "deadlines", "keeper", "renewals", "writing")


class Pulse:
    """Marks of the loops of one worker."""

    def __init__(self, worker: str, about: dict[str, Any]) -> None:
        self.worker = worker
        self.suspects = Suspects()
        self._about = {"host": socket.gethostname(), "pid": os.getpid(), "python": platform.python_version(), **about}
        self._marks = dict.fromkeys(_LOOPS, now())  # from the start: one that never runs is silent, not unknown
        self._errors: dict[str, str] = {}
        self._running = 0
        self._done = 0
        self._starved = 0.0

    def mark(self, loop: str) -> None:
        """Say that a loop did what it is for."""
        self._marks[loop] = now()
        self._errors.pop(loop, None)

    def failed(self, loop: str, problem: Exception) -> None:
        """Say that it could not."""
        self._errors[loop] = str(problem)[:_TEXT_MOST]

    def entered(self, attempts: int) -> None:
        """Count attempts in."""
        self._running += attempts

    def left(self, attempts: int) -> None:
        """Count them out."""
        self._running -= attempts
        self._done += attempts

    def starved(self, seconds: float) -> None:
        """Note how long nothing but one handler ran."""
        self._starved = max(self._starved, seconds)

    def told(self) -> dict[str, Any]:
        """Give what the store is told: the age of each loop's last run, in seconds."""
        moment = now()
        return {
            **self._about,
            "running": self._running,
            "done": self._done,
            "starved": round(self._starved, 1),
            "suspects": self.suspects.told(),
            "errors": dict(self._errors),
            "loops": {loop: round(moment - at, 1) for loop, at in sorted(self._marks.items())},
        }
