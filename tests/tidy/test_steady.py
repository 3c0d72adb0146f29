"""A test on real time is done again only if it failed while the machine stood still."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import pytest
from tests.steady import LATE, TRIES, Watch, is_timed, tried

ROOT = Path(__file__).parents[2]
WATCHING = """
import sys
from tests.steady import Watch
with Watch() as watch:
    print("looks", flush=True)
    sys.stdin.readline()
print(watch.latest)
"""


Ending = Literal["passed", "failed"]


def report(outcome: Ending) -> pytest.TestReport:
    return pytest.TestReport("test", ("", 0, ""), {}, outcome, None, "call", start=0, stop=0, duration=0)


def late_by(*seconds: float) -> list[Watch]:
    """Give watches that have seen so much, in the order of their use."""
    watches = [Watch() for _ in seconds]
    for watch, latest in zip(watches, seconds, strict=True):
        watch.latest = latest
    return watches[::-1]


@pytest.mark.parametrize(
    ("outcomes", "late", "runs", "last"),
    [
        (["passed"], [9.0], 1, "passed"),
        (["failed", "passed"], [0.0, 0.0], 1, "failed"),  # the machine kept time: it has failed
        (["failed", "passed"], [9.0, 0.0], 2, "passed"),
        (["failed", "failed"], [9.0, 0.0], 2, "failed"),
        (["failed"] * 9, [9.0] * 9, TRIES, "failed"),  # some time or other it has
    ],
)
def test_what_failed_while_the_machine_stood_still_is_done_again(
    outcomes: list[Ending], late: list[float], runs: int, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "_look", lambda _: None)  # what it has seen is given
    given, watches = iter(outcomes), late_by(*late)
    reports, held_up = tried(lambda: [report(next(given))], watches.pop)
    assert [each.outcome for each in reports] == [last]
    assert len(held_up) == runs - 1


def test_a_watch_sees_that_its_process_stood_still() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WATCHING], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "looks\n"
    child.send_signal(signal.SIGSTOP)
    time.sleep(3 * LATE)  # to stand still takes its time
    child.send_signal(signal.SIGCONT)
    told, _ = child.communicate("\n", timeout=60)
    assert float(told) > LATE


def test_only_tests_of_workers_and_of_chaos_are_on_real_time() -> None:
    assert is_timed(ROOT / "tests" / "worker" / "test_isolation.py")
    assert not is_timed(ROOT / "tests" / "store" / "test_claims_and_keys.py")
