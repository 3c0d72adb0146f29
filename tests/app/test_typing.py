"""Type checkers find the wrong calls in `typed.txt`, each of them, and complain about none that is right."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (Path(__file__).parent / "typed.txt").read_text(encoding="utf-8")
WRONG = [number for number, line in enumerate(TEXT.splitlines(), 1) if line.endswith("# error")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Give the calls as a file of somebody else's project."""
    made = tmp_path / "typed.py"
    made.write_text(TEXT, encoding="utf-8")
    return made


def lines(*command: str, pattern: str, folder: Path) -> list[int]:
    run = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert run.returncode == 1, run.stdout + run.stderr
    return sorted({int(number) for number in re.findall(pattern, run.stdout, re.MULTILINE)})


def test_there_are_wrong_calls() -> None:
    assert len(WRONG) > 25


def test_mypy_finds_the_wrong_calls(file: Path) -> None:
    found = lines(
        "mypy", "--strict", "--cache-dir=cache", file.name, pattern=r"^typed\.py:(\d+): error", folder=file.parent
    )
    assert found == WRONG


def test_pyright_finds_the_wrong_calls(file: Path) -> None:
    (file.parent / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "standard", "include": [file.name], "extraPaths": [str(ROOT / "src")]}),
        encoding="utf-8",
    )
    found = lines(
        "basedpyright", "--pythonpath", sys.executable, pattern=r"typed\.py:(\d+):\d+ - error", folder=file.parent
    )
    assert found == WRONG
