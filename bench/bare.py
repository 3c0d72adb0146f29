"""The same driver, tables and rows, written by hand: no hash, counters or decisions. What the database itself costs.

Batches go as array literals, as ours do: psycopg's own way with lists is ten times slower. `x = x + 0` is true, which
the planner does not know: it takes the rows for few, as in ours, and does not read the whole table for them. A row is
found by its id and everything else is asked of the row that is written, as in ours; `IS NOT DISTINCT FROM` keeps the
index of tokens from being a way to it. The tables are ours: triggers ask for a row's shape in PostgreSQL, CHECKs in a
file, where the triggers that count are dropped. It stands for the raw limit, and would lose a fence, a chain or a count
without a word: nobody should use it.
"""

import secrets
import time
from typing import Any, Final, Protocol

import msgspec
import psycopg

from leftfold.store.ids import Ids
from leftfold.store.postgres.wire import array
from leftfold.store.sqlite.library import sqlite

HEAD: Final = bytes(32)
SEAL: Final = bytes(8)
LEASE: Final = 60_000_000


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Bare(Protocol):
    """What both sides of a comparison can do."""

    def enqueue(self, payloads: list[Any]) -> None:
        """Make so many jobs, in one batch."""

    def claim(self, limit: int) -> list[Any]:
        """Take some jobs."""

    def take(self, limit: int) -> list[Any]:
        """Take some jobs, and enter their handlers in the same breath."""

    def start(self, claims: list[Any]) -> None:
        """Enter their handlers."""

    def complete(self, claims: list[Any]) -> None:
        """End them."""

    def close(self) -> None:
        """Close the connection."""


_ENQUEUE: Final = """
WITH asked AS MATERIALIZED (
    SELECT a.*, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at
    FROM unnest(%(id)s::uuid[], %(data)s::text[]) AS a (id, data)
), made AS (
    INSERT INTO {schema}.jobs (id, created_at, updated_at, due, version, renewals, attempt, failures, enqueued, state,
                               priority, head, tenant, kind, queue)
    SELECT id, at, at, at, 1, 0, 0, 0, 1, 'queued', 0, %(head)s, '', 'noop', 'default' FROM asked
)
INSERT INTO {schema}.events (at, job_id, version, format, event, actor, data, seal)
SELECT at, id, 1, 1, 'enqueued', 'client', data, %(seal)s FROM asked
"""
_CLAIM: Final = """
WITH clock AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now),
held AS MATERIALIZED (
    SELECT k.ctid AS place, clock.now FROM clock CROSS JOIN LATERAL (
        SELECT j.ctid FROM {schema}.jobs j
        WHERE j.queue = 'default' AND j.priority = 0 AND j.due <= clock.now AND j.due IS NOT NULL
          AND j.frozen_at IS NULL
        ORDER BY j.due, j.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) k
), moved AS (
    UPDATE {schema}.jobs j
    SET state = '{state}', version = j.version + {steps}, updated_at = h.now, attempt = j.attempt + 1,
        owner = %(owner)s, token = %(token)s, until = h.now + 60000000, due = NULL
    FROM held h WHERE j.ctid = h.place AND h.now = h.now + 0 RETURNING j.id, j.version, j.attempt, h.now
), appended AS (
    INSERT INTO {schema}.events (at, job_id, version, format, event, actor, data, seal)
    SELECT now, id, version, 1, '{event}', %(owner)s, %(data)s, %(seal)s FROM moved
)
SELECT m.id::text, m.attempt, e.data FROM moved m JOIN {schema}.events e ON e.job_id = m.id AND e.version = 1
"""
_OWN: Final = """
WITH asked AS MATERIALIZED (
    SELECT a.*, %(token)s::text AS by_token, k.place
    FROM unnest(%(id)s::uuid[], %(attempt)s::integer[]) AS a (id, by_attempt)
    CROSS JOIN LATERAL (SELECT k.ctid AS place FROM {schema}.jobs k WHERE k.id = a.id OFFSET 0) k
), moved AS (
    UPDATE {schema}.jobs j
    SET version = j.version + 1, updated_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, {changes}
    FROM asked a
    WHERE j.ctid = a.place AND a.by_attempt = a.by_attempt + 0 AND j.attempt = a.by_attempt
      AND j.token IS NOT DISTINCT FROM a.by_token AND j.state = %(source)s
    RETURNING j.id, j.version, j.updated_at
)
INSERT INTO {schema}.events (at, job_id, version, format, event, actor, data, seal)
SELECT updated_at, id, version, 1, %(event)s, %(owner)s, '{{}}', %(seal)s FROM moved
"""
_RUNNING: Final = "state = 'running'"
_ENDED: Final = (
    "state = 'succeeded', owner = NULL, token = NULL, result = j.version + 1, "
    "ended_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
)


