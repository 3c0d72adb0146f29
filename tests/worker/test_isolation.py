"""Attempts in processes of their own: what a handler does to its interpreter, it does to nobody else."""

import os
from pathlib import Path

import pytest
from tests.concurrency.crowd import eventually
from tests.worker.isolated import ISOLATED
from tests.worker.real import JOBS, KILL, SECONDS, TERM, Town

import leftfold


def test_attempts_run_in_processes_that_are_used_again(cells: Town) -> None:
    first = cells.enqueue("where", 4, lease=5)
    second = cells.enqueue("where_too", 4, lease=5, n=7)
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
    dying = {how: cells.enqueue("die", how=how, lease=5, max_failures=2)[0] for how in HOW}
    (raising,) = cells.enqueue("raise_it", lease=5, max_failures=1)
    innocents = cells.enqueue("nap", 5, seconds=1.0, lease=5, max_failures=1)
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
    (job,) = cells.enqueue("grab", max_failures=1)
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
    (job,) = cells.enqueue("hang_up", lease=5, max_failures=1)
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
    (first,) = cells.enqueue("where_too", lease=5, max_failures=1)
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
    (first,) = cells.enqueue("where", lease=5, max_failures=1)
    worker = cells.start()
    eventually(lambda: cells.engine.get(first).state == "succeeded", SECONDS)
    pid = cells.engine.get(first).output[0]
    os.kill(pid, KILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), SECONDS)
    (second,) = cells.enqueue("where", lease=5, max_failures=1)
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
