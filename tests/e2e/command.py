"""The real command, in a process of its own."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """What a run of the command came to."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Read standard output as the JSON that it must be, and nothing else."""
        return json.loads(self.out)


def run(*arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """Run `python -m leftfold` with these arguments."""
    return start(["-m", "leftfold", *arguments], cwd=cwd, env=env)


def start(
    arguments: list[str], program: str = sys.executable, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Ran:
    """Run a program to its end."""
    done = subprocess.run(
        [program, *arguments], cwd=cwd, env=_around(env), capture_output=True, encoding="utf-8", timeout=300,
        check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def watched(*arguments: str, env: Mapping[str, str] | None = None) -> Ran:
    """Run `python -m leftfold` on a terminal, where standard output and standard error are one."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "leftfold", *arguments]
    with subprocess.Popen(command, env=_around(env), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return Ran(process.returncode, shown.decode(), "")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so when the last program has left the terminal
        return b""


def _around(env: Mapping[str, str] | None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    return {**inherited, "PYTHONUTF8": "1", **(env or {})}


def complaint(ran: Ran) -> str:
    """Give the one line that says what is wrong."""
    lines = [line for line in ran.err.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, ran.err
    assert "Traceback" not in ran.err
    return lines[0]
