"""A store of its own for each test, with a table of the caller's beside it."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.places import Place, file_in, schema_on

from leftfold.store.sqlite.library import sqlite
from leftfold.testing.postgres import Server


@pytest.fixture
def on_postgres(postgres: Server) -> Iterator[Place]:
    with schema_on(postgres) as place:
        with psycopg.connect(place.url) as connection:
            connection.execute(f'CREATE TABLE "{place.schema}".orders (id integer PRIMARY KEY)'.encode())
        yield place._replace(url=f"{place.url}?options=-c%20search_path%3D{place.schema}")


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Place:
    place = file_in(tmp_path)
    place.open().close()
    connection = sqlite.connect(place.path)
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    connection.commit()
    connection.close()
    return place
