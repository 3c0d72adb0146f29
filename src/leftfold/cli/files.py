"""Exports as files: read line by line, and written as a whole or not at all."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import click
import msgspec

from leftfold.core.errors import ValidationError
from leftfold.store.export import Head

#: The first line of an export is shorter; what is no export may have no end of a line at all.
_HEAD_MAX: Final = 1000


def lines_in(file: str) -> Iterator[str]:
    """Open a file, or standard input (`-`), and give its lines as they are."""
    try:
        return _lines(file, _opened(file))
    except OSError as problem:
        raise ValidationError(f"{file} cannot be read: {problem.strerror}") from problem


def _opened(file: str) -> IO[str]:
    # A byte that is not UTF-8 becomes a character that no line of an export has: it is refused with its line.
    if file != "-":
        return Path(file).open(encoding="utf-8", errors="surrogateescape", newline="\n")
    if sys.stdin is None:
        raise ValidationError("- reads standard input, which is closed")
    return os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8", errors="surrogateescape", newline="\n")


def _lines(file: str, text: IO[str]) -> Iterator[str]:
    with text:
        try:
            yield text.readline(_HEAD_MAX)
            yield from text
        except OSError as problem:
            raise ValidationError(f"{file} cannot be read: {problem.strerror}") from problem


def beginning_with_a_head(lines: Iterator[str]) -> Iterator[str]:
    """Refuse what does not begin as an export does, and give all of it."""
    first = next(lines, "")
    try:
        msgspec.json.decode(first, type=Head)
    except (msgspec.DecodeError, UnicodeEncodeError) as problem:
        raise ValidationError("this is no export of leftfold: its first line says so") from problem
    return _chained(first, lines)


def _chained(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def write(lines: Iterable[str], file: str | None) -> None:
    """Write lines to standard output, or into a file, which is there when all of it is on the disk, and not before."""
    if file is None or file == "-":
        if sys.stdout is None:
            raise ValidationError("standard output is closed: name a file with -o")
        _pour(lines, sys.stdout.buffer)
        return
    target = Path(file).resolve()  # what a link leads to is replaced, and not the link
    try:
        if target.exists() and not target.is_file():  # a device or a pipe takes it as it comes
            with target.open("wb") as out:
                _pour(lines, out)
        else:
            _replace(lines, target)
    except OSError as problem:
        raise click.FileError(file, problem.strerror) from problem


def _pour(lines: Iterable[str], out: IO[bytes]) -> None:
    for line in lines:
        out.write(line.encode())
    out.flush()


def _replace(lines: Iterable[str], target: Path) -> None:
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with beside.open("xb") as out:
            _pour(lines, out)
            os.fsync(out.fileno())
        beside.replace(target)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too
    finally:
        os.close(folder)
