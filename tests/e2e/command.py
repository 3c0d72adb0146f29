"""The real command, in a process of its own."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.nursery import born


class Ran(NamedTuple):
    """What a run of the command came to."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Read standard output as the JSON that it must be, and nothing else."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """Read standard output as JSON, a value per line."""
        return [json.loads(line) for line in self.out.splitlines()]


def run(
    *arguments: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    fresh: bool = False,
) -> Ran:
    """Run `python -m leftfold` with these arguments; `fresh` where it matters how Python starts and what it loads."""
    if fresh:
        return start(["-m", "leftfold", *arguments], cwd=cwd, env=env, stdin=stdin)
    code, out, err = born(arguments, cwd, around(env), stdin)
    return Ran(code, out.decode(), err.decode())


def start(
    arguments: list[str],
    program: str = sys.executable,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> Ran:
    """Run a program to its end."""
    done = subprocess.run(
        [program, *arguments], cwd=cwd, env=around(env), capture_output=True, input=stdin, timeout=300, check=False
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def watched(*arguments: str, env: Mapping[str, str] | None = None, columns: int | None = None) -> Ran:
    """Run `python -m leftfold` on a terminal, where standard output and standard error are one."""
    ours, theirs = pty.openpty()
    if columns is not None:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", "leftfold", *arguments]
    with subprocess.Popen(command, env=around(env), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return Ran(process.returncode, shown.decode(), "")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so when the last program has left the terminal
        return b""


def around(env: Mapping[str, str] | None) -> dict[str, str]:
    """Give the environment of a command: ours, without what would change its settings."""
    settings = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LEFTFOLD_DATABASE_URL", "LEFTFOLD_SCHEMA", "LEFTFOLD_ACTOR"}
    inherited = {name: value for name, value in os.environ.items() if name not in settings}
    return {**inherited, "PYTHONUTF8": "1", **(env or {})}


def complaint(ran: Ran) -> str:
    """Give the one line that says what is wrong: `leftfold: code: message`."""
    assert re.fullmatch(r"leftfold: [a-z_]+: [^\x00-\x1f\x7f]+\n", ran.err), ran.err
    return ran.err.strip()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let what is started here hear Ctrl-C, even if this run is in the background, where nobody does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
