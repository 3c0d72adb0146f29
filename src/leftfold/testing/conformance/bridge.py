"""An AsyncEngine that is called like an Engine: each coroutine runs on one loop, on a thread of its own."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from threading import Thread
from typing import Any, TypeVar

import leftfold

T = TypeVar("T")


class Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="conformance-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and wait for its answer."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Stop the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """Something async, called like its sync twin."""

    def __init__(self, inner: leftfold.AsyncEngine, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.isasyncgenfunction(found):
            return lambda *arguments, **named: self._stepping(found(*arguments, **named))
        return self._blocking(found) if inspect.iscoroutinefunction(found) else found

    def _blocking(self, method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
        return lambda *arguments, **named: self._loop.run(method(*arguments, **named))

    def _stepping(self, steps: AsyncIterator[T]) -> Iterator[T]:
        """Ask an async iterator for one item at a time, each when it is wanted, as a sync one would be."""
        while True:
            try:
                item = self._loop.run(_next(steps))
            except StopAsyncIteration:
                return
            yield item


async def _next(steps: AsyncIterator[T]) -> T:
    return await anext(steps)
