"""How queries go to SQLite: their text as every version knows it, and the functions that they call.

A query's batch stands before its statements as the table `batch`. A function of ours, called for every row, would need
the interpreter for every row; so hashes are computed between the statements, for all rows at once.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from leftfold.core.record import GENESIS, SEAL_BYTES, covered, hashed
from leftfold.store.entries import ENQUEUE_COLUMNS, first_data, first_hash
from leftfold.store.query import ALONE, MAKING, NAMES, VARYING, Columns, Query, load_queries
from leftfold.store.rows import COLUMNS
from leftfold.store.sqlite.library import sqlite

#: A log that starts anew gives back what it once took above this. Below it the space is kept: to write over what is
#: there costs less than to make a file longer.
LOG_LIMIT: Final = "journal_size_limit = 4194304"

#: What statements keep in between, on a connection of ours: the jobs that are claimed, and those that owners speak of.
TEMPORARY: Final = (
    "CREATE TEMP TABLE picked (place INTEGER PRIMARY KEY, n INTEGER, at INTEGER, length INTEGER, data TEXT)",
    "CREATE TEMP TABLE owned (place INTEGER PRIMARY KEY, n INTEGER UNIQUE, event, actor, data, said)",
)
_IDS: Final = ("id", "job_id")
_ID_LENGTH: Final = 36
_ID_DASHES: Final = 4
#: Columns of bytes, which JSON does not have, and how many each row has: a batch of them is one value.
_WIDTHS: Final[Mapping[str, int]] = {**dict.fromkeys(_IDS, 16), "head": len(GENESIS), "seal": SEAL_BYTES}
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
    asks: str | None  # what it asks of the driver: `linked` or `packed`
    names: "Statement | None" = None  # what to run if it finds no number for a name

    @classmethod
    def of(cls, sql: str, names: "Statement | None" = None) -> "Statement":
        """Look at a statement."""
        asks = re.search(r"\bAS (linked|packed)\b", sql)
        return cls(sql, re.search(r"\bFROM batch\b", sql) is not None, "IS NULL OR" in sql, asks and asks[1], names)


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
#: So many columns of a new job stand for what the store works out: id, due, delay, rest, said.
_ASKED: Final = 5


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
        for column in _WIDTHS.keys() & items.keys():
            items[column] = f"substr(:{column}, key * {_WIDTHS[column]} + 1, {_WIDTHS[column]})"
        for number, column in enumerate(varying):  # as SQLite before 3.38 knows it, which has no `->>`
            items[column] = "value" if len(varying) == 1 else f"json_extract(value, '$[{number}]')"
    return f"WITH batch (place, {', '.join(columns)}) AS (SELECT {', '.join([place, *items.values()])}{source})\n{sql}"


def _varying(query: Query) -> tuple[str, ...] | None:
    """Give the columns in which the rows of a batch differ, but for those of bytes; None if there is one row.

    Of all but the frequent queries, every column: a text for each choice of them would push those out of the cache.
    """
    if len(query.rows) == 1:
        return None
    if not query.rows or query.name not in VARYING:
        return tuple(name for name in query.columns if name not in _WIDTHS)
    found = zip(query.columns, zip(*query.rows, strict=True), strict=True)
    return tuple(name for name, values in found if name not in _WIDTHS and values.count(values[0]) < len(values))


def id_of(text: str) -> bytes:
    """Give an id as the file keeps it."""
    return bytes.fromhex(text.replace("-", ""))


def id_text(id_: bytes) -> str:
    """Give an id as everybody else spells it."""
    return _spelled(id_.hex())


def _spelled(text: str) -> str:
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


#: What statements need of the answers of others: for whoever only asks for their plans.
UNANSWERED: Final[Mapping[str, bytes]] = {"heads": b""}


def _linked(text: str) -> bytes:
    """Give the hashes of events, one behind the other, as `leftfold.core.record.link` computes them."""
    return b"".join(
        hashed(bytes.fromhex(previous) + covered(_spelled(id_.lower()), version, at, said, data))
        for previous, id_, version, at, said, data in msgspec.json.decode(text)
    )


def _unpacked(text: str) -> list[Columns]:
    """Give rows that came as one text, each beginning with an id."""
    try:
        rows = msgspec.json.decode(text)
    except UnicodeEncodeError:  # somebody damaged a text, which has been read all the same
        rows = json.loads(text)
    return [(_spelled(id_.lower()), *row) for id_, *row in rows]


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
        connection.create_function("leftfold_id", 1, id_of, deterministic=True)
        connection.create_function("leftfold_from_hex", 1, bytes.fromhex, deterministic=True)
        connection.create_function("leftfold_text", 1, id_text, deterministic=True)
        connection.create_function("leftfold_checksum", 1, crc32, deterministic=True)
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
        arguments[name] = _json(value) if isinstance(value, (list, tuple)) else value
    if varying is None:
        arguments.update(zip(query.columns, query.rows[0], strict=True))
        for column in _IDS:
            if column in arguments:
                arguments[column] = bytearray(id_of(arguments[column]))
        return arguments
    columns = dict(
        zip(query.columns, zip(*query.rows, strict=True) if query.rows else [()] * len(query.columns), strict=True)
    )
    arguments.update((name, values[0]) for name, values in columns.items() if values)
    arguments.update((name, _joined(name, columns[name])) for name in _WIDTHS if name in columns)
    match [columns[name] for name in varying]:
        case []:
            arguments["rows"] = _json([0] * len(query.rows))
        case [values]:
            arguments["rows"] = _json(values)
        case several:
            arguments["rows"] = _json(list(zip(*several, strict=True)))
    return arguments


def _joined(name: str, values: Sequence[Any]) -> bytes:
    """Give a column of bytes as one value."""
    if name not in _IDS:
        return b"".join(values)
    if all(len(value) == _ID_LENGTH and value.count("-") == _ID_DASHES for value in values):
        with suppress(ValueError):  # what is no id is none of them
            return bytes.fromhex("".join(values).replace("-", ""))
    return b"".join(map(_id_or_none, values))


def _id_or_none(text: str) -> bytes:
    """Give an id, or what no job is called: each must be as long as the others."""
    try:
        id_ = id_of(text)
    except ValueError:
        id_ = b""
    return id_ if len(id_) == _WIDTHS["id"] else bytes(_WIDTHS["id"])


def _first_entry(now: int, row: Sequence[Any]) -> tuple[int, str, bytearray]:
    """Give from when on a new job is due, what its first event says, and the hash of that."""
    job_id, due, delay, rest, words = row[:_ASKED]
    from_then, data = first_data(now, due, delay, rest)
    return from_then, data, bytearray(first_hash(job_id, now, words, data))


def _spread(query: Query) -> Query:
    """Give a plain new job, which differs from others in id and rest, with all its columns."""
    if not query.common:
        return query
    known = {**query.common, **dict(zip(query.columns, query.rows[0], strict=True))}
    return query._replace(columns=ENQUEUE_COLUMNS, rows=(tuple([known[name] for name in ENQUEUE_COLUMNS]),), common={})


def _worked_out(query: Query, now: int) -> Query:
    """Give new jobs with what only the store knows of them."""
    rows = [(row[0], *_first_entry(now, row), *row[_ASKED:]) for row in query.rows]
    return query._replace(columns=("id", "from_then", "data", "head", *query.columns[_ASKED:]), rows=rows)


def _text(statement: Statement, query: Query, arguments: Mapping[str, Any], varying: tuple[str, ...] | None) -> str:
    if statement.has_batch:
        return _with_batch(statement.sql, query.columns, varying)
    return _narrowed(statement.sql, arguments) if statement.is_narrowed else statement.sql


def execute(cursor: Any, now: int, query: Query, *, within: bool = False) -> list[Columns]:
    """Run one query; the last of its statements that gives rows gives the answer.

    `within` a transaction of somebody else's, each statement must be able to undo itself: see the form for one job.
    """
    if query.name in MAKING:
        query = _spread(query)
        if not within and len(query.rows) == 1 and query.name + ALONE in QUERIES:
            return _execute_alone(cursor, now, query)
        query = _worked_out(query, now)
    varying = _varying(query)
    arguments = _arguments(query, now, varying)
    answer: list[Columns] = []
    for statement in QUERIES[query.name]:
        try:
            cursor.execute(_text(statement, query, arguments, varying), arguments)
        except sqlite.IntegrityError as problem:
            cursor.execute(_text(_missing_names(statement, problem), query, arguments, varying), arguments)
            cursor.execute(_text(statement, query, arguments, varying), arguments)
        rows = cursor.fetchall() if cursor.description is not None else []
        match statement.asks, rows:
            case "linked", [(text,)]:
                arguments["heads"] = _linked(text)
            case "packed", [(text,)]:
                answer = _unpacked(text) if text else answer
            case _ if rows:
                answer = rows
    return answer


#: What is known of a new job, in front of its other columns: see `given`.
_MADE: Final = ("now", "from_then", "data", "head", "seal", "id", "actor", "request_id")


def _execute_alone(cursor: Any, now: int, query: Query) -> list[Columns]:
    """Make one job, by statements that give no rows."""
    row: Sequence[Any] = query.rows[0]
    from_then, data, head = _first_entry(now, row)
    id_, asked = bytearray.fromhex(row[0].replace("-", "")), query.arguments
    given = (now, from_then, data, head, head[:SEAL_BYTES], id_, asked["actor"], asked["request_id"], *row[_ASKED:])
    absent = tuple([place for place, value in enumerate(given) if value is None])
    for form in _forms(query.name, query.columns, absent):
        try:
            cursor.execute(form.sql, form.chosen(given))
        except sqlite.IntegrityError as problem:
            names = _missing_names(form, problem)
            cursor.execute(names.sql, names.chosen(given))
            cursor.execute(form.sql, form.chosen(given))
    return []


class _Form(NamedTuple):
    """A statement for one job, with `?` for each argument: Python looks up no names then, which takes a while."""

    sql: str
    chosen: Callable[[tuple[Any, ...]], tuple[Any, ...]]  # its arguments, of all that there are
    names: "_Form | None"


@lru_cache(maxsize=256)
def _forms(query: str, columns: tuple[str, ...], absent: tuple[int, ...]) -> list[_Form]:
    """Give the statements of a query for one job. What is absent stands there as NULL: to bind None takes longest."""
    names = (*_MADE, *columns[_ASKED:])

    def form(statement: Statement) -> _Form:
        used: list[int] = []

        def placed(match: re.Match[str]) -> str:
            place = names.index(match[1])
            if place in absent:
                return "NULL"
            used.append(place)
            return "?"

        sql = re.sub(r":([a-z_]+)", placed, statement.sql)
        # Of one place alone, a getter gives what stands there, and no tuple.
        chosen = itemgetter(*used) if len(used) > 1 else itemgetter(slice(used[0], used[0] + 1))
        return _Form(sql, chosen, statement.names and form(statement.names))

    return [form(statement) for statement in QUERIES[query + ALONE]]


_Named = TypeVar("_Named", Statement, _Form)


def _missing_names(statement: _Named, problem: Exception) -> _Named:
    """Give what writes the names that a statement did not find, or raise what else is wrong."""
    if statement.names is None or "NOT NULL" not in str(problem):
        raise problem
    return statement.names
