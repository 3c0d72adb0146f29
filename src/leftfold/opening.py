"""From a URL to an engine: the only place that knows the concrete stores."""

import getpass
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict
from urllib.parse import unquote

from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden
from leftfold.core.errors import ValidationError
from leftfold.core.limits import key
from leftfold.engine import Engine
from leftfold.store.ids import Ids

if TYPE_CHECKING:
    from leftfold.aengine import AsyncEngine

DEFAULT_URL: Final = "sqlite:///leftfold.db"
DEFAULT_SCHEMA: Final = "leftfold"
DEFAULT_POOL: Final = 10
MEMORY: Final = ":memory:"
_POSTGRES: Final = ("postgresql", "postgres")
#: Parameters of a URL that hold no secret. Others may, or may be the rest of a password with an & in it.
_SHOWN: Final = ("host", "hostaddr", "port", "dbname", "user", "sslmode", "connect_timeout", "target_session_attrs")

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
        if not path or path.endswith("/") or "\x00" in path or "?" in rest:
            raise ValidationError(f"{url} names no file: write sqlite:///jobs.db, or sqlite:////var/lib/jobs.db")
        try:
            return Address("sqlite", path if path == MEMORY else str(Path(path).expanduser()))
        except RuntimeError as problem:
            raise ValidationError(f"{url} names no file: there is no such home folder") from problem
    if colon and scheme in _POSTGRES:
        problem_found = _problem_of(rest)
        if problem_found:  # the URL itself is not shown: who knows where in it the password is
            raise ValidationError(f"the {scheme}:// URL is not one: {problem_found}")
        return Address("postgres", url)
    raise ValidationError(f"{masked(url)} is not a store: write sqlite:///jobs.db or postgresql://user@host/database")


