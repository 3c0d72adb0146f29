"""Where a row is played, many times over: each time the scene is there anew."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psycopg
from tests.crash.rows import Row
from tests.crash.scenes import ACTOR, NOW, THEN, Held
from tests.places import Place, file_in

from leftfold import Engine
from leftfold.store.query import Columns


class Ground(Protocol):
    """A store that can be set back."""

    place: Place

    def set_up(self, row: Row) -> Held:
        """Make a place where the row's scene has just been played."""

    def engine(self) -> Engine:
        """Give an engine on the place, at the time of the operation."""


class FileGround:
    """A file with the scene is made once, and copied each time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scenes: dict[str, tuple[Path, Held]] = {}
        self._engine: Engine | None = None
        self._copies = 0
        self.place = file_in(folder)

    def set_up(self, row: Row) -> Held:
        if row.name not in self._scenes:
            path = self._folder / f"scene-{len(self._scenes)}.db"
            with Place(f"sqlite:///{path}").open(clock=lambda: THEN, actor=ACTOR) as engine:
                self._scenes[row.name] = path, row.scene(engine)
        scene, held = self._scenes[row.name]
        self.close()
        self._copies += 1
        self.place = Place(f"sqlite:///{self._folder / f'{self._copies}.db'}")
        shutil.copy(scene, self.place.path)
        return held

    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = self.place.open(clock=lambda: NOW, actor=ACTOR)
        return self._engine

    def close(self) -> None:
        """Leave the place, and leave nothing of it."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        for file in self._folder.glob(f"{self.place.path.name}*"):
            file.unlink()


class SchemaGround:
    """A schema is emptied, and the scene is played in it. To make a new schema would take ten times as long."""

    def __init__(self, place: Place, before: Engine, during: Engine, connection: psycopg.Connection[Columns]) -> None:
        self.place = place
        self._before, self._during, self._connection = before, during, connection
        connection.execute("SET session_replication_role = replica")  # for us, no trigger keeps what is on the log
        found = connection.execute("SELECT tablename::text FROM pg_tables WHERE schemaname = %s", (place.schema,))
        names = [name for (name,) in found.fetchall() if name != "migrations"]
        self._empty = "; ".join(f'DELETE FROM "{place.schema}"."{name}"' for name in names).encode()  # noqa: S608

    def set_up(self, row: Row) -> Held:
        self._connection.execute(self._empty)  # waits for those who died a moment ago
        return row.scene(self._before)

    def engine(self) -> Engine:
        return self._during


@contextmanager
def schema_ground(place: Place) -> Iterator[SchemaGround]:
    """Give a ground on a schema that is there."""
    with (
        psycopg.connect(place.url, autocommit=True) as connection,
        place.open(clock=lambda: THEN, actor=ACTOR) as before,
        place.open(clock=lambda: NOW, actor=ACTOR) as during,
    ):
        yield SchemaGround(place, before, during, connection)


@contextmanager
def file_ground(folder: Path) -> Iterator[FileGround]:
    """Give a ground in a folder."""
    ground = FileGround(folder)
    yield ground
    ground.close()
