"""Two minutes of chaos, on both stores: everybody is killed, stopped and cut off, and every rule holds.

`make chaos MINUTES=10` runs the same for longer. LEFTFOLD_CHAOS_SECONDS says how long it is here, on each store.
"""

import os
from pathlib import Path
from typing import Final

import pytest
from chaos.__main__ import main, report, showing
from chaos.campaign import Outcome, run
from chaos.checker import Violation

SECONDS: Final = float(os.environ.get("LEFTFOLD_CHAOS_SECONDS", "50"))
SEED: Final = 6

#: What a campaign must have come to at least, lest it shows nothing: low enough for a machine that is busy otherwise.
#: Outcomes that came late are not among it: each needs somebody who holds the lock, or is stopped, and is not killed
#: before he goes on, while another one has claimed his job. Nothing makes sure of that in so short a time.
BOTH: Final = {"operations": 100, "attempts": 50, "worker processes killed": 3, "clients killed": 1, "zombies": 1,
               "workers brought down by jobs": 1, "isolated processes brought down": 1, "interpreter's lock held": 1,
               "memory exhausted": 1}  # fmt: skip
LEAST: Final = {
    "sqlite": BOTH | {"locks held": 1},
    "postgres": BOTH | {"database crashes": 2, "connections cut": 2, "rounds of cut replies": 1, "black holes": 1},
}


def nobody(*_: object) -> None:
    """Watch, and say nothing."""


@pytest.mark.parametrize("store", LEAST)
def test_every_rule_holds_whatever_happens_to_workers_clients_and_the_store(store: str, tmp_path: Path) -> None:
    outcome = run(store, SECONDS, SEED, tmp_path / store, nobody)
    assert outcome.violations == [], report([outcome], SEED)
    assert {name: (outcome.figures[name], least) for name, least in LEAST[store].items()
            if outcome.figures[name] < least} == {}, outcome.figures  # fmt: skip


def test_a_report_names_the_job_the_rule_and_where_the_records_lie() -> None:
    found = [Violation("stale", f"job-{number}", "attempt 1 says succeeded") for number in range(25)]
    text = report([Outcome("sqlite", {"operations": 1234, "lost": 0}, found, Path("kept"))], 7)
    assert "operations" in text
    assert "1,234" in text
    assert "sqlite breaks the rule `stale`, job job-0: attempt 1 says succeeded" in text
    assert "… and 5 more" in text
    assert "The records and the logs lie in kept." in text
    assert "--seed 7" in text


def test_progress_is_one_line_on_a_terminal_and_few_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    for live in (True, False):
        show = showing(live=live)
        show("sqlite", 61, 1200, 3)
        show("sqlite", 60, 1201, 3)
    shown = capsys.readouterr().err
    assert shown.startswith("\rsqlite: 1:01 left, 1,200 operations, 3 killed")
    assert shown.endswith("sqlite: 1:01 left, 1,200 operations, 3 killed\n")
    assert shown.count("operations") == 2


def test_the_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert all(option in said for option in ("--minutes", "--store", "--seed", "--json", "--keep"))


def test_records_of_two_campaigns_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").touch()
    with pytest.raises(SystemExit) as left:
        main(["--keep", str(tmp_path)])
    assert left.value.code == 2
    assert "there is something in" in capsys.readouterr().err
