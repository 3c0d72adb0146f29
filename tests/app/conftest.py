"""An app on each store, closed behind every test."""

from collections.abc import Iterator

import pytest
from tests.places import Place

from leftfold import App


@pytest.fixture
def app(place: Place) -> Iterator[App]:
    """An app without jobs, on a store without jobs."""
    with App(place.url, schema=place.schema) as made:
        yield made


@pytest.fixture
def local(on_sqlite: Place) -> Iterator[App]:
    """The same, where the store does not matter."""
    with App(on_sqlite.url) as made:
        yield made
