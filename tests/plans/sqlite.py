"""Plans of SQLite, for statements as the driver sends them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.plans.asked import everything_asked
from tests.plans.loading import Copies, Part, load, make_templates

from leftfold import Engine
from leftfold.store.query import Query
from leftfold.store.sqlite.driver import SqliteStore
from leftfold.store.sqlite.wire import UNANSWERED, execute

#: A step of a plan that reads something from one end to the other. The indexes of few jobs are there to be read so.
_SCAN: Final = re.compile(
    r"SCAN (\w+)\b(?! USING (?:COVERING )?INDEX leftfold_jobs_(?:leased|wait|error|incident|deadline|frozen)\b)"
)
_NAMED: Final = re.compile(
    r"(?:\b(?:FROM|JOIN)|,)\s+(\w+)(?:\s+AS)?\s+(?!(?:ON|WHERE|JOIN|LEFT|CROSS|USING|SET)\b)([a-z]\w*)"
)
_BIG: Final = {"leftfold_jobs", "leftfold_events", "leftfold_log"}
#: A new name may be what an event without one was waiting for: SQLite plans a look through all of them, and takes it
#: only if there are such events, which no transaction of ours leaves behind.
_NAMES: Final = "INTO leftfold_names"


class Tables:
    """A file with many rows, and what an engine asked of it."""

    def __init__(self, file: Path, parts: Sequence[Part | None]) -> None:
        self.store = SqliteStore(str(file))
        self._connection = self.store._connection
        self._fill(make_templates(Engine(self.store)), parts)
        self.asked = list(everything_asked(self.store))

    def close(self) -> None:
        self.store.close()

    def _fill(self, templates: Mapping[str, str], parts: Sequence[Part | None]) -> None:
        ids = "leftfold_id(printf('%08x-0000-7000-8000-%012x', 100000 + s.value, s.value))"
        own = {"id": ids, "queue": "(:queues ->> (s.value % json_array_length(:queues)))", "priority": "s.value % 3",
               "due": "t.due + (s.value % 1000) * 1000000", "key": "'key ' || s.value",
               "correlation_id": "CASE WHEN s.value % 10 = 0 THEN 'correlation ' || s.value END"}  # fmt: skip
        jobs = Copies(own, self._columns("leftfold_jobs"))
        events = Copies({"job": "j.n"}, self._columns("leftfold_events"))
        series = "WITH RECURSIVE s (value) AS (SELECT :first UNION ALL SELECT value + 1 FROM s WHERE value < :last) "

        def copy(part: Part, first: int, last: int) -> None:
            named: dict[str, Any] = {
                "first": first,
                "last": last,
                "of": templates[part.state],
                "queues": _json(part.queues),
            }
            ((named["before"],),) = self._connection.execute("SELECT max(n) FROM leftfold_jobs").fetchall()
            self._connection.execute("BEGIN")
            self._connection.execute(
                f"{series} INSERT INTO leftfold_jobs ({jobs.names()}) SELECT {jobs.values()} "  # noqa: S608
                "FROM leftfold_jobs t, s WHERE t.id = leftfold_id(:of)",
                named,
            )
            self._connection.execute(
                f"INSERT INTO leftfold_events ({events.names()}) SELECT {events.values()} "  # noqa: S608
                "FROM leftfold_jobs o JOIN leftfold_events t ON t.job = o.n AND t.version = 1, leftfold_jobs j "
                "WHERE o.id = leftfold_id(:of) AND j.n > :before ",
                named,
            )
            self._connection.execute("COMMIT")

        load(parts, copy, lambda: self._connection.execute("ANALYZE").fetchall())

    def _columns(self, table: str) -> list[str]:
        return [name for (name,) in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def plan(self, query: Query) -> "Plan":
        """Give the plans of a query's statements."""
        explaining = Plan(self._connection.cursor())
        execute(explaining, 1_700_000_000_000_000, query)
        return explaining


class Plan:
    """A cursor that asks for the plan of what it is to run, and keeps it."""

    description = None

    def __init__(self, cursor: Any) -> None:
        self.steps: list[str] = []
        self.whole: list[str] = []  # those that read all jobs, or all events
        self._cursor = cursor

    def execute(self, statement: str, arguments: Mapping[str, Any] | tuple[Any, ...]) -> None:
        given = arguments if isinstance(arguments, tuple) else {**UNANSWERED, **arguments}
        steps = [row[3] for row in self._cursor.execute(f"EXPLAIN QUERY PLAN {statement}", given).fetchall()]
        self.steps += steps
        if _NAMES not in statement:
            tables: dict[str, set[str]] = {"e": {"leftfold_events"}}  # within the view of the log
            for table, short in _NAMED.findall(statement):
                tables.setdefault(short, set()).add(table)
            for before, step in zip(["", *steps], steps, strict=False):
                match = _SCAN.match(step)
                if match and before != "RECURSIVE STEP" and tables.get(match[1], {match[1]}) & _BIG:
                    self.whole.append(step)


def _json(queues: Sequence[str]) -> str:
    return "[" + ",".join(f'"{queue}"' for queue in queues) + "]"
