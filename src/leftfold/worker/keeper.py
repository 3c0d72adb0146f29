"""The keeper inside of every worker: takes jobs from owners whose leases ran out, ends waits whose time is up.

No leader is needed: the store lets only one of many keepers do each of these things. A clock of the database that
jumps ahead would make leases of the living run out. So a keeper compares it with a clock that nobody sets, and holds
off for as long as the jump was: by then whoever lives has renewed.
"""

import asyncio
import logging
import random
from typing import Final

from leftfold.aengine import AsyncEngine
from leftfold.core.errors import LeftfoldError
from leftfold.store.replies import Receipt
from leftfold.worker.clocks import now
from leftfold.worker.pulse import Pulse

_LOG: Final = logging.getLogger("leftfold.keeper")
_EVERY: Final = 1.0
_MOST: Final = 100
_JUMP: Final = 2.0  # what a slow answer cannot explain
_HOLD_MOST: Final = 600.0


class ClockGuard:
    """Notices that the store's clock was set ahead, by a clock that cannot be set."""

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self._hold_until = 0.0

    def allows(self, store_now: float, before: float, after: float) -> bool:
        """Tell whether leases may be judged. The store's clock was read between the two moments of ours."""
        if self._last is not None:
            store_then, then = self._last
            jump = (store_now - store_then) - (after - then)
            if jump > _JUMP:
                self._hold_until = max(self._hold_until, after) + min(jump, _HOLD_MOST)
                _LOG.warning("the store's clock jumped ahead by %.1f s: no lease is judged for as long", jump)
        self._last = (store_now, before)
        return after >= self._hold_until


class Keeper:
    """Keeps house, once a second."""

    def __init__(self, engine: AsyncEngine, pulse: Pulse) -> None:
        self._engine = engine
        self._pulse = pulse
        self._guard = ClockGuard()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            self._pulse.mark("keeper")
            try:
                again = await self.once()
            except LeftfoldError as problem:
                _LOG.warning("the keeper could not look, trying again: %s", problem)
                again = False
            await asyncio.sleep(0 if again else random.uniform(_EVERY / 2, _EVERY))  # noqa: S311 - nobody must guess it

    async def once(self) -> bool:
        """Look once; tells whether there may be more to do at once."""
        before = now()
        store_now = await self._engine.clock()
        if not self._guard.allows(store_now, before, now()):
            return False
        outcomes = await self._engine.reap(limit=_MOST, by=self._pulse.worker)
        changed = [outcome for outcome in outcomes if isinstance(outcome, Receipt) and outcome.changed]
        for outcome in changed:
            _LOG.info("job %s, attempt %d: taken from a silent owner, or its wait is over: it is %s",
                      outcome.job_id, outcome.attempt, outcome.state,
                      extra={"job_id": outcome.job_id, "attempt": outcome.attempt})  # fmt: skip
        return len(outcomes) == _MOST and bool(changed)  # what is refused now is refused in a moment, too
