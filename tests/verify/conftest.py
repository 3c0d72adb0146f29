"""A store of its own for each test, an engine on it, and a shell beside that."""

from collections.abc import Iterator

import pytest
from tests.places import Place
from tests.verify.planting import Shell

from leftfold import Engine
from leftfold.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(place: Place, clock: FakeClock) -> Iterator[Engine]:
    with place.open(clock=clock, actor="tester") as engine:
        engine._writes = 0  # the counters are folded now and then: not in the middle of a test that compares them
        yield engine


@pytest.fixture
def shell(place: Place) -> Iterator[Shell]:
    with Shell(place) as shell:
        yield shell
