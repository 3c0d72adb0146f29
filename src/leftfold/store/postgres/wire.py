"""How queries go to PostgreSQL, and what its errors mean.

Batches go as arrays, one statement for each batch: the frequent ones packed as the server keeps them, the others as
literals, made by joining texts. Either is as fast as the fastest driver.
"""

import re
import select
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from leftfold.core.errors import (
    LeftfoldError,
    MissingExtraError,
    OutcomeUnknownError,
    StoreDeniedError,
    StoreError,
    StoreNotReadyError,
    StoreUnavailableError,
    ValidationError,
)
from leftfold.store.query import ALONE, NAMES, VARYING, Again, Query, load_queries
from leftfold.store.rows import COLUMNS

try:
    import psycopg
except ImportError as problem:
    raise MissingExtraError("PostgreSQL needs psycopg: pip install 'leftfold[postgres]'") from problem

from leftfold.store.postgres.packed import PACKED, Packed

OLDEST: Final = 14
CONNECT_SECONDS: Final = 10
#: Their plan hangs on what is asked.
_VARIED: Final = frozenset({"list", "incidents", "audit", "feed_stretch", "feed_page"})
#: They have only the conditions that are asked: no plan could fit all of them.
_NARROWED: Final = frozenset({"list", "incidents", "audit", "claim", "claim_on"})

_TYPES: Final = {"id": "uuid", "head": "bytea", "state": "{schema}.state", "priority": "smallint"}
_TEXTS: Final = frozenset(
    {"tenant", "kind", "queue", "key", "correlation_id", "owner", "token", "renewed_by", "renewed_hash", "incident"}
)
#: Stands where a statement that makes jobs may wake the workers: for each kind of job that it counts.
_RINGING: Final = "/* ringing */"
_NUMBERS: Final = frozenset({"version", "renewals", "attempt", "failures", "enqueued", "wait", "result", "error"})


def _type_of(column: str, schema: str) -> str:
    if column in _TEXTS:
        return "text"
    return _TYPES.get(column, "integer" if column in _NUMBERS else "bigint").replace("{schema}", schema)


