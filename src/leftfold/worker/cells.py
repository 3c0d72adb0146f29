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

_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 2.0
_LAST_WORDS_SECONDS: Final = 0.2
_BIRTHS_MOST: Final = 16  # at a time
_BUFFER: Final = 1024 * 1024
MARK: Final = "LEFTFOLD_CELL"  # who runs a worker where its app is imported would start another, and so on
_RUNS_MOST: Final = 1_000  # of one process; then it is thrown away, with whatever leaked


class CellError(Exception):
    """A process for isolated attempts cannot be had."""


class CellDied(Exception):  # noqa: N818 - what became of the process
    """The process ended in the middle of an attempt."""


def _unborn(why: str) -> CellError:
    return CellError(f"a process for the attempt could not be started: {why}")


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
        others = [each for each in modules if each not in {"__main__", module_name}]
        level = logging.getLogger().getEffectiveLevel()
        return frames.Begin(list(sys.path), others, sorted(app.handlers), found, is_file, name, level)
    raise DesignError("isolation needs an app that can be imported: give it a name in a module")


class Cell:
    """One such process, from its birth to its end."""

    def __init__(self, pid: int, kill: Callable[[int], None], ended: "asyncio.Future[int]") -> None:
        self._pid, self._kill, self._ended = pid, kill, ended
        self._reader: Any = None
        self._writer: Any = None
        self.runs = 0
        self.is_clean = True  # whether nothing of its last attempt goes on there

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
            raise _unborn(why)

    async def run(self, claim: Claim, desk: "Desk") -> c.AnyCommand | None:
        """Run an attempt there, and give what came of it."""
        self.runs += 1
        self._send(frames.Run(claim))
        while True:
            match await self._next():
                case frames.Came() as came:
                    self.is_clean = came.clean
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

    async def _next(self) -> frames.Frame | None:
        """Give the next frame, or None: also where it died, and something that it started holds on to the socket."""
        reading = asyncio.create_task(frames.read(self._reader))
        try:
            either: set[asyncio.Future[Any]] = {reading, self._ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=_LAST_WORDS_SECONDS)
            return reading.result() if reading.done() else None
        finally:
            reading.cancel()

    @property
    def is_alive(self) -> bool:
        """Whether nobody has heard of its end."""
        return not self._ended.done()

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
        code = await asyncio.shield(self._ended)
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


#: The process, and what will be its exit code.
_Birth = asyncio.Future[tuple[int, asyncio.Future[int]]]


