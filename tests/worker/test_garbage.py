"""A worker collects garbage less often, leaves the settings as they were, and respects those of others."""

import gc
from collections.abc import Iterator

import pytest

from leftfold.worker.garbage import seldom_collected


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_looks_less_often_only_while_a_worker_runs() -> None:
    gc.set_threshold(700, 10, 10)
    frozen = gc.get_freeze_count()
    with seldom_collected():
        assert gc.get_threshold()[0] == 20_000
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == frozen == 0


@pytest.mark.parametrize("theirs", [(0, 0, 0), (50_000, 5, 5)])
def test_who_set_it_otherwise_knows_better(theirs: tuple[int, int, int]) -> None:
    gc.set_threshold(*theirs)
    with seldom_collected():
        assert gc.get_threshold() == theirs
        assert gc.get_freeze_count() == 0


def test_what_holds_itself_is_still_found() -> None:
    class Ring:
        ended = 0

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            Ring.ended += 1

    gc.set_threshold(700, 10, 10)
    with seldom_collected():
        for _ in range(30_000):
            Ring()
        assert Ring.ended > 0
