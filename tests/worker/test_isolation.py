"""Attempts in processes of their own: what a handler does to its interpreter, it does to nobody else."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.concurrency.crowd import eventually
from tests.worker.real import JOBS, KILL, SECONDS, TERM, Town

import leftfold
from leftfold.core.errors import DesignError

ISOLATED = """
import ctypes, signal
from leftfold import Snooze
from leftfold.core.errors import WaitExpired

POOL = dict(isolation="process", lease=1, max_failures=2, retry_delay=0.01)


@app.job(**POOL)
async def where(ctx: Context) -> list:
    ctx.progress(0.5, "halfway")
    ctx.log.info("hello from the cell")
    return [os.getpid(), os.getppid(), ctx.attempt, ctx.idempotency_key("a")]


@app.job(**POOL)
def where_too(ctx: SyncContext, n: int = 1) -> list:
    return [os.getpid(), os.getppid(), n]


@app.job(**POOL)
def die(ctx: SyncContext, how: str) -> None:
    say("begin", ctx)
    if how == "exit":
        os._exit(3)
    if how == "crash":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(**POOL)
def raise_it(ctx: SyncContext) -> None:
    raise KeyError("of its own")


@app.job(isolation="process", lease=0.5, max_failures=1)
def grab(ctx: SyncContext) -> int:
    say("begin", ctx)
    ctypes.PyDLL(None).usleep(2_000_000)  # with the interpreter's lock of this process held
    return ctx.attempt


@app.job(isolation="process", lease=5, max_failures=1, timeout=0.2)
def endless(ctx: SyncContext) -> None:
    say("begin", ctx)
    ctypes.PyDLL(None).usleep(60_000_000)


@app.job(isolation="process", lease=5, max_failures=1)
async def patient(ctx: Context) -> str:
    say("begin", ctx)
    await asyncio.sleep(60)
    return "never"


@app.job(isolation="process", lease=5, max_failures=1)
def deaf(ctx: SyncContext) -> None:
    say("begin", ctx)
    time.sleep(60)


@app.job(isolation="process", lease=5, max_failures=1)
async def ask(ctx: Context) -> str:
    try:
        return await ctx.wait("go", timeout=60)
    except WaitExpired:
        return "nobody"


@app.job(lease=1, max_failures=4, retry_delay=0.01)
def poison(ctx: SyncContext) -> None:
    say("begin", ctx)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def cells(file_town: Town) -> Town:
    """A town whose app has isolated jobs."""
    file_town.write(JOBS + ISOLATED)
    return file_town


def test_attempts_run_in_processes_that_are_used_again(cells: Town) -> None:
    first = cells.enqueue("where", 4)
    second = cells.enqueue("where_too", 4, n=7)
    worker = cells.start("--until-idle", "--concurrency", "2")
    assert worker.left() == 0, worker.log
    told = [cells.engine.get(job).output for job in first + second]
    assert len({parent for _, parent, *_ in told}) == 1, "all come from one that has the app"
    assert worker.pid not in {pid for pid, *_ in told}
    assert len({pid for pid, *_ in told}) <= 2, "warm"
    assert told[0][2:] == [1, f"{first[0]}:a"]
    assert told[-1][2] == 7
    logs = cells.logs()
    assert "progress" in logs[first[0]]
    assert f"leftfold.job.where [where {first[0]} attempt 1] hello from the cell" in worker.log


HOW = {"exit": "code 3", "kill": "SIGKILL", "crash": "SIGSEGV"}


def test_its_death_is_the_failure_of_that_attempt_and_of_no_other(cells: Town) -> None:
    dying = {how: cells.enqueue("die", how=how, max_failures=2)[0] for how in HOW}
    (raising,) = cells.enqueue("raise_it", max_failures=1)
    innocents = cells.enqueue("nap", 5, seconds=1.0, max_failures=1)
    worker = cells.start("--until-idle", "--concurrency", "12")
    assert worker.left() == 0, worker.log
    for how, job_id in dying.items():
        job = cells.engine.get(job_id)
        assert (job.state, job.attempt, job.error and job.error.code) == ("dead_lettered", 2, "crashed")
        assert HOW[how] in (job.error.message if job.error else "")
        assert cells.logs()[job_id].count("stalled") == 0
    error = cells.engine.get(raising).error
    assert (error and error.type) == "KeyError"
    assert "of its own" in (error.traceback or "" if error else "")
    assert {cells.engine.get(job).state for job in innocents} == {"succeeded"}


