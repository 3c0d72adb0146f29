"""A job that was enqueued, as whoever enqueued it holds it."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Raw

from leftfold.app.context import current_or_none
from leftfold.core.errors import DesignError, JobCancelled, JobFailed, ResultTimeoutError
from leftfold.core.job import Job
from leftfold.core.lifecycle import ENDED, State
from leftfold.core.limits import SECOND
from leftfold.core.record import Record
from leftfold.core.values import CancelMode
from leftfold.store.patience import pauses
from leftfold.store.replies import Receipt
from leftfold.times import Span, microseconds

if TYPE_CHECKING:
    from leftfold.app.app import App

R_co = TypeVar("R_co", covariant=True)


class Handle(Generic[R_co]):
    """One job: where it stands, what became of it, and what can be said to it. Every method has an async twin.

    `created` is false if a live job held the key: then this is that one.
    """

    def __init__(self, app: "App", job_id: str, of_result: Callable[[Raw], R_co], *, created: bool = True) -> None:
        self.id = job_id
        self.created = created
        self._app = app
        self._of_result = of_result

    def __repr__(self) -> str:
        return f"<handle of job {self.id}>"

    def get(self) -> Job:
        """Give the job as it stands."""
        return self._app.engine.get(self.id)

    async def aget(self) -> Job:
        """Give the job as it stands."""
        return await (await self._app.aengine()).get(self.id)

    def status(self) -> State:
        """Give the job's state."""
        return self.get().state

    async def astatus(self) -> State:
        """Give the job's state."""
        return (await self.aget()).state

    def result(self, timeout: Span | None = None) -> R_co:
        """Wait until the job has ended, and give its result. One that failed or was cancelled raises that."""
        _check_may_block()
        for pause in _looks(self.id, timeout):
            job = self.get()
            if job.state in ENDED:
                break
            time.sleep(pause)
        return self._outcome(job)

    async def aresult(self, timeout: Span | None = None) -> R_co:  # noqa: ASYNC109 - as that of `result`
        """Wait until the job has ended, and give its result. One that failed or was cancelled raises that."""
        for pause in _looks(self.id, timeout):
            job = await self.aget()
            if job.state in ENDED:
                break
            await asyncio.sleep(pause)
        return self._outcome(job)

    def _outcome(self, job: Job) -> R_co:
        if job.result is not None:
            return self._of_result(job.result)
        if job.state is State.CANCELLED:
            raise JobCancelled(f"job {job.id} was cancelled")
        raise JobFailed(job.id, job.state.value, job.error)

    def history(self) -> list[Record]:
        """Give everything that happened to the job."""
        return self._app.engine.history(self.id)

    async def ahistory(self) -> list[Record]:
        """Give everything that happened to the job."""
        return await (await self._app.aengine()).history(self.id)

    def signal(self, key: str, payload: Any = None) -> Receipt:
        """Answer what the job waits for, or will wait for."""
        return self._app.engine.signal(self.id, key, payload)

    async def asignal(self, key: str, payload: Any = None) -> Receipt:
        """Answer what the job waits for, or will wait for."""
        return await (await self._app.aengine()).signal(self.id, key, payload)

    def cancel(self, *, mode: CancelMode | str = CancelMode.SOFT, reason: str | None = None) -> Receipt:
        """Stop the job: ask its handler to (soft), or take it away at once (hard)."""
        return self._app.engine.cancel(self.id, mode=mode, reason=reason)

    async def acancel(self, *, mode: CancelMode | str = CancelMode.SOFT, reason: str | None = None) -> Receipt:
        """Stop the job: ask its handler to (soft), or take it away at once (hard)."""
        return await (await self._app.aengine()).cancel(self.id, mode=mode, reason=reason)


def _check_may_block() -> None:
    """Refuse to wait where all jobs of a worker would wait with us, the one that is waited for perhaps among them."""
    if current_or_none() is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001 - without an exception if there is none
        raise DesignError("this would block the event loop of the worker: await handle.aresult(…) instead")


def _looks(job_id: str, timeout: Span | None) -> Iterator[float]:
    """Give how long to wait behind each look, until time is up."""
    seconds = None if timeout is None else microseconds("timeout", timeout) / SECOND
    deadline = None if seconds is None else time.monotonic() + seconds
    for pause in pauses():
        left = pause if deadline is None else deadline - time.monotonic()
        yield max(0.0, min(pause, left))
        if left <= 0:
            raise ResultTimeoutError(f"job {job_id} has not ended within {seconds:g} s; it goes on")
