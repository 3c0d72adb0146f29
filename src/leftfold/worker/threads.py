"""Threads for `def` handlers. They are daemons: one that hangs does not keep the process from ending."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Task = tuple[asyncio.Future[Any], Callable[[], Any], contextvars.Context]


class Threads:
    """As many threads as are busy at once, made when needed."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._idle = 0
        self._all = 0
        self._lock = threading.Lock()

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a function in a thread, with the context of the caller. To cancel the future does not stop it."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._all += 1
                threading.Thread(target=self._work, name=f"leftfold-handler-{self._all}", daemon=True).start()
        self._tasks.put((future, function, contextvars.copy_context()))
        return future

    def close(self) -> None:
        """Let the idle ones end."""
        for _ in range(self._all):
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, function, context = task
            try:
                given, problem = context.run(function), None
            except BaseException as raised:  # noqa: BLE001 - SystemExit, too, is the job's failure and not the worker's
                given, problem = None, raised
            with self._lock:
                self._idle += 1
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, given, problem)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more
            del task, future, function, context, given, problem  # nothing of a job stays while the thread is idle


def _settle(future: asyncio.Future[Any], given: Any, problem: BaseException | None) -> None:
    if future.done():
        return  # nobody waits any more
    if problem is None:
        future.set_result(given)
    elif isinstance(problem, StopIteration):  # a future takes none
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(problem)
