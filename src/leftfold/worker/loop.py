"""The worker: its loops, from the first claim to the last word."""

import asyncio
import logging
import secrets
import signal
import socket
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from leftfold import opening
from leftfold.asking import names
from leftfold.core import limits
from leftfold.core.errors import DesignError, LeftfoldError, ValidationError
from leftfold.worker.claiming import Claimer, Wishes
from leftfold.worker.crew import Crew
from leftfold.worker.keeper import Keeper
from leftfold.worker.pulse import Pulse

if TYPE_CHECKING:
    from leftfold.app.app import App

_LOG: Final = logging.getLogger("leftfold.worker")
_CONNECTIONS: Final = 4  # for claims, outcomes, the keeper, and one to spare
_LAST_SECONDS: Final = 10.0  # for cancelled handlers to end, and for the last outcomes to be written


class _Loop(Protocol):
    async def run(self) -> None:
        """Go on until cancelled."""


class Worker:
    """Runs the jobs of an app. `run()` and `arun()` return when it has ended; `stop()` lets it end.

    `concurrency` is how many attempts run at once. `grace` is how long they may go on when the worker is to stop; then
    they are cancelled and their jobs given back. `until_idle` ends it when nothing is due and nothing will be tried
    again. `poll` is how often, in seconds, it looks for jobs that nobody told it of.
    """

    def __init__(
        self,
        app: "App",
        *,
        queues: Iterable[str] | None = None,
        concurrency: int = 16,
        grace: float = 30.0,
        until_idle: bool = False,
        poll: float = 1.0,
        name: str | None = None,
    ) -> None:
        if not app.handlers:
            raise DesignError("the app has no jobs yet: decorate a function with @app.job")
        if opening.address_of(app.url).place == opening.MEMORY:
            raise ValidationError(
                "a store in memory belongs to one engine: give the app a file, which a worker can open"
            )
        limits.between("concurrency", concurrency, 1, 10_000)
        self.app = app
        # Random, so that two processes of one name, or one after the other, are never taken for the same owner.
        self.identity = f"{name or socket.gethostname()}:{secrets.token_hex(4)}"
        limits.key("worker name", self.identity)
        self._wishes = Wishes(names("queue", queues), sorted(app.handlers), poll, until_idle)
        self._concurrency, self._grace = concurrency, grace
        self._crew: Crew | None = None
        self._claimer: Claimer | None = None
        self._stopped = False
        self._hurry: asyncio.Event | None = None

    def run(self) -> None:
        """Run until SIGTERM or SIGINT: the first lets attempts end within the grace, the second stops them now."""
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._run_with_signals())

    async def _run_with_signals(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError):  # where there are no signals
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
        await self.arun()

    def stop(self) -> None:
        """Claim no more, and end when what runs has ended. A second time: end now."""
        if self._stopped and self._hurry is not None:
            _LOG.warning("stopping now: what runs is cancelled and given back")
            self._hurry.set()
        self._stopped = True
        if self._claimer is not None:
            self._claimer.stop()

    async def arun(self) -> None:
        """Run until `stop()`, or until cancelled: then what runs is cancelled, too, and given back."""
        self._hurry = asyncio.Event()
        settings: dict[str, Any] = {**self.app.settings, "actor": self.identity}
        async with AsyncExitStack() as stack:
            state = self.app.lifespan and await stack.enter_async_context(self.app.lifespan(self.app))
            engine = await opening.aopen(self.app.url, pool_size=_CONNECTIONS, wake=True, **settings)
            stack.push_async_callback(engine.close)
            about = {"queues": self._wishes.queues, "kinds": self._wishes.kinds, "concurrency": self._concurrency}
            pulse = Pulse(self.identity, about)

            crew = Crew(
                self.app, engine, lambda: opening.open(self.app.url, pool_size=1, **settings), pulse,
                size=self._concurrency, state=state,
            )  # fmt: skip
            keeper, claimer = Keeper(engine, pulse), Claimer(engine, crew, pulse, self._wishes)
            loops: list[_Loop] = [crew.writer, keeper, engine.store.listener(crew.woken.set)]
            crew.leases.start()
            tasks = [asyncio.create_task(each.run(), name=f"leftfold-{type(each).__name__.lower()}") for each in loops]
            _LOG.info("worker %s runs %s", self.identity, ", ".join(self._wishes.kinds))
            try:
                await self._claim(claimer, tasks)
            finally:
                await self._leave(crew, tasks)
                with suppress(LeftfoldError):
                    await engine.forget_worker(self.identity)

    async def _claim(self, claimer: Claimer, tasks: list[asyncio.Task[None]]) -> None:
        """Claim until the worker is to stop. A loop that ends by itself has failed: the worker ends with its error."""
        self._claimer = claimer
        if self._stopped:
            return
        claiming = asyncio.create_task(claimer.run(), name="leftfold-claimer")
        try:
            done, _ = await asyncio.wait([claiming, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            claimer.stop()
            await asyncio.shield(asyncio.wait([claiming], timeout=_LAST_SECONDS))
            claiming.cancel()
        for task in done:
            task.result()

    async def _leave(self, crew: Crew, tasks: list[asyncio.Task[None]]) -> None:
        """Let attempts end within the grace, give the rest back, write everything."""
        if len(crew):
            _LOG.info("stopping: %d attempts have %.0f s to end", len(crew), self._grace)
        ended = asyncio.create_task(crew.ended(self._grace))
        hurry = asyncio.create_task(self._hurry.wait() if self._hurry else asyncio.sleep(0))
        with suppress(asyncio.CancelledError):  # a second cancellation means hurry, too
            await asyncio.wait([ended, hurry], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        hurry.cancel()
        crew.stop_all()
        await crew.ended(_LAST_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await crew.writer.flushed()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(crew.leases.stop)
        crew.close()
        _LOG.info("worker %s has left", self.identity)


def _loop_factory() -> Any:
    """Give uvloop's loop where it is installed."""
    try:
        import uvloop  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop
