"""A store of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.places import Place, file_in, schema_on

from leftfold.testing.postgres import OwnServer, Server, running


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


@pytest.fixture(scope="session")
def preparing() -> Iterator[OwnServer]:
    """A server that prepares transactions, which few do unless they are told to, and that is ours to kill."""
    with running(settings={"max_prepared_transactions": "5"}) as server:
        yield server


@pytest.fixture
def prepared_place(preparing: OwnServer) -> Iterator[Place]:
    with schema_on(preparing) as place:
        yield place
