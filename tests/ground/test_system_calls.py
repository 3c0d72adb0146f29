"""The disk fails while an operation writes to an SQLite file: at its first system call, its second, and so on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.concurrency.crowd import outcome
from tests.crash.grounds import FileGround, file_ground
from tests.crash.picture import happened, picture_of
from tests.crash.rows import ASKED, ROWS, Row
from tests.crash.scenes import ACTOR, NOW, Held, nothing
from tests.crash.test_every_statement import settle, undisturbed
from tests.crash.victims import DONE, KILLED, Nursery
from tests.ground.strace import inject, needs_strace, was_hit
from tests.places import Place

from leftfold import NewJob
from leftfold.core.errors import OutcomeUnknownError, StoreError

pytestmark = needs_strace()

CALLS_MAX = 60
SYNC = "fsync,fdatasync"  # one library was built to use the one, and one the other

SMALL = ROWS["enqueue with a taken key, which replaces"]  # it reads, updates and inserts
#: More than the library keeps in memory, so that it writes long before the commit.
LARGE = Row(
    "enqueue a lot", "enqueue_many", nothing,
    lambda on, _: on.enqueue_many((NewJob(f"kind-{n}", "x" * 50_000) for n in range(50)), request_id=ASKED),
)  # fmt: skip
SHOWN = {SMALL.name: SMALL, LARGE.name: LARGE}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[FileGround]:
    with file_ground(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        pytest.param("pwrite64", "error=EIO", id="a write"),
        pytest.param("pwrite64", "error=ENOSPC", id="a write without space"),
        pytest.param(SYNC, "error=EIO", id="a sync"),
        pytest.param("pread64", "error=EIO", id="a read"),
    ],
)
def test_a_disk_that_fails_at_any_call_is_reported_and_the_engine_goes_on(
    ground: FileGround, nursery: Nursery, tmp_path: Path, call: str, fault: str
) -> None:
    run = undisturbed(SMALL, ground)
    for number in range(1, CALLS_MAX):
        held = ground.set_up(SMALL)
        log = tmp_path / f"log-{number}"
        assert nursery.run(meet_a_fault, ground.place, SMALL.name, held, call, fault, number, log) == DONE
        settle(SMALL, ground.engine(), held, run)
        if not was_hit(log):
            break
    assert 1 < number < CALLS_MAX


@pytest.mark.parametrize("fault", ["error=EIO", "error=ENOSPC"])
def test_a_disk_that_fails_long_before_the_commit_is_reported_and_the_engine_goes_on(
    ground: FileGround, nursery: Nursery, tmp_path: Path, fault: str
) -> None:
    run = undisturbed(LARGE, ground)
    for number in (1, 40):
        held = ground.set_up(LARGE)
        log = tmp_path / f"log-{number}"
        assert nursery.run(meet_a_fault, ground.place, LARGE.name, held, "pwrite64", fault, number, log) == DONE
        assert was_hit(log)
        settle(LARGE, ground.engine(), held, run)


def meet_a_fault(place: Place, name: str, held: Held, call: str, fault: str, number: int, log: Path) -> None:
    """Carry out the row with a disk that fails once, and then once more with the same engine."""
    row = SHOWN[name]
    engine = place.open(clock=lambda: NOW, actor=ACTOR)
    tracer = inject(os.getpid(), call, fault, number, log)
    problem = outcome(row.act, engine, held)
    tracer.terminate()
    tracer.wait()
    if not was_hit(log):
        return
    if isinstance(problem, StoreError):
        told = ("nothing was written", "look at the disk")
        assert isinstance(problem, OutcomeUnknownError) or any(each in str(problem) for each in told), repr(problem)
        assert len(engine.list().jobs) == len(held.jobs), "what failed is not to be seen"
        assert row is SMALL or not isinstance(problem, OutcomeUnknownError), "the commit was still far away"
    row.act(engine, held)


@pytest.mark.parametrize("call", ["pwrite64", SYNC], ids=["a write", "a sync"])
def test_who_is_killed_at_any_call_leaves_all_or_nothing(
    ground: FileGround, nursery: Nursery, tmp_path: Path, call: str
) -> None:
    run = undisturbed(SMALL, ground)
    for number in range(1, CALLS_MAX):
        held = ground.set_up(SMALL)
        code = nursery.run(meet_death, ground.place, held, call, number, tmp_path / "log")
        assert code in {KILLED, DONE}
        found = happened(picture_of(ground.engine(), SMALL), run.before, run.after, whole=True)
        assert found is True or code == KILLED, "it was acknowledged, and it did not happen"
        settle(SMALL, ground.engine(), held, run)
        if code == DONE:
            break
    assert 1 < number < CALLS_MAX


def meet_death(place: Place, held: Held, call: str, number: int, log: Path) -> None:
    engine = place.open(clock=lambda: NOW, actor=ACTOR)
    inject(os.getpid(), call, "signal=SIGKILL", number, log)
    SMALL.act(engine, held)
