"""Workers in processes of their own, workers in a task of this one, and what must be true after either."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.concurrency.crowd import eventually
from tests.places import Place, logs_of

import leftfold
from leftfold import App, Engine
from leftfold.worker import Worker

#: Nothing here takes so long.
SECONDS: Final = 40.0

#: An app as people write one. Every handler says in a file when it begins and when it ends.
JOBS: Final = """
import asyncio, os, sys, time
from leftfold import App, Context, SyncContext

app = App()
BEGAN = time.monotonic()


def say(word, ctx):
    with open("said", "a") as file:
        file.write(f"{word} {ctx.kind} {ctx.job_id} {ctx.attempt} {os.getpid()}\\n")


@app.job(lease=float(os.environ.get("LEASE", "1")), max_failures=9, retry_delay=0.01)
async def nap(ctx: Context, seconds: float) -> int:
    say("begin", ctx)
    await asyncio.sleep(seconds)
    say("end", ctx)
    return ctx.attempt


@app.job(max_failures=9)
async def hang(ctx: Context) -> None:
    say("begin", ctx)
    if ctx.attempt == 1:
        await asyncio.sleep(600)
    say("end", ctx)


@app.job(lease=1, max_failures=9)
def doze(ctx: SyncContext, seconds: float) -> int:
    say("begin", ctx)
    time.sleep(seconds)
    say("end", ctx)
    return ctx.attempt


@app.job(lease=0.5, max_failures=1)
async def block(ctx: Context, seconds: float) -> int:
    say("begin", ctx)
    time.sleep(seconds)
    say("end", ctx)
    return ctx.attempt


@app.job(lease=1, max_failures=1)
async def stubborn(ctx: Context, seconds: float) -> int:
    say("begin", ctx)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            pass
    say("end", ctx)
    return ctx.attempt


@app.job(lease=1, max_failures=1)
async def offload(ctx: Context, seconds: float) -> None:
    say("begin", ctx)
    await asyncio.to_thread(time.sleep, seconds)


@app.job(max_failures=1)
async def leave(ctx: Context) -> None:
    say("begin", ctx)
    sys.exit(7)
"""


class Process:
    """`leftfold worker`, from its start to its end. `log` is what it wrote to standard error."""

    def __init__(self, folder: Path, arguments: Iterable[str], env: dict[str, str]) -> None:
        self.folder = folder
        self._file = folder / f"log-{len(list(folder.glob('log-*')))}"
        command = [sys.executable, "-m", "leftfold", "worker", "-A", "jobs:app", *arguments]
        with self._file.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self._file.read_text(encoding="utf-8")

    def wait_for(self, pattern: str) -> None:
        """Wait until it has written this."""
        eventually(lambda: re.search(pattern, self.log) is not None or self.process.poll() is not None, SECONDS)
        assert re.search(pattern, self.log), self.log

    def wait_until_up(self) -> None:
        self.wait_for("worker .* runs ")

    def tell(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(SECONDS)

    def left(self, seconds: float = SECONDS) -> int:
        """Wait for its end, and give its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.log}") from None


class Town:
    """A folder with an app in it, a store, and the workers that were started there."""

    def __init__(self, place: Place, folder: Path, jobs: str = JOBS) -> None:
        self.place, self.folder = place, folder
        self.write(jobs)
        self.workers: list[Process] = []
        self.app = App(place.url, schema=place.schema)

    def write(self, jobs: str) -> None:
        """Put this in the place of the app."""
        (self.folder / "jobs.py").write_text(jobs, encoding="utf-8")

    def enqueue(
        self, kind: str, count: int = 1, *, lease: float = 1, max_failures: int = 9, **payload: Any
    ) -> list[str]:
        policy = leftfold.Policy(lease=int(lease * 1_000_000), max_failures=max_failures)
        news = [leftfold.NewJob(kind, payload, policy=policy) for _ in range(count)]
        return [receipt.job_id for receipt in self.engine.enqueue_many(news) if receipt]

    @property
    def engine(self) -> Engine:
        return self.app.engine

    def start(self, *arguments: str, **env: str) -> Process:
        settings = {"LEFTFOLD_DATABASE_URL": self.place.url, "LEFTFOLD_SCHEMA": self.place.schema, **env}
        process = Process(self.folder, ["--poll", "0.2", *arguments], settings)
        self.workers.append(process)
        return process

    @property
    def said(self) -> list[tuple[str, str, str, int, int]]:
        """What the handlers said: begin or end, kind, job id, attempt, process."""
        file = self.folder / "said"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [
            (word, kind, job_id, int(attempt), int(pid)) for word, kind, job_id, attempt, pid in map(str.split, lines)
        ]

    def begun(self) -> int:
        return sum(word == "begin" for word, *_ in self.said)

    def states(self) -> dict[str, str]:
        found: dict[str, str] = {}
        after = None
        while True:
            page = self.engine.list(limit=1000, after=after)
            found.update({job.id: job.state.value for job in page.jobs})
            after = page.next
            if after is None:
                return found

    def wait_until_all(self, state: str, seconds: float = SECONDS) -> None:
        eventually(lambda: set(self.states().values()) == {state}, seconds)

    def logs(self) -> dict[str, list[str]]:
        """Give the events of every job, and hold everything to what must be true of it."""
        return sound(self.engine)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.app.close()


ORDER: Final = ("claimed", "started", "succeeded", "retried", "released", "stalled", "cancelled", "dead_lettered")


def sound(engine: Engine) -> dict[str, list[str]]:
    """Hold a store to what must be true after whatever happened, and give the events of each job.

    The audit is clean. No job ends twice. Within an attempt nothing goes backward: claimed, started, one way out.
    """
    verdict = engine.verify()
    assert verdict.is_clean, verdict.findings
    logs = logs_of(engine)
    for events in logs.values():
        moves = [event for event in events if event in {*ORDER, "requeued"}]
        attempts = " ".join(moves).split("claimed")[1:]
        for attempt in attempts:
            assert re.fullmatch(
                r"( started)?( (succeeded|retried|released|cancelled|dead_lettered|failed|stalled"
                r"( (requeued|cancelled|dead_lettered|failed))?))? ?",
                attempt,
            ), events
        assert events.count("succeeded") <= 1
        assert events.index("succeeded") == len(events) - 1 if "succeeded" in events else True
    return logs


@asynccontextmanager
async def working(app: App, **settings: Any) -> AsyncIterator[Worker]:
    """Let a worker run in this loop while the block does; then let it leave."""
    worker = Worker(app, **{"poll": 0.1, "grace": 5.0, **settings})
    task = asyncio.create_task(worker.arun())
    try:
        yield worker
        if not task.done():
            worker.stop()
        async with asyncio.timeout(SECONDS):
            await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await app.aclose()


async def until(is_so: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Poll until it is so, and let others go on meanwhile."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 - nobody would set it
            await asyncio.sleep(0.01)


def lines_of(log: str) -> list[dict[str, Any]]:
    """Read a log in JSON: a line that is none is no line of ours."""
    return [json.loads(line) for line in log.splitlines()]


TERM, INT, KILL, STOP, CONT = signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
