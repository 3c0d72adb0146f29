"""What an operator sees of workers: `leftfold workers`, and their logs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.concurrency.crowd import eventually
from tests.places import Place
from tests.worker.real import JOBS, SECONDS, TERM, Town, lines_of

LOUD = """
import logging

@app.job(lease=5, max_failures=1)
def loud(ctx: SyncContext, text: str) -> None:
    logging.getLogger("somebody.else").warning("from the depths")
    ctx.log.info("of its own", extra={"answer": 42})
    raise ValueError(text)
"""


def workers_of(town: Town) -> list[dict[str, Any]]:
    run = subprocess.run(
        [sys.executable, "-m", "leftfold", "workers", "--json", "--store", town.place.url],
        capture_output=True, text=True, check=True, cwd=town.folder,
        env={**os.environ, "LEFTFOLD_SCHEMA": town.place.schema},
    )  # fmt: skip
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_workers_are_listed_with_what_they_do_and_silent_loops_are_named(town: Town) -> None:
    town.enqueue("nap", 2, lease=30, seconds=60)
    worker = town.start("--name", "seen", "--grace", "0")
    eventually(lambda: town.begun() == 2, SECONDS)
    eventually(lambda: len(town.engine.workers()) == 1, SECONDS)
    (told,) = workers_of(town)
    assert (told["pid"], told["concurrency"], told["silent"]) == (worker.pid, 16, [])
    assert told["worker"].startswith("seen:")
    assert set(told["loops"]) >= {"claiming", "deadlines", "keeper", "renewals", "writing"}
    # Such a worker tells of a keeper that has not run for a minute.
    loops = {**told["loops"], "keeper": 60.0}
    town.engine.beat("other:1", {**msgspec.json.decode(town.engine.workers()[0].told), "loops": loops})
    silent = {each["worker"]: each["silent"] for each in workers_of(town)}
    assert silent == {told["worker"]: [], "other:1": ["keeper"]}
    worker.tell(TERM)
    assert worker.left() == 0
    assert [each["worker"] for each in workers_of(town)] == ["other:1"]


STUCK = """
from leftfold.worker import keeper

async def once(self):
    await asyncio.sleep(3600)

keeper.Keeper.once = once
"""


def test_a_loop_that_hangs_is_seen_by_its_silence_while_the_others_go_on(file_town: Town) -> None:
    file_town.write(JOBS + STUCK)
    worker = file_town.start()

    def age(loop: str) -> float:
        told = [msgspec.json.decode(each.told)["loops"] for each in file_town.engine.workers()]
        return max((float(loops[loop]) for loops in told), default=0)

    eventually(lambda: age("keeper") > 15, SECONDS)
    (told,) = workers_of(file_town)
    assert told["silent"] == ["keeper"]
    (job,) = file_town.enqueue("nap", seconds=0)
    file_town.wait_until_all("succeeded")
    assert file_town.engine.get(job).state == "succeeded"
    worker.tell(TERM)
    assert worker.left() == 0


def test_every_line_of_a_job_says_which_job_it_is(file_town: Town) -> None:
    file_town.write(JOBS + LOUD)
    (job,) = file_town.enqueue("loud", max_failures=1, text="a\nb\x1b[31m")
    (good,) = file_town.enqueue("nap", seconds=0.01)
    worker = file_town.start("--until-idle", "--log-format", "json")
    assert worker.left() == 0, worker.log
    lines = lines_of(worker.log)
    mine = [line for line in lines if line.get("job_id") == job]
    assert {"from the depths", "of its own"} <= {line["message"] for line in mine}
    assert [line["answer"] for line in mine if "answer" in line] == [42]
    assert any(line["message"].startswith("failed: ValueError: a\nb") and "traceback" in line for line in mine)
    assert {line["attempt"] for line in mine} == {1}
    assert any(line.get("job_id") == good and line["message"].startswith("succeeded") for line in lines)
    assert all({"at", "level", "logger", "message"} <= set(line) for line in lines)


def test_lines_for_people_are_lines(file_town: Town) -> None:
    file_town.write(JOBS + LOUD)
    (job,) = file_town.enqueue("loud", max_failures=1, text="a\n2026-01-01T00:00:00.000Z INFO forged\x1b[31m")
    worker = file_town.start("--until-idle")
    assert worker.left() == 0, worker.log
    assert f"[loud {job} attempt 1] from the depths" in worker.log
    assert "\x1b" not in worker.log
    own = [line for line in worker.log.splitlines() if not line.startswith("    ")]
    assert all(re.match(r"[-\d]{10}T[:\d]{8}\.\d{3}Z [A-Z]+ +(leftfold|somebody)\.", line) for line in own), own
    assert not any(line.startswith("2026-01-01T00:00:00.000Z INFO forged") for line in worker.log.splitlines())


GREEDY = """
import ctypes

@app.job(lease=0.5, max_failures=9)
def grab(ctx: SyncContext) -> int:
    say("begin", ctx)
    if ctx.attempt == 1:
        ctypes.PyDLL(None).usleep(5_000_000)  # with the interpreter's lock held: nothing else runs meanwhile
    while ctx.attempt > 1 and not any(each.event.wire == "starved" for each in app.engine.history(ctx.job_id)):
        if ctx.cancelled:
            raise RuntimeError("nobody says why the first attempt was lost")
    return ctx.attempt
"""


@pytest.fixture
def server_town(on_postgres: Place, tmp_path: Path) -> Iterator[Town]:
    """A folder with an app, on a server: whoever is stopped in the middle of a write keeps no others from a file."""
    town = Town(on_postgres, tmp_path)
    yield town
    town.close()


def test_a_handler_that_holds_the_interpreters_lock_loses_its_lease_and_that_is_recorded(server_town: Town) -> None:
    server_town.write(JOBS + GREEDY)
    (job,) = server_town.enqueue("grab", lease=0.5)
    greedy = server_town.start("--name", "greedy")
    eventually(lambda: server_town.begun() == 1, SECONDS)
    # As the keeper of any other worker would; behind five seconds, its own one may be the first.
    eventually(lambda: bool(server_town.engine.reap()) or server_town.engine.get(job).attempt > 1, SECONDS)
    eventually(lambda: server_town.engine.get(job).state == "succeeded", SECONDS)
    assert server_town.engine.get(job).attempt > 1
    eventually(lambda: "nothing else ran for" in greedy.log, SECONDS)
    assert "is lost" in greedy.log or "does not count" in greedy.log, "whoever looks first says it"
    eventually(lambda: any(each["starved"] > 1 for each in workers_of(server_town)), SECONDS)
    greedy.tell(TERM)
    assert greedy.left() == 0
    server_town.logs()
    starved = [record for record in server_town.engine.history(job) if record.event.wire == "starved"]
    attempts = [record.event.attempt for record in starved]  # type: ignore[union-attr]  # its wire name tells its type
    assert len(attempts) == len(set(attempts)), "it is said once of each attempt"
    (why,) = [record for record, attempt in zip(starved, attempts, strict=True) if attempt == 1]
    assert (why.who, why.event.attempt) == ("worker", 1)  # type: ignore[union-attr]
    assert why.actor.startswith("greedy:")
    assert 2_000_000 < why.event.length < 60_000_000  # type: ignore[union-attr]
