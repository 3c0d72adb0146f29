"""Commands that are born with everything loaded: to load it takes longer than most of what a command is asked to do.

`python -m tests.e2e.nursery SOCKET` loads all commands, and forks whenever one is asked for: a process of its own, with
its own arguments, environment, folder and files, that ends as the interpreter does. What is decided while Python starts
and loads modules is not seen so: give `fresh` to `command.run` for that.
"""

import atexit
import functools
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_SECONDS: Final = 300.0
_WORD: Final = b"leftfold"


# --- outside ----------------------------------------------------------------------------------------------------------


def born(
    arguments: Sequence[str], cwd: Path | None, env: Mapping[str, str], stdin: bytes | None
) -> tuple[int, bytes, bytes]:
    """Run `python -m leftfold` with these arguments to its end, and give its exit code and what it wrote."""
    with (
        socket.socket(socket.AF_UNIX) as line,
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin or b"")
        given.seek(0)
        line.settimeout(_SECONDS)
        line.connect(_nursery().path)
        socket.send_fds(line, [_WORD], [given.fileno(), out.fileno(), err.fileno()])
        wish = {"arguments": list(arguments), "cwd": str(cwd or Path.cwd()), "env": dict(env)}
        line.sendall(json.dumps(wish).encode() + b"\n")
        answer = b"".join(iter(functools.partial(line.recv, 4096), b""))
        out.seek(0)
        err.seek(0)
        return int(answer), out.read(), err.read()


class _Nursery:
    """One per process of the tests. It ends when its standard input does, so with us."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="nursery-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path = str(folder / "line")
        command = [sys.executable, "-m", "tests.e2e.nursery", self.path]
        env = {**os.environ, "PYTHONUTF8": "1"}
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        until = time.monotonic() + _SECONDS
        while not Path(self.path).exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the nursery does not open")
            time.sleep(0.01)  # nobody tells


_nursery = functools.cache(_Nursery)


# --- inside -----------------------------------------------------------------------------------------------------------


def _open(path: str) -> None:
    """Fork for whoever calls, until standard input ends."""
    _load()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{path}.new")
        door.listen(64)
        Path(f"{path}.new").rename(path)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
        while True:
            if 0 in select.select([door.fileno(), 0], [], [])[0]:
                return
            line, _ = door.accept()
            if os.fork() == 0:
                break
            line.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _serve(line)


def _load() -> None:
    import leftfold.store.postgres.driver  # noqa: PLC0415 - not where the tests run
    import leftfold.store.sqlite.driver  # noqa: F401, PLC0415 - both only to be loaded, and not where the tests run
    from leftfold.cli import VERBS  # noqa: PLC0415 - not where the tests run

    for verb in VERBS.values():
        verb.load()
    gc.freeze()


def _serve(line: socket.socket) -> None:
    """Be a command in one process, and wait for it in the other."""
    _, files, _, _ = socket.recv_fds(line, len(_WORD), 3)
    with line.makefile("rb") as lines:
        wish: dict[str, Any] = json.loads(lines.readline())
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        line.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    line.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(wish["cwd"])
    os.environ.clear()
    os.environ.update(wish["env"])
    sys.path[0] = wish["cwd"]
    sys.argv[1:] = wish["arguments"]
    runpy.run_module("leftfold", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _open(sys.argv[1])