def quoted(schema: str) -> str:
    """Give the schema's name as an identifier."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema):
        raise ValidationError(f"{schema!r} is not a schema name: letters, digits and underscores, 63 at most")
    return f'"{schema}"'


@lru_cache(maxsize=64)
def queries(schema: str) -> Mapping[str, str]:
    """Give every query as psycopg wants it: `%(name)s` for `:name`."""
    name = quoted(schema)
    names = {
        **NAMES,
        "ringing": _RINGING,
        "schema": name,
        "arrays": ", ".join(f":{column}::{_type_of(column, name)}[]" for column in COLUMNS),
        "changes": ", ".join(f"{column} = a.{column}" for column in COLUMNS),
    }
    found = load_queries("postgres", names)
    return {name: re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", sql.replace("%", "%%")) for name, sql in found.items()}


#: Stands between texts while all of them are written at once: no text that PostgreSQL takes has it.
_BETWEEN: Final = "\x00"


def array(values: Iterable[Any]) -> str:
    """Give values as PostgreSQL writes an array. In most columns of a batch, all are the same."""
    given = tuple(values)
    if len(given) > 1 and _are_alike(given):
        return "{" + ",".join([_item(given[0])] * len(given)) + "}"
    with suppress(TypeError):  # if there is more than texts
        texts = _BETWEEN.join(given)
        if texts.count(_BETWEEN) == len(given) - 1:
            return '{"' + _escaped(texts).replace(_BETWEEN, '","') + '"}'
    return "{" + ",".join(map(_item, given)) + "}"


def _are_alike(values: Sequence[Any]) -> bool:
    return values.count(values[0]) == len(values)


def _item(value: Any) -> str:
    if isinstance(value, str):
        return f'"{_escaped(value)}"'
    if isinstance(value, (bytes, bytearray)):
        return f'"\\\\x{value.hex()}"'
    return "NULL" if value is None else str(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@lru_cache(maxsize=256)
def _encoded(sql: str) -> bytes:
    """Give a text as it is sent: the same object each time, by whose hash psycopg knows its statements, and short.

    It looks for arguments anew each time in a text of more than 4096 bytes.
    """
    return re.sub(r"(--.*)?\s+", " ", sql).replace(", ", ",").encode()


def call(
    queries: Mapping[str, str], query: Query, now: int | None, channel: str | None = None
) -> tuple[bytes, Mapping[str, Any]]:
    """Give the text to be sent, and its arguments: what a batch has in common once, and the rest as arrays.

    `channel` is where a statement that makes jobs wakes the workers, if it is to do that itself.
    """
    given: dict[str, Any] = {"now": now, **_scalars(tuple(query.common.items()))}
    for name, value in query.arguments.items():
        given[name] = array(value) if isinstance(value, (list, tuple)) else value
    sql, varying, is_alone = queries[query.name], VARYING.get(query.name), len(query.rows) == 1
    if varying is not None and is_alone:
        given.update(zip(query.columns, map(_scalar, query.rows[0]), strict=True))
        if given.get("due") is None and given.get("delay") is None:
            sql = queries.get(query.name + ALONE, sql)
    if channel is not None:
        sql, given["channel"] = _ringing(sql), channel
    if varying is not None and is_alone:
        return _alone(sql, tuple([name for name in _SELDOM if name in given and given[name] is None])), given
    columns = list(zip(*query.rows, strict=True)) or [()] * len(query.columns)
    if varying is not None and _differ_in(varying, query.columns, columns):
        for name, values in zip(query.columns, columns, strict=True):
            given[name] = _column(name, values) if name in varying else _scalar(values[0])
        return _with_once(sql, varying), given
    given.update(zip(query.columns, map(array, columns), strict=True))
    if query.name in _NARROWED:
        return _narrowed(sql, frozenset(name for name, value in given.items() if value is None)), given
    return _encoded(sql), given


def _column(name: str, values: Sequence[Any]) -> str | Packed:
    """Give a column of a batch, packed where we know how."""
    return (PACKED[name](values) if name in PACKED else None) or array(values)


@lru_cache(maxsize=256)
def _ringing(sql: str) -> str:
    return sql.replace(_RINGING, "RETURNING pg_notify(%(channel)s, '')")


def _differ_in(varying: frozenset[str], names: Sequence[str], columns: Sequence[Sequence[Any]]) -> bool:
    """Tell whether the rows of a batch differ in these columns alone."""
    return all(name in varying or (values and _are_alike(values)) for name, values in zip(names, columns, strict=True))


def _scalar(value: Any) -> Any:
    """Give a value as a text: a statement with numbers of another size would be another one to psycopg."""
    if value is None or isinstance(value, (str, bytes, bytearray)):
        return value
    return str(value) if isinstance(value, bool) else str(int(value))  # of an enum's member the value


@lru_cache(maxsize=1024)
def _scalars(common: tuple[tuple[str, Any], ...]) -> Mapping[str, Any]:
    """Give what jobs have in common as texts: many come one by one, and with the same.

    What stands under a name is always of one type: as a key of the cache, True would be 1.
    """
    return {name: _scalar(value) for name, value in common}


_UNNEST: Final = re.compile(r"unnest\(((?:%\(\w+\)s::\w+\[\],?\s*)+)\)\s+AS (\w+) \(([\w, ]+)\)")


#: Arguments that most jobs have not. The server keeps a plan for each choice of them, so they are few.
_SELDOM: Final = ("now", "due", "delay", "key", "correlation_id", "lease", "request_id", "request_hash")


@lru_cache(maxsize=256)
def _alone(sql: str, absent: tuple[str, ...]) -> bytes:
    """Give the form of a query for a batch of one. What is `absent` stands there as NULL, and need not be sent."""
    once = _with_once(sql, frozenset())
    return re.sub(rf"%\((?:{'|'.join(absent)})\)s", "NULL", once.decode()).encode() if absent else once


@lru_cache(maxsize=256)
def _with_once(sql: str, varying: frozenset[str]) -> bytes:
    """Give the form of a query for a batch whose other columns are alike: an argument stands wherever one is used.

    Rows would carry them through every step, and a step takes the longer to be made ready the more columns it has.
    """
    (batch,) = _UNNEST.finditer(sql)  # there is one
    items, alias = re.findall(r"%\((\w+)\)s::(\w+)\[\]", batch[1]), batch[2]
    if [name for name, _ in items] != batch[3].split(", "):
        raise ValueError("a column of a batch is called as its argument is")
    once = {name: f"%({name})s::{type_}" for name, type_ in items if name not in varying}
    arrays = ", ".join(f"%({name})s::{type_}[]" for name, type_ in items if name in varying)
    names = ", ".join(name for name, _ in items if name in varying)
    source = f"unnest({arrays}) AS {alias} ({names})" if names else f"(SELECT) AS {alias}"
    rest = sql[: batch.start()] + "{batch}" + sql[batch.end() :]
    rest = re.sub(rf"\b{alias}\.(\w+)", lambda match: once.get(match[1], match[0]), rest)
    return _encoded(rest.replace("{batch}", source))


_OPTIONAL: Final = re.compile(r"^ *AND \(%\((\w+)\)s::\S+ IS NULL OR (.*)\)$", re.MULTILINE)


@lru_cache(maxsize=256)
def _narrowed(sql: str, absent: frozenset[str]) -> bytes:
    """Leave out the conditions on what is absent."""
    return _encoded(_OPTIONAL.sub(lambda match: "" if match[1] in absent else f"  AND ({match[2]})", sql))


def plan(query: Query) -> bool | None:
    """Tell psycopg whether to prepare the statement: None leaves it to the number of times.

    A plan that was made for ten rows is good for ten thousand: our statements leave the planner no other way.
    """
    return False if query.name in _VARIED else None


#: The transaction did not happen, and may well the next time.
_GIVE_WAY: Final = frozenset({"40001", "40P01"})
_BUSY: Final = {
    "55P03": "a lock was not to be had in time: try again",
    "57014": "the statement took too long and was cancelled: try again, or allow it more time",
    "53100": "its disk is full: make room, then try again",
    "53200": "it is out of memory: try again when it has less to do",
    "53300": "it has too many connections: let it allow more, or take a smaller pool_size",
    "58030": "its disk fails: look at the disk and at the server's log",
    "25006": "it is read-only: connect to the primary",
    "57P03": "it is starting up or shutting down: try again",
}
#: Others filled the queue of notifications: without one, there is nothing in the way.
NOT_NOTIFIED: Final = "54000"
#: What of it a server says to those whom it does not let in: their errors have no SQLSTATE, only a text.
_BUSY_TEXTS: Final = {
    r"too many (clients|connections)|remaining connection slots": "53300",
    r"the database system is|not yet accepting connections": "57P03",
}
_NOT_READY: Final = frozenset({"42P01", "42883", "42704", "3F000"})
#: Constraints that two who do the same at once meet at: `jobs_pkey` when both import one job.
_OURS: Final = frozenset({"jobs_key", "jobs_pkey", "events_request"})


def gives_way(problem: psycopg.Error) -> bool:
    """Tell whether the operation lost a race and is to be run again: nothing of it was written."""
    return problem.sqlstate in _GIVE_WAY or raced(problem)


def raced(problem: BaseException) -> bool:
    """Tell whether somebody else was faster, by a row of ours: the same may be tried in the same transaction."""
    if isinstance(problem, psycopg.errors.UniqueViolation):
        return problem.diag.constraint_name in _OURS
    return isinstance(problem, Again)


def is_cut(problem: psycopg.Error) -> bool:
    """Tell whether the connection is gone: its last words were fatal, or there were none.

    The SQLSTATE alone does not tell: a disk that fails or is full ends a statement, or the whole server.
    """
    if (problem.diag.severity_nonlocalized or problem.diag.severity) in {"FATAL", "PANIC"}:
        return True
    return isinstance(problem, psycopg.OperationalError) and (problem.sqlstate or "08000").startswith("08")


def translated(problem: Exception, *, unknown: bool = False, migrating: bool = False) -> LeftfoldError:
    """Say what an error of the database means. `unknown` means that a commit may have been on its way."""
    if unknown and isinstance(problem, psycopg.Error) and is_cut(problem):
        return OutcomeUnknownError(
            "the connection to PostgreSQL broke: it may have happened; ask again with the same request_id"
        )
    text = str(problem).strip().partition("\n")[0]
    state = getattr(problem, "sqlstate", None) or next(
        (state for words, state in _BUSY_TEXTS.items() if re.search(words, text)), ""
    )
    if state in _GIVE_WAY:  # outside of the caller's transaction it is run anew instead
        return StoreUnavailableError(
            f"PostgreSQL let others go first: roll back your transaction and try again ({text})"
        )
    if state in _BUSY:
        return StoreUnavailableError(f"PostgreSQL refuses: {_BUSY[state]}")
    if re.search(r'database ".*" does not exist', text) or state == "3D000":
        return StoreNotReadyError(f"PostgreSQL: {text}")
    if re.search(r"invalid \w+ value", text) and isinstance(problem, psycopg.OperationalError):
        return StoreNotReadyError(f"the URL of the database will not do: {text}")
    if state.startswith("28") or re.search(r"password|pg_hba\.conf|role \".*\" does not exist", text):
        return StoreDeniedError(f"PostgreSQL does not let us in: {text}")
    if state == "42501":
        return StoreDeniedError(f"PostgreSQL does not allow it: {text}")
    if state in _NOT_READY and not migrating:
        return StoreNotReadyError("the database holds no leftfold tables: run `leftfold migrate` first")
    if isinstance(problem, psycopg.Error) and is_cut(problem):
        return StoreUnavailableError(f"PostgreSQL cannot be reached: {text}")
    return StoreError(f"PostgreSQL: {text}")


def check_alive(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a connection that the server has closed since it was last used: nothing may have been sent on it yet.

    What the server said to somebody who asked nothing may be its farewell, of which the end of the stream is still on
    its way. So whatever it said counts as one: a new connection is cheap, a doubt is not. To look costs no round trip.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if poll.poll(0):
        raise psycopg.OperationalError("the server said something to a connection that nobody used")


#: A server that vanished without a word is noticed within half a minute: sooner than a lease ends.
_NOTICED: Final = {
    "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000,
}  # fmt: skip


def connect_options(url: str) -> dict[str, Any]:
    """Give what a connection is made with where the URL does not say it itself."""
    try:
        said = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # which repeats parts of the URL, and maybe of a password
        raise ValidationError("the URL of the database cannot be read: see the parameters behind its `?`") from None
    defaults = {"connect_timeout": CONNECT_SECONDS, "application_name": "leftfold", **_NOTICED}
    # What we store is UTF-8, whatever the URL or the environment says.
    return {name: value for name, value in defaults.items() if name not in said} | {"client_encoding": "UTF8"}


def check_server(info: psycopg.ConnectionInfo) -> None:
    """Refuse a server that lacks what the schema needs."""
    if info.server_version < OLDEST * 10_000:
        raise StoreError(
            f"the server is PostgreSQL {info.server_version // 10_000}, {OLDEST} is the oldest that will do"
        )
    encoding = info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(f"the database is in {encoding}: the hash chain needs one in UTF8")
