"""Ground that gives way: small disks, processes of their own, servers of our own."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.concurrency.crowd import eventually
from tests.crash.victims import Nursery
from tests.places import Place, database_on, file_in, schema_on

import leftfold
from leftfold.testing.postgres import OwnServer, Server, running


@pytest.fixture(scope="session", params=["stdlib", "pysqlite3"])
def nursery(request: pytest.FixtureRequest) -> Iterator[Nursery]:
    """Where processes come from, with each of the SQLite libraries."""
    if request.param == "pysqlite3":
        pytest.importorskip("pysqlite3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEFTFOLD_SQLITE", request.param)
        nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def own_server() -> Iterator[OwnServer]:
    """A server as it comes, to be crashed: it syncs what it commits."""
    with running(durable=True) as server:
        yield server


@pytest.fixture
def own_place(own_server: OwnServer) -> Iterator[Place]:
    eventually(own_server._answers)  # it may still be busy with its last crash
    with schema_on(own_server) as place:
        yield place


@pytest.fixture
def own_database(own_server: OwnServer) -> Iterator[Place]:
    """A database where everybody is let in by name."""
    eventually(own_server._answers)
    with database_on(own_server) as url:
        leftfold.migrate(url)
        yield Place(url)


@pytest.fixture
def on_postgres(postgres: Server) -> Iterator[Place]:
    """A database of its own: what is done to all of its connections is done to nobody else's."""
    with database_on(postgres) as url:
        leftfold.migrate(url)
        yield Place(url)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Place:
    place = file_in(tmp_path)
    place.open().close()
    return place


@pytest.fixture
def disk_of() -> Iterator[Callable[[int], Path]]:
    """Small disks, in megabytes: file systems in memory, which only root can mount."""
    mounted: list[Path] = []

    def mount(megabytes: int) -> Path:
        folder = Path(
            tempfile.mkdtemp(prefix="leftfold-disk-")
        )  # not in the folder of the tests: servers have to get in
        folder.chmod(0o755)
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(folder)],  # noqa: S607
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        if made.returncode:
            folder.rmdir()
            pytest.skip(f"no small disk can be mounted: {made.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607
        folder.rmdir()


@contextmanager
def ballast(folder: Path, leave: int = 0) -> Iterator[None]:
    """Fill a disk, but for a few bytes."""
    file = folder / "ballast"
    with file.open("wb", buffering=0) as full:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    full.write(b"x" * size)
            except OSError:
                continue
        full.truncate(max(0, full.tell() - leave))
    try:
        yield
    finally:
        file.unlink()
