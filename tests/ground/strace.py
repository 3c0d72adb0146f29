"""System calls that fail, or kill, at the n-th time: `strace` puts itself between a process and its kernel."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.concurrency.crowd import eventually

STRACE = shutil.which("strace")


def needs_strace() -> pytest.MarkDecorator:
    """Skip what cannot be done without it."""
    return pytest.mark.skipif(not _works(), reason="strace is not there, or not allowed to attach to a process")


def _works() -> bool:
    if STRACE is None:
        return False
    probe = [STRACE, "-o", os.devnull, "-e", "trace=none", "true"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


def inject(pid: int, call: str, fault: str, number: int, log: Path) -> "subprocess.Popen[bytes]":
    """Let the n-th of these calls of a process fail from now on; the log shows which one did."""
    rules = ["-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={number}"]
    tracer = subprocess.Popen(
        [str(STRACE), "-p", str(pid), "-o", str(log), *rules],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: _tracer_of(pid) == tracer.pid or tracer.poll() is not None)
    assert tracer.poll() is None, "strace could not attach"
    return tracer


def _tracer_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("TracerPid"))


def was_hit(log: Path) -> bool:
    """Tell whether it came to the fault."""
    return "INJECTED" in log.read_text(encoding="utf-8", errors="replace")
