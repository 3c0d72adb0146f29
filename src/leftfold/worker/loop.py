"""The worker: its loops, from the first claim to the last word."""

import asyncio
import functools
import logging
import secrets
import socket
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

from leftfold import opening
from leftfold.aengine import AsyncEngine
from leftfold.asking import names
from leftfold.core import limits
from leftfold.core.errors import DesignError, LeftfoldError, ValidationError
from leftfold.times import Span, microseconds
from leftfold.worker.cells import whereabouts
from leftfold.worker.claiming import Claimer, Wishes
from leftfold.worker.crew import Crew
from leftfold.worker.garbage import seldom_collected
from leftfold.worker.keeper import Keeper
from leftfold.worker.office import THREADS, Office
from leftfold.worker.pulse import Pulse
from leftfold.worker.signals import Signals, calls_users, runs_the_loop

if TYPE_CHECKING:
    from leftfold.app.app import App

_LOG: Final = logging.getLogger("leftfold.worker")
_CONNECTIONS: Final = 3  # for claims, and for what handlers ask
_LAST_SECONDS: Final = 10.0  # for cancelled handlers to end, and for the last outcomes to be written
_CLAIM_SECONDS: Final = 1.0  # for a claim that is on its way when there is a hurry


class _Loop(Protocol):
    async def run(self) -> None:
        """Go on until cancelled."""


class WorkerSettings(TypedDict, total=False):
    """How a worker is to be: see `Worker`."""

    queues: Iterable[str] | None
    concurrency: int
    grace: Span
    cancel_grace: Span
    until_idle: bool
    poll: Span
    name: str | None


