"""How queries go to SQLite: their text as every version knows it, and the functions that they call.

A query's batch stands before its statements as the table `batch`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from leftfold.core.record import GENESIS, covered
from leftfold.store.query import ALONE, NAMES, VARYING, Columns, Query, load_queries
from leftfold.store.rows import COLUMNS
from leftfold.store.sqlite.library import sqlite

#: A log that starts anew gives back what it once took above this. Below it the space is kept: to write over what is
#: there costs less than to make a file longer.
LOG_LIMIT: Final = "journal_size_limit = 4194304"

#: What statements keep in between, on a connection of ours: the jobs that are claimed, and those that owners speak of.
TEMPORARY: Final = (
    "CREATE TEMP TABLE picked (place INTEGER PRIMARY KEY, n INTEGER, at INTEGER, length INTEGER, data TEXT, head BLOB)",
    "CREATE TEMP TABLE owned (n INTEGER PRIMARY KEY, event TEXT, actor TEXT, data TEXT, said TEXT)",
)
_IDS: Final = ("id", "job_id")
#: How the columns of a batch come out of JSON, which has no bytes.
_HEXED: Final = frozenset({"head", "seal"})
_OF_TEXT: Final = {**dict.fromkeys(_IDS, "leftfold_id"), **dict.fromkeys(_HEXED, "leftfold_from_hex")}
_NAMES: Final = {**NAMES, "changes": ", ".join(f"{column} = b.{column}" for column in COLUMNS)}


def statements(script: str) -> Iterator[str]:
    """Split a script into its statements; the semicolons inside of a trigger end none."""
    statement = ""
    for piece in script.rstrip(" \n;").split(";"):
        statement += piece + ";"
        if sqlite.complete_statement(statement):
            yield statement.strip()
            statement = ""


class Statement(NamedTuple):
    """A statement, and what a driver has to know of it."""

    sql: str
    has_batch: bool
    is_narrowed: bool  # without the conditions that nobody asks for
    names: "Statement | None" = None  # what to run if it finds no number for a name

    @classmethod
    def of(cls, sql: str, names: "Statement | None" = None) -> "Statement":
        """Look at a statement."""
        return cls(sql, re.search(r"\bFROM batch\b", sql) is not None, "IS NULL OR" in sql, names)


def parsed(script: str) -> list[Statement]:
    """Give the statements of a query, each with the one before it that writes names, if there is one."""
    found: list[Statement] = []
    names = None
    for sql in statements(script):
        if sql.startswith("INSERT INTO leftfold_names"):
            names = Statement.of(sql)
        else:
            found.append(Statement.of(sql, names))
            names = None
    return found


QUERIES: Final = {name: parsed(script) for name, script in load_queries("sqlite", _NAMES).items()}


@lru_cache(maxsize=256)
def _with_batch(sql: str, columns: tuple[str, ...], varying: tuple[str, ...] | None) -> str:
    """Give a statement its table `batch`.

    One row is bound value by value, and of more what they have in common; the rest comes as a JSON list of lists.
    """
    items = {column: f":{column}" for column in columns}
    if varying is None:
        place, source = "0", ""
    else:
        place, source = "key", " FROM json_each(:rows)"
        for number, column in enumerate(varying):  # as SQLite before 3.38 knows it, which has no `->>`
            items[column] = f"{_OF_TEXT.get(column, '')}(json_extract(value, '$[{number}]'))"
    return f"WITH batch (place, {', '.join(columns)}) AS (SELECT {', '.join([place, *items.values()])}{source})\n{sql}"


def _varying(query: Query) -> tuple[str, ...] | None:
    """Give the columns in which the rows of a batch differ, and those that JSON cannot carry as they are.

    Of all but the frequent queries, every column: a text for each choice of them would push those out of the cache.
    """
    if len(query.rows) == 1:
        return None
    if not query.rows or query.name not in VARYING:
        return query.columns
    found = zip(query.columns, zip(*query.rows, strict=True), strict=True)
    return tuple(name for name, values in found if name in _OF_TEXT or values.count(values[0]) < len(values))


def id_of(text: str) -> bytes:
    """Give an id as the file keeps it."""
    return bytes.fromhex(text.replace("-", ""))


def id_text(id_: bytes) -> str:
    """Give an id as everybody else spells it."""
    text = id_.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def link(previous: bytes, id_: bytes, version: int, at: int, *told: str) -> bytes:
    """Give the hash of an event's columns, as `leftfold.core.record.link` computes it."""
    return sha256(previous + covered(id_text(id_), version, at, *told)).digest()


