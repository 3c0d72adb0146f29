"""What a worker and the processes of isolated attempts say to each other: JSON behind its length, over a socket."""

import asyncio
import struct
from collections.abc import Mapping
from typing import Final, get_args

import msgspec
from msgspec import Raw, Struct

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.values import Answer
from leftfold.store.replies import Claim

#: A result, or a traceback, and what else stands on a frame.
_MOST: Final = 64 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")


class Begin(Struct, tag="begin"):
    """The worker's first word: where the app is found, what else to import for its kinds, which log lines it wants."""

    path: list[str]
    modules: list[str]
    kinds: list[str]
    module: str
    is_file: bool
    name: str
    level: int


class Run(Struct, tag="run"):
    """Run the handler of this claim."""

    claim: Claim


class Stop(Struct, tag="stop"):
    """Let the handler stop: the name of a `Stop`."""

    why: str


class Answered(Struct, tag="answered"):
    """What the job's waits were answered with so far."""

    answers: dict[str, Answer]


class Ready(Struct, tag="ready"):
    """The process has the app, and can begin."""


class Unready(Struct, tag="unready"):
    """It has not, and why."""

    why: str


class Told(Struct, tag="told"):
    """A note for the job's log."""

    wire: str
    note: Raw


class Asked(Struct, tag="asked"):
    """A question: what were the waits answered with."""


class Logged(Struct, tag="logged"):
    """A line for the worker's log."""

    name: str
    level: int
    message: str
    traceback: str | None


class Came(Struct, tag="came"):
    """What came of the attempt: a command, or nothing; and whether nothing of the handler goes on."""

    wire: str | None
    command: Raw
    clean: bool


Frame = Begin | Run | Stop | Answered | Ready | Unready | Told | Asked | Logged | Came

_FRAME: Final = msgspec.json.Decoder(Frame)
_COMMANDS: Final[Mapping[str, type[c.AnyCommand]]] = {each.wire: each for each in get_args(c.AnyCommand)}


def came(command: c.AnyCommand | None, *, clean: bool) -> Came:
    """Give what came of an attempt as a frame."""
    return Came(None if command is None else command.wire, Raw(msgspec.json.encode(command)), clean)


def command_of(frame: Came) -> c.AnyCommand | None:
    """Read it back."""
    return None if frame.wire is None else msgspec.json.decode(frame.command, type=_COMMANDS[frame.wire])


def told(note: e.AnyNote) -> Told:
    """Give a note as a frame."""
    return Told(note.wire, Raw(msgspec.json.encode(note)))


def note_of(frame: Told) -> e.AnyNote:
    """Read it back."""
    kind = next(each for each in e.NOTES if each.wire == frame.wire)
    return msgspec.json.decode(frame.note, type=kind)


def packed(frame: Frame) -> bytes:
    """Give a frame as bytes: its length, then itself."""
    text = msgspec.json.encode(frame)
    return _LENGTH.pack(len(text)) + text


async def read(reader: asyncio.StreamReader) -> Frame | None:
    """Give the next frame, or None behind the last one."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > _MOST:
            return None
        frame: Frame = _FRAME.decode(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError, OSError, msgspec.MsgspecError):
        return None
    return frame
