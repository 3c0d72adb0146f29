"""The store conformance kit, run as a user runs it; and that it can fail."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from leftfold.testing.postgres import Server

ROOT = Path(__file__).parents[2]
FEWEST = 300


KIT = "leftfold.testing.conformance"


def kit(folder: Path, *options: str, part: str = KIT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the kit, or a part of it, from this folder, with nothing of the run around it."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--pyargs", part, *options],
        capture_output=True, text=True, check=False, cwd=folder, env={**outside, **environment}, timeout=900,
    )  # fmt: skip


def part_with(name: str) -> str:
    """Give the module of the kit that has these cases: to collect all of it takes longer than to run them."""
    modules = Path(importlib.import_module(KIT).__path__[0]).glob("test_*.py")
    (found,) = [
        file.stem for file in modules if re.search(rf"^(class {name}\b|def {name})", file.read_text(), re.MULTILINE)
    ]
    return f"{KIT}.{found}"


def number(run: subprocess.CompletedProcess[str], what: str) -> int:
    """Give how many cases passed, failed or were skipped."""
    found = re.search(rf"(\d+) {what}", run.stdout.splitlines()[-1] if run.stdout else "")
    return int(found[1]) if found else 0


def check_conforms(run: subprocess.CompletedProcess[str]) -> None:
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr
    assert number(run, "passed") >= FEWEST
    assert number(run, "skipped") == 0


#: Cases about what the core says, in which the engines cannot differ: for each store, one mode has them all.
OF_THE_CORE = ("closing", "failing", "fences", "keys", "lifecycle", "limits", "notes", "requests", "revisions", "time")
ALIKE = ["-k", " and ".join(f"not test_{name}.py" for name in OF_THE_CORE)]
if os.environ.get("LEFTFOLD_KIT") == "all":
    ALIKE = []


@pytest.mark.parametrize(("library", "mode", "but"), [("stdlib", "sync", []), ("pysqlite3", "async", ALIKE)])
def test_sqlite_conforms(tmp_path: Path, library: str, mode: str, but: list[str]) -> None:
    check_conforms(kit(tmp_path, "--store-url", "sqlite:///x.db", "--store-mode", mode, *but, LEFTFOLD_SQLITE=library))
    assert [file.name for file in tmp_path.iterdir()] == [".pytest_cache"], "no world is left behind"


@pytest.mark.parametrize(("mode", "but"), [("sync", []), ("async", ALIKE)])
def test_postgresql_conforms(tmp_path: Path, postgres: Server, mode: str, but: list[str]) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE kit_{mode}".encode())
    check_conforms(kit(tmp_path, "--store-url", postgres.url(f"kit_{mode}"), "--store-mode", mode, *but))
    with psycopg.connect(postgres.url(f"kit_{mode}")) as connection:
        left = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'conformance%'").fetchall()
    assert left == [], "no world is left behind"


def test_without_a_mode_every_case_runs_in_both(tmp_path: Path) -> None:
    runs = [
        kit(tmp_path, "--store-url", "sqlite:///:memory:", *mode, part=part_with("TestGet"))
        for mode in ([], ["--store-mode", "sync"], ["--store-mode", "async"])
    ]
    both, one, other = (number(run, "passed") for run in runs)
    assert one == other > 10
    assert both == one + other


def test_it_also_runs_under_the_strictest_settings(tmp_path: Path) -> None:
    run = kit(ROOT, "--store-url", f"sqlite:///{tmp_path}/x.db", "-k", "TestGet", "-p", "no:cacheprovider")
    assert run.returncode == 0, run.stdout
    assert number(run, "passed") > 10


# --- what a user may get wrong ----------------------------------------------------------------------------------------


def test_without_a_store_it_says_how_to_name_one(tmp_path: Path) -> None:
    run = kit(tmp_path)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--store-url sqlite:///x.db" in run.stderr


@pytest.mark.parametrize("url", ["mine://somewhere", "sqlite:////nowhere/at/all/x.db", "postgresql://127.0.0.1:1/x"])
def test_a_store_that_cannot_be_opened_ends_the_run_at_once(tmp_path: Path, url: str) -> None:
    run = kit(tmp_path, "--store-url", url)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no tests ran" in run.stdout
    assert "the store cannot be opened: " in run.stdout


def test_other_runs_of_pytest_do_not_know_the_options(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--store-url')\n")
    (tmp_path / "test_mine.py").write_text(
        "def test_mine(request):\n    assert request.config.getoption('--store-url') == 'mine'\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--store-url", "mine", "test_mine.py"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr


# --- a store of somebody else -----------------------------------------------------------------------------------------

SOMEBODY_ELSES = """
from leftfold.testing.conformance.worlds import SqliteWorld

def pytest_leftfold_world(url):
    return SqliteWorld("mine.db") if url.startswith("mine://") else None
