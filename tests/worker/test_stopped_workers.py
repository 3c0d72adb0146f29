"""Workers that are asked to leave, at every point of their lives: exit code 0, and nothing is charged."""

import subprocess
import time

import pytest
from tests.concurrency.crowd import eventually
from tests.worker.real import INT, JOBS, SECONDS, TERM, Process, Town

#: uvloop is installed where tests run, and a worker takes it. Not so where its module is none.
LOOPS = {"uvloop": "import uvloop", "asyncio": "import sys; sys.modules['uvloop'] = None"}


def wait_until_begun(town: Town, count: int = 1) -> None:
    eventually(lambda: town.begun() >= count, SECONDS)


@pytest.mark.parametrize("number", [TERM, INT])
def test_while_the_app_is_imported(file_town: Town, number: int) -> None:
    slow = "import pathlib, time; pathlib.Path('importing').touch(); time.sleep(30)"
    file_town.write(slow)
    worker = file_town.start()
    eventually((file_town.folder / "importing").exists, SECONDS)
    worker.tell(number)
    assert worker.left() == 0, worker.log


def test_at_moments_all_over_its_start(file_town: Town) -> None:
    """From the import of the app on, when the first handler of signals is there: the loop comes up in between."""
    marked = JOBS.replace("app = App()", "import pathlib; pathlib.Path('imported').touch(); app = App()")
    file_town.write(marked)
    file_town.enqueue("nap", 20, lease=5, seconds=0.01)
    imported = file_town.folder / "imported"
    for moment in range(8):
        worker = file_town.start("--concurrency", "2")
        eventually(imported.exists, SECONDS)
        imported.unlink()
        time.sleep(moment * 0.02)  # a signal at any moment is the point
        worker.tell(TERM)
        assert worker.left() == 0, f"{moment}: {worker.log}"
        assert "Traceback" not in worker.log, worker.log
    assert not {"claimed", "running"} & set(file_town.states().values()), "nothing was left behind"
    assert all("stalled" not in events for events in file_town.logs().values())


def test_while_there_is_nothing_to_do(town: Town) -> None:
    worker = town.start()
    worker.wait_until_up()
    eventually(lambda: len(town.engine.workers()) == 1, SECONDS)
    asked = time.monotonic()
    worker.tell(TERM)
    assert worker.left() == 0
    assert time.monotonic() - asked < 5
    assert town.engine.workers() == [], "it said goodbye"


def test_attempts_end_within_the_grace_and_nothing_more_is_claimed(town: Town) -> None:
    town.enqueue("nap", 2, lease=2, seconds=1.0)
    late = town.enqueue("nap", 6, lease=2, seconds=1.0)
    worker = town.start("--concurrency", "2", "--grace", "20")
    wait_until_begun(town, 2)
    worker.tell(TERM)
    assert worker.left() == 0
    states = town.states()
    assert [states[job] for job in late] == ["queued"] * 6
    assert sorted(states.values()) == ["queued"] * 6 + ["succeeded"] * 2
    town.logs()


@pytest.mark.parametrize("kind", ["nap", "doze", "stubborn", "offload"])
def test_what_does_not_end_within_the_grace_is_given_back_uncharged(file_town: Town, kind: str) -> None:
    """Async, in a thread, deaf to its cancellation, or in a thread of asyncio's own, which Python would wait for."""
    hasty = "\nfrom leftfold.worker import loop\nloop._LAST_SECONDS = 1.0\n"
    file_town.write(JOBS + hasty)
    (job,) = file_town.enqueue(kind, max_failures=1, seconds=60)
    worker = file_town.start("--grace", "0.3")
    wait_until_begun(file_town)
    worker.tell(TERM)
    assert worker.left(15) == 0, worker.log
    found = file_town.engine.get(job)
    assert (found.state, found.failures) == ("queued", 0), worker.log
    assert file_town.logs()[job] == ["enqueued", "claimed", "started", "released"]
    assert "Task was destroyed" not in worker.log


def test_what_is_given_back_can_be_claimed_at_once(town: Town) -> None:
    (job,) = town.enqueue("nap", lease=30, max_failures=1, seconds=1.5)
    first = town.start("--grace", "0")
    wait_until_begun(town)
    first.tell(TERM)
    assert first.left() == 0
    assert town.start("--until-idle").left() == 0
    assert town.engine.get(job).state == "succeeded"
    assert town.logs()[job].count("claimed") == 2


def test_a_second_signal_stops_at_once(town: Town) -> None:
    (job,) = town.enqueue("nap", lease=30, max_failures=1, seconds=60)
    worker = town.start("--grace", "60")
    wait_until_begun(town)
    worker.tell(TERM)
    worker.wait_for("attempts have")
    asked = time.monotonic()
    worker.tell(INT)
    assert worker.left() == 0
    assert time.monotonic() - asked < 5
    assert town.engine.get(job).state == "queued"
    assert town.logs()[job][-1] == "released"


LIFESPAN = """
from contextlib import asynccontextmanager

@asynccontextmanager
async def lifespan(app):
    try:
        open("starting", "w").close()
        HOW
        yield
    finally:
        open("put away", "w").close()

app.lifespan = lifespan
"""
HANGING = {"waits": "await asyncio.sleep(60)", "blocks": "time.sleep(60)"}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_second_signal_stops_a_handler_that_blocks_the_loop(file_town: Town, loop: str) -> None:
    file_town.write(LOOPS[loop] + JOBS)
    (job,) = file_town.enqueue("block", max_failures=1, seconds=60)
    worker = file_town.start("--grace", "60")
    wait_until_begun(file_town)
    worker.tell(TERM)
    asked = time.monotonic()
    while worker.process.poll() is None and time.monotonic() - asked < 5:
        worker.tell(INT)  # two of the same that come together are one
        time.sleep(0.05)  # as a person presses a key again
    assert worker.left(5) == 0, worker.log
    found = file_town.engine.get(job)
    assert (found.state, found.failures) == ("queued", 0), worker.log
    assert file_town.logs()[job][-1] == "released"
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", HANGING)
def test_a_second_signal_stops_a_lifespan_that_does_not_come_up(file_town: Town, how: str, loop: str) -> None:
    file_town.write(LOOPS[loop] + JOBS + LIFESPAN.replace("HOW", HANGING[how]))
    worker = file_town.start()
    eventually((file_town.folder / "starting").exists, SECONDS)
    worker.tell(TERM)
    worker.tell(INT)
    assert worker.left(10) == 0, worker.log
    assert (file_town.folder / "put away").exists()
    assert "Traceback" not in worker.log


