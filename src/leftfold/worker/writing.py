"""What came of attempts, written in groups: whatever is there goes with the next flush, and nothing waits for more."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from leftfold.aengine import AsyncEngine
from leftfold.core import commands as c
from leftfold.core.errors import LeaseConflictError, LeftfoldError, RefusedError, StoreError
from leftfold.store.ops import Ask
from leftfold.store.patience import pauses
from leftfold.worker.attempt import Attempt
from leftfold.worker.clocks import now
from leftfold.worker.pulse import Pulse

_LOG: Final = logging.getLogger("leftfold.worker")
_MOST: Final = 500


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
            await self._wanted.wait()
            batch, self._pending = self._pending[:_MOST], self._pending[_MOST:]
            self._busy = len(batch)
            if not self._pending:
                self._wanted.clear()
            try:
                await self._write(batch)
            finally:
                self._busy = 0
                for ended in batch:
                    self._written(ended.attempt)
                if not self._pending:
                    self._empty.set()

    async def _write(self, batch: list[Ended]) -> None:
        """Write a batch, again and again if the store does not answer, as long as any of it is still ours."""
        pause, uncertain = pauses(), False
        while True:
            batch = [ended for ended in batch if ended.attempt.held.deadline > now()] if uncertain else batch
            try:
                outcomes = await self._engine.settle_many([Ask(e.attempt.held.claim.job_id, e.command) for e in batch])
            except StoreError as problem:
                _LOG.warning("%d outcomes could not be written, trying again: %s", len(batch), problem)
                uncertain = True
                await asyncio.sleep(next(pause))
                if not batch:
                    return
                continue
            for ended, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, LeftfoldError):
                    self._refused(ended, outcome, uncertain=uncertain)
            return

    def _refused(self, ended: Ended, refusal: LeftfoldError, *, uncertain: bool) -> None:
        name = f"job {ended.attempt.held.claim.job_id}, attempt {ended.attempt.held.claim.attempt}"
        if uncertain and isinstance(refusal, RefusedError):
            _LOG.info("%s: the store has an outcome already: %s", name, refusal)
        elif isinstance(refusal, LeaseConflictError):
            _LOG.warning("%s was taken from this worker: its outcome (%s) does not count", name, ended.command.wire)
        else:
            _LOG.error("%s: its outcome (%s) was refused: %s", name, ended.command.wire, refusal)
