"""The processes of a campaign: workers as people run them, and clients. Who is gone is started again."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from chaos.app import EXIT
from chaos.grounds import SCHEMA, Ground
from chaos.records import FOLDER

ROOT: Final = Path(__file__).parents[1]
WORKERS: Final = (1, 1, 2)  # of how many processes each
CLIENTS: Final = 2
_WORKER: Final = ("-m", "leftfold", "worker", "-A", "chaos.app:app", "--concurrency", "8", "--poll", "0.3",
                  "--grace", "3", "--cancel-grace", "1")  # fmt: skip
_PAUSE: Final = 0.5  # a worker that comes to a server that is down leaves again at once
_YOUNG: Final = 5.0  # too young to have heard of signals
TIME_TO_LEAVE: Final = 45.0
#: How a worker ends that the campaign itself brings down, by its jobs or from outside, or that finds no store.
_CAUSED: Final = frozenset({-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT, EXIT, 75})
#: What a worker says of a child, and what nobody says of whom all is well; tracebacks of handlers stand further in.
_CHILD: Final = re.compile(r"a worker process ended with code (-?\d+)")
_ALARM: Final = re.compile(r"Traceback \(|\S+Z CRITICAL |.*never retrieved")
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)  # loaded here: behind a fork it could wait


class Slot:
    """A place for a process, and the one that is in it now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.born = 0
        self.begun = 0.0
        self.stopped = False
        self.killed = False  # by us
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def tree(self) -> list[int]:
        """Give the process and all that it started, and those started, if they live."""
        if self.process is None or self.process.poll() is not None:
            return []
        return [self.process.pid, *_below(self.process.pid)]


class Fleet:
    """All processes that a campaign started."""

    def __init__(self, ground: Ground, folder: Path, seed: int) -> None:
        self._ground, self._folder, self._seed = ground, folder, seed
        self.workers = [Slot(f"worker-{number}") for number in range(len(WORKERS))]
        self.clients = [Slot(f"client-{number}") for number in range(CLIENTS)]
        self.crashes: list[str] = []  # of those that ended by themselves: they never should
        self._env = {
            **os.environ, FOLDER: str(folder), "LEFTFOLD_DATABASE_URL": ground.of_workers, "LEFTFOLD_SCHEMA": SCHEMA,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip

    def keep_up(self, *, clients: bool = True) -> None:
        """Start who is not there."""
        for slot, processes in zip(self.workers, WORKERS, strict=True):
            if self._is_vacant(slot):
                arguments = [*_WORKER, "--name", slot.name, "--processes", str(processes)]
                self._start(slot, arguments)
        for slot in self.clients if clients else ():
            if self._is_vacant(slot):
                before = [str(file) for file in self._folder.glob(f"{slot.name}-{slot.born}.jsonl")]
                name = f"{slot.name}-{slot.born + 1}"
                given = [self._ground.of_clients, SCHEMA, str(self._folder), name, str(self._seed)]
                self._start(slot, ["-m", "chaos.client", *given, *before])

    def _is_vacant(self, slot: Slot) -> bool:
        if slot.process is not None:
            if slot.process.poll() is None:
                return False
            code = slot.process.returncode
            if not slot.killed and (slot in self.clients or code not in _CAUSED):
                self.crashes.append(f"{slot.name}-{slot.born} ended by itself, with code {code}")
            slot.process = None
        return time.monotonic() - slot.begun > _PAUSE

    def _start(self, slot: Slot, arguments: list[str]) -> None:
        slot.born += 1
        slot.begun = time.monotonic()
        slot.stopped = slot.killed = False
        with (self._folder / f"{slot.name}-{slot.born}.log").open("wb") as log:
            slot.process = subprocess.Popen(
                [sys.executable, *arguments], cwd=ROOT, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=_end_with_us,  # noqa: PLW1509 - one system call, no lock
            )  # fmt: skip

    def kill(self, slot: Slot) -> int:
        """Kill a process and all below it, as a machine that is switched off would; say how many they were."""
        tree = slot.tree
        if slot.process is not None and tree:
            slot.killed = True
            send(tree, signal.SIGKILL)
            slot.process.wait()
        return len(tree)

    def wake(self) -> None:
        """Let everybody go on who was stopped."""
        for slot in self.workers:
            send(slot.tree, signal.SIGCONT)
            slot.stopped = False

    def leave(self, slots: list[Slot]) -> list[str]:
        """Ask these to leave, and say who did not, or not well."""
        for slot in slots:
            self._is_vacant(slot)  # who was killed a moment ago is gone, and not asked
            if slot.process is not None:
                slot.killed = True  # it ends because we say so
                slot.process.terminate()
        asked = time.monotonic()
        deadline = asked + TIME_TO_LEAVE
        wrong = []
        for slot in slots:
            try:
                code = slot.process.wait(max(0.1, deadline - time.monotonic())) if slot.process is not None else 0
            except subprocess.TimeoutExpired:
                wrong.append(f"{slot.name}-{slot.born} does not leave")
            else:
                young = code == -signal.SIGTERM and asked - slot.begun < _YOUNG
                wrong += [f"{slot.name}-{slot.born} left with code {code}"] if code and not young else []
        return wrong

    def alarms(self) -> list[str]:
        """Give what the logs of workers say that no kill explains."""
        logs = sorted(self._folder.glob("worker-*.log"))
        return [f"{log.stem}: {alarm}" for log in logs for alarm in alarms_in(log.read_text(errors="replace"))]

    def close(self) -> None:
        """End everybody who is ours, also whoever lost his parent."""
        for slot in (*self.workers, *self.clients):
            self.kill(slot)
        send(list(_of(self._folder)), signal.SIGKILL)


def alarms_in(log: str) -> Iterator[str]:
    """Find the lines that say that a worker, or a child of one, ended for a reason that nobody gave."""
    for number, line in enumerate(log.splitlines(), start=1):
        child = _CHILD.search(line)
        if _ALARM.match(line) or (child and int(child[1]) not in _CAUSED):
            yield f"line {number}: {line}"


def _end_with_us() -> None:
    """Let the kernel end a process when we do, however we end: who goes on for ever would."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def send(pids: list[int], number: int) -> None:
    """Send a signal to whoever is still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _below(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            parent = int(stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def _of(folder: Path) -> Iterator[int]:
    """Find the processes that write their records into this folder: nobody else's do."""
    mark = f"{FOLDER}={folder}".encode()
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in file.read_bytes().split(b"\0"):
                yield int(file.parent.name)
