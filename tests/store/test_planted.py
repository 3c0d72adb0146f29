"""Test the tests: every bug that is planted in the stores is caught by the test that is named for it."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.store.planted import BUGS as IN_STORES
from tests.store.planted import Planted
from tests.store.planted_proofs import BUGS as IN_PROOFS

from leftfold.testing.postgres import Server, running

BUGS = (*IN_STORES, *IN_PROOFS)
#: Each takes some seconds: every fourth, always the same ones, unless all are asked for.
PLANTED = BUGS if os.environ.get("LEFTFOLD_PLANTED") == "all" else BUGS[::4]

HERE = Path(__file__).parent
TESTS = HERE.parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "src" / "leftfold"


def plant(bug: Planted, folder: Path) -> dict[str, str]:
    """Copy the package, change it, and give the environment in which the copy is imported."""
    shutil.copytree(SOURCE, folder / "leftfold")  # with what is compiled: it holds for all files but the changed one
    file = folder / "leftfold" / bug.file
    text = file.read_text(encoding="utf-8")
    for old, new in bug.changes:
        assert text.count(old) == 1, f"{bug.file} no longer has this once: {old}"
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server for all the runs, one after the other: to start one takes longer than most of them."""
    with running() as started:
        yield started


def emptied(server: Server) -> str:
    """Drop what the last run left, which may not have come to its end, and give the URL."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        left = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^public$|^information_schema$'"
        )
        for (schema,) in left.fetchall():
            connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())
    return server.url()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_named_test_catches(bug: Planted, tmp_path: Path, server: Server) -> None:
    environment = {**plant(bug, tmp_path), "LEFTFOLD_TEST_POSTGRES_URL": emptied(server)}
    folder = TESTS if "/" in bug.caught_by.partition("::")[0] else HERE
    test = f"{folder.relative_to(ROOT)}/{bug.caught_by}"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    assert run.returncode == 1, f"not caught:\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    assert f"FAILED {test}" in run.stdout


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_can_be_planted(bug: Planted) -> None:
    text = (SOURCE / bug.file).read_text(encoding="utf-8")
    assert [text.count(old) for old, _ in bug.changes] == [1] * len(bug.changes)


def test_there_are_enough_planted_bugs_and_no_two_alike() -> None:
    assert len(PLANTED) >= 15
    assert not [name for name, count in Counter(bug.name for bug in BUGS).items() if count > 1]
