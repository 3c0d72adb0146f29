"""How queries go to SQLite: their text as every version knows it, and the functions that they call.

Batches go as JSON, one statement per batch.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from leftfold.store.query import NAMES, Columns, Query, load_queries
from leftfold.store.rows import COLUMNS
from leftfold.store.sqlite.library import sqlite

#: A log that starts anew gives its space back, so that its size tells something.
LOG_LIMIT: Final = "journal_size_limit = 1048576"

_OF_TEXT: Final = {"id": "leftfold_id", "head": "leftfold_from_hex"}  # columns that JSON cannot carry as they are


def _item(place: int, column: str) -> str:
    item = f"value ->> {place}"
    return f"{_OF_TEXT[column]}({item})" if column in _OF_TEXT else item


_NAMES: Final = {
    **NAMES,
    "values": ", ".join(_item(place, column) for place, column in enumerate(COLUMNS)),
    "restored": ", ".join(f"{column} = {_item(place, column)}" for place, column in enumerate(COLUMNS)),
    "changes": ", ".join(f"{column} = {_item(place, column)}" for place, column in enumerate(COLUMNS, start=1)),
}


def statements(script: str) -> Iterator[str]:
    """Split a script into its statements; the semicolons inside of a trigger end none."""
    statement = ""
    for piece in script.rstrip(" \n;").split(";"):
        statement += piece + ";"
        if sqlite.complete_statement(statement):
            yield statement.strip()
            statement = ""


def _spelled(script: str) -> tuple[str, ...]:
    """Spell `value ->> 3` as SQLite before 3.38 knows it."""
    words = script.split("value ->> ")
    for place, word in enumerate(words[1:], start=1):
        digits = word[: len(word) - len(word.lstrip("0123456789"))]
        words[place] = f"json_extract(value, '$[{digits}]'){word[len(digits) :]}"
    return tuple(statements("".join(words)))


QUERIES: Final = {name: _spelled(script) for name, script in load_queries("sqlite", _NAMES).items()}


def id_of(text: str) -> bytes:
    """Give an id as the file keeps it."""
    return bytes.fromhex(text.replace("-", ""))


def id_text(id_: bytes) -> str:
    """Give an id as everybody else spells it."""
    text = id_.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def link(previous: bytes, *fields: bytes | str | int | None) -> bytes:
    """Give the hash of an event's columns, as `leftfold.core.record.link` computes it."""
    hashed = sha256(previous)
    for field in fields:
        if field is None:
            hashed.update(b"-")
        else:
            text = (id_text(field) if isinstance(field, bytes) else str(field)).encode()
            hashed.update(b"%d:%b" % (len(text), text))
    return hashed.digest()


def prepare(cursor: Any, connection: Any, *, guarded: bool) -> None:
    """Teach a connection the functions that our queries use, and let it leave checkpoints to us."""
    if not _knows_our_functions(cursor):  # while the caller reads rows of its own, none could be replaced
        connection.create_function("leftfold_link", 11, link, deterministic=True)
        connection.create_function("leftfold_id", 1, id_of, deterministic=True)
        connection.create_function("leftfold_text", 1, id_text, deterministic=True)
        connection.create_function("leftfold_from_hex", 1, lambda text: None if text is None else bytes.fromhex(text))
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


def _encodable(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


_OPTIONAL: Final = re.compile(r"^ *AND \(:(\w+) IS NULL OR (.*)\)$", re.MULTILINE)


def _narrowed(statement: str, arguments: Mapping[str, object]) -> str:
    """Leave out the conditions whose argument is null, so that an index can serve those that are left."""
    return _OPTIONAL.sub(lambda match: "" if arguments[match[1]] is None else f"AND {match[2]}", statement)


def leniently(text: bytes) -> str:
    """Read a text of the file, also where its bytes are none."""
    return text.decode("utf-8", "surrogateescape")


def execute(cursor: Any, now: int, query: Query) -> list[Columns]:
    """Run one query; the last of its statements that gives rows gives the answer."""
    arguments: dict[str, Any] = {"now": now}
    for name, value in query.arguments.items():
        is_array = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        arguments[name] = msgspec.json.encode(value).decode() if is_array else value
    if query.columns:
        rows = [[_encodable(value) for value in row] for row in query.rows]
        arguments["rows"] = msgspec.json.encode(rows).decode()
    answer: list[Columns] = []
    for statement in QUERIES[query.name]:
        cursor.execute(_narrowed(statement, arguments) if "IS NULL OR" in statement else statement, arguments)
        if cursor.description is not None:
            answer = cursor.fetchall()
    return answer
