"""A store of its own for each test."""

from collections.abc import Iterator

import pytest
from tests.places import Place, schema_on

from leftfold.testing.postgres import OwnServer, running


@pytest.fixture(scope="session")
def preparing() -> Iterator[OwnServer]:
    """A server that prepares transactions, which few do unless they are told to, and that is ours to kill."""
    with running(settings={"max_prepared_transactions": "5"}) as server:
        yield server


@pytest.fixture
def prepared_place(preparing: OwnServer) -> Iterator[Place]:
    with schema_on(preparing) as place:
        yield place