class Tally:
    """An aggregate that counts how often each combination of values comes: a JSON list of them, in hexadecimal."""

    def __init__(self) -> None:
        self._times: Counter[tuple[bytes, ...]] = Counter()

    def step(self, *values: bytes) -> None:
        """Count one more."""
        self._times[values] += 1

    def finalize(self) -> str:
        """Give the list."""
        return _json([[*(value.hex() for value in values), times] for values, times in self._times.items()])


def prepare(cursor: Any, connection: Any, *, guarded: bool) -> None:
    """Teach a connection the functions that our queries use, and let it leave checkpoints to us."""
    if not _knows_our_functions(cursor):  # while the caller reads rows of its own, none could be replaced
        connection.create_function("leftfold_link", 6, link, deterministic=True)
        connection.create_function("leftfold_id", 1, id_of, deterministic=True)
        connection.create_function("leftfold_from_hex", 1, bytes.fromhex, deterministic=True)
        connection.create_function("leftfold_text", 1, id_text, deterministic=True)
        connection.create_aggregate("leftfold_tally", 3, Tally)
    if guarded:
        cursor.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        cursor.execute(f"PRAGMA {LOG_LIMIT}").fetchall()


def _knows_our_functions(cursor: Any) -> bool:
    """Tell so without a look at any table: a transaction that has not read yet can still wait for its turn to write."""
    try:
        cursor.execute("SELECT leftfold_id('')").fetchall()
    except sqlite.OperationalError:
        return False
    return True


_OPTIONAL: Final = re.compile(r"^ *AND \(:(\w+) IS NULL OR (.*)\)$", re.MULTILINE)


def _narrowed(statement: str, arguments: Mapping[str, object]) -> str:
    """Leave out the conditions whose argument is null, so that an index can serve those that are left."""
    return _OPTIONAL.sub(lambda match: "" if arguments[match[1]] is None else f"AND ({match[2]})", statement)


def leniently(text: bytes) -> str:
    """Read a text of the file, also where its bytes are none."""
    return text.decode("utf-8", "surrogateescape")


def _json(values: Any) -> str:
    return msgspec.json.encode(values).decode()


def _arguments(query: Query, now: int, varying: tuple[str, ...] | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {"now": now}
    for name, value in query.arguments.items():
        arguments[name] = _json(value) if isinstance(value, list | tuple) else value
    if query.rows:
        arguments.update(zip(query.columns, query.rows[0], strict=True))
    if varying is not None:
        places = [query.columns.index(name) for name in varying]
        rows = [[row[place] for place in places] for row in query.rows]
        if not _HEXED.isdisjoint(varying):
            rows = [[value.hex() if isinstance(value, bytes) else value for value in row] for row in rows]
        arguments["rows"] = _json(rows)
    elif query.rows:
        for column in _IDS:
            if column in arguments:
                arguments[column] = id_of(arguments[column])
        if _is_one_new_job(query):
            arguments.update(_worked_out(arguments, str(query.rows[0][0]), now))
    return arguments


_ENQUEUE_ALONE: Final = f"enqueue{ALONE}"


def _is_one_new_job(query: Query) -> bool:
    return query.name == "enqueue" and len(query.rows) == 1


def _worked_out(job: Mapping[str, Any], job_id: str, now: int) -> dict[str, Any]:
    """Give what the statements for one new job need beside its columns; those for many work it out themselves."""
    due = now + (job["delay"] or 0) if job["due"] is None else job["due"]
    data = f'{{"due":{due},{job["rest"]}' if due > now else "{" + job["rest"]
    head = sha256(GENESIS + covered(job_id, 1, now, job["said"], data)).digest()
    return {"from_then": max(due, now), "data": data, "head": head}


def _text(statement: Statement, query: Query, arguments: Mapping[str, Any], varying: tuple[str, ...] | None) -> str:
    if statement.has_batch:
        return _with_batch(statement.sql, query.columns, varying)
    return _narrowed(statement.sql, arguments) if statement.is_narrowed else statement.sql


def execute(cursor: Any, now: int, query: Query) -> list[Columns]:
    """Run one query; the last of its statements that gives rows gives the answer."""
    varying = _varying(query)
    arguments = _arguments(query, now, varying)
    answer: list[Columns] = []
    for statement in QUERIES[_ENQUEUE_ALONE if _is_one_new_job(query) else query.name]:
        try:
            cursor.execute(_text(statement, query, arguments, varying), arguments)
        except sqlite.IntegrityError as problem:
            if statement.names is None or "NOT NULL" not in str(problem):
                raise
            cursor.execute(_text(statement.names, query, arguments, varying), arguments)
            cursor.execute(_text(statement, query, arguments, varying), arguments)
        if cursor.description is not None:
            answer = cursor.fetchall()
    return answer
