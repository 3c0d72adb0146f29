"""What tests of several folders share."""

from collections.abc import Iterator

import pytest

from leftfold.testing.postgres import Server, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server of our own, started when the first test asks for it, once per test process."""
    with running() as server:
        yield server
