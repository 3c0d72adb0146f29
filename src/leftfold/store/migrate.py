"""Migrations: numbered files per dialect, applied in order under a lock, each remembered with its checksum."""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

from leftfold.core.errors import StoreNotReadyError
from leftfold.store.query import fill


class Migration(NamedTuple):
    """One step of the schema. The checksum is that of the file, before the schema's name is put in."""

    version: int
    name: str
    sql: str
    checksum: str


class Applied(NamedTuple):
    """A migration as a database remembers it."""

    version: int
    checksum: str


@lru_cache(maxsize=64)
def migrations(dialect: str, schema: str = "") -> tuple[Migration, ...]:
    """Read the migrations of a dialect, oldest first."""
    folder = files("leftfold.store").joinpath(dialect, "migrations")
    found = []
    for file in folder.iterdir():
        match = re.fullmatch(r"([0-9]{4})_([a-z0-9_]+)\.sql", file.name)
        if match:
            text = file.read_text(encoding="utf-8")
            found.append(
                Migration(int(match[1]), match[2], fill(text, {"schema": schema}), sha256(text.encode()).hexdigest())
            )
    return tuple(sorted(found))


def pending(known: Sequence[Migration], applied: Sequence[Applied]) -> list[Migration]:
    """Give the migrations that a database lacks; refuse one that is newer than we are, or that was changed."""
    by_version = {migration.version: migration for migration in known}
    for version, checksum in applied:
        if version not in by_version:
            raise StoreNotReadyError(
                f"the store has schema {version}, this version of leftfold knows {max(by_version)}: upgrade leftfold"
            )
        if by_version[version].checksum != checksum:
            raise StoreNotReadyError(
                f"migration {version} of the store is not the one that this version of leftfold has: "
                "it was made by a build in between; move the data by export and import"
            )
    done = {version for version, _ in applied}
    return [migration for migration in known if migration.version not in done]


def check_ready(known: Sequence[Migration], applied: Sequence[Applied]) -> None:
    """Refuse a database that is not at our schema."""
    missing = pending(known, applied)
    if missing and not applied:
        raise StoreNotReadyError("the database holds no leftfold tables: run `leftfold migrate` first")
    if missing:
        raise StoreNotReadyError(
            f"the store has schema {applied[-1].version}, this version of leftfold needs {known[-1].version}: "
            "run `leftfold migrate`"
        )
