"""From a URL to an engine: the only place that knows the concrete stores."""

import getpass
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypedDict
from urllib.parse import unquote, urlsplit, urlunsplit

from leftfold.aengine import AsyncEngine
from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden
from leftfold.core.errors import ValidationError
from leftfold.core.limits import key
from leftfold.engine import Engine
from leftfold.store.ids import Ids

DEFAULT_URL: Final = "sqlite:///leftfold.db"
DEFAULT_SCHEMA: Final = "leftfold"
DEFAULT_POOL: Final = 10
MEMORY: Final = ":memory:"

Clock = Callable[[], int]


class Address(NamedTuple):
    """Where a store is: the path of a file, or the URL of a database."""

    dialect: str
    place: str


def default_url() -> str:
    """Give where the store is if nobody says: LEFTFOLD_DATABASE_URL, else ./leftfold.db."""
    return os.environ.get("LEFTFOLD_DATABASE_URL") or DEFAULT_URL


def address_of(url: str) -> Address:
    """Read a URL: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite:///:memory:`, `postgresql://…`."""
    scheme, colon, rest = url.partition("://")
    if colon and scheme == "sqlite" and rest.startswith("/"):
        path = unquote(rest[1:])
        if not path or path.endswith("/"):
            raise ValidationError(f"{url} names no file: write sqlite:///jobs.db, or sqlite:////var/lib/jobs.db")
        return Address("sqlite", path if path == MEMORY else str(Path(path).expanduser()))
    if colon and scheme in {"postgresql", "postgres"}:
        try:
            urlsplit(url).port  # noqa: B018 - it checks
        except ValueError as problem:
            raise ValidationError(f"{masked(url)} is not a URL: {problem}") from None
        return Address("postgres", url)
    raise ValidationError(f"{masked(url)!r} is not a store: write sqlite:///jobs.db or postgresql://user@host/database")


def masked(url: str) -> str:
    """Give a URL without its password."""
    try:
        parts = urlsplit(url)
        if parts.password is not None:
            user = parts.netloc.rpartition("@")[0].partition(":")[0]
            parts = parts._replace(netloc=f"{user}:***@{parts.netloc.rpartition('@')[2]}")
        shown = urlunsplit(parts) if parts.scheme in {"postgresql", "postgres"} else url
    except ValueError:
        shown = re.sub(r"//[^/]*@", "//***@", url)
    return re.sub(r"(?i)(password|passfile|sslpassword)=[^&\s]*", r"\1=***", shown)


def open(  # noqa: A001 - leftfold.open reads as it should
    url: str | None = None,
    *,
    schema: str = DEFAULT_SCHEMA,
    create: bool = True,
    enforce: str | None = None,
    actor: str | None = None,
    pool_size: int = DEFAULT_POOL,
    clock: Clock | None = None,
    shard: int = 0,
) -> Engine:
    """Open a store. A file that is not there yet is made, unless `create` is false; PostgreSQL needs a `migrate` first.

    `enforce` names a dialect whose table the engine is held to. `clock` gives microseconds since 1970, for tests.
    """
    dialect, place = address_of(url or default_url())
    engine_of = _settings(enforce, actor, clock, shard)
    if dialect == "sqlite":
        from leftfold.store.sqlite.driver import SqliteStore  # noqa: PLC0415 - one of the two is loaded, when needed

        return Engine(SqliteStore(place, create=create, clock=clock), **engine_of)
    from leftfold.store.postgres.driver import PostgresStore  # noqa: PLC0415

    return Engine(PostgresStore(place, schema=schema, pool_size=pool_size, clock=clock).open(), **engine_of)


async def aopen(
    url: str | None = None,
    *,
    schema: str = DEFAULT_SCHEMA,
    create: bool = True,
    enforce: str | None = None,
    actor: str | None = None,
    pool_size: int = DEFAULT_POOL,
    clock: Clock | None = None,
    shard: int = 0,
) -> AsyncEngine:
    """Open a store for asyncio; see `open`."""
    dialect, place = address_of(url or default_url())
    engine_of = _settings(enforce, actor, clock, shard)
    if dialect == "sqlite":
        from leftfold.store.sqlite.driver import AsyncSqliteStore, SqliteStore  # noqa: PLC0415

        return AsyncEngine(AsyncSqliteStore(SqliteStore(place, create=create, clock=clock)), **engine_of)
    from leftfold.store.postgres.driver import AsyncPostgresStore  # noqa: PLC0415

    store = AsyncPostgresStore(place, schema=schema, pool_size=pool_size, clock=clock)
    return AsyncEngine(await store.open(), **engine_of)


def migrate(url: str | None = None, *, schema: str = DEFAULT_SCHEMA) -> list[str]:
    """Bring a store to the schema of this version, and give the names of the migrations that it took."""
    dialect, place = address_of(url or default_url())
    if dialect == "sqlite":
        from leftfold.store.sqlite.driver import SqliteStore  # noqa: PLC0415

        store = SqliteStore(place, migrate_now=False)
        try:
            return [f"{each.version:04d}_{each.name}" for each in store.migrate()]
        finally:
            store.close()
    from leftfold.store.postgres.driver import PostgresStore  # noqa: PLC0415

    return [f"{each.version:04d}_{each.name}" for each in PostgresStore(place, schema=schema).migrate()]


class _Settings(TypedDict):
    """What both engines are made with."""

    actor: str
    ids: Ids
    forbidden: Forbidden


def _settings(enforce: str | None, actor: str | None, clock: Clock | None, shard: int) -> _Settings:
    name = actor or os.environ.get("LEFTFOLD_ACTOR") or _whoami()
    key("actor", name)
    return {"actor": name, "ids": Ids(clock, shard=shard), "forbidden": _forbidden(enforce)}


def _whoami() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def _forbidden(enforce: str | None) -> Forbidden:
    if enforce is None:
        return NOTHING_FORBIDDEN
    from leftfold.dialects import DIALECTS  # noqa: PLC0415 - only who enforces one needs them

    if enforce not in DIALECTS:
        raise ValidationError(f"{enforce!r} is no dialect: there are {', '.join(DIALECTS)}")
    return DIALECTS[enforce].forbidden()
