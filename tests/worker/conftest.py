"""A folder with an app for real processes, none of which outlives its test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.places import Place
from tests.worker.isolated import ISOLATED
from tests.worker.real import JOBS, Town


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
def cells(file_town: Town) -> Town:
    """A town whose app has isolated jobs."""
    file_town.write(JOBS + ISOLATED)
    return file_town
