"""Both stores and the pure core, step by step the same, on long random walks."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.store.conftest import MORE
from tests.store.machine import Differential
from tests.store.world import Place

from leftfold.core.lifecycle import EDGES, Edge


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(2 if MORE == 1 else 4))
def test_the_stores_never_differ_from_the_core(start: int, place: Place) -> None:
    taken: Counter[Edge] = Counter()
    machine = partial(Differential, place, start, taken)
    run_state_machine_as_test(machine, settings=settings.get_profile("stores"))  # type: ignore[arg-type]
    assert len(taken) >= len(EDGES) // 2, "these walks went nowhere"