def _problem_of(rest: str) -> str | None:
    """Say what libpq would complain about in what follows `postgresql://`: its own complaints show the password."""
    hosts, _, query = re.sub("^[^/@]*@", "", rest).partition("?")
    hosts, _, database = hosts.partition("/")
    if re.search(r"[\x00-\x20\x7f\ud800-\udfff]", rest):
        return "it holds blanks or control characters, which are written %20 and the like"
    if re.search(r"%(?![0-9A-Fa-f]{2})|%00", rest) or "\N{REPLACEMENT CHARACTER}" in unquote(rest):
        return "behind a % stand two hexadecimal digits, of UTF-8; a % in a password is written %25"
    if "@" in hosts + database + query:
        return "it has more than one @, or one that is not in front of a host; in a password @ is written %40, / is %2F"
    ports = [re.fullmatch(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::([0-9]*))?", host) for host in hosts.split(",")]
    if not all(port and int(port[1] or 1) in range(1, 65_536) for port in ports):
        return "a host is a name or an address, perhaps in brackets, and then perhaps a colon and a port"
    if query and not all(re.fullmatch("[A-Za-z_]+=[^=]*", pair) for pair in query.split("&")):
        return "behind the ? stand pairs name=value with an & between them; in a value = is written %3D"
    return None


def masked(url: str) -> str:
    """Give a URL without its passwords: of one that nobody could read, no more than the beginning."""
    scheme, colon, rest = url.partition("://")
    if scheme in _POSTGRES and not _problem_of(rest):
        where, mark, query = re.sub("^([^:/@]*):[^/@]*@", r"\1:***@", rest).partition("?")
        pairs = [pair if pair.partition("=")[0] in _SHOWN else "***" for pair in query.split("&")]
        return f"{scheme}://{where}{mark}" + ("&".join(pairs) if query else "")
    if scheme == "sqlite" or re.fullmatch(r"[\w./-]+", url):
        return url
    return f"{scheme}://…" if colon else "this"


def open(  # noqa: A001 - leftfold.open reads as it should
    url: str | None = None,
    *,
    schema: str | None = None,
    create: bool = True,
    enforce: str | None = None,
    actor: str | None = None,
    pool_size: int = DEFAULT_POOL,
    prepare: bool | None = None,
    clock: Clock | None = None,
    shard: int = 0,
    wake: bool = False,
) -> Engine:
    """Open a store. A file that is not there yet is made, unless `create` is false; PostgreSQL needs a `migrate` first.

    `enforce` names a dialect whose table the engine is held to. `clock` gives microseconds since 1970, for tests.
    `prepare=False` lets PostgreSQL keep no statements, for a pooler that parts transactions. What is not given is asked
    of the environment: LEFTFOLD_DATABASE_URL, LEFTFOLD_SCHEMA, LEFTFOLD_PREPARE, LEFTFOLD_ACTOR. `wake` lets workers
    know of new jobs at once, from the transaction that makes them or a connection beside it; else they find them within
    a second.
    """
    dialect, place = address_of(url or default_url())
    engine_of = _settings(enforce, actor, clock, shard)
    if dialect == "sqlite":
        from leftfold.store.sqlite.driver import SqliteStore  # noqa: PLC0415 - one of the two is loaded, when needed

        return Engine(SqliteStore(place, create=create, clock=clock), **engine_of)
    from leftfold.store.postgres.driver import PostgresStore  # noqa: PLC0415 - one of the two is loaded, when needed

    store = PostgresStore(place, pool_size=pool_size, clock=clock, **_session(schema, prepare))
    return Engine(store.open(), **engine_of, bell=store.bell() if wake else None)


async def aopen(
    url: str | None = None,
    *,
    schema: str | None = None,
    create: bool = True,
    enforce: str | None = None,
    actor: str | None = None,
    pool_size: int = DEFAULT_POOL,
    prepare: bool | None = None,
    clock: Clock | None = None,
    shard: int = 0,
    wake: bool = False,
) -> "AsyncEngine":
    """Open a store for asyncio; see `open`."""
    from leftfold.aengine import AsyncEngine  # noqa: PLC0415 - who is not async needs no asyncio

    dialect, place = address_of(url or default_url())
    engine_of = _settings(enforce, actor, clock, shard)
    if dialect == "sqlite":
        from leftfold.store.sqlite.adriver import AsyncSqliteStore  # noqa: PLC0415 - one of the two is loaded, when needed

        return AsyncEngine(await AsyncSqliteStore.open(place, create=create, clock=clock), **engine_of)
    from leftfold.store.postgres.driver import AsyncPostgresStore  # noqa: PLC0415 - one of the two is loaded, when needed

    store = AsyncPostgresStore(place, pool_size=pool_size, clock=clock, **_session(schema, prepare))
    return AsyncEngine(await store.open(), **engine_of, bell=store.bell() if wake else None)


def migrate(url: str | None = None, *, schema: str | None = None) -> list[str]:
    """Bring a store to the schema of this version, and give the names of the migrations that it took."""
    dialect, place = address_of(url or default_url())
    if dialect == "sqlite":
        from leftfold.store.sqlite.driver import SqliteStore  # noqa: PLC0415 - one of the two is loaded, when needed

        store = SqliteStore(place, migrate_now=False)
        try:
            return [f"{each.version:04d}_{each.name}" for each in store.migrate()]
        finally:
            store.close()
    from leftfold.store.postgres.driver import PostgresStore  # noqa: PLC0415 - one of the two is loaded, when needed

    return [f"{each.version:04d}_{each.name}" for each in PostgresStore(place, **_session(schema, None)).migrate()]


class _Session(TypedDict):
    """What a PostgreSQL store is opened with, by the caller or by the environment."""

    schema: str
    prepare: bool


def _session(schema: str | None, prepare: bool | None) -> _Session:
    if prepare is None:
        wish = os.environ.get("LEFTFOLD_PREPARE") or "1"
        if wish not in {"0", "1"}:
            raise ValidationError(f"LEFTFOLD_PREPARE is {wish!r}: it can be 0 or 1")
        prepare = wish == "1"
    if schema is None:
        schema = os.environ.get("LEFTFOLD_SCHEMA") or DEFAULT_SCHEMA
    return {"schema": schema, "prepare": prepare}


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
