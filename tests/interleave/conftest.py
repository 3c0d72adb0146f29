"""A world for the tests of a file: what was played in it is checked as a whole when they are done."""

from collections.abc import Iterator

import pytest
from tests.interleave.world import World, world_on

from leftfold.testing.postgres import Server


@pytest.fixture(scope="module")
def world(postgres: Server) -> Iterator[World]:
    with world_on(postgres) as opened:
        yield opened
        opened.check_whole()
