"""The example, as somebody would run it: processes that know nothing but a URL."""

import subprocess
import sys
from pathlib import Path

from tests.places import Place, database_on, logs_of

import leftfold
from leftfold.testing.postgres import Server

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "exactly_once.py"


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def check_the_logs(place: Place) -> None:
    with place.open() as engine:
        logs = logs_of(engine)
        assert len(logs) == 500
        assert set(map(tuple, logs.values())) == {("enqueued", "claimed", "started", "succeeded")}


def test_8_processes_on_one_file_claim_each_job_once(on_sqlite: Place, library: str) -> None:
    verdict = run(on_sqlite.url)
    assert verdict.startswith("500 jobs, 8 processes, ")
    assert verdict.endswith(": each job was claimed exactly once.\n")
    check_the_logs(on_sqlite)


def test_64_processes_on_postgresql_claim_each_job_once(postgres: Server) -> None:
    with database_on(postgres) as url:
        leftfold.migrate(url)
        verdict = run(url)
        assert verdict.startswith("500 jobs, 64 processes, ")
        assert verdict.endswith(": each job was claimed exactly once.\n")
        check_the_logs(Place(url))


def test_the_example_needs_no_url() -> None:
    assert run().endswith(": each job was claimed exactly once.\n")
