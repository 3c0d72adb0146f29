"""The process of isolated attempts: `python -m leftfold.worker.cell`, started by a worker and by nobody else.

It has the app, and runs one attempt at a time as a worker does; but it holds no lease and writes nothing. What came of
the attempt goes to the worker. Whatever the handler does to its interpreter, it does to this one.
"""

import asyncio
import ctypes
import importlib
import logging
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from leftfold.app.app import App
from leftfold.app.context import Context, SyncContext
from leftfold.core import events as e
from leftfold.core.errors import DesignError
from leftfold.core.values import Answer
from leftfold.store.replies import Claim
from leftfold.worker import frames
from leftfold.worker.attempt import Attempt, Stop
from leftfold.worker.cells import MARK
from leftfold.worker.lease import Held
from leftfold.worker.threads import Threads

_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


class Channel:
    """The way to the worker, from any thread."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
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
        trace = self._plain.formatException(record.exc_info) if record.exc_info else None
        try:
            message = record.getMessage()
        except Exception as problem:  # noqa: BLE001 - of users' own objects
            message = f"{record.msg} {record.args!r} ({problem!r})"
        self._channel.send(frames.Logged(record.name, record.levelno, _text(message), trace and _text(trace)))


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
    return found


async def serve(connection: socket.socket) -> None:
    """Run attempts, one at a time, until the worker hangs up."""
    reader, writer = await asyncio.open_connection(sock=connection)
    channel = Channel(writer)
    begin = await frames.read(reader)
    if not isinstance(begin, frames.Begin):
        return
    logging.getLogger().handlers[:] = [_Lines(channel)]
    logging.getLogger().setLevel(begin.level)
    async with AsyncExitStack() as stack:
        try:
            app = find_app(begin)
            os.environ.pop(MARK, None)  # not for what handlers start
            logging.getLogger().handlers[:] = [_Lines(channel)]  # whatever the app has set up: the worker has it, too
            state = app.lifespan and await stack.enter_async_context(app.lifespan(app))
        except BaseException as problem:  # noqa: BLE001 - of whatever the user's module does
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
    channel.send(frames.came(command))


def _leave_with(life: int) -> None:
    """End when the worker does, however it ends: the other end of this pipe is its alone."""

    def wait() -> None:
        os.read(life, 1)
        os._exit(1)

    threading.Thread(target=wait, name="leftfold-life", daemon=True).start()
    if sys.platform == "linux":  # also where a handler holds the interpreter's lock
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def main() -> None:
    """Take the two ends that the worker gave us."""
    connection, life = (int(each) for each in sys.argv[1:3])
    sys.argv[1:] = []
    _leave_with(life)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which tells us
    asyncio.run(serve(socket.socket(fileno=connection)))
    os._exit(0)  # a thread of a handler may go on for ever


if __name__ == "__main__":
    main()