def test_a_handler_that_holds_the_interpreters_lock_for_leases_keeps_its_lease(cells: Town) -> None:
    (job,) = cells.enqueue("grab", lease=0.5, max_failures=1)
    worker = cells.start()
    eventually(lambda: cells.begun() == 1, SECONDS)
    eventually(lambda: cells.engine.reap() == [] and cells.engine.get(job).state == "succeeded", SECONDS)
    assert cells.engine.get(job).attempt == 1
    worker.tell(TERM)
    assert worker.left() == 0
    cells.logs()


def test_a_timeout_kills_what_does_not_heed_it(cells: Town) -> None:
    (job,) = cells.enqueue("endless", lease=5, max_failures=1)
    cells.engine.enqueue("endless", {}, policy=leftfold.Policy(timeout=200_000, max_failures=1))
    worker = cells.start()
    eventually(lambda: cells.begun() == 2, SECONDS)
    timed_out = cells.engine.list(limit=1).jobs[0].id
    eventually(lambda: cells.engine.get(timed_out).state == "dead_lettered", SECONDS)
    error = cells.engine.get(timed_out).error
    assert (error and error.code) == "timeout"
    assert cells.engine.get(job).state == "running", "the other one has no timeout"
    pids = {pid for _, _, _, _, pid in cells.said}
    worker.kill()
    eventually(lambda: not any(alive(pid) for pid in pids), SECONDS)


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has buried yet does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_a_cancellation_reaches_the_process(cells: Town, mode: str) -> None:
    jobs = [cells.enqueue(kind, lease=5, max_failures=1)[0] for kind in ("patient", "deaf")]
    worker = cells.start("--cancel-grace", "1s")
    eventually(lambda: cells.begun() == 2, SECONDS)
    pids = {pid for _, _, _, _, pid in cells.said}
    for job in jobs:
        cells.engine.cancel(job, mode=mode)
    eventually(lambda: {cells.engine.get(job).state for job in jobs} == {"cancelled"}, SECONDS)
    ends = [cells.engine.history(job)[-1].event.mode for job in jobs]  # type: ignore[union-attr]
    assert ends == (["soft", "hard"] if mode == "soft" else ["hard", "hard"])
    deaf = next(pid for _, kind, _, _, pid in cells.said if kind == "deaf")
    eventually(lambda: not alive(deaf), SECONDS)
    worker.tell(TERM)
    assert worker.left() == 0, worker.log
    eventually(lambda: not any(alive(pid) for pid in pids), SECONDS)
    cells.logs()


def test_it_can_wait_for_a_signal(cells: Town) -> None:
    (job,) = cells.enqueue("ask", lease=5, max_failures=1)
    worker = cells.start()
    eventually(lambda: cells.engine.get(job).state == "waiting", SECONDS)
    cells.engine.signal(job, "go", "went")
    eventually(lambda: cells.engine.get(job).state == "succeeded", SECONDS)
    assert cells.engine.get(job).output == "went"
    worker.tell(TERM)
    assert worker.left() == 0


def test_a_shutdown_gives_back_what_runs_in_processes(cells: Town) -> None:
    jobs = [cells.enqueue(kind, lease=5, max_failures=1)[0] for kind in ("patient", "deaf")]
    worker = cells.start("--grace", "0")
    eventually(lambda: cells.begun() == 2, SECONDS)
    pids = {pid for _, _, _, _, pid in cells.said}
    worker.tell(TERM)
    assert worker.left() == 0, worker.log
    assert {cells.engine.get(job).state for job in jobs} == {"queued"}
    assert {cells.engine.get(job).failures for job in jobs} == {0}
    eventually(lambda: not any(alive(pid) for pid in pids), SECONDS)


@pytest.mark.parametrize("handler", ["patient", "grab_long"])
def test_they_die_with_their_worker(cells: Town, handler: str) -> None:
    cells.write(JOBS + ISOLATED + ISOLATED_LONG)
    cells.enqueue(handler, lease=5)
    worker = cells.start()
    eventually(lambda: cells.begun() == 1, SECONDS)
    ((*_, pid),) = cells.said
    assert pid != worker.pid
    worker.kill()
    eventually(lambda: not alive(pid), SECONDS)


ISOLATED_LONG = """
@app.job(isolation="process", lease=5, max_failures=1)
def grab_long(ctx: SyncContext) -> None:
    say("begin", ctx)
    ctypes.PyDLL(None).usleep(60_000_000)
"""


