"""What both drivers have in common: where the database is, how workers are woken, and when to try again."""

import os
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

import psycopg

from leftfold.core.errors import StoreError
from leftfold.store import migrate
from leftfold.store.postgres.bell import Listener, Ringer
from leftfold.store.postgres.wire import (
    NOT_NOTIFIED,
    check_server,
    connect_options,
    gives_way,
    is_cut,
    queries,
    quoted,
)
from leftfold.store.postgres.within import AnyConnection, place_of
from leftfold.store.query import MAKING, Operation, Query

#: What a new connection is asked first: how it isolates, and to keep no plan that reads whole tables, if the session is
#: ours alone. One may be from when there were hardly any jobs, and to read all of them was right then. A hundred
#: thousand that come at once would be read again and again until the next ANALYZE. Our statements have their indexes;
#: one that has none costs much on paper only, as long as nobody compiles it for that.
GREETING: Final = """
SELECT current_setting('default_transaction_isolation'),
       CASE WHEN pg_backend_pid() = %s
            THEN set_config('enable_seqscan', 'off', false) || set_config('jit', 'off', false) END
"""


class Progress:
    """How far an operation came: whether its commit may have been on its way when something broke."""

    def __init__(self) -> None:
        self.unknown = False
        self.has_turn = False  # it was let to wake the workers in its own transaction,
        self.rang = False  # and did: there is a new job

    def may_run_again(self, problem: psycopg.Error, attempt: int) -> bool:
        """Tell whether nothing was written, and another try may do better."""
        return gives_way(problem) or (is_cut(problem) and not self.unknown and attempt < 2)


class Base:
    """What both drivers know."""

    dialect = "postgres"
    counts_grow = True

    def __init__(self, url: str, *, schema: str, clock: Callable[[], int] | None, prepare: bool) -> None:
        self.url = url
        self.schema = schema
        self.queries = dict(queries(schema))
        self.migrations = migrate.migrations("postgres", quoted(schema))
        self._clock = clock  # None: the server's own
        self._pid = os.getpid()
        self._prepare = prepare
        self.sends_ahead = prepare and psycopg.Pipeline.is_supported()  # poolers may not know the way
        self._options = connect_options(url) | ({} if prepare else {"prepare_threshold": None})
        self._may_be_apart = True
        self._place: object = None
        self._same: WeakSet[AnyConnection] = WeakSet()  # connections of callers that turned out to be to our database
        self._ringer: Ringer | None = None

    def _own_session(self, info: psycopg.ConnectionInfo) -> int:
        """Give the process that serves a new connection, if plans are kept there: see the greeting.

        A pooler makes a number up, so that the server's own is another one: what is set there would be somebody else's.
        """
        return info.backend_pid if self._prepare else 0

    def _learn(self, info: psycopg.ConnectionInfo, isolation: str) -> None:
        """Note where a new connection goes, and whether a statement without a transaction is read committed there.

        Where it is not, every statement gets a transaction that is: to set that for the session would be lost, or be
        somebody else's, behind a pooler that parts transactions.
        """
        check_server(info)
        self._place = place_of(info)
        self._may_be_apart = self._may_be_apart and isolation == "read committed"

    def bell(self) -> Ringer:
        """Give what wakes the workers of this schema, and wake them from now on when there is a new job."""
        self._ringer = Ringer(lambda: psycopg.connect(self.url, autocommit=True, **self._options), self.schema)
        return self._ringer

    def _channel(self, query: Query) -> str | None:
        """Give where a query wakes the workers, if it is to do so itself."""
        return self._ringer.turn() if self._ringer is not None and query.name in MAKING else None

    def _may_run_again(self, problem: psycopg.Error, progress: Progress, attempt: int) -> bool:
        if progress.has_turn and self._ringer is not None and problem.sqlstate == NOT_NOTIFIED:
            self._ringer.mute()
            return True
        return progress.may_run_again(problem, attempt)

    def _ring(self, operation: Operation[Any], progress: Progress) -> None:
        if operation.rings and not progress.rang and self._ringer is not None:
            self._ringer.ring()

    def listener(self, wake: Callable[[], None]) -> Listener:
        """Give what hears it."""
        return Listener(self.url, self.schema, self._options, wake)

    def _is_ours(self, connection: AnyConnection) -> bool:
        return place_of(connection.info) == self._place or connection in self._same

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError("this store was opened before a fork: open it anew in the child")

    def _applied_query(self) -> str:
        return f"SELECT version, checksum FROM {quoted(self.schema)}.migrations ORDER BY 1"

    def _there_query(self) -> tuple[str, tuple[str]]:
        return "SELECT to_regclass(%s) IS NOT NULL", (f"{quoted(self.schema)}.migrations",)

    def bookkeeping(self) -> str:
        """Give the statement that makes the table of migrations."""
        return (
            f"CREATE TABLE IF NOT EXISTS {quoted(self.schema)}.migrations (version integer PRIMARY KEY, "
            "name text NOT NULL, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
        )
