"""Handlers that run in processes of their own, as text: a town writes them into its app."""

ISOLATED = """
import ctypes, signal
from leftfold import Snooze
from leftfold.core.errors import WaitExpired

POOL = dict(isolation="process", lease=1, max_failures=2, retry_delay=0.01)


@app.job(**POOL)
async def where(ctx: Context) -> list:
    ctx.progress(0.5, "halfway")
    ctx.log.info("hello from the cell")
    return [os.getpid(), os.getppid(), ctx.attempt, ctx.idempotency_key("a")]


@app.job(**POOL)
def where_too(ctx: SyncContext, n: int = 1) -> list:
    return [os.getpid(), os.getppid(), n]


@app.job(**POOL)
def die(ctx: SyncContext, how: str) -> None:
    say("begin", ctx)
    if how == "exit":
        os._exit(3)
    if how == "crash":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(**POOL)
def raise_it(ctx: SyncContext) -> None:
    raise KeyError("of its own")


@app.job(isolation="process", lease=1, max_failures=1)
def grab(ctx: SyncContext) -> int:
    say("begin", ctx)
    ctypes.PyDLL(None).usleep(4_000_000)  # with the interpreter's lock of this process held
    return ctx.attempt


@app.job(isolation="process", lease=5, max_failures=1, timeout=0.2)
def endless(ctx: SyncContext) -> None:
    say("begin", ctx)
    ctypes.PyDLL(None).usleep(60_000_000)


@app.job(isolation="process", lease=5, max_failures=1)
async def patient(ctx: Context) -> str:
    say("begin", ctx)
    await asyncio.sleep(60)
    return "never"


@app.job(isolation="process", lease=5, max_failures=1)
def deaf(ctx: SyncContext) -> None:
    say("begin", ctx)
    time.sleep(60)


@app.job(isolation="process", lease=5, max_failures=1)
async def ask(ctx: Context) -> str:
    try:
        return await ctx.wait("go", timeout=60)
    except WaitExpired:
        return "nobody"


@app.job(lease=1, max_failures=4, retry_delay=0.01)
def poison(ctx: SyncContext) -> None:
    say("begin", ctx)
    os.kill(os.getpid(), signal.SIGKILL)
"""
