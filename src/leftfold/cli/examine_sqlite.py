"""`leftfold doctor` on an SQLite file."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from leftfold.cli import checks
from leftfold.cli.checks import Check, bad, ok, warn
from leftfold.cli.store import Place, check_place
from leftfold.cli.text import clean, clock, span
from leftfold.core.errors import LeftfoldError, ValidationError
from leftfold.opening import address_of
from leftfold.store.sqlite.driver import MIGRATIONS, SqliteStore
from leftfold.store.sqlite.library import NAME, OLDEST, VERSION, can_lose_commits, sqlite
from leftfold.store.sqlite.wire import QUERIES, TEMPORARY, UNANSWERED, prepare

_FULL: Final = 2
_MIB: Final = 1024 * 1024
_WAL_MAX: Final = 64 * _MIB
_NEWER: Final = "pip install 'leftfold[sqlite]' brings a newer one"


class Opened(NamedTuple):
    """The store as it opens the file, and a connection of our own to look around with."""

    path: Path
    store: SqliteStore
    connection: Any

    def rows(self, sql: str) -> list[Any]:
        """Ask something."""
        found: list[Any] = self.connection.execute(sql).fetchall()
        return found


def examine(place: Place) -> Iterator[Check]:
    """Look at everything, as far as one gets."""
    yield _library()
    path = address_of(place.url).place
    try:
        check_place(place, create=False)
        store = SqliteStore(path, migrate_now=False)  # it is there: whatever its schema, look at it
    except ValidationError:
        raise
    except LeftfoldError as problem:
        yield bad("file", str(problem), "see to the file and its folder; is it the right one?")
        return
    connection = _connection(path)
    try:
        opened = Opened(Path(path), store, connection)
        looks = (_file, _wal_reset, _journal, _synchronous, _schema, _maintenance, _frozen, _clock, _index, _counters)
        yield from checks.each(looks, opened, sqlite.Error)
    finally:
        connection.close()
        store.close()


def _connection(path: str) -> Any:
    connection = sqlite.connect(path, isolation_level=None)
    prepare(connection.cursor(), connection, guarded=True)
    for table in TEMPORARY:
        connection.execute(table)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _library() -> Check:
    found = f"{NAME} with SQLite {sqlite.sqlite_version}"
    if VERSION < OLDEST:
        return bad("library", f"{found}, {'.'.join(map(str, OLDEST))} is the oldest that will do", _NEWER)
    return ok("library", found)


def _file(opened: Opened) -> Check:
    size, log = opened.path.stat().st_size, opened.path.with_name(opened.path.name + "-wal")
    waiting = log.stat().st_size if log.exists() else 0
    found = f"{_mib(size)}, and {_mib(waiting)} in the write-ahead log"
    if waiting > _WAL_MAX:
        return warn("file", found, "a reader that stays open keeps the log from being put away: find it and end it")
    return ok("file", found)


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB" if size >= _MIB else f"{size / 1024:.0f} KiB"


def _wal_reset(opened: Opened) -> Check:
    if not can_lose_commits():
        return ok("wal_reset", f"SQLite {sqlite.sqlite_version} is free of the WAL-reset bug")
    found = f"SQLite {sqlite.sqlite_version} has the WAL-reset bug, which loses commits"
    if opened.store.pragma("wal_autocheckpoint"):
        return bad("wal_reset", f"{found}, and the checkpoint guard is off", _NEWER)
    return warn("wal_reset", f"{found}; the checkpoint guard is on", f"{_NEWER}, also for others that write to it")


def _journal(opened: Opened) -> Check:
    mode = opened.store.pragma("journal_mode")
    if mode != "wal":
        return bad("journal", f"journal_mode is {mode}", "put the file on a local file system, where WAL works")
    return ok("journal", "journal_mode is wal")


def _synchronous(opened: Opened) -> Check:
    level = opened.store.pragma("synchronous")
    if level < _FULL:
        return bad("synchronous", f"synchronous is {level}", "a power cut would lose commits: it must be FULL (2)")
    return ok("synchronous", "synchronous is FULL")


def _schema(opened: Opened) -> Check:
    return checks.schema(MIGRATIONS, opened.store.applied())


def _maintenance(opened: Opened) -> Check:
    left = opened.rows("SELECT id, at, actor, reason FROM leftfold_maintenance WHERE open ORDER BY id")
    if not left:
        return ok("maintenance", "the log is closed to changes")
    number, at, actor, reason = left[0]
    return bad(
        "maintenance",
        f"{clean(actor)} left the log open to changes at {clock(at)}: {clean(reason)}",
        f"look what was changed, then close it: UPDATE leftfold_maintenance SET open = 0 WHERE id = {number}",  # noqa: S608 - told
    )


def _frozen(opened: Opened) -> Check:
    rows = opened.rows("SELECT leftfold_text(id) FROM leftfold_jobs WHERE frozen_at IS NOT NULL ORDER BY id")
    return checks.frozen([job_id for (job_id,) in rows])


def _clock(opened: Opened) -> Check:
    now = time.time_ns() // 1000
    last = max((at for (at,) in opened.rows("SELECT at FROM leftfold_events ORDER BY seq DESC LIMIT 1")), default=0)
    if last - now > checks.SKEW_MAX:
        found = f"the last event lies {span(last - now)} in the future"
        return warn("clock", found, "the clock was set back: let it follow a time server")
    return ok("clock", "the store's clock is this machine's")


def _index(opened: Opened) -> Check:
    query = checks.claim_query()
    arguments = {"now": 0, **UNANSWERED} | {
        name: json.dumps(value) if isinstance(value, list) else value for name, value in query.arguments.items()
    }
    plan = [
        row[3]
        for statement in QUERIES[query.name]
        for row in opened.connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", arguments).fetchall()
    ]
    return checks.index(
        found=any(f"{checks.CLAIM_INDEX} (queue=? AND priority=? AND due<?)" in step for step in plan),
        scans=any(re.match(r"SCAN (jobs|j)\b", step) for step in plan),
    )


def _counters(opened: Opened) -> Check:
    ((rows,),) = opened.rows("SELECT count(*) FROM leftfold_counts")
    return ok("counters", f"{rows} rows, nothing to fold")
