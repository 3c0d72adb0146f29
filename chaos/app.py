"""The jobs of the campaign: some work, some fail, some hold what they should not, and some bring their process down.

Each handler says in a record when it begins (that is its effect) and how it ends; what it gives back, or raises, names
its attempt, so that the log shows whose word it was.
"""

import asyncio
import ctypes
import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn, TypedDict

from chaos.records import FOLDER, Recorder, now
from leftfold import App, Context, SyncContext
from leftfold.app.context import CurrentJob
from leftfold.app.handler import Handler
from leftfold.core.errors import WaitExpired
from leftfold.worker.cells import MARK

LEASE: Final = 2.0
WAIT: Final = 4.0  # how long a job waits for its signal
HOLD: Final = 2.5 * LEASE  # how long the interpreter's lock is held
MEMORY: Final = 256 * 2**20  # what a hog may take beyond what it has
EXIT: Final = 3  # the code of a process that a handler ends


class _Settings(TypedDict):
    lease: float
    max_failures: int
    retry_delay: float
    retry_delay_max: float


_USUAL: Final[_Settings] = {"lease": LEASE, "max_failures": 8, "retry_delay": 0.05, "retry_delay_max": 0.5}
_FEW: Final[_Settings] = {**_USUAL, "max_failures": 3}
_ONE: Final[_Settings] = {**_USUAL, "max_failures": 1}

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # some die of it by the dozen
app: Final = App()
_ISOLATED: Final = MARK in os.environ  # this process is one for isolated attempts
_DICE: Final = random.SystemRandom()  # processes are forked: a seed would be the same in all of them
_RECORDERS: Final[dict[int, Recorder]] = {}


def note(what: str, ctx: CurrentJob, **said: Any) -> None:
    """Write to the file of this process, which may have been forked from one that has another."""
    if os.getpid() not in _RECORDERS:
        _RECORDERS[os.getpid()] = Recorder(Path(os.environ[FOLDER]), f"handlers-{os.getpid()}-{now()}")
    _RECORDERS[os.getpid()].note(what, job=ctx.job_id, attempt=ctx.attempt, **said)


@contextmanager
def at_work(ctx: CurrentJob) -> Iterator[dict[str, int]]:
    """Record the effect, and how the handler ended. Gives what it is to return."""
    note("begins", ctx, key=ctx.idempotency_key("effect"), kind=ctx.kind, isolated=_ISOLATED)
    how = "returned"
    try:
        yield {"attempt": ctx.attempt}
    except BaseException as problem:
        how = type(problem).__name__
        raise
    finally:
        note("ends", ctx, how=how, stopped=ctx.cancelled)


def _die(ctx: CurrentJob, how: str) -> NoReturn:
    note("dies", ctx, how=how, isolated=_ISOLATED)
    if how == "exit":
        os._exit(EXIT)
    if how == "crash":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody outlives that")


@app.job(**_USUAL)
async def plain(ctx: Context, op: str) -> dict[str, int]:
    """Have an effect."""
    with at_work(ctx) as result:
        return result


@app.job(**_USUAL)
async def slow(ctx: Context, op: str) -> dict[str, int]:
    """Take a while, and say how far it is."""
    with at_work(ctx) as result:
        for part in range(4):
            ctx.progress(part / 4, f"attempt {ctx.attempt}")
            await asyncio.sleep(_DICE.uniform(0.05, 0.3))
        return result


@app.job(**_USUAL)
def thread(ctx: SyncContext, op: str) -> dict[str, int]:
    """Take a while in a thread, and look whether to stop."""
    with at_work(ctx) as result:
        for _ in range(10):
            ctx.raise_if_cancelled()
            time.sleep(0.05)  # its work
        return result


@app.job(**_USUAL)
async def flaky(ctx: Context, op: str) -> dict[str, int]:
    """Fail now and then."""
    with at_work(ctx) as result:
        if _DICE.random() < 0.4:
            raise RuntimeError(f"attempt {ctx.attempt}")
        return result


