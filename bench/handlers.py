"""The jobs that are run, the same for every system. They say when they ran in a file that the harness reads as well.

The file is memory that both processes see, so nobody asks anybody while a system is measured. It begins with how many
jobs ran, and when the first and the last of them began; then comes, for each job by its number, when it began.
Times are those of the machine's monotonic clock, in nanoseconds.
"""

import asyncio
import mmap
import os
import threading
import time
from typing import Final

PROBE: Final = "LEFTFOLD_BENCH_PROBE"
HEAD: Final = 3
NUMBERS: Final = 2_000_000  # a file with holes: what nobody writes takes no room
SIZE: Final = 8 * (HEAD + NUMBERS)
NAP: Final = 0.010

_times: memoryview | None = None
_turn = threading.Lock()


def probe(path: str) -> memoryview:
    """Open a probe, made if it is not there."""
    with open(path, "a+b") as file:
        file.truncate(SIZE)
        return memoryview(mmap.mmap(file.fileno(), SIZE)).cast("Q")


def _hit(number: int) -> None:
    global _times  # noqa: PLW0603 - the process has one, opened by the first job
    if _times is None:
        _times = probe(os.environ[PROBE])
    hit(_times, number)


def hit(times: memoryview, number: int) -> None:
    """Note that a job began."""
    now = time.monotonic_ns()
    with _turn:  # who has seen the count finds the times behind it
        times[HEAD + number] = now
        if times[0] == 0:
            times[1] = now
        times[2] = now
        times[0] += 1


async def noop(number: int) -> None:
    """Do nothing."""
    _hit(number)


def noop_sync(number: int) -> None:
    """Do nothing, in a thread."""
    _hit(number)


async def nap(number: int) -> None:
    """Wait for ten milliseconds, as for an answer from elsewhere."""
    _hit(number)
    await asyncio.sleep(NAP)


async def long(number: int) -> None:
    """Wait for longer than anybody measures."""
    _hit(number)
    await asyncio.sleep(3600)
