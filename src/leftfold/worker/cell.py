"""The processes of isolated attempts: `python -m leftfold.worker.cell`, started by a worker and by nobody else.

The first one imports the app, and forks the others. Each of those runs one attempt at a time as a worker does; but it
holds no lease and writes nothing. What came of the attempt goes to the worker. Whatever the handler does to its
interpreter, it does to this one.
"""

import asyncio
import ctypes
import importlib
import logging
import os
import random
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import msgspec

from leftfold.app.app import App
from leftfold.app.context import Context, SyncContext
from leftfold.core import events as e
from leftfold.core.errors import DesignError
from leftfold.core.limits import TEXT_CHARS_MAX
from leftfold.core.values import Answer
from leftfold.store.replies import Claim
from leftfold.worker import frames
from leftfold.worker.attempt import Attempt, Stop
from leftfold.worker.cells import MARK
from leftfold.worker.lease import Held
from leftfold.worker.threads import Threads

_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_LOOK_MILLISECONDS: Final = 20


class Channel:
    """The way to the worker, from any thread."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.serving = asyncio.current_task()
        self.answered: asyncio.Future[Mapping[str, Answer]] | None = None
        self._writer = writer
        self._asking = asyncio.Lock()

    def send(self, frame: frames.Frame) -> None:
        """Send a frame."""
        with suppress(RuntimeError):  # the loop is closed
            if threading.get_ident() == self.thread:
                self._writer.write(frames.packed(frame))
            else:
                self.loop.call_soon_threadsafe(self._writer.write, frames.packed(frame))

    def tell(self, claim: Claim, note: e.AnyNote) -> None:  # noqa: ARG002 - there is one
        """Put a note on the job's log."""
        self.send(frames.told(note))

    async def answers(self, claim: Claim) -> Mapping[str, Answer]:  # noqa: ARG002 - there is one
        """Give what the job's waits were answered with so far."""
        async with self._asking:
            self.answered = self.loop.create_future()
            self.send(frames.Asked())
            return await self.answered


class _Lines(logging.Handler):
    """Sends log lines to the worker: it knows where they go."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._plain = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        trace = None
        try:
            message = record.getMessage()
            trace = self._plain.formatException(record.exc_info) if record.exc_info else None
        except Exception as problem:  # noqa: BLE001 - of users' own objects
            message = f"{record.msg} ({type(problem).__name__} while it was written)"
        cut = trace and _text(trace)[-TEXT_CHARS_MAX:]
        self._channel.send(frames.Logged(record.name, record.levelno, _text(message)[:TEXT_CHARS_MAX], cut))


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def find_app(begin: frames.Begin) -> App:
    """Import the app as the worker has it."""
    sys.path[:] = begin.path
    found: Any
    if begin.is_file:
        found = runpy.run_path(begin.module, run_name="__leftfold_cell__").get(begin.name)
    else:
        found = getattr(importlib.import_module(begin.module), begin.name, None)
    if not isinstance(found, App):
        raise DesignError(f"{begin.module} has no App called {begin.name} when it is imported")
    for module in begin.modules:
        importlib.import_module(module)
    missing = sorted(set(begin.kinds) - set(found.handlers))
    if missing:
        raise DesignError(f"the app has no {', '.join(missing)} when its modules are imported")
    return found


async def serve(app: App, level: int, connection: socket.socket) -> None:
    """Run attempts, one at a time, until the worker hangs up."""
    reader, writer = await asyncio.open_connection(sock=connection)
    channel = Channel(writer)
    root = logging.getLogger()
    root.handlers[:] = [_Lines(channel)]  # whatever the app has set up: the worker has it, too
    root.setLevel(level)
    async with AsyncExitStack() as stack:
        try:
            state = app.lifespan and await stack.enter_async_context(app.lifespan(app))
        except BaseException as problem:  # noqa: BLE001 - of whatever the user's function does
            channel.send(frames.Unready(_text(f"{type(problem).__name__}: {problem}")))
            await writer.drain()
            return
        channel.send(frames.Ready())
        await _work(app, state, channel, reader)


async def _work(app: App, state: Any, channel: Channel, reader: asyncio.StreamReader) -> None:
    threads, attempt = Threads(), None
    while (frame := await frames.read(reader)) is not None:
        match frame:
            case frames.Run(claim=claim):
                attempt = _attempt(app, state, channel, claim, threads)
                attempt.task = asyncio.create_task(_run(app, attempt, channel))
            case frames.Stop(why=why) if attempt is not None:
                attempt.stop(Stop[why])
            case frames.Answered(answers=answers) if channel.answered is not None and not channel.answered.done():
                channel.answered.set_result(answers)
            case _:
                pass


def _attempt(app: App, state: Any, channel: Channel, claim: Claim, threads: Threads) -> Attempt:
    handler = app.handlers[claim.kind]
    context = (Context if handler.is_async else SyncContext)(app, claim, channel, state)
    return Attempt(handler, Held(claim, 0.0), context, threads)


async def _run(app: App, attempt: Attempt, channel: Channel) -> None:
    try:
        command = await attempt.run(app.middlewares)
    except BaseException as problem:  # noqa: BLE001 - as in a worker
        command = attempt.failed(problem)
    ended = attempt.thread is None or attempt.thread.done()
    others = asyncio.all_tasks() - {channel.serving, asyncio.current_task()}
    channel.send(frames.came(command, clean=ended and not others))


def _die_with_parent() -> None:
    """End when whoever started us does, however it ends; also where a handler holds the interpreter's lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _live(app: App, level: int, connection: socket.socket) -> None:
    """Be a process for attempts, from its birth on."""
    _die_with_parent()
    with suppress(OSError):
        os.setpgid(0, 0)  # with whatever a handler starts
    random.seed()  # else all of them would draw the same
    asyncio.run(serve(app, level, connection))
    sys.stdout.flush()
    os._exit(0)  # a thread of a handler may go on for ever


