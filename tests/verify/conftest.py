"""A store of its own for each test, an engine on it, and a shell beside that."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.places import Place, file_in, schema_on
from tests.verify.planting import Shell

from leftfold import Engine
from leftfold.testing.clock import FakeClock
from leftfold.testing.postgres import Server


@pytest.fixture
def on_postgres(postgres: Server) -> Iterator[Place]:
    with schema_on(postgres) as place:
        yield place


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Place:
    place = file_in(tmp_path)
    place.open().close()
    return place


@pytest.fixture(params=["postgres", "sqlite"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each of the two."""
    found: Place = request.getfixturevalue(f"on_{request.param}")
    return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(place: Place, clock: FakeClock) -> Iterator[Engine]:
    with place.open(clock=clock, actor="tester") as engine:
        yield engine


@pytest.fixture
def shell(place: Place) -> Iterator[Shell]:
    with Shell(place) as shell:
        yield shell
