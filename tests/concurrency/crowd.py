"""Many at once: threads, tasks and processes that begin together."""

import asyncio
import multiprocessing
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from threading import Barrier as ThreadBarrier
from threading import Event
from typing import Any, Final, TypeVar

from leftfold.core.errors import LeftfoldError

T = TypeVar("T")
U = TypeVar("U")

#: Nothing here takes that long; who waits longer waits for ever.
DEADLINE: Final = 120.0


def rounds(usual: int) -> int:
    """Say how often to repeat; LEFTFOLD_ROUNDS makes a longer campaign of it."""
    return usual * int(os.environ.get("LEFTFOLD_ROUNDS", "1"))


def outcome(act: Callable[..., T], *arguments: Any, **named: Any) -> T | LeftfoldError:
    """Give what the call gives, or the error that it raises."""
    try:
        return act(*arguments, **named)
    except LeftfoldError as refusal:
        return refusal


class Crowd:
    """Threads that are there already, and begin together each time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(count)
        self._barrier = ThreadBarrier(count)

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self._barrier.abort()
        self._threads.shutdown()

    def each(self, act: Callable[..., T], *arguments: Any) -> list[T | LeftfoldError]:
        """Let everybody act at once, by `act(place, *arguments)`, and give what came of it, in order."""

        def begin(place: int) -> T | LeftfoldError:
            self._barrier.wait(DEADLINE)
            return outcome(act, place, *arguments)

        return list(self._threads.map(begin, range(self.count)))

    def same(self, act: Callable[..., T], *arguments: Any, **named: Any) -> list[T | LeftfoldError]:
        """Let everybody make the very same call at once."""
        return self.each(lambda _: act(*arguments, **named))

    def duel(self, first: Callable[[], T], second: Callable[[], U]) -> tuple[T | LeftfoldError, U | LeftfoldError]:
        """Let two act against each other; the first one begins a moment earlier."""
        begun = Event()

        def begin() -> T | LeftfoldError:
            begun.set()
            return outcome(first)

        def follow() -> U | LeftfoldError:
            begun.wait(DEADLINE)
            return outcome(second)

        after, before = self._threads.submit(follow), self._threads.submit(begin)
        return before.result(DEADLINE), after.result(DEADLINE)


async def tasks(count: int, act: Callable[..., Awaitable[T]], *arguments: Any) -> list[T | LeftfoldError]:
    """Do the same with tasks of one loop."""
    begin = asyncio.Event()

    async def one(place: int) -> T | LeftfoldError:
        await begin.wait()
        try:
            return await act(place, *arguments)
        except LeftfoldError as refusal:
            return refusal

    waiting = [asyncio.create_task(one(place)) for place in range(count)]
    await asyncio.sleep(0)
    begin.set()
    return list(await asyncio.gather(*waiting))


def processes(count: int, act: Callable[..., T], *arguments: Any, libraries: Sequence[str] = ()) -> list[T]:
    """Run `act(place, barrier, *arguments)` in that many processes of their own, and give what each returned.

    They are started, not forked, so each chooses its SQLite library by the environment as it is now. With `libraries`
    they take these in turn.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count)
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    crew = [
        context.Process(target=_report, args=(pipe, act, place, barrier, *arguments), daemon=True)
        for place, (_, pipe) in enumerate(pipes)
    ]
    for place, process in enumerate(crew):
        with _library(libraries[place % len(libraries)] if libraries else None):
            process.start()
    for _, writing in pipes:
        writing.close()
    try:
        return [_reported(reading) for reading, _ in pipes]
    finally:
        for process in crew:
            process.kill()
            process.join()


@contextmanager
def _library(name: str | None) -> Iterator[None]:
    before = os.environ.get("LEFTFOLD_SQLITE", "")
    os.environ["LEFTFOLD_SQLITE"] = before if name is None else name
    try:
        yield
    finally:
        os.environ["LEFTFOLD_SQLITE"] = before


def _report(pipe: Connection, act: Callable[..., T], place: int, barrier: Barrier, *arguments: Any) -> None:
    try:
        pipe.send((act(place, barrier, *arguments), None))
    except BaseException:  # noqa: BLE001 - it is told to the parent, whatever it is
        pipe.send((None, traceback.format_exc()))


def _reported(pipe: Connection) -> Any:
    assert pipe.poll(DEADLINE), "a process takes too long"
    answer, problem = pipe.recv()
    assert problem is None, problem
    return answer


def eventually(is_so: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Poll until it is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be so"
        time.sleep(0.002)


def of_kind(outcomes: Sequence[object], kind: type[T]) -> list[T]:
    """Give those of the outcomes that are of a kind."""
    return [each for each in outcomes if isinstance(each, kind)]
