"""What tests of several folders share."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests import steady
from tests.places import Place, file_in, schema_on

from leftfold import App
from leftfold.testing.postgres import Server, running

#: A server that is there already: its user makes and drops databases and roles, as a superuser may.
GIVEN: Final = os.environ.get("LEFTFOLD_TEST_POSTGRES_URL")


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Let a test on real time be done again if it failed while the machine stood still."""
    if not steady.is_timed(item.path):
        return None
    steady.run(item, nextitem)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests had to be done again."""
    again = list(steady.told(terminalreporter.stats.get("passed", [])))
    if again:
        terminalreporter.section("done again")
        terminalreporter.write_line("\n\n".join(again))


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


@pytest.fixture
def on_postgres(postgres: Server) -> Iterator[Place]:
    """A schema of its own."""
    with schema_on(postgres) as place:
        yield place


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Place:
    """A file of its own."""
    place = file_in(tmp_path)
    place.open().close()
    return place


@pytest.fixture
def app(place: Place) -> Iterator[App]:
    """An app without jobs, on each of the two stores."""
    with App(place.url, schema=place.schema) as made:
        yield made


@pytest.fixture
def file_app(on_sqlite: Place) -> Iterator[App]:
    """The same, where the store makes no difference."""
    with App(on_sqlite.url) as made:
        yield made


@pytest.fixture(params=["postgres", "sqlite"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each of the two."""
    found: Place = request.getfixturevalue(f"on_{request.param}")
    return found
