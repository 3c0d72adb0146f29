"""What an operation is: a generator that yields named queries and receives their rows.

It does no I/O, so it is written once: a driver runs it in one transaction, on SQLite or PostgreSQL, sync or async,
and tests stop it before or after any statement.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from leftfold.core import events as e
from leftfold.core.lifecycle import TARGETS
from leftfold.core.record import FORMAT, GENESIS, SEAL_BYTES
from leftfold.core.retry import DEFAULT_POLICY
from leftfold.store.rows import COLUMNS, SUMMARY, TOGETHER

T = TypeVar("T")

#: One value of a query: what both databases know.
Value = None | int | str | bytes | bytearray | bool
Columns = tuple[Any, ...]


Arguments = Mapping[str, Value | list[str] | tuple[str, ...]]


class Query(NamedTuple):
    """A query by its name in `queries.sql`, with its arguments.

    A list is an array of texts. `rows` is a batch: one statement for all of them, its columns called `columns`, and
    those in which all are alike in `common`.
    """

    name: str
    arguments: Arguments = MappingProxyType({})
    columns: tuple[str, ...] = ()
    rows: Sequence[Sequence[Value]] = ()
    common: Mapping[str, Value] = MappingProxyType({})


#: An operation on its way. It returns its answer when it has no more queries.
Steps = Generator[Query, list[Columns], T]


class Operation(msgspec.Struct, Generic[T], frozen=True):
    """Something to run in one transaction, from its first query anew if the database asks for that.

    `apart` allows each query to commit by itself: for operations whose every query is whole. `blind` means that none
    needs an answer but that of the clock: each may be sent while the one before it still runs. `rings` means that there
    is something to do for workers afterwards.
    """

    steps: Callable[[], Steps[T]]
    apart: bool = False
    reads: bool = False
    blind: bool = False
    rings: bool = False


class Again(Exception):  # noqa: N818 - not an error: somebody else was faster
    """Raised inside of an operation to run it anew, in a new transaction."""


def ids(name: str, job_ids: Sequence[str]) -> Query:
    """Give a query about these jobs."""
    return Query(name, columns=("id",), rows=[(job_id,) for job_id in job_ids])


#: Queries whose batches differ in these columns alone, as a rule: what is alike then goes once, and of a batch of one
#: everything does.
VARYING: Final[Mapping[str, frozenset[str]]] = {
    "enqueue": frozenset({"id", "rest"}),
    "enqueue_sealed": frozenset({"id", "hash", "data"}),
    "enqueue_keyed": frozenset({"id", "key", "rest"}),
    "own": frozenset({"id", "data"}),
    "own_quietly": frozenset({"id", "data"}),
    "renew": frozenset({"id"}),
    "look": frozenset({"id"}),
}

#: Queries that make jobs.
MAKING: Final = frozenset({"enqueue", "enqueue_sealed", "enqueue_keyed"})
#: Stands behind the name of a query's form for a batch of one.
ALONE: Final = " alone"


def load_queries(dialect: str, names: Mapping[str, str]) -> dict[str, str]:
    """Read a dialect's `queries.sql`: blocks that begin with `-- name:`. What stands in braces is filled in.

    A block that begins with `-- part:` is no query: it stands in the place of its name in braces. One that begins with
    `-- alone:` is another form of that query, for a batch of one.
    """
    text = files("leftfold.store").joinpath(dialect, "queries.sql").read_text(encoding="utf-8")
    blocks = re.split(r"^-- (name|part|alone): (\w+)\n", text, flags=re.MULTILINE)[1:]
    read = list(zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True))
    known = dict(names)
    for sort, name, body in read:
        if sort == "part":
            known[name] = fill(body, known)
    ends = {"name": "", "alone": ALONE}
    return {name + ends[sort]: fill(body, known) for sort, name, body in read if sort in ends}


def fill(text: str, names: Mapping[str, str]) -> str:
    """Put names and lists into SQL: `{schema}`, `{columns}` and the like. Other braces stay as they are."""
    body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return re.sub(r"\{([a-z_]+)\}", lambda match: names[match[1]], body).strip()


#: What the lifecycle and the rows say, as SQL.
NAMES: Final[Mapping[str, str]] = {
    "enqueued": f"'{TARGETS[e.Enqueued]}'",
    "together": f"'{TOGETHER}'",
    "format": str(FORMAT),
    "genesis": GENESIS.hex(),
    "seal_bytes": str(SEAL_BYTES),
    "usual_lease": str(DEFAULT_POLICY.lease),
    "columns": ", ".join(COLUMNS),
    "row": ", ".join(f"p.{column}" for column in COLUMNS[1:]),  # behind the id
    "summary": ", ".join(SUMMARY),
}


def drive(steps: Steps[T], execute: Callable[[Query], list[Columns]]) -> T:
    """Answer an operation's queries until it has its own answer."""
    try:
        query = next(steps)
        while True:
            query = steps.send(execute(query))
    except StopIteration as done:
        answer: T = done.value
        return answer


async def adrive(steps: Steps[T], execute: Callable[[Query], Awaitable[list[Columns]]]) -> T:
    """Do the same for asyncio."""
    try:
        query = next(steps)
        while True:
            query = steps.send(await execute(query))
    except StopIteration as done:
        answer: T = done.value
        return answer
