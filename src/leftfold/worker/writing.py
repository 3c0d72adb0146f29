"""What came of attempts, written in groups: whatever is there goes with the next flush, and nothing waits for more."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from leftfold.aengine import AsyncEngine
from leftfold.core import commands as c
from leftfold.core.errors import LeaseConflictError, LeftfoldError, RefusedError, StoreError
from leftfold.store.ops import Ask
from leftfold.store.patience import pauses
from leftfold.worker.attempt import Attempt
from leftfold.worker.clocks import now
from leftfold.worker.logs import about
from leftfold.worker.pulse import MARK_EVERY, Pulse

_LOG: Final = logging.getLogger("leftfold.worker")
_MOST: Final = 500
_SAY_EVERY: Final = 5.0


class Ended(NamedTuple):
    """An attempt, and what is to be written about it."""

    attempt: Attempt
    command: c.AnyCommand


class Writer:
    """Writes the outcomes of all attempts of a worker."""

    def __init__(self, engine: AsyncEngine, pulse: Pulse, written: Callable[[Attempt], None]) -> None:
        self._engine = engine
        self._pulse = pulse
        self._written = written
        self._pending: list[Ended] = []
        self._busy = 0
        self._wanted = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def unwritten(self) -> int:
        """How many outcomes are not written yet."""
        return len(self._pending) + self._busy

    def put(self, ended: Ended) -> None:
        """Write this with the next flush."""
        self._pending.append(ended)
        self._empty.clear()
        self._wanted.set()

    async def flushed(self) -> None:
        """Wait until everything is written."""
        await self._empty.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._pulse.mark("writing")
            with suppress(TimeoutError):
                async with asyncio.timeout(MARK_EVERY):  # wait_for may swallow a cancellation
                    await self._wanted.wait()
            batch, self._pending = self._pending[:_MOST], self._pending[_MOST:]
            self._busy = len(batch)
            if not self._pending:
                self._wanted.clear()
            try:
                if batch:
                    await self._write(batch)
            finally:
                self._busy = 0
                for ended in batch:
                    self._written(ended.attempt)
                if not self._pending:
                    self._empty.set()

    async def _write(self, batch: list[Ended]) -> None:
        """Write a batch, again and again until the store answers: it knows best whose the jobs are by then."""
        pause, uncertain, say_at = pauses(), False, 0.0
        asks = [Ask(ended.attempt.held.claim.job_id, ended.command) for ended in batch]
        while True:
            try:
                outcomes = await self._engine.settle_many(asks)
                self._pulse.mark("writing")
            except StoreError as problem:
                self._pulse.failed("writing", problem)
                if now() >= say_at:
                    _LOG.warning("%d outcomes could not be written, trying again: %s", len(batch), problem)
                    say_at = now() + _SAY_EVERY
                uncertain = True
                await asyncio.sleep(next(pause))
                continue
            for ended, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, LeftfoldError):
                    self._refused(ended, outcome, uncertain=uncertain)
            return

    def _refused(self, ended: Ended, refusal: LeftfoldError, *, uncertain: bool) -> None:
        claim, wire = ended.attempt.held.claim, ended.command.wire
        name, extra = f"job {claim.job_id}, attempt {claim.attempt}", about(claim)
        if uncertain and isinstance(refusal, RefusedError):
            _LOG.info("%s: the store has an outcome already: %s", name, refusal, extra=extra)
        elif isinstance(refusal, LeaseConflictError):
            _LOG.warning("%s was taken from this worker: its outcome (%s) does not count", name, wire, extra=extra)
        else:
            _LOG.error("%s: its outcome (%s) was refused: %s", name, wire, refusal, extra=extra)
