"""The keeper inside of every worker: takes jobs from owners whose leases ran out, ends waits whose time is up.

No leader is needed: the store lets only one of many keepers do each of these things. A clock of the database that
jumps ahead would make leases of the living run out. So a keeper compares it with a clock that nobody sets. A lease that
ran out while the two went alike has run out; one that had before, at a jump or when this keeper began to watch, is
judged a lease later: by then whoever lives has renewed it, or given it up by a clock of its own.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from leftfold.aengine import AsyncEngine
from leftfold.core.errors import LeftfoldError
from leftfold.store.replies import Receipt
from leftfold.worker.clocks import now
from leftfold.worker.office import Office
from leftfold.worker.pulse import Pulse

_LOG: Final = logging.getLogger("leftfold.keeper")
_EVERY: Final = 1.0
_MOST: Final = 100
_JUMP: Final = 2.0  # what a slow answer cannot explain


class ClockWatch:
    """Knows since when the store's clock goes as one does that nobody can set."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._since = 0.0

    def look(self, store_now: float, before: float, after: float) -> float:
        """Give the store's time from which on it did not jump. It was read between these two moments of ours."""
        if self._last is None:
            self._since = store_now
        else:
            store_then, then = self._last
            jump = (store_now - store_then) - (after - then)
            if jump > _JUMP:
                _LOG.warning("the store's clock jumped ahead by %.1f s: leases are given their time anew", jump)
                self._since = store_now
        self._since = min(self._since, store_now)  # it was set back: nothing ran out by that
        self._last = (store_now, before)
        return self._since


class Keeper:
    """Keeps house, once a second."""

    def __init__(
        self, engine: Office | AsyncEngine, pulse: Pulse, came_back: Callable[[], None] = lambda: None
    ) -> None:
        self._engine = engine
        self._pulse = pulse
        self._came_back = came_back  # jobs may be claimed again
        self._watch = ClockWatch()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            try:
                again = await self.once()
                self._pulse.mark("keeper")
            except LeftfoldError as problem:
                _LOG.warning("the keeper could not look, trying again: %s", problem)
                self._pulse.failed("keeper", problem)
                again = False
            await asyncio.sleep(0 if again else random.uniform(_EVERY / 2, _EVERY))  # noqa: S311 - nobody must guess it

    async def once(self) -> bool:
        """Look once; tells whether there may be more to do at once."""
        before = now()
        store_now = await self._engine.clock()
        since = self._watch.look(store_now, before, now())
        outcomes = await self._engine.reap(limit=_MOST, watched=(since, store_now), by=self._pulse.worker)
        changed = [outcome for outcome in outcomes if isinstance(outcome, Receipt) and outcome.changed]
        for outcome in changed:
            _LOG.info("job %s, attempt %d: taken from a silent owner, or its wait is over: it is %s",
                      outcome.job_id, outcome.attempt, outcome.state,
                      extra={"job_id": outcome.job_id, "attempt": outcome.attempt})  # fmt: skip
        if changed:
            self._came_back()
        return len(outcomes) == _MOST and bool(changed)  # what is refused now is refused in a moment, too
