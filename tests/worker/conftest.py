"""An app and a store for each test, and no process that outlives it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.places import Place
from tests.worker.real import Town

from leftfold import App


@pytest.fixture
def town(place: Place, tmp_path: Path) -> Iterator[Town]:
    """A folder with an app for real processes, on each of the two stores."""
    town = Town(place, tmp_path)
    yield town
    town.close()


@pytest.fixture
def file_town(on_sqlite: Place, tmp_path: Path) -> Iterator[Town]:
    """The same where the store makes no difference."""
    town = Town(on_sqlite, tmp_path)
    yield town
    town.close()


@pytest.fixture
def app(place: Place) -> Iterator[App]:
    """An app in this process, on each of the two stores."""
    with App(place.url, schema=place.schema) as app:
        yield app


@pytest.fixture
def file_app(on_sqlite: Place) -> Iterator[App]:
    """The same where the store makes no difference."""
    with App(on_sqlite.url) as app:
        yield app
