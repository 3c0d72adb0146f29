"""Test the tests: every bug that is planted in the stores is caught by the test that is named for it."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.store.planted import BUGS, Planted

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "src" / "leftfold"


def plant(bug: Planted, folder: Path) -> dict[str, str]:
    """Copy the package, change it, and give the environment in which the copy is imported."""
    shutil.copytree(SOURCE, folder / "leftfold", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "leftfold" / bug.file
    text = file.read_text(encoding="utf-8")
    for old, new in bug.changes:
        assert text.count(old) == 1, f"{bug.file} no longer has this once: {old}"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_named_test_catches(bug: Planted, tmp_path: Path) -> None:
    environment = plant(bug, tmp_path)
    test = f"{HERE.relative_to(ROOT)}/{bug.caught_by}"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    assert run.returncode == 1, f"not caught:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    assert f"FAILED {test}" in run.stdout


def test_there_are_enough_planted_bugs_and_no_two_alike() -> None:
    assert len(BUGS) >= 15
    assert not [name for name, count in Counter(bug.name for bug in BUGS).items() if count > 1]