class BarePostgres:
    """On PostgreSQL: one statement for each batch, committed by itself."""

    def __init__(self, url: str, schema: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._ids = Ids()
        self._token = secrets.token_urlsafe(12)
        self._given = {"owner": "worker-1", "token": self._token, "seal": SEAL, "head": HEAD}
        self._enqueue = _ENQUEUE.format(schema=schema).encode()
        self._claim = _CLAIM.format(schema=schema, state="claimed", event="claimed", steps=1).encode()
        self._take = _CLAIM.format(schema=schema, state="running", event="claimed+started", steps=2).encode()
        self._start = _OWN.format(schema=schema, changes=_RUNNING).encode()
        self._complete = _OWN.format(schema=schema, changes=_ENDED).encode()

    def enqueue(self, payloads: list[Any]) -> None:
        data = [_text({"spec": {"kind": "noop", "payload": each}}) for each in payloads]
        ids = self._ids.make(len(payloads))
        self._connection.execute(self._enqueue, {**self._given, "id": array(ids), "data": array(data)})

    def claim(self, limit: int) -> list[Any]:
        return self._given_by(self._claim, limit)

    def take(self, limit: int) -> list[Any]:
        return self._given_by(self._take, limit)

    def _given_by(self, statement: bytes, limit: int) -> list[Any]:
        data = _text({"token": self._token})
        rows = self._connection.execute(statement, {**self._given, "limit": limit, "data": data}).fetchall()
        return [(job_id, attempt, msgspec.json.decode(data)) for job_id, attempt, data in rows]

    def start(self, claims: list[Any]) -> None:
        self._own(self._start, claims, "claimed", "started")

    def complete(self, claims: list[Any]) -> None:
        self._own(self._complete, claims, "running", "succeeded")

    def _own(self, statement: bytes, claims: list[Any], source: str, event: str) -> None:
        ids, attempts = array(each[0] for each in claims), array(each[1] for each in claims)
        self._connection.execute(
            statement, {**self._given, "id": ids, "attempt": attempts, "source": source, "event": event}
        )

    def close(self) -> None:
        self._connection.close()


class BareSqlite:
    """In a file: one transaction for each batch, its rows bound one by one in C."""

    def __init__(self, path: str) -> None:
        self._connection = sqlite.connect(path, isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._ids = Ids()
        self._token = secrets.token_urlsafe(12)
        ((self._n,),) = self._connection.execute("SELECT coalesce(max(n), 0) FROM leftfold_jobs").fetchall()

    @staticmethod
    def prepare(path: str) -> None:
        """Drop what counts, and make the names."""
        connection = sqlite.connect(path, isolation_level=None)
        for trigger in ("counted", "counted_out"):
            connection.execute(f"DROP TRIGGER leftfold_jobs_{trigger}")
        connection.executemany(
            "INSERT OR IGNORE INTO leftfold_names (n, name) VALUES (?, ?)",
            enumerate(
                ("enqueued", "claimed", "started", "succeeded", "client", "worker-1", "claimed+started"), start=1
            ),
        )
        connection.close()

    def enqueue(self, payloads: list[Any]) -> None:
        now = time.time_ns() // 1000
        first, self._n = self._n + 1, self._n + len(payloads)
        numbers = range(first, self._n + 1)
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO leftfold_jobs (n, id, created_at, updated_at, due, version, renewals, attempt, failures,"
            " enqueued, state, priority, head, tenant, kind, queue)"
            " VALUES (?, ?, ?, ?, ?, 1, 0, 0, 0, 1, 'queued', 0, ?, '', 'noop', 'default')",
            [
                (n, bytes.fromhex(id_.replace("-", "")), now, now, now, HEAD)
                for n, id_ in zip(numbers, self._ids.make(len(payloads)), strict=True)
            ],
        )
        connection.executemany(
            "INSERT INTO leftfold_events (job, version, at, format, event, actor, data, seal)"
            " VALUES (?, 1, ?, 1, 1, 5, ?, ?)",
            [
                (n, now, _text({"spec": {"kind": "noop", "payload": each}}), SEAL)
                for n, each in zip(numbers, payloads, strict=True)
            ],
        )
        connection.execute("COMMIT")

    def claim(self, limit: int) -> list[Any]:
        return self._claimed(limit, "claimed", 2, 1)

    def take(self, limit: int) -> list[Any]:
        return self._claimed(limit, "running", 7, 2)

    def _claimed(self, limit: int, state: str, event: int, steps: int) -> list[Any]:
        now = time.time_ns() // 1000
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        rows = connection.execute(
            "SELECT j.n, j.version, j.attempt, e.data FROM leftfold_jobs j"
            " JOIN leftfold_events e ON e.job = j.n AND e.version = 1"
            " WHERE j.queue = 'default' AND j.priority = 0 AND j.due <= ? AND j.due IS NOT NULL AND j.frozen_at IS NULL"
            " ORDER BY j.due, j.id LIMIT ?", (now, limit),
        ).fetchall()  # fmt: skip
        connection.executemany(
            "UPDATE leftfold_jobs SET state = ?, version = version + ?, updated_at = ?, attempt = attempt + 1,"
            " owner = 'worker-1', token = ?, until = ?, due = NULL WHERE n = ?",
            [(state, steps, now, self._token, now + LEASE, n) for n, *_ in rows],
        )
        told = _text({"token": self._token})
        self._append(event, [(n, version + steps, now) for n, version, *_ in rows], 6, told)
        connection.execute("COMMIT")
        return [(n, version + steps, attempt + 1, msgspec.json.decode(data)) for n, version, attempt, data in rows]

    def _append(self, event: int, rows: list[tuple[int, int, int]], actor: int, data: str) -> None:
        self._connection.executemany(
            "INSERT INTO leftfold_events (job, version, at, format, event, actor, data, seal)"
            " VALUES (?, ?, ?, 1, ?, ?, ?, ?)",
            [(n, version, at, event, actor, data, SEAL) for n, version, at in rows],
        )

    def start(self, claims: list[Any]) -> None:
        self._own(claims, 3, "state = 'running'", "claimed")

    def complete(self, claims: list[Any]) -> None:
        changes = "state = 'succeeded', owner = NULL, token = NULL, result = version + 1, ended_at = updated_at"
        self._own(claims, 4, changes, "running")

    def _own(self, claims: list[Any], event: int, changes: str, source: str) -> None:
        now = time.time_ns() // 1000
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            f"UPDATE leftfold_jobs SET {changes}, version = version + 1, updated_at = ?"
            f" WHERE n = ? AND attempt = ? AND token = ? AND state = '{source}'",
            [(now, n, attempt, self._token) for n, _, attempt, _ in claims],
        )
        self._append(event, [(n, event, now) for n, *_ in claims], 6, "{}")  # the events of a job, in their order
        connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()
