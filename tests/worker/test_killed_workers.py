"""Workers that die, hang and come back: nothing is lost, nothing is written late, nothing ends twice."""

import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psycopg
from tests.concurrency.crowd import eventually
from tests.places import Place
from tests.worker.real import CONT, JOBS, SECONDS, STOP, TERM, Town

from leftfold.core import events as e
from leftfold.store.sqlite.library import sqlite

KILLS = 4


def test_workers_that_are_killed_at_random_moments_lose_nothing(town: Town) -> None:
    dice = random.Random(20)  # noqa: S311 - the same moments each time
    jobs = town.enqueue("nap", 60, lease=1, seconds=0.05)
    for _ in range(KILLS):
        begun = town.begun()
        worker = town.start("--concurrency", "4")
        eventually(lambda begun=begun: town.begun() > begun + 2, SECONDS)  # type: ignore[misc]  # mypy infers no type for a lambda's default
        time.sleep(dice.uniform(0, 0.1))  # a kill at any moment is the point
        worker.kill()
    last = town.start("--concurrency", "20", "--until-idle")
    assert last.left() == 0, last.log
    town.wait_until_all("succeeded")
    logs = town.logs()
    assert len(logs) == len(jobs) == 60
    stalled = sum("stalled" in events for events in logs.values())
    assert stalled >= KILLS, "those that were killed held something"
    assert len({job_id for word, _, job_id, *_ in town.said if word == "end"}) == 60


def test_fifty_jobs_of_a_killed_worker_finish_on_another_one_in_time(town: Town) -> None:
    jobs = town.enqueue("hang", 50, lease=5)
    first = town.start("--concurrency", "50")
    eventually(lambda: town.begun() == 50, SECONDS)
    second = town.start("--concurrency", "50")
    second.wait_until_up()
    first.kill()
    town.wait_until_all("succeeded")
    for job in jobs:
        log = town.engine.history(job)
        (late,) = [each.at - each.event.lease_until for each in log if isinstance(each.event, e.Stalled)]
        assert late <= 5_000_000, "noticed in time"
    logs = town.logs()
    assert len(logs) == len(jobs)
    assert all(events.count("stalled") == events.count("requeued") == 1 for events in logs.values())
    ends = Counter(job_id for word, _, job_id, *_ in town.said if word == "end")
    assert set(ends.values()) == {1}, "no job finished twice"
    second.tell(TERM)
    assert second.left() == 0


def may_write(place: Place) -> bool:
    """Tell whether others may write: who is stopped in the middle of a write to a file keeps its lock."""
    if not place.is_file:
        return True
    connection = sqlite.connect(str(place.path), timeout=0.05, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite.OperationalError:
        return False
    finally:
        connection.close()
    return True


def test_who_is_stopped_past_his_lease_and_goes_on_cannot_write_any_more(town: Town) -> None:
    (job,) = town.enqueue("nap", lease=0.6, seconds=1.2)
    first = town.start("--log-format", "json")
    eventually(lambda: town.begun() == 1, SECONDS)
    while True:
        first.tell(STOP)
        if may_write(town.place):
            break
        first.tell(CONT)
    second = town.start()
    eventually(lambda: town.begun() == 2, SECONDS)  # on the second one
    first.tell(CONT)
    town.wait_until_all("succeeded")
    first.wait_for("lost|taken from this worker")
    first.tell(TERM)
    second.tell(TERM)
    assert (first.left(), second.left()) == (0, 0)
    ends = [pid for word, _, _, attempt, pid in town.said if word == "end" and attempt == 2]
    assert len(ends) == 1, "in a process of its own, as its last attempt was lost"
    assert first.pid not in ends
    assert town.logs()[job].count("succeeded") == 1
    assert town.engine.get(job).attempt == 2


def test_a_handler_that_blocks_the_event_loop_for_three_leases_keeps_its_lease(town: Town) -> None:
    (job,) = town.enqueue("block", lease=0.5, max_failures=1, seconds=1.6)
    worker = town.start()
    other = town.start()
    town.wait_until_all("succeeded")
    assert town.engine.get(job).attempt == 1
    assert "stalled" not in town.logs()[job]
    for each in (worker, other):
        each.tell(TERM)
        assert each.left() == 0


FAILING = """
@app.job(lease=1)
async def fail_together() -> None:
    while not os.path.exists("together"):
        await asyncio.sleep(0.01)
    raise ValueError("all of us")
"""


def test_a_handler_that_blocks_the_event_loop_stops_no_transaction_in_the_middle(
    on_postgres: Place, tmp_path: Path
) -> None:
    """Outcomes are on their way, held up by a lock of ours, when it begins to block. Their own locks must not stay."""
    with closing(Town(on_postgres, tmp_path, JOBS + FAILING)) as town:
        ids = sorted(town.enqueue("fail_together", 2, lease=1))
        worker = town.start("--concurrency", "3")
        eventually(lambda: {town.engine.get(job).state for job in ids} == {"running"}, SECONDS)
        with psycopg.connect(on_postgres.url) as ours:
            ours.execute(f'SELECT FROM "{on_postgres.schema}".jobs WHERE id = %s FOR UPDATE'.encode(), (ids[1],))
            (town.folder / "together").touch()
            eventually(lambda: waits_for_a_lock(on_postgres), SECONDS)
            (job,) = town.enqueue("block", lease=1, max_failures=1, seconds=3)
            eventually(lambda: town.begun() == 1, SECONDS)
        eventually(lambda: town.engine.reap() == [] and town.engine.get(job).state != "running", SECONDS)
        assert (town.engine.get(job).state, town.engine.get(job).attempt) == ("succeeded", 1)
        worker.tell(TERM)
        assert worker.left() == 0
        assert not any("stalled" in events for events in town.logs().values())


def waits_for_a_lock(place: Place) -> bool:
    with psycopg.connect(place.url) as connection:
        return bool(connection.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall())


def test_two_workers_of_one_name_are_never_taken_for_each_other(town: Town) -> None:
    town.enqueue("nap", 30, lease=1, seconds=0.3)
    twins = [town.start("--name", "twin", "--concurrency", "5") for _ in range(2)]
    eventually(lambda: len({pid for *_, pid in town.said}) == 2, SECONDS)
    eventually(lambda: len(town.engine.workers()) == 2, SECONDS)
    names = [worker.name for worker in town.engine.workers()]
    assert all(name.startswith("twin:") for name in names)
    twins[0].kill()
    town.wait_until_all("succeeded")
    town.logs()
    twins[1].tell(TERM)
    assert twins[1].left() == 0


def test_a_handler_that_exits_fails_and_the_worker_goes_on(file_town: Town) -> None:
    (bad,) = file_town.enqueue("leave", max_failures=1)
    worker = file_town.start("--until-idle")
    assert worker.left() == 0, worker.log
    job = file_town.engine.get(bad)
    assert (job.state, job.error and job.error.type) == ("dead_lettered", "SystemExit")
