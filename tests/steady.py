"""Tests on real time count while the machine keeps it.

A worker cannot keep a lease of a second on a machine that stands still for two, and nothing is wrong with it then. So
while such tests run, somebody looks at the clock and writes a little to the disk. A test that fails while the machine
was held up is done again; one that fails while it kept time has failed.
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

#: The folders whose tests have leases, graces and patience of a second or so.
TIMED: Final = ("worker", "chaos")
#: Late by so much, and a lease of half a second, renewed at half of it, may be lost.
LATE: Final = 0.1
TRIES: Final = 4
_LOOK_EVERY: Final = 0.02


class Watch:
    """Tells how late the machine was at its latest, from the beginning of the block to its end."""

    def __init__(self) -> None:
        self.latest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with TemporaryFile() as file:
            while not self._over.is_set():
                begun = time.monotonic()
                self._over.wait(_LOOK_EVERY)
                os.pwrite(file.fileno(), b"tick", 0)
                os.fsync(file.fileno())
                self.latest = max(self.latest, time.monotonic() - begun - _LOOK_EVERY)


def is_timed(path: Path) -> bool:
    """Tell whether a test lies where real time counts."""
    return path.parent.name in TIMED


def tried(
    once: Callable[[], list[pytest.TestReport]], watch: Callable[[], Watch] = Watch
) -> tuple[list[pytest.TestReport], list[float]]:
    """Run a test, again if it failed while the machine was held up; gives its last reports, and the delays before."""
    held_up: list[float] = []
    while True:
        with watch() as seen:
            reports = once()
        if not any(report.failed for report in reports) or seen.latest < LATE or len(held_up) == TRIES - 1:
            return reports, held_up
        held_up.append(seen.latest)


def run(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Do what pytest does with one test, and say how often it took more than one."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports, held_up = tried(lambda: runtestprotocol(item, log=False, nextitem=nextitem))
    for report in reports:
        if held_up:
            report.sections.append(("held up", f"done again: the machine stood still for {held_up} s"))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
