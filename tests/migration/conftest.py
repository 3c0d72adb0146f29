"""A store of its own for each test, at head or empty."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from tests.migration.raw import PostgresRaw, Raw, SqliteRaw
from tests.places import Place, file_in, schema_on

import leftfold
from leftfold.testing.postgres import Server


@pytest.fixture(params=["postgres", "sqlite"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where there is nothing yet."""
    if request.param == "sqlite":
        yield file_in(tmp_path)
        return
    server: Server = request.getfixturevalue("postgres")
    place = Place(server.url(), f"t_{uuid4().hex}")
    yield place
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f'DROP SCHEMA IF EXISTS "{place.schema}" CASCADE'.encode())


@pytest.fixture
def place(empty: Place) -> Place:
    """A store at head."""
    leftfold.migrate(empty.url, schema=empty.schema)
    return empty


@pytest.fixture
def raw(place: Place) -> Iterator[Raw]:
    """A connection to it that knows nothing of leftfold."""
    with SqliteRaw(place) if place.is_file else PostgresRaw(place) as connection:
        yield connection


@pytest.fixture
def on_postgres(postgres: Server) -> Iterator[Place]:
    with schema_on(postgres) as place:
        yield place
