"""Both stores, as the command line meets them."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.e2e.homes import Home

from leftfold.testing.postgres import Server, running


def _on_postgres(server: Server, folder: Path) -> Home:
    return Home(server.url(), f"e2e_{uuid4().hex}", folder)


@pytest.fixture
def file_home(tmp_path: Path) -> Home:
    """Give a place for a file; there is none yet."""
    return Home(f"sqlite:///{tmp_path / 'jobs.db'}", "leftfold", tmp_path)


@pytest.fixture
def server_home(postgres: Server, tmp_path: Path) -> Home:
    """Give a schema of one's own; it is not there yet."""
    return _on_postgres(postgres, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def bare(request: pytest.FixtureRequest) -> Home:
    """Give a place for a store, where there is none yet."""
    home: Home = request.getfixturevalue("file_home" if request.param == "sqlite" else "server_home")
    return home


@pytest.fixture
def home(bare: Home) -> Home:
    """Give an empty store."""
    return bare.migrated()


@pytest.fixture
def both(file_home: Home, server_home: Home) -> tuple[Home, Home]:
    """Give a place of each kind, to be held against each other; in neither is a store yet."""
    return file_home, server_home


@pytest.fixture(scope="session")
def durable() -> Iterator[Server]:
    """A server with the settings that PostgreSQL comes with; that of the other tests forgets for speed."""
    with running(durable=True) as server:
        yield server


@pytest.fixture
def durable_home(durable: Server, tmp_path: Path) -> Home:
    """Give a store on it."""
    return _on_postgres(durable, tmp_path).migrated()
