"""A test on real time is done again only if it failed while the machine stood still, and that is told."""

import signal
import time
from pathlib import Path
from typing import Literal

import pytest
from tests.steady import LATE, TRIES, is_timed, told, tried, watching

ROOT = Path(__file__).parents[2]
Ending = Literal["passed", "failed"]


def report(outcome: Ending) -> pytest.TestReport:
    return pytest.TestReport("test", ("", 0, ""), {}, outcome, "why it failed", "call", start=0, stop=0, duration=0)


class Seen:
    """What a watch saw, each time that it is asked."""

    def __init__(self, *late: float) -> None:
        self._late = iter(late)

    def latest(self, since: float) -> float:  # noqa: ARG002 - as a watch is asked
        return next(self._late)


@pytest.mark.parametrize(
    ("outcomes", "late", "runs", "last"),
    [
        (["passed"], [], 1, "passed"),
        (["failed", "passed"], [0.0], 1, "failed"),  # the machine kept time: it has failed
        (["failed", "passed"], [9.0], 2, "passed"),
        (["failed", "failed"], [9.0, 0.0], 2, "failed"),
        (["failed"] * 9, [9.0] * 9, TRIES, "failed"),  # some time or other it has
    ],
)
def test_what_failed_while_the_machine_stood_still_is_done_again(
    outcomes: list[Ending], late: list[float], runs: int, last: str
) -> None:
    given = iter(outcomes)
    reports, before = tried(lambda: [report(next(given))], Seen(*late))
    assert [each.outcome for each in reports] == [last]
    assert before == ["failed while the machine stood still for 9.00 s:\nwhy it failed"] * (runs - 1)


def test_a_watch_sees_that_the_machine_stood_still_and_when() -> None:
    with watching() as watch:
        begun, late = time.monotonic(), 0.0
        while not late and time.monotonic() < begun + 60:  # once may be between two looks
            watch.process.send_signal(signal.SIGSTOP)
            time.sleep(3 * LATE)  # to stand still takes its time
            watch.process.send_signal(signal.SIGCONT)
            late = watch.latest(begun)
        assert late > LATE
        assert watch.latest(time.monotonic() + 60) == 0, "nothing since then"


def test_what_was_done_again_is_told_with_how_it_had_failed() -> None:
    again = report("passed")
    again.sections = [("Captured stdout call", "words"), ("held up", "failed while …")]
    assert list(told([report("passed"), again])) == ["test failed while …"]


def test_only_tests_of_workers_and_of_chaos_are_on_real_time() -> None:
    assert is_timed(ROOT / "tests" / "worker" / "test_isolation.py")
    assert not is_timed(ROOT / "tests" / "store" / "test_claims_and_keys.py")