class Worker:
    """Runs the jobs of an app. `run()` and `arun()` return when it has ended; `stop()` lets it end.

    `concurrency` is how many attempts run at once. `grace` is how long they may go on when the worker is to stop; then
    they are cancelled and their jobs given back. `cancel_grace` is how long a handler may take to stop when its job is
    cancelled; then the job ends without it. `until_idle` ends it when nothing is due and nothing will be tried
    again. `poll` is how often, in seconds, it looks for jobs that nobody told it of.
    """

    def __init__(
        self,
        app: "App",
        *,
        queues: Iterable[str] | None = None,
        concurrency: int = 16,
        grace: Span = 30.0,
        cancel_grace: Span = 30.0,
        until_idle: bool = False,
        poll: Span = 1.0,
        name: str | None = None,
    ) -> None:
        if not app.handlers:
            raise DesignError("the app has no jobs yet: decorate a function with @app.job")
        if opening.address_of(app.url).place == opening.MEMORY:
            raise ValidationError(
                "a store in memory belongs to one engine: give the app a file, which a worker can open"
            )
        limits.between("concurrency", concurrency, 1, 10_000)
        if any(handler.isolated for handler in app.handlers.values()):
            whereabouts(app)  # or say now that other processes could not find it
        self.app = app
        # Random, so that two processes of one name, or one after the other, are never taken for the same owner.
        self.identity = f"{name or socket.gethostname()}:{secrets.token_hex(4)}"
        limits.key("worker name", self.identity)
        look = _seconds("poll", poll, limits.SECOND // 100, limits.MINUTE)
        self._wishes = Wishes(names("queue", queues), sorted(app.handlers), look, until_idle)
        self._concurrency, self._grace = concurrency, _seconds("grace", grace, 0, limits.DAY)
        self._cancel_grace = _seconds("cancel_grace", cancel_grace, 0, limits.DAY)
        self._claimer: Claimer | None = None
        self._stopped = False
        self._hurry: asyncio.Event | None = None
        self._starting: asyncio.Task[Any] | None = None
        self._ending: asyncio.Task[Any] | None = None
        self._patience: asyncio.TimerHandle | None = None

    def run(self) -> None:
        """Run until SIGTERM or SIGINT: the first lets attempts end within the grace, the second stops them now."""
        loop = _new_loop()
        with Signals(loop, self.stop), seldom_collected():
            try:
                _run_to_the_end(loop, loop.create_task(self.arun(), name="leftfold-worker"))
            finally:
                _close(loop)

    def stop(self) -> None:
        """Claim no more, and end when what runs has ended. A second time: end now. For the thread of the loop."""
        if self._stopped and self._hurry is not None:
            _LOG.warning("stopping now: what runs is cancelled and given back")
            self._hurry.set()
            for task in (self._starting, self._ending):
                if task is not None:
                    task.cancel()
        self._stopped = True
        if self._claimer is not None:
            self._claimer.stop()

    async def arun(self) -> None:
        """Run until `stop()`, or until cancelled: then what runs is cancelled, too, and given back."""
        self._hurry = hurry = asyncio.Event()
        try:
            await self._work(hurry)
        except asyncio.CancelledError:
            if self._ending is None or not hurry.is_set():
                raise
            if self._ending.cancelling():
                self._ending.uncancel()  # it was our own
            _LOG.warning("leaving without the end of the lifespan")
        finally:
            self._ending = None
            if self._patience is not None:
                self._patience.cancel()

    @calls_users
    async def _work(self, hurry: asyncio.Event) -> None:
        settings: dict[str, Any] = {**self.app.settings, "actor": self.identity}
        async with AsyncExitStack() as stack:
            begun = await self._begun(stack, settings)
            if begun is None:
                return
            state, engine, office = begun
            about = {"queues": self._wishes.queues, "kinds": self._wishes.kinds, "concurrency": self._concurrency}
            pulse = Pulse(self.identity, about)
            pulse.suspects.learn(await engine.workers())
            crew = Crew(
                self.app, engine, office,
                lambda: opening.open(self.app.url, pool_size=1, create=False, **settings), pulse,
                size=self._concurrency, state=state, cancel_grace=self._cancel_grace, look_every=self._wishes.poll,
            )  # fmt: skip
            keeper, claimer = Keeper(office, pulse, crew.woken.set), Claimer(engine, crew, pulse, self._wishes)
            loops: list[_Loop] = [crew.writer, keeper, engine.store.listener(crew.woken.set)]
            crew.leases.start()
            tasks = [asyncio.create_task(each.run(), name=f"leftfold-{type(each).__name__.lower()}") for each in loops]
            _LOG.info("worker %s runs %s", self.identity, ", ".join(self._wishes.kinds))
            claiming = asyncio.create_task(self._claim(claimer), name="leftfold-claimer")
            try:
                done, _ = await asyncio.wait([claiming, *tasks], return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                hurry.set()
                raise
            finally:
                await _in_any_case(self._leave(engine, crew, claimer, [claiming, *tasks], hurry), hurry)
                self._let_end(hurry)
            _check_ended(done, claiming)

    def _let_end(self, hurry: asyncio.Event) -> None:
        """Let the lifespan end: for as long as it takes, or until there is a hurry."""
        self._ending = asyncio.current_task()
        if hurry.is_set() and self._ending is not None:
            self._patience = asyncio.get_running_loop().call_later(_LAST_SECONDS, self._ending.cancel)

    @calls_users
    async def _begun(self, stack: AsyncExitStack, settings: dict[str, Any]) -> tuple[Any, AsyncEngine, Office] | None:
        """Open what the app and the worker need. None: a hurried stop came first, and there is nothing to give back."""
        self._starting = asyncio.current_task()
        try:
            state = self.app.lifespan and await stack.enter_async_context(self.app.lifespan(self.app))
            engine = await opening.aopen(self.app.url, pool_size=_CONNECTIONS, wake=True, **settings)
            stack.push_async_callback(engine.close)
            writing = functools.partial(opening.open, self.app.url, pool_size=THREADS, **settings)
            office = Office(await asyncio.to_thread(writing))
            stack.callback(office.close)
        except asyncio.CancelledError:
            if self._hurry is None or not self._hurry.is_set():
                raise
            if self._starting is not None and self._starting.cancelling():
                self._starting.uncancel()  # it was our own
            return None
        else:
            return state, engine, office
        finally:
            self._starting = None

    def cut_short(self) -> None:
        """Be in a hurry: a second signal came while the lifespan blocks the loop."""
        if self._hurry is not None:
            self._hurry.set()

    async def _claim(self, claimer: Claimer) -> None:
        self._claimer = claimer
        if not self._stopped:
            await claimer.run()

    async def _leave(
        self, engine: AsyncEngine, crew: Crew, claimer: Claimer, tasks: list[asyncio.Task[None]], hurry: asyncio.Event
    ) -> None:
        """Claim no more, let attempts end within the grace, give the rest back, write everything."""
        claimer.stop()
        await _first(asyncio.wait(tasks[:1], timeout=_LAST_SECONDS), hurry.wait())
        if len(crew):
            _LOG.info("stopping: %d attempts have %.0f s to end", len(crew), self._grace)
        await _first(crew.ended(self._grace), hurry.wait())
        if not tasks[0].done():
            await asyncio.wait(tasks[:1], timeout=_CLAIM_SECONDS)  # what it brings is better given back than lost
        crew.stop_all()
        await crew.ended(_LAST_SECONDS)
        crew.abandon()
        await _first(crew.writer.flushed(), asyncio.sleep(_LAST_SECONDS))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(crew.leases.stop)
        crew.close()
        await _first(self._say_goodbye(engine), asyncio.sleep(_LAST_SECONDS))
        _LOG.info("worker %s has left", self.identity)

    async def _say_goodbye(self, engine: AsyncEngine) -> None:
        with suppress(LeftfoldError):  # else it is on the list for a while, as one that died
            await engine.forget_worker(self.identity)


def _check_ended(done: set[asyncio.Task[None]], claiming: asyncio.Task[None]) -> None:
    """Raise what a loop failed with. Only the one that claims ends by itself."""
    for task in done:
        if not task.cancelled() and task.exception() is not None:
            _LOG.critical("the worker ends: its loop %s failed: %r", task.get_name(), task.exception())
        task.result()
        if task is not claiming:
            raise DesignError(f"the loop {task.get_name()} ended by itself")


async def _in_any_case(leaving: Coroutine[Any, Any, None], hurry: asyncio.Event) -> None:
    """Run this to its end, however often we are cancelled meanwhile: that means hurry."""
    task = asyncio.create_task(leaving, name="leftfold-leaving")
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as problem:
            cancelled = problem
            hurry.set()
    task.result()
    if cancelled is not None:
        raise cancelled


def _seconds(what: str, span: Span, low: int, high: int) -> float:
    length = microseconds(what, span)
    limits.span(what, length, low, high)
    return length / limits.SECOND


async def _first(*ways: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of these is over, and stop the others."""
    tasks = [asyncio.create_task(way) for way in ways]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


@runs_the_loop
def _run_to_the_end(loop: asyncio.AbstractEventLoop, main: asyncio.Task[None]) -> None:
    """Run until this task is done. A SystemExit in a task that a handler began stops the loop, but not the worker."""
    while True:
        try:
            return loop.run_until_complete(main)
        except (SystemExit, KeyboardInterrupt) as problem:
            if main.done():
                raise
            _LOG.warning("a task of a handler raised %r", problem)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Give uvloop's loop where it is installed."""
    try:
        import uvloop  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415 - an extra
    except ImportError:
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop without waiting for ever: `asyncio.run` would, for a handler that does not heed its cancellation."""
    try:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=1))
        loop.run_until_complete(asyncio.wait([loop.create_task(loop.shutdown_asyncgens())], timeout=1))
    finally:
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - it was said before
        loop.close()
