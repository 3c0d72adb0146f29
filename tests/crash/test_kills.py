"""A writer is killed at some moment, again and again: what it was told is there, and each request happened once.

LEFTFOLD_KILLS says how often, for each store; a campaign may have thousands.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.concurrency.hammer import is_whole
from tests.crash.picture import check
from tests.crash.victims import Nursery
from tests.places import Place, file_in, logs_of, schema_on

from leftfold import Engine
from leftfold.core.errors import LeaseConflictError
from leftfold.testing.postgres import Server

KILLS = int(os.environ.get("LEFTFOLD_KILLS", "10"))
KILLS_PER_STORE = 20  # more, and reading it all afterwards would take longer than the killing
LIFE = 0.03  # seconds at most, from birth or from some answer on
ANSWERS = 12


class Told(NamedTuple):
    """What a writer wrote down: the last number that it began with, and what it was told of which job."""

    last: int
    answers: list[tuple[str, str]]


def told_in(file: Path) -> Told:
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    words = [line.split() for line in lines if line.endswith("\n")]  # the last line may be cut off
    begun = [int(number) for job_id, number in words if job_id == "begins"]
    return Told(max(begun, default=0), [(job_id, event) for job_id, event in words if job_id != "begins"])


def write_until_killed(place: Place, file: Path, first: int, answers: int, seconds: float) -> None:
    """Make, claim and complete jobs, each by a request of its own number, and write down each answer.

    Some time after so many answers we are killed: nobody catches the alarm. -1 is before the store is opened.
    """
    alarms = {answers: seconds}
    signal.setitimer(signal.ITIMER_REAL, alarms.pop(-1, 0))
    with place.open() as engine, file.open("a", encoding="utf-8", buffering=1) as told:
        answered = count()
        for number in count(first):
            told.write(f"begins {number}\n")
            for job_id, event in work(engine, number):
                told.write(f"{job_id} {event}\n")
                if (answer := next(answered)) in alarms:
                    signal.setitimer(signal.ITIMER_REAL, alarms.pop(answer))


def work(engine: Engine, number: int) -> Iterator[tuple[str, str]]:
    yield engine.enqueue("work", number, request_id=f"make-{number}").job_id, "enqueued"
    claims = engine.claim("worker", request_id=f"take-{number}")
    for claim in claims:
        yield claim.job_id, "claimed"
        engine.start(claim, request_id="start")
        yield claim.job_id, "started"
        with suppress(LeaseConflictError):  # if this is asked again, it may be over by now
            engine.heartbeat(claim)
        engine.complete(claim, number, request_id="end")
        yield claim.job_id, "succeeded"


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Iterator[Place]]:
    """As many stores as are wanted, one after the other."""
    if request.param == "sqlite":
        return partial(files, tmp_path)
    return partial(schemas, request.getfixturevalue("postgres"))


def files(folder: Path, wanted: int) -> Iterator[Place]:
    for number in range(wanted):
        (folder / str(number)).mkdir()
        yield file_in(folder / str(number))


def schemas(server: Server, wanted: int) -> Iterator[Place]:
    for _ in range(wanted):
        with schema_on(server) as place:
            yield place


def test_a_writer_that_is_killed_at_any_moment_loses_nothing_and_does_nothing_twice(
    places: Callable[[int], Iterator[Place]], nursery_of: Callable[[str], Nursery], tmp_path: Path
) -> None:
    dice = random.Random(KILLS)  # noqa: S311 - no secrets here
    killed = answers = 0
    for number, place in enumerate(places(-(-KILLS // KILLS_PER_STORE))):
        file = tmp_path / f"told-{number}"
        file.touch()
        for _ in range(min(KILLS_PER_STORE, KILLS - killed)):
            first = told_in(file).last  # of this one the answer may have been lost: it is asked again
            moment = dice.randint(-1, ANSWERS), dice.uniform(1e-6, LIFE)
            code = nursery_of("").run(write_until_killed, place, file, first, *moment)
            assert code == -signal.SIGALRM
            killed += 1
        answers += check_everything(place, told_in(file))
    assert killed == KILLS
    assert answers > KILLS, "somebody wrote something"


def check_everything(place: Place, told: Told) -> int:
    """Demand that every answer stands, and that each request made one job; give how many answers there were."""
    with place.open() as engine:
        list(work(engine, told.last))
        check(engine)
        logs = logs_of(engine)
        for job_id, event in told.answers:
            assert event in logs[job_id], f"job {job_id} was {event}, it was said"
        numbers = sorted(engine.get(job_id).payload for job_id in logs)
        assert numbers == list(range(told.last + 1)), "each request made one job"
    assert not place.is_file or is_whole(place)
    return len(told.answers)
