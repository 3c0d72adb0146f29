"""One process of a measured system: `python -m bench.side SYSTEM VERB URL …`, run by the harness.

It runs in the system's own environment, so it needs the standard library and the system, and nothing else. What it
found goes to its standard output, as a line of JSON.
"""

import asyncio
import inspect
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from bench import handlers
from bench.system import System, load

WARM: Final = 20  # jobs or batches before the clock begins: connections, plans, caches
LOOK_EVERY: Final = 0.01


class Clocked:
    """Numbers, or batches of them, for as long as there is time; it begins to count behind the first few."""

    def __init__(self, count: int, size: int, seconds: float, warm: int) -> None:
        self._count, self._size, self._seconds, self._warm = count, size, seconds, warm
        self.made = 0  # with the first few
        self.jobs = 0
        self.seconds = 0.0

    def batches(self) -> Iterator[list[int]]:
        """Give batches of numbers. When the next one is asked for, the last one is done."""
        begun, warmed = time.perf_counter(), 0
        for first in range(0, self._count, self._size):
            if first == self._warm * self._size:
                begun, warmed = time.perf_counter(), first
            elif first > self._warm * self._size and time.perf_counter() - begun > self._seconds:
                break
            batch = list(range(first, min(first + self._size, self._count)))
            yield batch
            self.made = batch[-1] + 1
            self.jobs = self.made - warmed
        self.seconds = time.perf_counter() - begun

    def numbers(self) -> Iterator[int]:
        """Give numbers, one after the other."""
        for (number,) in self.batches():
            yield number


def spaced(count: int, gap: float, times: memoryview) -> Iterator[int]:
    """Give numbers with a pause before each, so that whoever waits for them has gone idle; note when it was over."""
    for number in range(count):
        time.sleep(random.uniform(gap / 2, gap * 1.5))  # noqa: S311 - so that no poll falls into step
        times[handlers.HEAD + number] = time.monotonic_ns()
        yield number


def _await(given: Any) -> Any:
    async def awaited() -> Any:
        return await given

    return asyncio.run(awaited()) if inspect.isawaitable(given) else given


def _tell(**found: Any) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _enqueue(system: System, url: str, count: int, seconds: float) -> None:
    clocked = Clocked(count, 1, seconds, WARM)
    _await(system.enqueue(url, clocked.numbers()))
    _tell(made=clocked.made, jobs=clocked.jobs, seconds=clocked.seconds)


def _fill(system: System, url: str, count: int, size: int, seconds: float) -> None:
    clocked = Clocked(count, size, seconds, 2)
    _await(system.enqueue_many(url, clocked.batches()))
    _tell(made=clocked.made, jobs=clocked.jobs, seconds=clocked.seconds)


def _space(system: System, url: str, count: int, gap: float, probe: str) -> None:
    _await(system.enqueue(url, spaced(count, gap, handlers.probe(probe))))
    _tell(jobs=count)


def _watch(system: System, url: str, count: int) -> None:
    """Wait for a word, then until so many jobs are finished, and tell when that was seen."""
    finished = _await(system.finished(url))  # whatever it loads is loaded by now
    _tell(ready=finished)
    sys.stdin.readline()
    while finished < count:
        time.sleep(LOOK_EVERY)
        finished = _await(system.finished(url))
    _tell(at=time.monotonic_ns(), finished=finished)


def main(name: str, verb: str, url: str, *given: str) -> None:
    """Do one thing."""
    system = load(name)
    match verb, *given:
        case ["prepare"]:
            _await(system.prepare(url))
            _tell(prepared=True)
        case ["enqueue", count, seconds]:
            _enqueue(system, url, int(count), float(seconds))
        case ["fill", count, size, seconds]:
            _fill(system, url, int(count), int(size), float(seconds))
        case ["space", count, gap, probe]:
            _space(system, url, int(count), float(gap), probe)
        case ["work", handler, concurrency]:
            _await(system.work(url, getattr(handlers, handler), int(concurrency)))
        case ["watch", count]:
            _watch(system, url, int(count))
        case _:
            raise SystemExit(f"there is no verb {verb!r} with {len(given)} arguments")


if __name__ == "__main__":
    main(*sys.argv[1:])
