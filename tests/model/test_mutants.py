"""Test the tests: every planted bug is caught, by the layer that is named for it."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.model.mutants import MODEL, MUTANTS, Mutant

#: Each takes a second or two: every other one, always the same, unless all are asked for.
PLANTED = MUTANTS if os.environ.get("LEFTFOLD_PLANTED") == "all" else MUTANTS[::2]

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "leftfold"


def plant(mutant: Mutant, folder: Path) -> dict[str, str]:
    """Copy the package, change one line, and give the environment in which the copy is imported."""
    shutil.copytree(SOURCE, folder / "leftfold")  # with what is compiled: it holds for all files but the changed one
    file = folder / "leftfold" / mutant.file
    text = file.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.file} no longer has this line once: {mutant.old}"
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def model_report(environment: dict[str, str], *scope: str) -> str:
    command = [sys.executable, "-m", "leftfold", "lifecycle", "check", *scope]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 1, f"not caught:\n{run.stdout}{run.stderr}"
    return run.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", [each for each in PLANTED if each.caught_by.startswith(MODEL)], ids=lambda m: m.name)
def test_the_model_checker_catches(mutant: Mutant, tmp_path: Path) -> None:
    environment = plant(mutant, tmp_path)
    # What two jobs have to do with each other is only seen with two jobs.
    jobs = ("--jobs", "2") if "others ended" in mutant.name else ("--workers", "2", "--attempts", "2")
    report = model_report(environment, *jobs)
    assert mutant.caught_by.removeprefix(MODEL) in report
    assert re.search(r"the shortest path to it:\n  1\. client: (enqueue|receive)", report)
    assert re.search(r"^total: \d+ states, \d+ transitions, [1-9]\d* violations$", report, re.MULTILINE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutant", [each for each in PLANTED if each.caught_by.startswith("tests/")], ids=lambda m: m.name
)
def test_a_named_test_catches(mutant: Mutant, tmp_path: Path) -> None:
    environment = plant(mutant, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutant.caught_by]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 1, f"not caught:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    assert f"FAILED {mutant.caught_by}" in run.stdout


def test_there_are_enough_planted_bugs_and_no_two_alike() -> None:
    assert len(MUTANTS) >= 15
    assert not [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]
