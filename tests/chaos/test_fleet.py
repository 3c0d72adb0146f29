"""Who ends for a reason that nobody gave is found: kills, and handlers that fail, are reasons."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from chaos.fleet import Fleet, alarms_in
from chaos.grounds import Ground

_AT = "2026-01-01T00:00:00.000Z"
WELL = f"""\
{_AT} INFO    leftfold.worker worker-0 begins
{_AT} WARNING leftfold.worker [flaky 1 attempt 1] failed: RuntimeError: attempt 1
    Traceback (most recent call last):
      File "app.py", line 1, in flaky
    RuntimeError: attempt 1
{_AT} ERROR   leftfold.worker a worker process ended with code -9: the next one starts in 0.5 s
{_AT} ERROR   leftfold.worker a worker process ended with code 75: the next one starts in 1.0 s
leftfold: store_unavailable: the server is not there
"""
ALARMS = (
    "Traceback (most recent call last):",
    f"{_AT} CRITICAL leftfold.worker the worker ends: its loop keeper failed: KeyError('x')",
    f"{_AT} ERROR   asyncio Task exception was never retrieved",
    f"{_AT} ERROR   leftfold.worker a worker process ended with code 1: the next one starts in 0.5 s",
)


def test_kills_and_handlers_that_fail_are_no_alarm() -> None:
    assert list(alarms_in(WELL)) == []


@pytest.mark.parametrize("line", ALARMS)
def test_what_no_kill_explains_is_an_alarm(line: str, tmp_path: Path) -> None:
    assert list(alarms_in(f"{WELL}{line}\n")) == [f"line 9: {line}"]
    (tmp_path / "worker-0-1.log").write_text(f"{WELL}{line}\n", encoding="utf-8")
    assert Fleet(Ground("sqlite", "sqlite:///none.db"), tmp_path, 0).alarms() == [f"worker-0-1: line 9: {line}"]


@pytest.mark.parametrize(("code", "caused"), [(-signal.SIGKILL, True), (3, True), (75, True), (0, False), (1, False)])
def test_a_worker_that_ends_by_itself_is_told_of_unless_the_campaign_caused_it(
    code: int, caused: bool, tmp_path: Path
) -> None:
    fleet = Fleet(Ground("sqlite", "sqlite:///none.db"), tmp_path, 0)
    how = f"sys.exit({code})" if code >= 0 else f"os.kill(os.getpid(), {-code})"
    fleet.workers[0].process = subprocess.Popen([sys.executable, "-c", f"import os, sys; {how}"])
    fleet.workers[0].process.wait()
    fleet.leave(fleet.workers)
    assert fleet.crashes == ([] if caused else [f"worker-0-0 ended by itself, with code {code}"])
