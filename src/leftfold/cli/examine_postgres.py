"""`leftfold doctor` on PostgreSQL."""

import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from leftfold.cli import checks
from leftfold.cli.checks import Check, Verdict, bad, ok, warn
from leftfold.cli.store import Place
from leftfold.core.errors import LeftfoldError
from leftfold.store.postgres.driver import PostgresStore
from leftfold.store.postgres.wire import OLDEST, call, connect_options, quoted, translated

#: Check → its setting, the values that will do, the verdict on any other, and what to do then.
_SETTINGS: Final = {
    "fsync": ("fsync", ("on",), Verdict.BAD, "switch it on: without it a crash of the machine destroys the database"),
    "page_writes": (
        "full_page_writes", ("on",), Verdict.WARN,
        "switch it on, unless the file system writes a page as a whole or not at all, as ZFS does",
    ),
    "commit": (
        "synchronous_commit", ("on", "local", "remote_write", "remote_apply"), Verdict.BAD,
        "switch it on: without it a crash loses jobs that were acknowledged",
    ),
    "isolation": (
        "default_transaction_isolation", ("read committed",), Verdict.WARN,
        "leave it at read committed, which is enough: others make claims run anew",
    ),
    "writable": ("default_transaction_read_only", ("off",), Verdict.BAD, "switch it off for this user and database"),
}  # fmt: skip
_BACKLOG_MAX: Final = 50_000
_LARGE: Final = 10_000  # rows from which a scan of the whole table hurts


class Opened(NamedTuple):
    """A connection, and the schema that the tables are in."""

    store: PostgresStore
    connection: psycopg.Connection[Any]
    schema: str

    def rows(self, sql: str, *values: object) -> list[Any]:
        """Ask something."""
        return self.connection.execute(sql.encode(), values or None).fetchall()


def examine(place: Place) -> Iterator[Check]:
    """Look at everything, as far as one gets."""
    yield ok("library", f"psycopg {psycopg.__version__} with libpq {_version(psycopg.pq.version())}")
    store = PostgresStore(place.url, schema=place.schema)
    try:
        connection = psycopg.connect(place.url, autocommit=True, row_factory=tuple_row, **connect_options(place.url))
    except psycopg.Error as problem:
        yield _unreachable(translated(problem))
        return
    with connection:
        opened = Opened(store, connection, quoted(place.schema))
        yield from checks.each((_server, _encoding, _recovery), opened, psycopg.Error)
        for name in _SETTINGS:
            yield _setting(name, opened)
        found = checks.schema(store.migrations, store.applied(connection.cursor()))
        yield found
        if found.verdict is Verdict.OK:
            yield from checks.each((_logged, _frozen, _restored, _clock, _index, _counters), opened, psycopg.Error)


def _unreachable(problem: LeftfoldError) -> Check:
    return bad("connection", str(problem), "see to the URL, the user and its rights, and whether the server runs")


def _version(number: int) -> str:
    return f"{number // 10_000}.{number % 10_000}"


def _server(opened: Opened) -> Check:
    return server(opened.connection.info.server_version)


def server(number: int) -> Check:
    """Judge a server by its version."""
    if number < OLDEST * 10_000:
        return bad("server", f"PostgreSQL {_version(number)}, {OLDEST} is the oldest that will do", "upgrade it")
    return ok("server", f"PostgreSQL {_version(number)}")


def _encoding(opened: Opened) -> Check:
    encoding = opened.connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        return bad("encoding", f"the database is in {encoding}", "make one in UTF8: the hash chain needs it")
    return ok("encoding", "the database is in UTF8")


def _recovery(opened: Opened) -> Check:
    ((standby,),) = opened.rows("SELECT pg_is_in_recovery()")
    if standby:
        return bad("recovery", "this is a standby, which cannot be written to", "connect to the primary")
    return ok("recovery", "this is a primary")


def _setting(name: str, opened: Opened) -> Check:
    setting, good, verdict, advice = _SETTINGS[name]
    ((value,),) = opened.rows("SELECT current_setting(%s)", setting)
    found = f"{setting} is {value}"
    return ok(name, found) if value in good else Check(name, verdict, found, advice)


def _logged(opened: Opened) -> Check:
    rows = opened.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' "
        "AND relpersistence <> 'p' ORDER BY 1",
        opened.schema,
    )
    if rows:
        names = ", ".join(name for (name,) in rows)
        return bad("logged", f"unlogged tables: {names}", "a crash empties them: ALTER TABLE … SET LOGGED")
    return ok("logged", "every table survives a crash")


def _frozen(opened: Opened) -> Check:
    rows = opened.rows(f"SELECT id::text FROM {opened.schema}.jobs WHERE frozen_at IS NOT NULL ORDER BY id")  # noqa: S608 - quoted
    return checks.frozen([job_id for (job_id,) in rows])


def _restored(opened: Opened) -> Check:
    """Look for events of transactions that are still to come here: they were written on another server."""
    events = f"{opened.schema}.events"
    with opened.connection.transaction():
        # One snapshot for both: what is committed in between would seem to be of the future.
        opened.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        ((next_one,),) = opened.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        # The number is written out, and a scan forbidden: so the index by ranges is used, however large the table is.
        opened.connection.execute("SET LOCAL enable_seqscan = off")
        ((found,),) = opened.rows(f"SELECT EXISTS (SELECT FROM {events} WHERE xid >= {next_one})")  # noqa: S608 - quoted
    if not found:
        return ok("restored", "every event was written on this server")
    mended = (
        f"BEGIN; INSERT INTO {opened.schema}.maintenance (at, actor, reason) VALUES ({opened.schema}.clock(), "  # noqa: S608 - told
        f"current_user, 'restored'); UPDATE {events} SET xid = 1 WHERE xid >= {next_one}; COMMIT"
    )
    return warn(
        "restored",
        "events restored from another server, whose numbers are still to come on this one: a feed does not give them",
        f"let every consumer start anew (`leftfold feed forget`), behind this: {mended}",
    )


def _clock(opened: Opened) -> Check:
    before = time.time_ns() // 1000
    ((store,),) = opened.rows(f"SELECT {opened.schema}.clock()")
    took = time.time_ns() // 1000 - before
    return checks.skew(store, before + took // 2, slack=took // 2)


def _index(opened: Opened) -> Check:
    ((large,),) = opened.rows(
        "SELECT reltuples > %s FROM pg_class WHERE oid = %s::regclass", _LARGE, f"{opened.schema}.jobs"
    )
    freely = _plan(opened, scan=True)
    # A small table is rightly read as a whole; that the index can be used shows when this is forbidden.
    return checks.index(
        found=checks.CLAIM_INDEX in _plan(opened, scan=False),
        scans=large and "Seq Scan on jobs" in freely,
    )


def _plan(opened: Opened, *, scan: bool) -> str:
    query = checks.claim_query()
    sql, given = call(opened.store.queries, query, None)
    with opened.connection.transaction(force_rollback=True), opened.connection.cursor() as cursor:
        if not scan:
            cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(b"EXPLAIN " + sql, given, prepare=False)
        return "\n".join(line for (line,) in cursor.fetchall())


def _counters(opened: Opened) -> Check:
    counted = "SELECT count(*), count(DISTINCT (queue, kind, state)) FROM"
    ((rows, groups),) = opened.rows(f"{counted} {opened.schema}.counts")
    found = f"{rows - groups} of {rows} rows to be folded"
    if rows - groups > _BACKLOG_MAX:
        return warn("counters", found, "processes that write a lot fold them now and then: are there any?")
    return ok("counters", found)
