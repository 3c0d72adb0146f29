"""The parent of several workers: it starts anew what crashed, passes signals on, and ends when they have ended."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.concurrency.crowd import eventually
from tests.worker.real import SECONDS

from leftfold.worker import processes
from leftfold.worker.processes import Processes, is_child

#: Says that it began, then does what stands in a file; a signal is noted, and ends it at the second.
CHILD = """
import os, pathlib, signal, sys, time
here = pathlib.Path(sys.argv[1])
def note(number, _):
    with (here / "signals").open("a") as file:
        file.write(f"{number}\\n")
    if number == 2:
        sys.exit(0)
signal.signal(signal.SIGTERM, note)
signal.signal(signal.SIGINT, note)
with (here / "began").open("a") as file:
    file.write(f"{os.getpid()} {os.environ['LEFTFOLD_WORKER_PARENT']}\\n")
try:
    (here / "crash").unlink()  # only one of them can
except FileNotFoundError:
    pass
else:
    os.kill(os.getpid(), signal.SIGKILL)
until = time.monotonic() + 30  # a parent that forgets it waits no longer
while not (here / "end").exists() and time.monotonic() < until:
    time.sleep(0.01)
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    monkeypatch.setattr(processes, "_PAUSE_FIRST", 0.05)
    monkeypatch.setattr(processes, "_LOOK_EVERY", 0.01)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Processes(2, [sys.executable, "-c", CHILD, str(tmp_path)], until_idle=True)
    for number, handler in before.items():
        signal.signal(number, handler)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def run_beside(parent: Processes, script: threading.Thread) -> None:
    """Signals go to the main thread, so the parent runs there, and what happens to it beside it."""
    script.start()
    parent.run()
    script.join(SECONDS)


def test_a_child_that_crashes_is_started_anew_and_one_that_ends_is_not(parent: Processes, tmp_path: Path) -> None:
    (tmp_path / "crash").touch()

    def script() -> None:
        eventually(lambda: len(lines(tmp_path / "began")) == 3, SECONDS)
        (tmp_path / "end").touch()

    run_beside(parent, threading.Thread(target=script))
    began = [line.split() for line in lines(tmp_path / "began")]
    assert len({pid for pid, _ in began}) == 3
    assert {by for _, by in began} == {str(os.getpid())}


def test_a_child_that_somebody_recycles_is_replaced(parent: Processes, tmp_path: Path) -> None:
    """It ends as it should, with code 0; but there was to be no end."""
    parent._until_idle = False

    def script() -> None:
        eventually(lambda: len(lines(tmp_path / "began")) == 2, SECONDS)
        os.kill(int(lines(tmp_path / "began")[0].split()[0]), signal.SIGINT)
        eventually(lambda: len(lines(tmp_path / "began")) == 3, SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    run_beside(parent, threading.Thread(target=script))
    assert len(lines(tmp_path / "began")) == 3


def test_every_signal_is_passed_on_once(parent: Processes, tmp_path: Path) -> None:
    def script() -> None:
        eventually(lambda: len(lines(tmp_path / "began")) == 2, SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: len(lines(tmp_path / "signals")) == 2, SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    run_beside(parent, threading.Thread(target=script))
    assert lines(tmp_path / "signals") == ["15", "15", "2", "2"]


def test_a_child_that_crashes_while_all_are_to_stop_is_not_started_anew(parent: Processes, tmp_path: Path) -> None:
    def script() -> None:
        eventually(lambda: len(lines(tmp_path / "began")) == 2, SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: len(lines(tmp_path / "signals")) == 2, SECONDS)
        for line in lines(tmp_path / "began"):
            os.kill(int(line.split()[0]), signal.SIGKILL)

    run_beside(parent, threading.Thread(target=script))
    assert len(lines(tmp_path / "began")) == 2


def test_a_signal_in_the_middle_of_a_start_is_not_missed(
    parent: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen

    def start(*arguments: object, **named: object) -> object:
        begun = len(lines(tmp_path / "began"))
        started = real(*arguments, **named)  # type: ignore[call-overload]  # whatever it is given
        eventually(lambda: len(lines(tmp_path / "began")) == begun + 1, SECONDS)
        os.kill(os.getpid(), signal.SIGINT)  # nobody knows the child yet
        return started

    monkeypatch.setattr(subprocess, "Popen", start)
    parent.run()
    assert lines(tmp_path / "signals").count("2") >= 2


def test_a_pause_between_crashes_grows_and_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    child = processes._Child(["nothing"])
    pauses = []
    for _ in range(10):
        monkeypatch.setattr(time, "monotonic", lambda: 100.0)
        child._began = 99.0
        child.crashed(1)
        pauses.append(child.start_at - 100.0)
    assert pauses[:3] == [0.5, 1.0, 2.0]
    assert pauses[-1] == 30.0
    child._began = 0.0  # it ran for longer than a minute
    child.crashed(1)
    assert child.start_at - 100.0 == 0.5


def test_what_a_handler_starts_is_no_child_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEFTFOLD_WORKER_PARENT", str(os.getppid()))
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)  # it would follow the parent of this test
    assert is_child()
    assert not is_child()
    assert "LEFTFOLD_WORKER_PARENT" not in os.environ
