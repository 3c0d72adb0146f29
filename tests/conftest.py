"""What tests of several folders share."""

import os
from collections.abc import Iterator
from typing import Final

import pytest

from leftfold.testing.postgres import Server, running

#: A server that is there already: its user makes and drops databases and roles, as a superuser may.
GIVEN: Final = os.environ.get("LEFTFOLD_TEST_POSTGRES_URL")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server: the one that is given, or one of our own, which each test process starts when it needs it.

    Tests that stop their server, or need it set up in some way, always start their own.
    """
    if GIVEN:
        yield Server(GIVEN)
    else:
        with running() as server:
            yield server