HANGING_UP = """
@app.job(**POOL)
def hang_up(ctx: SyncContext) -> None:
    os.closerange(3, 256)
    time.sleep(60)
"""


def test_a_process_that_hangs_up_is_ended(cells: Town) -> None:
    cells.write(JOBS + ISOLATED + HANGING_UP)
    (job,) = cells.enqueue("hang_up", max_failures=1)
    worker = cells.start("--until-idle")
    assert worker.left() == 0, worker.log
    error = cells.engine.get(job).error
    assert (error and error.code) == "crashed"


RUNAWAY = """
@app.job(isolation="process", lease=5, max_failures=1, timeout=0.2)
def runaway(ctx: SyncContext) -> None:
    say("begin", ctx)
    while True:
        time.sleep(0.05)
        ctx.progress(0.5, "runaway")

@app.job(isolation="process", lease=5, max_failures=1)
def with_a_child(ctx: SyncContext) -> None:
    say("begin", ctx)
    child = os.fork()
    if child == 0:
        time.sleep(60)
    with open("child", "w") as file:
        file.write(str(child))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_in_which_something_goes_on_is_not_used_again(cells: Town) -> None:
    cells.write(JOBS + ISOLATED + RUNAWAY)
    cells.engine.enqueue("runaway", {}, policy=leftfold.Policy(timeout=200_000, max_failures=1))
    worker = cells.start("--concurrency", "1")
    (first,) = cells.enqueue("where_too", max_failures=1)
    eventually(lambda: cells.engine.get(first).state == "succeeded", SECONDS)
    ((*_, pid),) = cells.said
    assert cells.engine.get(first).output[0] != pid
    assert "progress" not in cells.logs()[first]
    eventually(lambda: not alive(pid), SECONDS)
    worker.tell(TERM)
    assert worker.left() == 0, worker.log


def test_the_end_of_a_process_is_heard_whatever_it_has_started(cells: Town) -> None:
    cells.write(JOBS + ISOLATED + RUNAWAY)
    (job,) = cells.enqueue("with_a_child", lease=5, max_failures=1)
    worker = cells.start("--until-idle")
    assert worker.left() == 0, worker.log
    error = cells.engine.get(job).error
    assert (error and error.code) == "crashed"
    assert "SIGKILL" in (error.message if error else "")
    assert not alive(int((cells.folder / "child").read_text())), "what it has started ends with it"


def test_an_idle_process_that_died_costs_nobody_an_attempt(cells: Town) -> None:
    (first,) = cells.enqueue("where", max_failures=1)
    worker = cells.start()
    eventually(lambda: cells.engine.get(first).state == "succeeded", SECONDS)
    pid = cells.engine.get(first).output[0]
    os.kill(pid, KILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), SECONDS)
    (second,) = cells.enqueue("where", max_failures=1)
    eventually(lambda: cells.engine.get(second).state == "succeeded", SECONDS)
    worker.tell(TERM)
    assert worker.left() == 0, worker.log


def test_a_signal_to_all_of_them_is_the_workers_to_heed(cells: Town) -> None:
    (job,) = cells.enqueue("patient", lease=5, max_failures=1)
    worker = cells.start("--grace", "0")
    eventually(lambda: cells.begun() == 1, SECONDS)
    ((*_, pid),) = cells.said
    nursery = int(Path(f"/proc/{pid}/stat").read_text().split()[3])
    for each in (pid, nursery, worker.pid):
        os.kill(each, TERM)
    assert worker.left() == 0, worker.log
    assert (cells.engine.get(job).state, cells.engine.get(job).failures) == ("queued", 0), worker.log


def test_handlers_of_several_modules_are_all_there(cells: Town) -> None:
    (cells.folder / "more.py").write_text(
        "from jobs import *\n\n@app.job(isolation='process', max_failures=1)\ndef elsewhere() -> int:\n    return 7\n"
    )
    (cells.folder / "every.py").write_text("from jobs import app\nimport more\n")
    (job,) = cells.enqueue("elsewhere", max_failures=1)
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
    (second,) = cells.enqueue("where", max_failures=1)
    eventually(lambda: cells.engine.get(second).state == "succeeded", SECONDS)
    worker.tell(TERM)
    assert worker.left() == 0, worker.log


def test_an_app_that_is_not_what_it_was_fails_the_attempt_and_says_why(cells: Town) -> None:
    cells.write(JOBS + ISOLATED + "\nif 'LEFTFOLD_CELL' in os.environ:\n    raise RuntimeError('not twice')\n")
    (job,) = cells.enqueue("where", max_failures=1)
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
