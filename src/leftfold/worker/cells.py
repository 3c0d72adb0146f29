"""Processes for isolated attempts, kept warm: what a handler does to its interpreter, it does to one of these."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from leftfold.core import commands as c
from leftfold.core.errors import DesignError
from leftfold.store.replies import Claim
from leftfold.worker import frames
from leftfold.worker.logs import about

if TYPE_CHECKING:
    from leftfold.app.app import App
    from leftfold.worker.desk import Desk

_LOG: Final = logging.getLogger("leftfold.worker")
_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 2.0
_BUFFER: Final = 1024 * 1024
MARK: Final = "LEFTFOLD_CELL"  # who runs a worker where its app is imported would start another, and so on
_RUNS_MOST: Final = 1_000  # of one process; then it is thrown away, with whatever leaked


class CellError(Exception):
    """A process for isolated attempts cannot be had."""


class CellDied(Exception):  # noqa: N818 - what became of the process
    """The process ended in the middle of an attempt."""


def whereabouts(app: "App") -> frames.Begin:
    """Say how another process finds the app: by the module in which it has a name."""
    modules = dict.fromkeys(handler.function.__module__ for handler in app.handlers.values())
    for module_name in [*modules, "__main__"]:
        module: Any = sys.modules.get(module_name)
        name = next((name for name, value in vars(module).items() if value is app), None) if module else None
        if name is None:
            continue
        spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
        if module_name == "__main__" and spec is None and file is None:
            continue
        is_file = module_name == "__main__" and spec is None
        found = str(file) if is_file else spec.name if spec else module_name
        return frames.Begin(list(sys.path), found, is_file, name, logging.getLogger().getEffectiveLevel())
    raise DesignError("isolation needs an app that can be imported: give it a name in a module")


class Cell:
    """One such process, from its start to its end."""

    def __init__(self, begin: frames.Begin) -> None:
        self._begin = begin
        self._reader: Any = None
        self._writer: Any = None
        self._life = -1
        self._process: subprocess.Popen[bytes] | None = None
        self.runs = 0

    async def start(self) -> "Cell":
        """Start it, and wait until it has the app."""
        ours, theirs = socket.socketpair()
        life, self._life = os.pipe()
        try:
            # From this thread: Linux ends it with the thread that started it.
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603 - see above; and it is this very interpreter
                [sys.executable, "-m", "leftfold.worker.cell", str(theirs.fileno()), str(life)],
                pass_fds=(theirs.fileno(), life), stdin=subprocess.DEVNULL, process_group=0,
                env={**os.environ, MARK: "1"},
            )  # fmt: skip
        finally:
            theirs.close()
            os.close(life)
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=_BUFFER)
        self._send(self._begin)
        try:
            async with asyncio.timeout(_START_SECONDS):
                while isinstance(answer := await frames.read(self._reader), frames.Logged):
                    _log(answer, None)
        except TimeoutError:
            answer = None
        if not isinstance(answer, frames.Ready):
            self.kill()
            why = answer.why if isinstance(answer, frames.Unready) else await self.end()
            raise CellError(f"a process for the attempt could not be started: {why}")
        return self

    async def run(self, claim: Claim, desk: "Desk") -> c.AnyCommand | None:
        """Run an attempt there, and give what came of it."""
        self.runs += 1
        self._send(frames.Run(claim))
        while True:
            match await frames.read(self._reader):
                case frames.Came() as came:
                    return frames.command_of(came)
                case frames.Told() as told:
                    desk.tell(claim, frames.note_of(told))
                case frames.Asked():
                    self._send(frames.Answered(dict(await desk.answers(claim))))
                case frames.Logged() as line:
                    _log(line, claim)
                case None:
                    raise CellDied(await self.end())
                case _:
                    pass

    def stop(self, why: str) -> None:
        """Tell the handler to stop."""
        self._send(frames.Stop(why))

    def _send(self, frame: frames.Frame) -> None:
        with suppress(OSError, RuntimeError):  # it is gone: whoever reads hears so
            self._writer.write(frames.packed(frame))

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            threading.Thread(target=self._process.wait, name="leftfold-burial", daemon=True).start()

    async def end(self) -> str:
        """Wait for its end, which is near, and say what it was."""
        code = await asyncio.to_thread(self._wait) if self._process else None
        self.close()
        if code is None or code >= 0:
            return f"its process ended with code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"its process was ended by {name}"

    def _wait(self) -> int:
        process = self._process
        if process is None:
            return 0
        try:
            return process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it hung up, and lives
            process.kill()
            return process.wait()

    def close(self) -> None:
        """Let it end."""
        if self._writer is not None:
            with suppress(OSError, RuntimeError):
                self._writer.close()
        if self._life >= 0:
            os.close(self._life)
            self._life = -1


def _log(line: frames.Logged, claim: Claim | None) -> None:
    logger = logging.getLogger(line.name)
    if logger.isEnabledFor(line.level):
        text = line.message if line.traceback is None else f"{line.message}\n{line.traceback}"
        record = logger.makeRecord(line.name, line.level, "", 0, text.replace("%", "%%"), (), None)
        record.msg = text
        record.__dict__.update({} if claim is None else about(claim))
        logger.handle(record)


class Cells:
    """As many as are busy at once, and a few that wait for the next attempt."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._idle: list[Cell] = []
        self._all: set[Cell] = set()
        self._most_idle = os.cpu_count() or 1
        self._starting = asyncio.Semaphore(self._most_idle)

    async def take(self) -> Cell:
        """Give one that is idle, or a new one. Few start at a time: many at once would starve what runs."""
        if self._idle:
            return self._idle.pop()
        async with self._starting:
            if self._idle:  # meanwhile
                return self._idle.pop()
            cell = Cell(whereabouts(self._app))
            self._all.add(cell)
            try:
                return await cell.start()
            except BaseException:
                self.throw_away(cell)
                raise

    def put_back(self, cell: Cell) -> None:
        """Take one back that can be used again."""
        if cell.runs >= _RUNS_MOST or len(self._idle) >= self._most_idle:
            self.throw_away(cell)
        else:
            self._idle.append(cell)

    def throw_away(self, cell: Cell) -> None:
        """End one."""
        cell.kill()
        cell.close()
        self._all.discard(cell)

    def close(self) -> None:
        """End all of them."""
        for cell in list(self._all):
            self.throw_away(cell)
        self._idle.clear()
