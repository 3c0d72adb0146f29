"""Where the processes of isolated attempts come from: a worker that has the app, and may be anywhere."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.concurrency.crowd import eventually
from tests.worker.isolated import ISOLATED
from tests.worker.real import JOBS, KILL, SECONDS, TERM, Town

import leftfold
from leftfold.core.errors import DesignError


def test_handlers_of_several_modules_are_all_there(cells: Town) -> None:
    (cells.folder / "more.py").write_text(
        "from jobs import *\n\n@app.job(isolation='process', max_failures=1)\ndef elsewhere() -> int:\n    return 7\n"
    )
    (cells.folder / "every.py").write_text("from jobs import app\nimport more\n")
    (job,) = cells.enqueue("elsewhere", lease=5, max_failures=1)
    worker = cells.start("-A", "every:app", "--until-idle")
    assert worker.left() == 0, worker.log
    assert cells.engine.get(job).output == 7


def test_what_they_come_from_may_die_as_well(cells: Town) -> None:
    (first,) = cells.enqueue("patient", lease=5, max_failures=1)
    worker = cells.start()
    eventually(lambda: cells.begun() == 1, SECONDS)
    ((*_, pid),) = cells.said
    nursery = int(Path(f"/proc/{pid}/stat").read_text().split()[3])
    assert nursery != worker.pid
    os.kill(nursery, KILL)
    eventually(lambda: cells.engine.get(first).state == "dead_lettered", SECONDS)
    error = cells.engine.get(first).error
    assert (error and error.code) == "crashed"
    (second,) = cells.enqueue("where", lease=5, max_failures=1)
    eventually(lambda: cells.engine.get(second).state == "succeeded", SECONDS)
    worker.tell(TERM)
    assert worker.left() == 0, worker.log


def test_an_app_that_is_not_what_it_was_fails_the_attempt_and_says_why(cells: Town) -> None:
    cells.write(JOBS + ISOLATED + "\nif 'LEFTFOLD_CELL' in os.environ:\n    raise RuntimeError('not twice')\n")
    (job,) = cells.enqueue("where", lease=5, max_failures=1)
    worker = cells.start("--until-idle")
    assert worker.left() == 0, worker.log
    error = cells.engine.get(job).error
    assert (error and error.code) == "isolation"
    assert "RuntimeError: not twice" in (error.message if error else "")


def test_a_lost_job_runs_in_the_worker_where_there_is_no_other_way(
    file_app: leftfold.App, caplog: pytest.LogCaptureFixture
) -> None:
    @file_app.job
    def work() -> int:
        return os.getpid()

    job = work.enqueue()
    (claim,) = file_app.engine.claim("somebody", start=True)
    file_app.engine.stall(claim.job_id, reason="it died")
    file_app.engine.requeue(claim.job_id)
    file_app.run_worker(until_idle=True)
    assert job.result() == os.getpid()
    assert "runs in the worker itself, although its last attempt was lost" in caplog.text


@pytest.mark.parametrize("said", [b"", b'{"half a '])
def test_a_process_whose_worker_is_gone_before_it_is_up_ends_without_a_word(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "leftfold.worker.cell", str(theirs.fileno())], pass_fds=(theirs.fileno(),),
            stderr=subprocess.PIPE,
        )  # fmt: skip
    with ours:
        ours.sendall(said)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, b"")


def test_an_app_that_nobody_can_import_is_told_so(tmp_path: Path) -> None:
    app = leftfold.App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.job(isolation="process")
    def work() -> None: ...

    with pytest.raises(DesignError, match="isolation needs an app that can be imported"):
        app.run_worker(until_idle=True)


def test_a_script_that_runs_its_own_worker(file_town: Town) -> None:
    script = file_town.folder / "script.py"
    script.write_text(SCRIPT.format(url=file_town.place.url), encoding="utf-8")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.stdout == "isolated True\n", ran.stderr


SCRIPT = """
import os
import leftfold

app = leftfold.App("{url}")

@app.job(isolation="process")
def work() -> int:
    return os.getpid()

if __name__ == "__main__":
    job = work.enqueue()
    app.run_worker(until_idle=True)
    print("isolated", job.result() != os.getpid())
"""
