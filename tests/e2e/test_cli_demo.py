"""`leftfold demo`: what it promises it shows, and however it ends, no worker outlives it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.concurrency.crowd import eventually
from tests.e2e.command import around, complaint, interruptible, run, watched

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_every_job_is_accounted_for_and_its_commands_work_as_printed(tmp_path: Path) -> None:
    ran = run("demo", env={"TMPDIR": str(tmp_path)})
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.out + ran.err
    lost = re.search(r"worker-2 \(pid \d+\) was killed with SIGKILL while it ran (\d) jobs?: ", ran.out)
    assert lost
    for fact in (
        r"its leases of 3 s ran out: worker-[13]( and worker-3)? noticed, and put its \d jobs? back into the queue",
        r"worker-[13]( and worker-3)? took over all that worker-2 had",
        r"payout [0-9a-f]{8}… has waited \d+\.\d s for an approval, and held no worker; ann approves it",
        r"payout +waits +1 +1 ",
        r"all jobs have ended, and the two workers that were left have ended by themselves",
        r"301 succeeded \+ 1 set aside = 302 enqueued: none was lost, and none succeeded twice",
        rf"{lost[1]} attempts? died with their worker",
        r"invoice [-0-9a-f]{36} .* failed 3 times, .* \(exhausted_retries\), always with KeyError: 'total'",
        r" started +owner worker-2:.*\n.* stalled +keeper worker-[13]:.*\n.* requeued ",
        r" claimed +worker worker-[13]:.*\n.* started .*\n.* succeeded +owner worker-[13]:",
        r"verify: clean: 302 jobs with 1,\d{3} events",
    ):
        assert re.search(fact, ran.out), fact
    url = re.findall(r"export LEFTFOLD_DATABASE_URL=(\S+)$", ran.out, re.MULTILINE)
    commands = re.findall(r":  +leftfold (.+)$", ran.out, re.MULTILINE)
    assert len(commands) == 7
    for command in commands:
        looked = run(*command.split(), env={"LEFTFOLD_DATABASE_URL": url[0]})
        assert looked.code == 0, looked.err
    (folder,) = tmp_path.iterdir()
    assert f"It is all in {folder}:" in ran.out


def test_a_terminal_gets_colours_and_progress_and_the_store_is_where_it_is_wanted(tmp_path: Path) -> None:
    kept = tmp_path / "a file %?.db"
    ran = watched("demo", "--keep", str(kept), env={"TMPDIR": str(tmp_path)}, columns=100)
    assert ran.code == 0
    assert COLOUR.search(ran.out)
    assert re.search(r"\r\x1b\[2K█+░* \d+ of 302 jobs have ended; at work: worker-1 \d+, worker-2 killed, ", ran.out)
    shown = [line.rpartition("\x1b[2K")[2] for line in COLOUR.sub("", ran.out).splitlines()]
    assert max(map(len, (line for line in shown if "LEFTFOLD" not in line and str(kept) not in line))) <= 100
    assert {file.name for file in tmp_path.iterdir()} <= {kept.name, f"{kept.name}-wal", f"{kept.name}-shm"}
    (url,) = re.findall(r"export LEFTFOLD_DATABASE_URL=(\S+)", ran.out)
    assert len(run("jobs", "list", "--all", "--json", "--store", url).lines()) == 302


@pytest.mark.parametrize(
    ("keep", "problem"),
    [(".", "is a directory"), ("there.db", "exists already: name a new file"), ("no/demo.db", "there is no folder")],
)
def test_what_is_there_already_stays(tmp_path: Path, keep: str, problem: str) -> None:
    (tmp_path / "there.db").write_text("mine", encoding="utf-8")
    ran = run("demo", "--keep", keep, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert problem in complaint(ran)
    assert (tmp_path / "there.db").read_text(encoding="utf-8") == "mine"


@contextmanager
def demo_at_work(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Start a demo, and give it with the processes of its workers as soon as they work."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "leftfold", "demo"]
    environment = around({"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"})
    with interruptible(), subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        started = next(line for line in lines if b"started worker-1" in line)
        pids = [int(pid) for pid in re.findall(rb"pid (\d+)", started)]
        assert len(pids) == 3
        try:
            eventually(lambda: b"runs fetch" in b"".join(file.read_bytes() for file in folder.rglob("worker-*.log")))
            yield process, pids
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_who_stops_it_leaves_no_worker_and_no_file_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with demo_at_work(tmp_path) as (process, pids):
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, b"")
    assert not any(map(is_alive, pids))
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_dies_otherwise_ends_it_with_a_word_about_it(tmp_path: Path) -> None:
    with demo_at_work(tmp_path) as (process, pids):
        os.kill(pids[0], signal.SIGABRT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert re.fullmatch(r"leftfold: error: worker-1 ended with code -6: .*\n", err.decode())
    assert not any(map(is_alive, pids))
    assert list(tmp_path.iterdir()) == []
