"""Processes to kill, and stores to do it in."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.crash.grounds import FileGround, SchemaGround, file_ground, schema_ground
from tests.crash.victims import Nursery
from tests.places import schema_on

from leftfold.testing.postgres import Server


@pytest.fixture(scope="session")
def nursery_of() -> Iterator[Callable[[str], Nursery]]:
    """Processes by the SQLite library that they use."""
    nurseries: dict[str, Nursery] = {}

    def of(library: str = "") -> Nursery:
        if library not in nurseries:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("LEFTFOLD_SQLITE", library)
                nurseries[library] = Nursery()
        return nurseries[library]

    yield of
    for nursery in nurseries.values():
        nursery.close()


@pytest.fixture(scope="session")
def on_postgres(postgres: Server) -> Iterator[SchemaGround]:
    with schema_on(postgres) as place, schema_ground(place) as ground:
        yield ground


@pytest.fixture(scope="session")
def on_sqlite() -> Iterator[FileGround]:
    # Who dies takes nothing of the kernel's memory along, so where there are thousands of deaths no disk has to turn.
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder, file_ground(Path(folder)) as ground:
        yield ground
