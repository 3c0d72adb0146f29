"""Which store a command speaks to: the options that say so, and how it is opened.

Everything that can be known to be wrong is said before the store is touched. A command that reads makes no store, and
leaves a file as it is that is none.
"""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from leftfold import opening
from leftfold.core import limits
from leftfold.core.errors import StoreDeniedError, StoreError, StoreNotReadyError, ValidationError
from leftfold.core.lifecycle import State
from leftfold.engine import Engine
from leftfold.opening import DEFAULT_SCHEMA, DEFAULT_URL, MEMORY, address_of

Command = Callable[..., None]

#: Bytes 18 and 19 of an SQLite file that is in WAL mode already: to open it changes nothing.
_WAL: Final = b"\x02\x02"


class Place(NamedTuple):
    """Where a store is, as the command line says."""

    url: str
    schema: str


def with_store(command: Command) -> Command:
    """Add the options that say which store is meant; the command gets them as `place`."""

    @click.option(
        "--store",
        "url",
        metavar="URL",
        envvar="LEFTFOLD_DATABASE_URL",
        default=DEFAULT_URL,
        show_envvar=True,
        show_default=True,
        help="Where the jobs are: sqlite:///FILE or postgresql://…",
    )
    @click.option(
        "--schema",
        metavar="NAME",
        envvar="LEFTFOLD_SCHEMA",
        default=DEFAULT_SCHEMA,
        show_envvar=True,
        show_default=True,
        help="PostgreSQL only: the schema with the tables.",
    )
    @functools.wraps(command)
    def with_place(*arguments: Any, url: str, schema: str, **options: Any) -> None:
        command(*arguments, place=Place(url, schema), **options)

    return with_place


def with_filter(command: Command) -> Command:
    """Add the options that say which jobs are meant."""
    options = (
        click.option(
            "--state",
            "states",
            metavar="STATE",
            multiple=True,
            type=click.Choice([state.value for state in State]),
            help="In this state; may be repeated.",
        ),
        click.option("--queue", metavar="NAME", help="In this queue."),
        click.option("--kind", metavar="NAME", help="Of this kind."),
        click.option("--tenant", metavar="NAME", help="Of this tenant."),
    )
    for option in reversed(options):
        command = option(command)
    return command


with_json: Final = click.option("--json", "as_json", is_flag=True, help="For programs: one JSON value per line.")
with_actor: Final = click.option(
    "--actor",
    metavar="NAME",
    envvar="LEFTFOLD_ACTOR",
    show_envvar=True,
    show_default="user@host",
    help="Who you are; it stands on the log.",
)


def emit(value: object) -> None:
    """Write one JSON value as one line, in UTF-8 whatever the terminal speaks."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=-1))


@contextmanager
def opened(place: Place, *, create: bool = False, actor: str | None = None) -> Iterator[Engine]:
    """Open the store for a command, and close it behind it."""
    limits.key("actor", actor or None)
    check_place(place, create=create)
    with opening.open(place.url, schema=place.schema, create=create, actor=actor, pool_size=1) as engine:
        yield engine


def check_place(place: Place, *, create: bool) -> None:
    """Refuse a place where there is no store, or none can be, without changing anything there."""
    dialect, where = address_of(place.url)
    if dialect == "postgres":
        _check_url(where, place.schema)
    elif where == MEMORY:
        raise ValidationError("a store in memory is gone when the command ends: name a file")
    else:
        _check_file(Path(where), create=create)


def _check_url(url: str, schema: str) -> None:
    from leftfold.store.postgres.wire import connect_options, quoted  # noqa: PLC0415 - it says if psycopg is missing

    quoted(schema)
    try:
        connect_options(url)
    except ValidationError:  # it names the parameter, which may be a part of a password with an & in it
        raise ValidationError("behind the ? of the URL stands a parameter that PostgreSQL does not have") from None


def _check_file(file: Path, *, create: bool) -> None:
    try:
        there = file.exists()
        if there and not file.is_file():
            raise StoreError(f"{file} is not a file")
        if create and not file.parent.is_dir():
            raise StoreError(f"there is no folder {file.parent} to make {file.name} in")
        if not there and not create:
            raise StoreNotReadyError(f"there is no store at {file}: `leftfold migrate` or `leftfold enqueue` makes one")
        if there and not create:
            _check_tables(file)
    except PermissionError:
        raise StoreDeniedError(f"{file} is not ours to read") from None
    except OSError as problem:
        raise StoreError(f"{file}: {problem.strerror}") from None
    if not os.access(file.parent, os.W_OK | os.X_OK) or (there and not os.access(file, os.R_OK | os.W_OK)):
        raise StoreDeniedError(f"{file} and the files beside it are not ours to write")


def _check_tables(file: Path) -> None:
    """Refuse a file that is not a store. The store itself would put it into WAL mode before it looks."""
    with file.open("rb") as found:  # before SQLite has it open: who closes a file drops all locks of his process on it
        head = found.read(100)
    if head[18:20] == _WAL:
        return
    if not head:
        raise StoreNotReadyError(f"{file} is empty: `leftfold migrate` makes a store of it")
    from leftfold.store.sqlite.library import sqlite  # noqa: PLC0415
    from leftfold.store.sqlite.trouble import raise_translated  # noqa: PLC0415 - with the library

    connection = sqlite.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'leftfold_migrations'").fetchall():
            raise StoreNotReadyError(f"{file} holds no leftfold tables: run `leftfold migrate` first")
    except sqlite.Error as problem:
        raise_translated(problem, str(file))
    finally:
        connection.close()