class Nursery:
    """The process from which the others come: it has the app imported, and they are there at once."""

    def __init__(self, begin: frames.Begin) -> None:
        self._begin = begin
        self._control: socket.socket | None = None
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._births: deque[_Birth] = deque()
        self._living: dict[int, asyncio.Future[int]] = {}
        self._unread = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._delivering = asyncio.Semaphore(_BIRTHS_MOST)
        self._is_up = False
        self.is_gone = False

    async def start(self) -> None:
        """Start it, and wait until it has the app."""
        self._control, theirs = socket.socketpair()
        try:
            # From this thread: Linux ends it with the thread that started it.
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603 - see above; and it is this very interpreter
                [sys.executable, "-m", "leftfold.worker.cell", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, process_group=0, env={**os.environ, MARK: "1"},
            )  # fmt: skip
        finally:
            theirs.close()
        threading.Thread(target=self._process.wait, name="leftfold-burial", daemon=True).start()
        self._control.sendall(msgspec.json.encode(self._begin) + b"\n")
        asyncio.get_running_loop().add_reader(self._control, self._hear)
        answer = "unready it took too long"
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                answer = await self._heard.get()
        self._is_up = answer == "ready"
        if not self._is_up:
            self.close()
            raise _unborn(answer.partition(" ")[2])

    async def cell(self) -> Cell:
        """Give a new process."""
        async with self._delivering:
            return await self._cell()

    async def _cell(self) -> Cell:
        if self._control is None or self.is_gone:
            raise _unborn("what they come from is gone")
        ours, theirs = socket.socketpair()
        birth: _Birth = asyncio.get_running_loop().create_future()
        cell: Cell | None = None
        try:
            with theirs:
                socket.send_fds(self._control, [b"fork\n"], [theirs.fileno()])
            self._births.append(birth)  # behind it: what was not asked for would be taken for the next one
            pid, ended = await birth
            cell = Cell(pid, self._kill, ended)
            await cell.ready(ours)
        except BaseException:
            ours.close()
            if cell is not None:
                cell.kill()
                cell.close()
            raise
        return cell

    def _kill(self, pid: int) -> None:
        if self._control is not None and pid in self._living:
            with suppress(OSError):
                self._control.sendall(f"kill {pid}\n".encode())

    def _hear(self) -> None:
        """Read what it said: there is something, or its end."""
        text = b""
        with suppress(OSError):
            text = self._control.recv(4096) if self._control is not None else b""
        if not text:
            self.close()
            return
        *lines, self._unread = (self._unread + text).split(b"\n")
        for line in lines:
            self._heed(line.decode())

    def _heed(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "born":
                pid, birth = int(rest), self._births.popleft()
                self._living[pid] = asyncio.get_running_loop().create_future()
                if birth.done():  # nobody waits for it any more
                    self._kill(pid)
                else:
                    birth.set_result((pid, self._living[pid]))
            case "unborn":
                birth = self._births.popleft()
                if not birth.done():
                    birth.set_exception(_unborn(rest))
            case "ended":
                number, _, code = rest.partition(" ")
                ended = self._living.pop(int(number))
                if not ended.done():
                    ended.set_result(int(code))
            case _:
                self._heard.put_nowait(line)

    def close(self) -> None:
        """Hang up: it ends, and all that came from it."""
        if self.is_gone:
            return
        self.is_gone = True
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._control.close()
        if self._process is not None and self._process.poll() is None and not self._is_up:
            self._process.kill()  # it may hang in the import; else, hung up, it ends by itself, and all others with it
        self._heard.put_nowait("unready it died")
        for birth in self._births:
            if not birth.done():
                birth.set_exception(_unborn("what they come from died"))
        for ended in self._living.values():
            if not ended.done():
                ended.set_result(-signal.SIGKILL)
        self._births.clear()
        self._living.clear()


def _log(line: frames.Logged, claim: Claim | None) -> None:
    logger = logging.getLogger(line.name)
    if logger.isEnabledFor(line.level):
        text = line.message if line.traceback is None else f"{line.message}\n{line.traceback}"
        record = logger.makeRecord(line.name, line.level, "", 0, text, (), None)
        record.__dict__.update({} if claim is None else about(claim))
        logger.handle(record)


class Cells:
    """As many as are busy at once, and a few that wait for the next attempt."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._nursery: Nursery | None = None
        self._beginning = asyncio.Lock()
        self._idle: list[Cell] = []
        self._closed = False
        self._most_idle = os.cpu_count() or 1

    async def take(self) -> Cell:
        """Give one that is idle, or a new one."""
        while self._idle:
            cell = self._idle.pop()
            if cell.is_alive:
                return cell
            cell.close()
        try:
            async with self._beginning:
                if self._nursery is None or self._nursery.is_gone:
                    self._nursery = Nursery(whereabouts(self._app))
                    if not self._closed:
                        await self._nursery.start()
            return await self._nursery.cell()
        except OSError as problem:
            raise _unborn(str(problem)) from problem

    def put_back(self, cell: Cell) -> None:
        """Take one back that can be used again."""
        if not cell.is_clean or cell.runs >= _RUNS_MOST or len(self._idle) >= self._most_idle or self._closed:
            self.throw_away(cell)
        else:
            self._idle.append(cell)

    def throw_away(self, cell: Cell) -> None:
        """End one."""
        cell.kill()
        cell.close()

    def close(self) -> None:
        """End all of them, for good."""
        self._closed = True
        if self._nursery is not None:
            self._nursery.close()
        self._idle.clear()
