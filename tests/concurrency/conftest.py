"""A store of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.places import Place, file_in, schema_on

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


@pytest.fixture(params=["stdlib", "pysqlite3"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each SQLite library, for the processes that are started from here on."""
    name: str = request.param
    if name == "pysqlite3":
        pytest.importorskip("pysqlite3")
    monkeypatch.setenv("LEFTFOLD_SQLITE", name)
    return name
