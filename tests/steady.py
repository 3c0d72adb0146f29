"""Tests on real time count while the machine keeps it.

A worker cannot keep a lease of a second on a machine that stands still for two, and nothing is wrong with it then. So
while such tests run, somebody looks at the clock and writes a little to the disk: a process of its own, which nothing
but the machine holds up. A test that fails while that was so is done again, and told at the end; one that fails while
the machine kept time has failed.
"""

import atexit
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, NamedTuple, Protocol

import pytest
from _pytest.runner import runtestprotocol

#: The folders whose tests have leases, graces and patience of a second or so.
TIMED: Final = ("worker", "chaos")
#: Late by so much, and a lease of half a second, renewed at half of it, may be lost.
LATE: Final = 0.1
TRIES: Final = 4
_PATIENCE: Final = 60.0
_SECTION: Final = "held up"

#: Writes a line for each look, until whoever started it is gone: when that was over, and by how much it was late.
_WATCH: Final = """
import os, tempfile, time
parent = os.getppid()
with tempfile.TemporaryFile() as disk:
    while os.getppid() == parent:
        begun = time.monotonic()
        time.sleep(0.02)
        os.pwrite(disk.fileno(), b"tick", 0)
        os.fsync(disk.fileno())
        over = time.monotonic()
        print(over, over - begun - 0.02, flush=True)
"""


class Looks(Protocol):
    """Tells by how much the machine was late at its latest since then."""

    def latest(self, since: float) -> float:
        """Give it in seconds; 0 if it kept time, or nearly so."""


class Watch(NamedTuple):
    """A process that looks, and what it writes to."""

    process: "subprocess.Popen[bytes]"
    seen: Path

    def latest(self, since: float) -> float:
        asked = time.monotonic()
        looks = self.looks()
        while looks[-1][0] < asked and time.monotonic() < asked + _PATIENCE:  # it may be held up at this very moment
            time.sleep(0.01)
            looks = self.looks()
        late = max((late for over, late in looks if over >= since), default=0.0)
        return late if late > LATE else 0.0

    def looks(self) -> list[tuple[float, float]]:
        """Give what it saw so far, line by line; of the last one a part may be there."""
        lines = self.seen.read_text().rpartition("\n")[0].splitlines()
        return [(float(over), float(late)) for over, late in map(str.split, lines)]


@contextmanager
def watching() -> Iterator[Watch]:
    """Let somebody look while the block lasts."""
    with NamedTemporaryFile(prefix="leftfold-watch-") as seen:
        process = subprocess.Popen([sys.executable, "-c", _WATCH], stdout=seen)
        watch = Watch(process, Path(seen.name))
        try:
            while not watch.looks():
                time.sleep(0.01)  # it starts
            yield watch
        finally:
            process.kill()
            process.wait()


@cache
def the_watch() -> Watch:
    """Give the one of this test process: it ends with it."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(watching())


def is_timed(path: Path) -> bool:
    """Tell whether a test lies where real time counts."""
    return path.parent.name in TIMED


def tried(once: Callable[[], list[pytest.TestReport]], watch: Looks) -> tuple[list[pytest.TestReport], list[str]]:
    """Run a test, again if it failed while the machine was held up; gives its last reports, and what was before."""
    before: list[str] = []
    while True:
        begun = time.monotonic()
        reports = once()
        failed = [report for report in reports if report.failed]
        late = watch.latest(begun) if failed else 0.0
        if not late or len(before) == TRIES - 1:
            return reports, before
        before.append(f"failed while the machine stood still for {late:.2f} s:\n{failed[0].longreprtext}")


def run(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Do what pytest does with one test."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports, before = tried(lambda: runtestprotocol(item, log=False, nextitem=nextitem), the_watch())
    for report in reports:
        if report.when == "call":
            report.sections += [(_SECTION, text) for text in before]
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def told(reports: list[pytest.TestReport]) -> Iterator[str]:
    """Say which tests passed only when they were done again, and how they had failed."""
    for report in reports:
        for title, text in report.sections:
            if title == _SECTION:
                yield f"{report.nodeid} {text}"
