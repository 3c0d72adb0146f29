"""Processes for isolated attempts, kept warm: what a handler does to its interpreter, it does to one of these."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

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
    """One such process, from its birth to its end."""

    def __init__(self, pid: int, kill: Callable[[int], None], ended: "asyncio.Future[int]") -> None:
        self._pid, self._kill, self._ended = pid, kill, ended
        self._reader: Any = None
        self._writer: Any = None
        self.runs = 0

    async def ready(self, connection: socket.socket) -> None:
        """Wait until it can begin."""
        self._reader, self._writer = await asyncio.open_connection(sock=connection, limit=_BUFFER)
        answer: frames.Frame | None
        try:
            async with asyncio.timeout(_START_SECONDS):
                while isinstance(answer := await frames.read(self._reader), frames.Logged):
                    _log(answer, None)
        except TimeoutError:
            answer = None
        if not isinstance(answer, frames.Ready):
            why = answer.why if isinstance(answer, frames.Unready) else await self.end()
            raise CellError(f"a process for the attempt could not be started: {why}")

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
        self._kill(self._pid)

    async def end(self) -> str:
        """Wait for its end, which is near, and say what it was."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await asyncio.shield(self._ended)
        if not self._ended.done():  # it hung up, and lives
            self.kill()
        code = await self._ended
        self.close()
        if code >= 0:
            return f"its process ended with code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"its process was ended by {name}"

    def close(self) -> None:
        """Hang up: it ends."""
        if self._writer is not None:
            with suppress(OSError, RuntimeError):
                self._writer.close()


class Nursery:
    """The process from which the others come: it has the app imported, and they are there at once."""

    def __init__(self, begin: frames.Begin) -> None:
        self._begin = begin
        self._control: socket.socket | None = None
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._births: deque[asyncio.Future[int]] = deque()
        self._living: dict[int, asyncio.Future[int]] = {}
        self.is_gone = False

    async def start(self) -> None:
        """Start it, and wait until it has the app."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # From this thread: Linux ends it with the thread that started it.
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - see above; and it is this very interpreter
                [sys.executable, "-m", "leftfold.worker.cell", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, process_group=0, env={**os.environ, MARK: "1"},
            )  # fmt: skip
        finally:
            theirs.close()
        threading.Thread(target=process.wait, name="leftfold-burial", daemon=True).start()
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control, self._hear)
        self._control.send(msgspec.json.encode(self._begin))
        answer = "unready it took too long"
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                answer = await self._heard.get()
        if answer != "ready":
            self.close()
            raise CellError(f"a process for the attempt could not be started: {answer.partition(' ')[2]}")

    async def cell(self) -> Cell:
        """Give a new process."""
        if self._control is None or self.is_gone:
            raise CellError("a process for the attempt could not be started: what they come from is gone")
        ours, theirs = socket.socketpair()
        birth: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._births.append(birth)
        with theirs:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
        pid = await birth
        cell = Cell(pid, self._kill, self._living[pid])
        await cell.ready(ours)
        return cell

    def _kill(self, pid: int) -> None:
        if self._control is not None and pid in self._living:
            with suppress(OSError):
                self._control.send(f"kill {pid}".encode())

    def _hear(self) -> None:
        if self._control is None:
            return
        try:
            packet = self._control.recv(2048).decode()
        except BlockingIOError:
            return
        except OSError:
            packet = ""
        word, _, rest = packet.partition(" ")
        match word:
            case "born":
                self._living[int(rest)] = asyncio.get_running_loop().create_future()
                self._births.popleft().set_result(int(rest))
            case "ended":
                pid, _, code = rest.partition(" ")
                self._living.pop(int(pid)).set_result(int(code))
            case "":
                self.close()
            case _:
                self._heard.put_nowait(packet)

    def close(self) -> None:
        """Hang up: it ends, and all that came from it."""
        if self.is_gone:
            return
        self.is_gone = True
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
        self._heard.put_nowait("unready it died")
        for birth in self._births:
            birth.set_exception(CellError("a process for the attempt could not be started: what they come from died"))
        for ended in self._living.values():
            ended.set_result(-signal.SIGKILL)
        self._births.clear()
        self._living.clear()


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
        self._nursery: Nursery | None = None
        self._beginning = asyncio.Lock()
        self._idle: list[Cell] = []
        self._most_idle = os.cpu_count() or 1

    async def take(self) -> Cell:
        """Give one that is idle, or a new one."""
        if self._idle:
            return self._idle.pop()
        async with self._beginning:
            if self._nursery is None or self._nursery.is_gone:
                nursery = Nursery(whereabouts(self._app))
                await nursery.start()
                self._nursery = nursery
        return await self._nursery.cell()

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

    def close(self) -> None:
        """End all of them."""
        if self._nursery is not None:
            self._nursery.close()
        self._idle.clear()
