"""An attempt in a process of its own: the worker keeps the lease, and is told what came of it."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from leftfold.app.context import CurrentJob
from leftfold.app.handler import Handler
from leftfold.core import commands as c
from leftfold.core.errors import DesignError, LeftfoldError
from leftfold.core.letters import Stage
from leftfold.core.values import Failure
from leftfold.worker.attempt import Attempt, Stop, TimedOut
from leftfold.worker.cells import Cell, CellDied, CellError, Cells
from leftfold.worker.desk import Desk
from leftfold.worker.lease import Held
from leftfold.worker.threads import Threads

if TYPE_CHECKING:
    from leftfold.app.app import Middleware

_LOG: Final = logging.getLogger("leftfold.worker")
#: Behind its timeout, the process has so long to end the attempt by itself.
_LATE_SECONDS: Final = 5.0


class IsolatedAttempt(Attempt):
    """A handler at work in another process. To stop it for good kills that."""

    def __init__(
        self, handler: Handler[..., Any], held: Held, context: CurrentJob, threads: Threads, *, cells: Cells, desk: Desk
    ) -> None:
        super().__init__(handler, held, context, threads)
        self._cells = cells
        self._desk = desk
        self._cell: Cell | None = None
        self._is_here = False

    def stop(self, why: Stop) -> None:
        """Stop it: the process is told, or killed if the job is lost."""
        if self._is_here:
            super().stop(why)
            return
        if self._stopped in {None, Stop.ASKED}:
            self._stopped = why
        self.context.stop()
        if self._cell is not None and why is Stop.LOST:
            self._cell.kill()
        elif self._cell is not None:
            self._cell.stop(why.name)

    def abandon(self) -> None:
        """Let it be: somebody else may have the job at once, so its process ends now."""
        if self._cell is not None:
            self._cell.kill()
        super().abandon()

    async def run(self, middlewares: "list[Middleware]") -> c.AnyCommand | None:
        """Run the handler to its end, and give what is to be written."""
        self._entered = True
        self.context.enter()
        try:
            cell = await self._cells.take()
        except (CellError, DesignError) as problem:
            if self._handler.isolated:
                return self._crashed("isolation", str(problem))
            _LOG.warning("runs in the worker itself, although its last attempt was lost: %s", problem)
            self._is_here = True
            return await super().run(middlewares)
        try:
            return await self._run_in(cell)
        finally:
            if self._cell is None:
                self._cells.put_back(cell)
            else:
                self._cells.throw_away(cell)

    async def _run_in(self, cell: Cell) -> c.AnyCommand | None:
        if self._stopped is not None:  # while the process came up
            return self._said(self._of_cancellation, asyncio.CancelledError())
        self._cell, self._stage = cell, Stage.EXEC
        timeout = self.held.claim.policy.timeout
        limit = None if timeout is None else timeout / 1_000_000 + _LATE_SECONDS
        try:
            async with asyncio.timeout(limit):
                command = await cell.run(self.held.claim, self._desk)
        except TimeoutError:
            return self._said(self._of_failure, TimedOut(f"the attempt took longer than {(timeout or 0) / 1e6:g} s"))
        except CellDied as died:
            self.has_died = self.stopped is None
            return self._crashed("crashed", str(died))
        except LeftfoldError as problem:  # of a store that did not answer what the handler asked
            return self._said(self._of_failure, problem)
        self._cell = None  # it can be used again
        return None if self.stopped is Stop.LOST else command

    def _crashed(self, code: str, why: str) -> c.AnyCommand | None:
        if self.stopped in {Stop.LOST, Stop.LEAVING}:
            return self._said(self._of_cancellation, asyncio.CancelledError())
        _LOG.warning("failed: %s", why)
        return c.Fail(by=self.held.claim.actor, error=Failure(code=code, message=why))
