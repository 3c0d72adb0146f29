"""Poison: jobs that kill whoever runs them are found, and take nobody down with them twice."""

from contextlib import closing
from pathlib import Path

import msgspec
from tests.concurrency.crowd import eventually
from tests.places import Place
from tests.worker.isolated import ISOLATED
from tests.worker.real import JOBS, KILL, SECONDS, TERM, Town


def test_a_job_that_kills_its_interpreter_is_found_among_a_hundred(place: Place, tmp_path: Path) -> None:
    with closing(Town(place, tmp_path, JOBS + ISOLATED)) as town:
        innocents = town.enqueue("nap", 50, lease=1, max_failures=2, seconds=0.2)
        (guilty,) = town.enqueue("poison", lease=1, max_failures=4)
        innocents += town.enqueue("nap", 50, lease=1, max_failures=2, seconds=0.2)
        worker = town.start("--concurrency", "30")
        eventually(lambda: worker.process.poll() is not None, SECONDS)
        assert worker.left() == -KILL
        worker = town.start("--until-idle", "--concurrency", "30")
        assert worker.left(90) == 0, worker.log
        letter = town.engine.get(guilty)
        assert (letter.state, letter.attempt, letter.error and letter.error.code) == ("dead_lettered", 4, "crashed")
        assert town.engine.history(guilty)[-1].event.reason_code == "exhausted_retries"  # type: ignore[union-attr]
        assert {town.engine.get(job).state for job in innocents} == {"succeeded"}, "none is set aside for it"
        assert town.logs()[guilty].count("stalled") == 1, "the next attempts had a process of their own"


def test_new_jobs_of_a_kind_that_kills_have_processes_of_their_own(file_town: Town) -> None:
    town = file_town
    town.write(JOBS + ISOLATED)
    innocents = town.enqueue("nap", 3, lease=1, max_failures=2, seconds=3.0)
    first = town.enqueue("poison", lease=1, max_failures=3)
    worker = town.start("--concurrency", "30")
    assert worker.left() == -KILL
    worker = town.start("--concurrency", "30")
    eventually(lambda: town.engine.get(first[0]).state == "dead_lettered", SECONDS)
    second = town.enqueue("poison", 5, lease=1, max_failures=2)
    eventually(lambda: all(town.engine.get(job).state == "dead_lettered" for job in second), SECONDS)
    eventually(lambda: all(town.engine.get(job).state == "succeeded" for job in innocents), SECONDS)
    assert {town.engine.get(job).failures for job in innocents} == {1}, "charged once, for the first"
    eventually(lambda: "poison" in msgspec.json.decode(town.engine.workers()[-1].told)["suspects"], SECONDS)
    worker.kill()
    worker = town.start("--concurrency", "30")
    worker.wait_until_up()
    third = town.enqueue("poison", 2, lease=1, max_failures=2)
    eventually(lambda: all(town.engine.get(job).state == "dead_lettered" for job in third), SECONDS)
    worker.tell(TERM)
    assert worker.left() == 0, worker.log
    for job in second + third:
        assert "stalled" not in town.logs()[job], "no worker went down with it"
