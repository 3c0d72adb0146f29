"""The worker processes of `leftfold demo`: real ones, and gone when it ends, however it ends."""

import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from leftfold.core.errors import LeftfoldError

CONCURRENCY: Final = 4
LEASE: Final = 3.0  # seconds: short, so that one sees a dead worker's jobs taken over
_TIME_TO_LEAVE: Final = 15.0


class Fleet:
    """Some workers, each with a name, a process and a file for its log lines."""

    def __init__(self, names: list[str], folder: Path) -> None:
        self._names = names
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: set[str] = set()

    def __enter__(self) -> Self:
        try:
            for name in self._names:
                self._processes[name] = self._started(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()  # whoever left already does not hear it
        for process in self._processes.values():
            process.wait()

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "leftfold", "worker", "-A", "leftfold.cli.demo_app:app", "--until-idle",
            "--name", name, "--concurrency", str(CONCURRENCY), "--poll", "0.5",
        ]  # fmt: skip
        with self._log(name).open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603 - ourselves

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def pid(self, name: str) -> int:
        """Give the process of a worker."""
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """Kill a worker: it gets no chance to say or to write anything."""
        self._killed.add(name)
        self._processes[name].kill()
        self._processes[name].wait()

    def check(self) -> None:
        """Make sure that nobody ended who was not to: by itself a worker ends with 0, when there is nothing left."""
        for name, process in self._processes.items():
            if process.poll() and name not in self._killed:
                raise LeftfoldError(f"{name} ended with code {process.returncode}: {self._last_words(name)}")

    def left(self) -> None:
        """Wait until all have left: there is nothing more to do for them."""
        for name, process in self._processes.items():
            try:
                process.wait(_TIME_TO_LEAVE)
            except subprocess.TimeoutExpired:
                raise LeftfoldError(f"all jobs have ended, but {name} does not: {self._last_words(name)}") from None
        self.check()

    def _last_words(self, name: str) -> str:
        lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"
