"""However many jobs there are, a page of them is in memory at a time."""

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.places import file_in

from leftfold import Engine, NewJob

STEP = 1_000
SIZES = (1, 2, 5, 20)


def peak(act: Callable[[], object]) -> int:
    """Give how much memory an act takes at most, in bytes, with garbage put away as soon as there is some."""
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(500, 1, 1)
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.set_threshold(*before)


def drained(lines: Any) -> int:
    return sum(1 for _ in lines)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Files with so many thousand jobs."""
    folders = {}
    for size in SIZES:
        folders[size] = tmp_path_factory.mktemp(f"jobs-{size}")
        with file_in(folders[size]).open() as engine:
            for _ in range(size):
                engine.enqueue_many([NewJob("work", {"n": n}) for n in range(STEP)])
    return folders


#: What is done to the first, and to the second of two sizes. A page is given away while the next one is read, so that
#: it takes two pages of jobs until there is no more to be had.
ACTS: dict[str, tuple[Callable[[Engine], object], int, int]] = {
    "verify": (lambda engine: engine.verify(), 2, 20),
    "export": (lambda engine: drained(engine.export_jobs()), 2, 5),
    "import": (lambda engine: engine.import_jobs(engine.export_jobs()), 2, 5),
    "follow": (lambda engine: drained(engine.follow("consumer")), 1, 5),
}


@pytest.mark.parametrize(("act", "few", "many"), ACTS.values(), ids=ACTS)
def test_many_times_as_many_jobs_need_hardly_more_memory(
    filled: dict[int, Path], act: Callable[[Engine], object], few: int, many: int
) -> None:
    peaks = []
    for size in (few, many):
        with file_in(filled[size]).open() as engine:
            peaks.append(peak(lambda engine=engine: act(engine)))  # type: ignore[misc]
    assert peaks[1] < 1.25 * peaks[0] + 300_000, peaks


VERIFIED = """
import re, sys
import leftfold
from leftfold.store import audit
from leftfold.store.query import Operation

def most():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])

with leftfold.open(sys.argv[1], create=False) as engine:
    page = engine.list(limit=1000)
    while page.next:  # until its cache is full
        page = engine.list(limit=1000, after=page.next)
    before = most()
    assert engine.store.run(Operation(lambda: audit.overall(10), reads=True)) == []
    print(most() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nobody else tells how much a process took")
def test_the_library_below_needs_hardly_more_either(filled: dict[int, Path]) -> None:
    """It sorts in memory whatever it is asked to group, where no trace of Python sees it."""
    assert verified(filled[20]) < 600, "KiB; twenty thousand jobs, sorted, are more than a thousand"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nobody else tells how much a process took")
def test_nor_does_it_for_keys_of_which_each_is_another(tmp_path: Path) -> None:
    taken = []
    for size in (20, 40):
        folder = tmp_path / str(size)
        folder.mkdir()
        with file_in(folder).open() as engine:
            for step in range(size):
                engine.enqueue_many([NewJob("work", key=f"{step:0100}:{n}") for n in range(STEP)])
        taken.append(verified(folder))
    assert taken[1] < taken[0] + 600, f"{taken} KiB; twenty thousand keys are two thousand"


def verified(folder: Path) -> int:
    """Give how many KiB a process takes to look at what is no single job's."""
    command = [sys.executable, "-c", VERIFIED, file_in(folder).url]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
