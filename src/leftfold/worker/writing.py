"""What came of attempts, and what they say meanwhile, written in groups.

Whatever is there goes with the next flush, and nothing waits for more. Only progress does: of what a handler says twice
within half a second, the last counts.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from leftfold.aengine import AsyncEngine
from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import LeaseConflictError, LeftfoldError, LimitExceededError, RefusedError, StoreError
from leftfold.core.lifecycle import LEASED
from leftfold.core.values import Failure
from leftfold.store.ops import Ask, Outcome
from leftfold.store.patience import pauses
from leftfold.store.replies import Claim
from leftfold.worker.attempt import Attempt
from leftfold.worker.clocks import now
from leftfold.worker.logs import about
from leftfold.worker.office import Office
from leftfold.worker.pulse import MARK_EVERY, Pulse

_LOG: Final = logging.getLogger("leftfold.worker")
_MOST: Final = 500
_SAY_EVERY: Final = 5.0
_PROGRESS_EVERY: Final = 0.5
_ANSWERED: Final = "what it waits for was answered meanwhile"


_Key = tuple[str, int]


def _key_of(claim: Claim) -> _Key:
    return claim.job_id, claim.attempt


class Ended(NamedTuple):
    """An attempt, and what is to be written about it."""

    attempt: Attempt
    command: c.AnyCommand


class Writer:
    """Writes the outcomes of all attempts of a worker."""

    def __init__(self, engine: Office | AsyncEngine, pulse: Pulse, written: Callable[[Sequence[Ended]], None]) -> None:
        self._engine = engine
        self._pulse = pulse
        self._written = written
        self._pending: list[Ended] = []
        self._notes: list[tuple[Claim, e.AnyNote]] = []
        self._progress: dict[_Key, tuple[Claim, e.Progress]] = {}
        self._said_at: dict[_Key, float] = {}
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

    def tell(self, claim: Claim, note: e.AnyNote) -> None:
        """Write this note with the next flush."""
        if not isinstance(note, e.Progress):
            self._notes.append((claim, note))
            self._wanted.set()
            return
        key = _key_of(claim)
        waits = key in self._progress
        self._progress[key] = claim, note
        if not waits:
            left = self._said_at.get(key, 0.0) + _PROGRESS_EVERY - now()
            if left <= 0:
                self._wanted.set()
            else:
                asyncio.get_running_loop().call_later(left, self._wanted.set)

    def forget(self, claims: Iterable[Claim]) -> None:
        """Keep nothing of attempts that are over."""
        if self._said_at or self._progress:
            for key in map(_key_of, claims):
                self._said_at.pop(key, None)
                self._progress.pop(key, None)

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
            again: list[Ended] = []
            try:
                await self._write_notes(self._ripe(batch))
                if batch:
                    again = await self._write(batch)
            finally:
                self._busy = 0
                if over := [ended for ended in batch if ended not in again] if again else batch:
                    self._written(over)
                if not self._pending:
                    self._empty.set()

    def _ripe(self, batch: list[Ended]) -> list[tuple[Claim, e.AnyNote]]:
        """Give the notes whose time has come: progress waits a moment, but not behind the end of its attempt."""
        notes, self._notes = self._notes[:_MOST], self._notes[_MOST:]
        ended = {_key_of(each.attempt.held.claim) for each in batch} if self._progress else set[_Key]()
        for key in list(self._progress):
            if key in ended or self._said_at.get(key, 0.0) + _PROGRESS_EVERY <= now():
                notes.append(self._progress.pop(key))
                self._said_at[key] = now()
        return notes

    async def _write_notes(self, notes: list[tuple[Claim, e.AnyNote]]) -> None:
        """Write notes. A refusal means that the job is somebody else's, or that it has said enough.

        Progress is written once, or not at all. Other notes are tried again before anything that comes behind them; of
        one whose answer was lost there may be two.
        """
        pause = pauses()
        while notes:
            try:
                outcomes = await self._engine.note_many(notes)
                break
            except StoreError as problem:
                self._pulse.failed("writing", problem)
                _LOG.warning("%d notes could not be written: %s", len(notes), problem)
                notes = [(claim, note) for claim, note in notes if not isinstance(note, e.Progress)]
            if notes:
                await asyncio.sleep(next(pause))
        else:
            return
        for (claim, note), outcome in zip(notes, outcomes, strict=True):
            if isinstance(outcome, LeftfoldError):
                _LOG.debug("job %s: %s was refused: %s", claim.job_id, note.wire, outcome, extra=about(claim))

    async def _write(self, batch: list[Ended]) -> list[Ended]:
        """Write a batch, again and again until the store answers: it knows best whose the jobs are by then.

        Gives those of which there is more to write.
        """
        pause, uncertain, say_at = pauses(), False, 0.0
        left, again = batch, list[Ended]()
        while True:
            asks = [Ask(ended.attempt.held.claim.job_id, ended.command) for ended in left]
            problem: StoreError | None = None
            outcomes: list[Outcome | None]
            try:
                outcomes = await self._engine.settle_quietly(asks)
                self._pulse.mark("writing")
            except StoreError as raised:
                problem, outcomes = raised, [raised] * len(left)
            if not any(outcomes):  # all of them are written, as nearly always
                return again
            unwritten: list[Ended] = []
            for ended, outcome in zip(left, outcomes, strict=True):
                if isinstance(outcome, StoreError):
                    problem = outcome
                    unwritten.append(ended)
                elif isinstance(outcome, LimitExceededError) and isinstance(ended.command, c.Release | c.Suspend):
                    again.append(ended)
                    error = Failure(code=outcome.code, message=str(outcome))
                    self.put(Ended(ended.attempt, c.Fail(by=ended.command.by, error=error, permanent=True)))
                elif isinstance(outcome, LeftfoldError):
                    self._refused(ended, outcome, uncertain=uncertain)
                elif outcome and isinstance(ended.command, c.Suspend) and outcome.state in LEASED:
                    # The answer came while the handler was unwound: it is to run again, with the answer.
                    again.append(ended)
                    self.put(Ended(ended.attempt, c.Release(by=ended.command.by, reason=_ANSWERED)))
            if problem is None:
                return again
            left, uncertain = unwritten, True
            self._pulse.failed("writing", problem)
            if now() >= say_at:
                _LOG.warning("%d outcomes could not be written, trying again: %s", len(left), problem)
                say_at = now() + _SAY_EVERY
            await asyncio.sleep(next(pause))

    def _refused(self, ended: Ended, refusal: LeftfoldError, *, uncertain: bool) -> None:
        claim, wire = ended.attempt.held.claim, ended.command.wire
        name, extra = f"job {claim.job_id}, attempt {claim.attempt}", about(claim)
        if uncertain and isinstance(refusal, RefusedError):
            _LOG.info("%s: the store has an outcome already: %s", name, refusal, extra=extra)
        elif isinstance(refusal, LeaseConflictError):
            _LOG.warning("%s was taken from this worker: its outcome (%s) does not count", name, wire, extra=extra)
        else:
            _LOG.error("%s: its outcome (%s) was refused: %s", name, wire, refusal, extra=extra)
