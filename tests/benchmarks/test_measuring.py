"""What is counted: the time in which all workers were there, each job once, and what is really in a file."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from bench import gauges, handlers, processes
from bench.running import Bench, Failed, Window
from bench.servers import Place
from bench.system import load

from leftfold.store.sqlite.library import sqlite


def test_a_window_begins_with_the_first_job_of_the_last_worker() -> None:
    assert Window.of(times=[10, 20, 30, 40, 50], firsts=[10, 30]) == Window(began=30, jobs=3)


def test_one_worker_has_the_whole_time() -> None:
    assert Window.of(times=[10, 20, 30], firsts=[10]) == Window(began=10, jobs=3)


def test_a_worker_that_never_began_a_job_is_told_of() -> None:
    with pytest.raises(Failed, match="1 of 2 processes never began a job"):
        Window.of(times=[10, 20], firsts=[10, 0])


def test_a_window_that_is_left_with_few_jobs_is_no_figure() -> None:
    with pytest.raises(Failed, match="only 1 of 10 jobs were left"):
        Window.of(times=list(range(1, 11)), firsts=[1, 10])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        place = Place(str(tmp_path), "files", None)
        yield Bench("leftfold_sqlite", load("leftfold_sqlite").ABOUT, place, tmp_path, stack)


def run(bench: Bench, *numbers: int) -> None:
    """Let a worker of the bench run these jobs, as handlers do that it has in this process."""
    probe = handlers.probe(str(bench.folder / f"probe-{len(bench.probes)}"))
    bench.probes.append(probe)
    for number in numbers:
        handlers.hit(probe, number)


def test_a_job_that_ran_twice_is_told_of_though_all_ran(bench: Bench) -> None:
    run(bench, 0, 1)
    run(bench, 2, 1)
    with pytest.raises(Failed, match="began 3 of 3 jobs, and 1 of them once more"):
        bench.window(3)


def test_a_job_that_never_ran_is_told_of(bench: Bench) -> None:
    run(bench, 0, 0, 1)
    with pytest.raises(Failed, match="began 2 of 3 jobs, and 1 of them once more"):
        bench.window(3)


def test_jobs_that_all_ran_once_are_counted(bench: Bench) -> None:
    run(bench, 0, 2, 1)
    window = bench.window(3)
    assert window.jobs == 3
    assert window.began == bench.times(3)[0]


def test_the_gauges_tell_something() -> None:
    assert gauges.processor() > 0
    assert gauges.disk(Path.cwd()) > 0


def test_a_file_is_measured_with_what_is_still_in_the_log_beside_it(tmp_path: Path) -> None:
    connection = sqlite.connect(tmp_path / "jobs.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t AS SELECT zeroblob(1000000) AS b")
    (tmp_path / "errors").write_text("x" * 1_000)
    before = (tmp_path / "jobs.db").stat().st_size
    assert before < 1_000_000 < Place(str(tmp_path), "files", None).bytes() < 1_100_000
    connection.close()


def test_what_is_kept_in_memory_is_not_called_what_is_kept_on_disk() -> None:
    assert Place("", "redis", None).kept != Place("", "files", None).kept == Place("", "postgres", None).kept


def test_memory_is_what_a_process_has_for_itself() -> None:
    before = processes.memory(os.getpid())
    held = bytearray(b"x") * 20_000_000
    assert processes.memory(os.getpid()) - before > len(held) * 0.9