def _kill(pid: int) -> None:
    """End a process, and what it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:
        os.kill(pid, signal.SIGKILL)


class Nursery:
    """Has the app imported, and nothing else done with it: from here such a process is there at once.

    Lines of the worker: `fork`, with one end of a socket, `kill` with a process. Its own: `born`, `unborn`, `ended`.
    """

    def __init__(self, control: socket.socket, app: App, level: int) -> None:
        self._control, self._app, self._level = control, app, level
        self._children: set[int] = set()
        self._given: list[int] = []  # ends of sockets, for forks to come

    def run(self) -> None:
        """Go on until the worker hangs up, or dies; then nobody stays."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        unread = b""
        while True:
            if poll.poll(_LOOK_MILLISECONDS if self._children else None):
                text, given = b"", list[int]()
                with suppress(ConnectionError):  # the worker died, and had not heard all that we said
                    text, given, _, _ = socket.recv_fds(self._control, 4096, 64)
                if not text:
                    break
                self._given += given
                *lines, unread = (unread + text).split(b"\n")
                for line in lines:
                    self._heed(line.decode())
            self._bury()
        for pid in self._children:
            _kill(pid)

    def _heed(self, line: str) -> None:
        word, _, pid = line.partition(" ")
        if word == "fork":
            if self._given:
                self._fork(self._given.pop(0))
            else:  # it did not get through
                self._say("unborn too many open files")
        elif int(pid) in self._children:
            _kill(int(pid))

    def _say(self, line: str) -> None:
        with suppress(ConnectionError):  # who is gone is noticed with the next look
            self._control.sendall(f"{line}\n".encode())

    def _fork(self, connection: int) -> None:
        sys.stdout.flush()  # else both would write it
        try:
            pid = os.fork()
        except OSError as problem:
            os.close(connection)
            self._say(f"unborn {problem}")
            return
        if pid == 0:
            self._control.close()
            for other in self._given:
                os.close(other)
            try:
                _live(self._app, self._level, socket.socket(fileno=connection))
            except BaseException:  # noqa: BLE001 - nobody else would say it
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(connection)
        with suppress(OSError):
            os.setpgid(pid, pid)  # it does so itself; whoever is first
        self._children.add(pid)
        self._say(f"born {pid}")

    def _bury(self) -> None:
        for pid in list(self._children):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)  # what it started; as long as it is not buried, no other has its number
            _, status = os.waitpid(pid, 0)
            self._children.discard(pid)
            self._say(f"ended {pid} {os.waitstatus_to_exitcode(status)}")


def main() -> None:
    """Import the app, and wait for what the worker wants."""
    _die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for the worker, which tells us
        signal.signal(number, lambda *_: None)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it is a file
    control = socket.socket(fileno=int(sys.argv[1]))
    sys.argv[1:] = []
    with suppress(ConnectionError):  # a worker that dies meanwhile needs nobody
        _begin(control)


def _begin(control: socket.socket) -> None:
    with control.makefile("rb") as lines:  # the worker waits for our answer before it says more
        line = lines.readline()
    if not line.endswith(b"\n"):  # it died while it spoke
        return
    begin = msgspec.json.decode(line, type=frames.Begin)
    try:
        app = find_app(begin)
    except BaseException as problem:  # noqa: BLE001 - of whatever the user's module does
        why = " ".join(_text(f"{type(problem).__name__}: {problem}")[:1000].split())
        control.sendall(f"unready {why}\n".encode())
        return
    os.environ.pop(MARK, None)  # not for what handlers start
    app.close()  # what was opened on import is not for those that come from here
    control.sendall(b"ready\n")
    Nursery(control, app, begin.level).run()


if __name__ == "__main__":
    main()
