"""Taking jobs: as many as there is room for, as soon as somebody says that there are some, and now and then anyway."""

import asyncio
import logging
import random
from contextlib import suppress
from typing import Final, NamedTuple

from leftfold.aengine import AsyncEngine
from leftfold.core.errors import OutcomeUnknownError, StoreError
from leftfold.core.lifecycle import State
from leftfold.store.replies import Claim, Count
from leftfold.worker.clocks import now
from leftfold.worker.crew import Crew
from leftfold.worker.pulse import MARK_EVERY, Pulse

_LOG: Final = logging.getLogger("leftfold.worker")
_MOST: Final = 500
_AGAIN: Final = 1.0
_MARGIN: Final = 0.001  # two clocks that nobody compared
#: Behind claims that found nothing: whatever anybody writes may wake us, mostly for nothing.
_BREATHS: Final = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016)
#: A job that another worker runs may come back: it may die.
_UNSETTLED: Final = frozenset({State.RETRYING, State.CLAIMED, State.RUNNING})


class Wishes(NamedTuple):
    """Which jobs a worker takes, how often it looks, and whether it ends when there are none."""

    queues: list[str] | None
    kinds: list[str]
    poll: float
    until_idle: bool


class Claimer:
    """The loop that claims. The next jobs are on their way while those that came begin.

    One claim at a time: two at once would spend most of their time on passing over what the other one takes.
    """

    def __init__(self, engine: AsyncEngine, crew: Crew, pulse: Pulse, wishes: Wishes) -> None:
        self._engine = engine
        self._crew = crew
        self._pulse = pulse
        self._wishes = wishes
        crew.wakes_when_empty = wishes.until_idle
        self._stopped = False
        self._promised = 0  # room for what has not begun yet
        self._plenty = False  # the last claim gave all that was asked for
        self._problem: BaseException | None = None
        self._was_woken = False
        self._in_vain = 0  # how often in a row we were woken, and found nothing

    def stop(self) -> None:
        """Claim no more. A claim that is on its way comes to its end: cancelled, it might give jobs to nobody."""
        self._stopped = True
        self._crew.woken.set()
        self._crew.freed.set()

    async def run(self) -> None:
        """Go on until stopped, or until there is nothing left to do if that is wished."""
        while not self._stopped:
            self._crew.woken.clear()
            self._crew.freed.clear()
            try:
                if await self._once():
                    break
            except StoreError as problem:
                self._failed(problem)
                await asyncio.sleep(random.uniform(_AGAIN / 2, _AGAIN))  # noqa: S311 - nobody must guess it
        if self._problem is not None:
            raise self._problem

    def _failed(self, problem: StoreError) -> None:
        self._pulse.failed("claiming", problem)
        lost = isinstance(problem, OutcomeUnknownError)  # what it may have taken comes back behind the lease
        _LOG.warning("%s: %s", "the answer to a claim was lost" if lost else "no jobs can be claimed", problem)

    async def _once(self) -> bool:
        """Claim once, and wait if there was not enough; tells whether to end."""
        room, asked_at = min(self._crew.room - self._promised, _MOST), now()
        # Before the claim, not behind it: what comes back in between is then claimed, and not left behind.
        is_idle = self._crew.is_empty and not self._promised
        settled = self._wishes.until_idle and is_idle and await self._is_settled()
        if room <= 0:
            await self._wait(self._crew.freed, self._look())
            return False
        taken = await self._take(room)
        if not taken and settled:
            return True
        had_plenty, self._plenty = self._plenty, taken == room
        if taken < room and not had_plenty:  # behind a full claim, the store looks at one lane only
            await self._rest(asked_at, found_any=taken > 0)
        return False

    async def _rest(self, asked_at: float, *, found_any: bool) -> None:
        """Wait until there may be more: all that was due when we asked has been taken."""
        self._in_vain = self._in_vain + 1 if self._was_woken and not found_any else 0
        await asyncio.sleep(_BREATHS[min(self._in_vain, len(_BREATHS) - 1)])
        if not self._stopped:
            self._was_woken = await self._wait(self._crew.woken, await self._patience(asked_at))

    async def _take(self, limit: int) -> int:
        """Claim so many at most, and give how many they are. Where there are more, they begin behind the next claim."""
        asked_at = now()
        claims = await self._engine.claim(
            self._pulse.worker, queues=self._wishes.queues, kinds=self._wishes.kinds, limit=limit, start=True
        )
        self._promised += len(claims)
        if len(claims) == limit and not self._stopped:
            asyncio.get_running_loop().call_soon(self._begin, claims, asked_at)
        elif claims:
            self._begin(claims, asked_at)
        self._pulse.mark("claiming")
        return len(claims)

    def _begin(self, claims: list[Claim], asked_at: float) -> None:
        self._promised -= len(claims)
        try:
            self._crew.begin_all(claims, asked_at)
        except BaseException as problem:  # noqa: BLE001 - it is raised where somebody hears it
            self._problem = problem
            self.stop()

    async def _wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for this, or for so long; tells which. However long it is, say now and then that the loop lives."""
        until = now() + seconds
        while not event.is_set() and (left := until - now()) > 0:
            self._pulse.mark("claiming")
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, MARK_EVERY)):  # wait_for may swallow a cancellation
                    await event.wait()
        return event.is_set()

    def _look(self) -> float:
        return random.uniform(self._wishes.poll / 2, self._wishes.poll)  # noqa: S311 - nobody must guess it

    async def _patience(self, asked_at: float) -> float:
        """Give how long to wait to be woken: until the next job is due, but no longer than until the next look."""
        due = await self._engine.next_due(self._wishes.queues, lately=now() - asked_at + _MARGIN)
        return self._look() if due is None else min(self._look(), due)

    async def _is_settled(self) -> bool:
        """Tell whether nothing runs elsewhere, and no attempt will be tried again before somebody looks."""
        queues = self._wishes.queues
        paused = {queue.name for queue in await self._engine.queues() if queue.paused_at is not None}
        unsettled = [
            count
            for count in await self._engine.counts()
            if count.jobs and count.state in _UNSETTLED and count.kind in self._wishes.kinds
            if queues is None or count.queue in queues
            if not (count.state is State.RETRYING and count.queue in paused)
        ]
        for count in unsettled:
            if not await self._are_frozen(count):
                return False
        return True

    async def _are_frozen(self, count: Count) -> bool:
        """Tell whether nobody touches these jobs until somebody has looked at them."""
        after = None
        while True:
            page = await self._engine.list(states=count.state, queue=count.queue, kind=count.kind, after=after)
            if not all(job.frozen for job in page.jobs):
                return False
            after = page.next
            if after is None:
                return True
