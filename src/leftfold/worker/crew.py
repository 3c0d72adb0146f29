"""The attempts that run, and the room for more."""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from leftfold.aengine import AsyncEngine
from leftfold.app.context import Context, SyncContext
from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.values import CancelMode
from leftfold.store.replies import Claim
from leftfold.worker.attempt import Attempt, Stop
from leftfold.worker.cells import Cells
from leftfold.worker.desk import Desk
from leftfold.worker.garbage import collect_young
from leftfold.worker.isolated import IsolatedAttempt
from leftfold.worker.lease import Held, Leases
from leftfold.worker.logs import about
from leftfold.worker.office import Office
from leftfold.worker.pulse import Pulse
from leftfold.worker.threads import Threads
from leftfold.worker.writing import Ended, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leftfold.app.app import App
    from leftfold.engine import Engine

_LOG: Final = logging.getLogger("leftfold.worker")


class Crew:
    """Everything that is at work, from its claim until its outcome is written."""

    def __init__(
        self,
        app: "App",
        engine: AsyncEngine,
        office: Office,
        open_engine: "Callable[[], Engine]",
        pulse: Pulse,
        *,
        size: int,
        state: Any,
        cancel_grace: float,
        look_every: float,
    ) -> None:
        self._app, self._pulse, self._size, self._state = app, pulse, size, state
        self._suspects = pulse.suspects
        self._cancel_grace = cancel_grace
        self._attempts: dict[Held, Attempt] = {}
        self._leaked = 0  # threads that go on although their attempts are over
        self._threads = Threads()
        self._cells = Cells(app)
        self.woken = asyncio.Event()  # there may be something to do
        self.freed = asyncio.Event()  # there is room for more
        self.wakes_when_empty = False  # for a worker that ends when there is nothing to do
        self.writer = Writer(office, pulse, self._told)
        self._desk = Desk(engine, self.writer)
        loop = self._desk.loop
        self.leases = Leases(
            open_engine,
            pulse,
            look_every=look_every,
            cancel_grace=cancel_grace,
            lost=lambda held, why: _tell(loop, self._lose, held, why),
            asked_to_stop=lambda held: _tell(loop, self._ask_to_stop, held),
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs, and everything is written."""
        return not self._attempts

    @property
    def room(self) -> int:
        """How many more may run. What is not written yet takes room as well, once it is as much as may run."""
        unwritten = self.writer.unwritten
        running = len(self._attempts) - unwritten + self._leaked
        return self._size - running - max(0, unwritten - self._size)

    def begin_all(self, claims: "Sequence[Claim]", asked_at: float) -> None:
        """Enter the handlers of jobs that were just claimed, and started with that."""
        for claim in claims:  # first all: a job that is new may do what brought down the one that was lost
            if claim.lost:
                self._suspects.accuse(claim.kind)
        attempts = [self._attempt(claim, asked_at) for claim in claims]
        self._pulse.entered(len(attempts))
        self.leases.hold([attempt.held for attempt in attempts])
        loop = self._desk.loop
        for attempt in attempts:
            self._attempts[attempt.held] = attempt
            claim = attempt.held.claim
            attempt.task = loop.create_task(self._run(attempt), name=f"{claim.kind} {claim.job_id}")

    def _attempt(self, claim: Claim, asked_at: float) -> Attempt:
        handler = self._app.handlers[claim.kind]
        context = (Context if handler.is_async else SyncContext)(self._app, claim, self._desk, self._state)
        held = Held(claim, asked_at, context.stop)
        if handler.isolated or claim.lost or claim.kind in self._suspects:
            return IsolatedAttempt(handler, held, context, self._threads, cells=self._cells, desk=self._desk)
        return Attempt(handler, held, context, self._threads)

    async def _run(self, attempt: Attempt) -> None:
        try:
            command = await attempt.run(self._app.middlewares)
        except BaseException as problem:  # noqa: BLE001 - a GeneratorExit out of a future closes whoever awaits it
            command = attempt.failed(problem)
        if attempt.has_died:
            self._suspects.convict(attempt.held.claim.kind)
        if attempt.held.claim.lost:
            self._suspects.acquit(attempt.held.claim.kind)
        attempt.held.has_ended = True
        if attempt.thread is not None and not attempt.thread.done():
            _LOG.warning("its thread goes on, and takes up room until it ends: let it look at ctx.cancelled")
            self._leaked += 1
            attempt.thread.add_done_callback(self._returned)
        if command is None:
            self._over([attempt])
        else:
            self.writer.put(Ended(attempt, command))
            self.freed.set()  # what is to be written takes no room as yet: the next are claimed meanwhile

    def _returned(self, thread: asyncio.Future[Any]) -> None:
        thread.exception()  # seen: its attempt is over, whatever it says now
        self._let_go(thread)

    def _told(self, written: "Sequence[Ended]") -> None:
        self._over([ended.attempt for ended in written])
        if any(not isinstance(ended.command, c.Complete) for ended in written):
            self.woken.set()  # it may be claimed again, at once or in a while
        if any(isinstance(ended.command, c.Fail) for ended in written):
            collect_young()

    def _over(self, attempts: "Sequence[Attempt]") -> None:
        self.leases.drop(attempt.held for attempt in attempts)
        self.writer.forget(attempt.held.claim for attempt in attempts)
        self._pulse.left(sum(self._attempts.pop(attempt.held, None) is not None for attempt in attempts))
        self.freed.set()
        if self.wakes_when_empty and self.is_empty:
            self.woken.set()

    # --- stopping ---------------------------------------------------------------------------------------------------

    def _lose(self, held: Held, why: str) -> None:
        attempt = self._attempts.get(held)
        if attempt is not None and not attempt.has_ended:  # else the store judges its outcome
            extra = about(held.claim)
            _LOG.warning("job %s, attempt %d is lost: %s", held.claim.job_id, held.claim.attempt, why, extra=extra)
            attempt.stop(Stop.LOST)

    def _ask_to_stop(self, held: Held) -> None:
        attempt = self._attempts.get(held)
        if attempt is None or attempt.stopped is not None or attempt.has_ended:
            return
        _LOG.info("asked to stop: somebody cancelled the job", extra=about(held.claim))
        held.was_told = True
        self.writer.tell(held.claim, e.CancelDelivered())
        attempt.stop(Stop.ASKED)
        self._desk.loop.call_later(self._cancel_grace, self._force, attempt)

    def _force(self, attempt: Attempt) -> None:
        """Cancel a job without its handler, which was asked to stop, and did not."""
        if attempt.has_ended or attempt.stopped is not Stop.ASKED or attempt.held not in self._attempts:
            return
        claim = attempt.held.claim
        reason = f"the handler did not stop within {self._cancel_grace:g} s"
        _LOG.warning("job %s, attempt %d is cancelled: %s", claim.job_id, claim.attempt, reason, extra=about(claim))
        self.writer.put(Ended(attempt, c.Cancel(by=claim.actor, mode=CancelMode.HARD, reason=reason)))
        attempt.stop(Stop.LOST)
        if attempt.task is not None and attempt.thread is None:  # a thread is counted where it is left behind
            self._leaked += 1
            attempt.task.add_done_callback(self._let_go)

    def _let_go(self, _: object) -> None:
        self._leaked -= 1
        self.freed.set()

    def stop_all(self) -> None:
        """Cancel everything; the jobs are given back."""
        for attempt in list(self._attempts.values()):
            attempt.stop(Stop.LEAVING)

    def abandon(self) -> None:
        """Give back what did not end although it was cancelled: whatever it comes to now is not written."""
        for attempt in list(self._attempts.values()):
            if attempt.task is not None and not attempt.task.done() and attempt.stopped is not Stop.LOST:
                claim = attempt.held.claim
                _LOG.warning("job %s, attempt %d does not stop: given back all the same", claim.job_id, claim.attempt,
                             extra=about(claim))  # fmt: skip
                attempt.abandon()
                self.writer.put(Ended(attempt, c.Release(by=claim.actor, reason="the worker left")))

    async def ended(self, seconds: float) -> None:
        """Wait for all handlers to end, for so long at most."""
        tasks = [attempt.task for attempt in self._attempts.values() if attempt.task and not attempt.task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def __len__(self) -> int:
        return len(self._attempts)

    def close(self) -> None:
        """Let the threads end, and the processes."""
        self._threads.close()
        self._cells.close()


def _tell(loop: asyncio.AbstractEventLoop, function: Any, *arguments: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: nothing runs any more
        loop.call_soon_threadsafe(function, *arguments)
