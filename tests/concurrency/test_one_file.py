"""Many processes on one SQLite file, also if they are killed: nothing that was acknowledged is lost."""

import multiprocessing
import random
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.concurrency.crowd import DEADLINE, eventually, processes, rounds
from tests.concurrency.hammer import Seen, is_whole, log_size, take_part, write_until_killed
from tests.places import Place, logs_of

#: What the log may grow to under this load; without checkpoints it would be several times as long.
LOG_MAX = 20 * 1024 * 1024


def check_nothing_is_lost(place: Place, told: Iterable[tuple[str, str]]) -> None:
    assert is_whole(place)
    with place.open() as engine:
        logs = logs_of(engine)  # follows every chain, and holds rows and counters to it
        for job_id, event in told:
            assert event in logs[job_id], f"job {job_id} was {event}, it was said"


@pytest.mark.parametrize("writers", [2, 8])
def test_writers_in_processes_and_a_reader_lose_nothing(on_sqlite: Place, library: str, writers: int) -> None:
    acknowledgements = rounds(1600) // writers
    seen, *told = processes(writers + 1, take_part, on_sqlite, acknowledgements)
    assert isinstance(seen, Seen)
    assert seen.reads > 10
    assert seen.log_max < LOG_MAX, "the write-ahead log stays bounded while somebody reads"
    answers = [answer for part in told if isinstance(part, list) for answer in part]
    assert len(answers) == acknowledgements * writers
    check_nothing_is_lost(on_sqlite, answers)
    assert log_size(on_sqlite) == 0, "the last one to leave empties the log"


def test_processes_with_different_libraries_share_a_file(on_sqlite: Place) -> None:
    """A checkpoint of the mended library is safe against any writer, and that of the other one is guarded."""
    pytest.importorskip("pysqlite3")
    seen, *told = processes(5, take_part, on_sqlite, rounds(300), libraries=["stdlib", "pysqlite3"])
    assert isinstance(seen, Seen)
    check_nothing_is_lost(on_sqlite, [answer for part in told if isinstance(part, list) for answer in part])


def acknowledged(told: Path) -> list[tuple[str, str]]:
    lines = [line.split() for line in told.read_text(encoding="utf-8").splitlines()] if told.exists() else []
    return [(line[0], line[1]) for line in lines if len(line) == 2 and len(line[0]) == 36]


def lines_in(told: Path) -> int:
    return told.read_bytes().count(b"\n") if told.exists() else 0


def test_a_writer_that_is_killed_leaves_whole_transactions_behind(
    on_sqlite: Place, library: str, tmp_path: Path
) -> None:
    """A process is killed at some moment while another one goes on writing; again and again, on the same file."""
    dice = random.Random(library)  # noqa: S311 - no secrets here
    context = multiprocessing.get_context("spawn")
    survivor = context.Process(target=write_until_killed, args=(on_sqlite, tmp_path / "survivor"), daemon=True)
    survivor.start()
    files = [tmp_path / "survivor"]
    for number in range(rounds(4)):
        files.append(tmp_path / f"killed-{number}")
        victim = context.Process(target=write_until_killed, args=(on_sqlite, files[-1]), daemon=True)
        victim.start()
        enough = dice.randint(1, 60)
        eventually(lambda told=files[-1], enough=enough: lines_in(told) >= enough)  # type: ignore[misc]
        victim.kill()
        victim.join(DEADLINE)
        assert victim.exitcode == -signal.SIGKILL
    before = lines_in(files[0])
    eventually(lambda: lines_in(files[0]) > before)
    survivor.kill()
    survivor.join(DEADLINE)
    check_nothing_is_lost(on_sqlite, [answer for file in files for answer in acknowledged(file)])


def test_a_writer_that_dies_at_a_statement_leaves_whole_transactions_behind(
    on_sqlite: Place, library: str, tmp_path: Path
) -> None:
    """Every operation has a handful of statements: die at each of the first ones, and a few far behind."""
    context = multiprocessing.get_context("spawn")
    statements = [*range(1, 1 + rounds(10)), 60, 200]
    crew = []
    for number in statements:
        file = tmp_path / f"dead-{number}"
        victim = context.Process(target=write_until_killed, args=(on_sqlite, file, number), daemon=True)
        victim.start()
        crew.append((file, victim))
        if len(crew) % 2 == 0:  # two at a time
            victim.join(DEADLINE)
    for _, victim in crew:
        victim.join(DEADLINE)
        assert victim.exitcode == -signal.SIGKILL
    told = [answer for file, _ in crew for answer in acknowledged(file)]
    assert told
    check_nothing_is_lost(on_sqlite, told)
