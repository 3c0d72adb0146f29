"""Plans of PostgreSQL, for statements as the driver sends them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import psycopg
import pytest
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer
from psycopg.sql import SQL, Literal
from tests.plans.asked import everything_asked
from tests.plans.loading import Copies, Part, load, make_templates

from leftfold import Engine
from leftfold.store.postgres import wire
from leftfold.store.postgres.driver import PostgresStore
from leftfold.store.postgres.wire import call, quoted
from leftfold.store.query import Query

#: Whether the server makes a plan for the values that are asked with, or one for any; `auto` decides after five.
MODES: Final = ("auto", "force_custom_plan", "force_generic_plan")
_AUTO_DECIDES_AFTER: Final = 7
BIG: Final = ("jobs", "events")
FEW: Final = ("jobs_leased", "jobs_wait", "jobs_error", "jobs_incident", "jobs_deadline", "jobs_frozen")

#: These speak of jobs by their ids, or by their place in the queue: an index of few jobs is a way round, and read as a
#: whole for each of them.
DIRECT: Final = frozenset({"claim", "claim_on", "own", "own_quietly", "renew", "look", "lock", "load", "project"})


class Tables:
    """A schema with many rows, and what an engine asked of it."""

    def __init__(self, url: str, schema: str, parts: Sequence[Part | None]) -> None:
        self.store = PostgresStore(url, schema=schema).open()
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        self._schema = quoted(schema)
        with Engine(self.store) as engine:
            self._fill(make_templates(engine), parts)
            self.asked = list(everything_asked(self.store))

    @classmethod
    def over(cls, store: PostgresStore, connection: psycopg.Connection[Any]) -> "Tables":
        """Give tables as they are, on a connection of the store's own."""
        tables = cls.__new__(cls)
        tables.store, tables.connection, tables._schema = store, connection, quoted(store.schema)
        return tables

    def close(self) -> None:
        self.connection.close()

    def _execute(self, sql: str) -> list[Any]:
        cursor = self.connection.execute(sql.replace("{schema}", self._schema).encode())
        return cursor.fetchall() if cursor.description else []

    def _fill(self, templates: Mapping[str, str], parts: Sequence[Part | None]) -> None:
        for table in BIG:  # statistics are taken when we say so
            self._execute(f"ALTER TABLE {{schema}}.{table} SET (autovacuum_enabled = off)")
        ids = "(lpad(to_hex(1600000000000 + n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid"
        jobs = {"id": ids, "queue": "($1::text[])[1 + n % cardinality($1)]", "priority": "(n % 3)::smallint",
                "due": "t.due + (n % 1000) * 1000000", "key": "'key ' || n",
                "correlation_id": "CASE WHEN n % 10 = 0 THEN 'correlation ' || n END",
                "token": "left(t.token, 20) || n"}  # fmt: skip
        copies = {
            "jobs": Copies(jobs, self._columns("jobs")),
            # One behind the other, as they come.
            "events": Copies({"job_id": ids, "at": "t.at + n * 1000"}, self._columns("events")),
        }

        def copy(part: Part, first: int, last: int) -> None:
            queues = "'{" + ",".join(part.queues) + "}'::text[]"
            for table, spelled in copies.items():
                values = spelled.values().replace("$1", queues)
                which = "t.id" if table == "jobs" else "t.version = 1 AND t.job_id"
                self._execute(
                    f"INSERT INTO {{schema}}.{table} ({spelled.names()}) SELECT {values} "  # noqa: S608
                    f"FROM {{schema}}.{table} t, generate_series({first}, {last}) n "
                    f"WHERE {which} = '{templates[part.state]}'"
                )

        load(parts, copy, lambda: self._execute("ANALYZE {schema}.jobs, {schema}.events"))
        for index in ("events_when",):  # as autovacuum does now and then
            self._execute(f"SELECT brin_summarize_new_values('{{schema}}.{index}'::regclass)")

    def _columns(self, table: str) -> list[str]:
        asked = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        return [row[0] for row in self.connection.execute(asked, (self.store.schema, table))]

    def plan(self, query: Query, mode: str, *, as_ours: bool = False) -> "Plan":
        """Give the plan that the server makes for a query of ours; `as_ours`: in a session of the driver."""
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
            if as_ours:
                cursor.execute("SET LOCAL enable_seqscan = off")
            sent = PostgresQuery(Transformer(cursor))
            with pytest.MonkeyPatch.context() as spelled:  # a PREPARE in words takes arrays that are spelled out
                spelled.setattr(wire, "PACKED", {})
                text, given = call(self.store.queries, query, None)
            sent.convert(text, given)
            named = re.findall(r"%\((\w+)\)s", text.decode())
            values = SQL(", ").join(Literal(given[name]) for name in dict.fromkeys(named))
            types = ", ".join(_type(oid) for oid in sent.types)
            cursor.execute("DEALLOCATE ALL")
            cursor.execute(f"PREPARE p {f'({types})' if types else ''} AS ".encode() + sent.query.rstrip(b";\n "))
            explain = SQL("EXPLAIN (FORMAT JSON) EXECUTE p") + (SQL("({})").format(values) if types else SQL(""))
            for _ in range(_AUTO_DECIDES_AFTER if mode == "auto" else 1):
                cursor.execute(explain)
                ((found,),) = cursor.fetchall()
        return Plan(found[0]["Plan"])


_TYPES: Final = {0: "unknown", 16: "boolean", 17: "bytea", 20: "bigint", 21: "smallint", 23: "integer", 25: "text"}


def _type(oid: int) -> str:
    return _TYPES[oid]


class Plan:
    """A plan: a tree of nodes."""

    def __init__(self, node: Mapping[str, Any]) -> None:
        self.nodes = list(_walk(node))

    @property
    def indexes(self) -> set[str]:
        """Give the indexes that it uses."""
        return {node["Index Name"] for node in self.nodes if "Index Name" in node}

    def whole(self) -> list[str]:
        """Give what it reads from one end to the other: tables, and indexes without a condition and without a limit.

        The indexes of few jobs are there to be read so.
        """
        found = [
            f"Seq Scan on {node['Relation Name']}"
            for node in self.nodes
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG
        ]
        return found + [
            f"{node['Node Type']} using {node['Index Name']}"
            for node in self.nodes
            if "Index Name" in node and node.get("Relation Name", "jobs") in BIG
            if "Index Cond" not in node and not node["limited"] and node["Index Name"] not in FEW
        ]


#: What hands rows on one by one, so that a limit above it stops what is below it.
_PASSED: Final = frozenset({"Result", "Subquery Scan", "LockRows", "Gather", "Gather Merge"})


def _walk(node: Mapping[str, Any], *, limited: bool = False) -> Iterator[dict[str, Any]]:
    """Give the nodes, each with whether a LIMIT stands above it that can stop it."""
    yield {**node, "limited": limited}
    below = node["Node Type"] == "Limit" or (limited and node["Node Type"] in _PASSED)
    for child in node.get("Plans", ()):
        yield from _walk(child, limited=below)


def detours(query: Query, plan: Plan) -> list[str]:
    """Give the indexes by which a query goes a long way to its jobs."""
    return sorted(plan.indexes & set(FEW)) if query.name in DIRECT else []