@app.job(**_USUAL)
async def asks(ctx: Context, op: str) -> dict[str, int]:
    """Wait for a signal, but not for ever."""
    with at_work(ctx) as result:
        try:
            answer = await ctx.wait("go", timeout=WAIT)
        except WaitExpired:
            note("heard", ctx, key="go", expired=True)
        else:
            note("heard", ctx, key="go", expired=False, answer=answer)
        return result


@app.job(**_USUAL)
async def keyed(ctx: Context, op: str) -> dict[str, int]:
    """Have a key for so long that it would be seen if another job got it meanwhile."""
    with at_work(ctx) as result:
        await asyncio.sleep(_DICE.uniform(1.5, 4))
        return result


def _grab(ctx: CurrentJob) -> None:
    note("grabs", ctx)
    ctypes.PyDLL(None).usleep(int(HOLD * 1_000_000))


@app.job(**_USUAL)
def grabs(ctx: SyncContext, op: str) -> dict[str, int]:
    """Hold the interpreter's lock for longer than a lease."""
    with at_work(ctx) as result:
        _grab(ctx)
        return result


@app.job(isolation="process", **_USUAL)
def grabs_alone(ctx: SyncContext, op: str) -> dict[str, int]:
    """Hold the lock of an interpreter of its own: the lease stays."""
    with at_work(ctx) as result:
        _grab(ctx)
        return result


@app.job(**_USUAL)
def dies(ctx: SyncContext, op: str, how: str) -> dict[str, int]:
    """Bring the worker down, once."""
    with at_work(ctx) as result:
        if ctx.attempt == 1:
            _die(ctx, how)
        return result


@app.job(isolation="process", **_USUAL)
def dies_alone(ctx: SyncContext, op: str, how: str) -> dict[str, int]:
    """Bring a process of its own down, twice."""
    with at_work(ctx) as result:
        if ctx.attempt <= 2:
            _die(ctx, how)
        return result


@app.job(**_FEW)
def poison(ctx: SyncContext, op: str, how: str) -> dict[str, int]:
    """Bring down whatever runs it, always."""
    with at_work(ctx):
        _die(ctx, how)


@app.job(**_ONE)
def frail(ctx: SyncContext, op: str, how: str) -> dict[str, int]:
    """Bring the worker down, and have no second try: a keeper has to end it."""
    with at_work(ctx):
        _die(ctx, how)


@app.job(isolation="process", **_USUAL)
def hog(ctx: SyncContext, op: str, how: str) -> dict[str, int]:
    """Take all memory that there is, under a limit: fail of it, or be killed as by the kernel. Later be modest."""
    with at_work(ctx) as result:
        if ctx.attempt <= 2:
            with _limited():
                try:
                    taken = [bytearray(16 * 2**20) for _ in range(1024)]
                except MemoryError:
                    note("hogs", ctx)
                    if how == "kill":
                        _die(ctx, how)
                    raise MemoryError(f"attempt {ctx.attempt}") from None
                raise AssertionError(f"there was no limit: {len(taken)}")
        return result


@contextmanager
def _limited() -> Iterator[None]:
    """Let this process have no more than so much. It is used again, so the limit goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@app.job(isolation="process", **_USUAL)
async def patient(ctx: Context, op: str) -> dict[str, int]:
    """Take so long in a process of its own that somebody will cancel it."""
    with at_work(ctx) as result:
        await asyncio.sleep(_DICE.uniform(0.5, 6))
        return result


#: How often each kind is asked for, out of all; and in which ways it may die.
KINDS: Final[dict[Handler[..., Any], int]] = {
    plain: 40, slow: 14, thread: 8, flaky: 14, asks: 10, keyed: 1, grabs: 1, grabs_alone: 1, dies: 2, dies_alone: 2,
    poison: 1, frail: 1, hog: 2, patient: 5,
}  # fmt: skip
_DEATHS: Final = ("exit", "crash", "kill")
WAYS: Final = {"dies": _DEATHS, "dies_alone": _DEATHS, "poison": _DEATHS, "frail": _DEATHS, "hog": ("fail", "kill")}
