"""What a worker writes in several statements, each time from a thread.

A handler that blocks the event loop would stop a transaction in the middle that the loop drives: its locks would stay,
and the renewals would wait for them, and every keeper.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from leftfold.core import events as e
from leftfold.engine import Engine
from leftfold.store.ops import Ask, Outcome
from leftfold.store.replies import Claim

P = ParamSpec("P")
T = TypeVar("T")

#: One for the outcomes, one for the keeper. The engine behind it needs as many connections.
THREADS: Final = 2


class Office:
    """An engine, worked with by threads of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="leftfold-office")

    async def settle_quietly(self, asks: Iterable[Ask]) -> list[Outcome | None]:
        """Write what came of many attempts, without receipts of what went well."""
        return await self._do(self._engine.settle_quietly, list(asks))

    async def note_many(self, notes: Iterable[tuple[Claim, e.AnyNote]]) -> list[Outcome]:
        """Put notes on many logs."""
        return await self._do(self._engine.note_many, list(notes))

    async def clock(self) -> float:
        """Give the store's time."""
        return await self._do(self._engine.clock)

    async def reap(self, *, limit: int, watched: tuple[float, float], by: str) -> list[Outcome]:
        """Take jobs from owners whose leases ran out, and end waits whose deadlines passed."""
        return await self._do(self._engine.reap, limit=limit, watched=watched, by=by)

    async def _do(self, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(call, *given, **named))

    def close(self) -> None:
        """Let what is under way come to its end, and close the engine behind it."""
        self._threads.submit(self._engine.close)
        self._threads.shutdown(wait=False)