BEHIND = """
async def hold():
    time.sleep(60)

@app.job(lease=1, max_failures=1)
async def behind_a_task(ctx: Context) -> None:
    say("begin", ctx)
    await asyncio.gather(hold())
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_a_second_signal_stops_a_task_of_a_handler_that_blocks_the_loop(file_town: Town, loop: str) -> None:
    file_town.write(LOOPS[loop] + JOBS + BEHIND)
    (job,) = file_town.enqueue("behind_a_task", max_failures=1)
    worker = file_town.start("--grace", "60")
    wait_until_begun(file_town)
    worker.tell(TERM)
    asked = time.monotonic()
    while worker.process.poll() is None and time.monotonic() - asked < 5:
        worker.tell(INT)
        time.sleep(0.05)  # as a person presses a key again
    assert worker.left(5) == 0, worker.log
    assert (file_town.engine.get(job).state, file_town.engine.get(job).failures) == ("queued", 0), worker.log


ENDLESS = """
from contextlib import asynccontextmanager

@asynccontextmanager
async def lifespan(app):
    yield
    open("ending", "w").close()
    HOW

app.lifespan = lifespan
"""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", HANGING)
def test_a_second_signal_stops_a_lifespan_that_does_not_end(file_town: Town, how: str, loop: str) -> None:
    file_town.write(LOOPS[loop] + JOBS + ENDLESS.replace("HOW", HANGING[how]))
    worker = file_town.start()
    worker.wait_until_up()
    worker.tell(TERM)
    eventually((file_town.folder / "ending").exists, SECONDS)
    worker.tell(INT)
    assert worker.left(10) == 0, worker.log
    assert "Traceback" not in worker.log


LEAVING = """
@app.job(max_failures=2, retry_delay=0.01)
async def leaving(ctx: Context) -> None:
    async def inner():
        sys.exit(7)
    await asyncio.gather(inner())
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_a_task_of_a_handler_that_exits_takes_nobody_with_it(file_town: Town, loop: str) -> None:
    file_town.write(LOOPS[loop] + JOBS + LEAVING)
    innocents = file_town.enqueue("nap", 3, seconds=0.5, max_failures=1)
    (guilty,) = file_town.enqueue("leaving", max_failures=2)
    worker = file_town.start("--until-idle")
    assert worker.left() == 0, worker.log
    assert {file_town.engine.get(job).state for job in innocents} == {"succeeded"}
    letter = file_town.engine.get(guilty)
    assert (letter.state, letter.attempt, letter.error and letter.error.type) == ("dead_lettered", 2, "SystemExit")
    file_town.logs()


def test_signals_all_the_way_to_the_end_do_not_change_the_exit_code(file_town: Town) -> None:
    file_town.enqueue("nap", 3, lease=5, seconds=60)
    worker = file_town.start("--grace", "0")
    wait_until_begun(file_town, 3)
    while worker.process.poll() is None:
        worker.tell(TERM)
        time.sleep(0.005)  # as often as a person who is in a hurry
    assert worker.left() == 0, worker.log
    assert set(file_town.states().values()) == {"queued"}


BROKEN = """
from leftfold.worker import keeper

async def once(self):
    raise RuntimeError("the keeper has lost its keys")

keeper.Keeper.once = once
"""


def test_a_loop_that_fails_ends_the_worker_and_says_why(file_town: Town) -> None:
    file_town.write(JOBS + BROKEN)
    (job,) = file_town.enqueue("nap", lease=30, max_failures=1, seconds=0.5)
    worker = file_town.start("--concurrency", "4")
    assert worker.left() != 0
    assert "the keeper has lost its keys" in worker.log
    assert "leftfold-keeper" in worker.log
    assert file_town.engine.get(job).state in {"queued", "succeeded"}, "what ran was brought to its end, or given back"


def children_of(worker: Process) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(worker.pid)], check=False, capture_output=True, text=True)  # noqa: S607 - where it is differs
    return [int(pid) for pid in found.stdout.split()]


def test_several_processes_work_under_one_parent_and_leave_with_it(file_town: Town) -> None:
    file_town.enqueue("nap", 20, lease=5, seconds=0.3)
    parent = file_town.start("--processes", "2", "--concurrency", "3")
    eventually(lambda: len({pid for *_, pid in file_town.said}) == 2, SECONDS)
    assert {pid for *_, pid in file_town.said} == set(children_of(parent))
    parent.tell(TERM)
    assert parent.left() == 0
    assert "stopping now" not in parent.log, "one signal is one signal"
    assert not {"claimed", "running"} & set(file_town.states().values())
    assert file_town.engine.workers() == []
    file_town.logs()


def test_children_do_not_outlive_a_parent_that_was_killed(file_town: Town) -> None:
    parent = file_town.start("--processes", "2")
    eventually(lambda: len(file_town.engine.workers()) == 2, SECONDS)
    parent.kill()
    eventually(lambda: file_town.engine.workers() == [], SECONDS)