"""


def test_a_store_of_somebody_else_brings_its_own_worlds(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SOMEBODY_ELSES)
    run = kit(tmp_path, "--store-url", "mine://somewhere", "-k", "TestGet")
    assert run.returncode == 0, run.stdout
    assert number(run, "passed") > 10


# --- planted bugs -----------------------------------------------------------------------------------------------------


class Bug(NamedTuple):
    """A piece of a query, what stands there instead, and the class of cases that must see it."""

    query: str
    right: str
    wrong: str
    caught_by: str


BUGS = {
    "any token will do": Bug("own", "AND leftfold_jobs.token = b.token", "", "TestTheFence"),
    "any attempt will do": Bug("own", "AND leftfold_jobs.attempt = b.attempt", "", "TestTheFence"),
    "a renewal needs no token": Bug("renew", "AND leftfold_jobs.token = b.token", "", "TestTheFence"),
    "a renewal may shorten the lease": Bug(
        "renew",
        "max(:now + coalesce(:lease, lease, 60000000), until)",
        ":now + coalesce(:lease, lease, 60000000)",
        "TestHeartbeat",
    ),
    "an owner may complete what was not started": Bug(
        "own", "AND state IN (SELECT value FROM json_each(:sources))", "", "TestStart"
    ),
    "priorities do not count": Bug("claim", "j.priority DESC, j.due", "j.due", "TestTheOrderOfClaims"),
    "due times do not count": Bug("claim", "k.due <= :now", "k.due IS NOT NULL", "TestWhatIsDue"),
    "a paused queue goes on": Bug("claim", "p.paused_at IS NOT NULL", "false", "TestPause"),
    "a claim forgets the renewals": Bug("claim", "due = NULL", "due = NULL, renewals = 0", "TestHeartbeat"),
    "the time of a log may fall": Bug("own", "max(:now, updated_at)", ":now", "TestAClockThatIsSetBack"),
    "a request is forgotten": Bug("recall", "request_id = :request_id", "false", "TestARequestThatMakesJobs"),
    "some jobs are not counted": Bug("counts", "jobs <> 0", "jobs <> 0 AND state <> 'claimed'", "TestClaim"),
    "a page begins with the end of the last one": Bug(
        "list", "id < leftfold_id(:before)", "id <= leftfold_id(:before)", "TestList"
    ),
    "a key of another tenant is in the way": Bug("holders", "j.tenant = b.tenant", "true", "TestReopening"),
    "a due time is forgotten": Bug("enqueue alone", ":from_then", ":now", "TestEnqueue"),
}
PLANTED = """
from leftfold.store.query import load_queries
from leftfold.store.sqlite import wire

text = load_queries("sqlite", wire._NAMES)[{query!r}]
assert {right!r} in text, text
wire.QUERIES[{query!r}] = wire.parsed(text.replace({right!r}, {wrong!r}))
"""


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_planted_bug_of_a_store_is_caught(tmp_path: Path, bug: Bug) -> None:
    (tmp_path / "conftest.py").write_text(PLANTED.format(**bug._asdict()))
    store = ("--store-url", "sqlite:///:memory:", "--store-mode", "sync")
    run = kit(tmp_path, *store, "-x", "-k", bug.caught_by, part=part_with(bug.caught_by))
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert number(run, "failed") + number(run, "error") >= 1


UNPROVEN = """
import leftfold
leftfold.Engine.frobnicate = lambda self: None
"""
FORGETFUL = """
from leftfold.core import decide
decide.repeats = lambda job, command: False
"""
CARELESS = """
from leftfold.store import ops

def nobody(*_):
    yield from ()
    return set()

ops._without_key = nobody
"""
UNSEALED = """
from leftfold.store.sqlite import wire
right = wire._linked
wire._linked = lambda text: bytes(len(right(text)))
"""
TRACING = """
from msgspec.structs import replace
from leftfold.core.errors import LeaseConflictError
from leftfold.store import ops
right = ops._carry_out_one

def wrong(logs, ask, now, forbidden):
    outcome = right(logs, ask, now, forbidden)
    if isinstance(outcome, LeaseConflictError):
        log = logs[ask.job_id]
        logs[ask.job_id] = log._replace(job=replace(log.job, renewals=log.job.renewals + 1))
    return outcome

ops._carry_out_one = wrong
"""
DEEPER_BUGS = {
    "an operation that no class proves": (UNPROVEN, "test_an_operation"),
    "a lost reply is not known again": (FORGETFUL, "TestALostReply"),
    "a job is reopened onto a taken key": (CARELESS, "TestReopening"),
    "a hash that covers something else": (UNSEALED, "TestGet"),
    "a refusal that leaves a trace": (TRACING, "TestTheFence"),
}


@pytest.mark.parametrize(("bug", "caught_by"), DEEPER_BUGS.values(), ids=DEEPER_BUGS)
def test_a_planted_bug_of_the_engine_is_caught(tmp_path: Path, bug: str, caught_by: str) -> None:
    (tmp_path / "conftest.py").write_text(bug)
    store = ("--store-url", "sqlite:///:memory:", "--store-mode", "sync")
    run = kit(tmp_path, *store, "-x", "-k", caught_by, part=part_with(caught_by))
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert number(run, "failed") + number(run, "error") >= 1
