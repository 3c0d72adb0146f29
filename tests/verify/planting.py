"""What somebody with a database shell can do to a store: every kind of damage that there is a word for."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Self

from tests.migration.raw import PostgresRaw, Raw, Refused, SqliteRaw
from tests.places import Place

from leftfold import Engine
from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import NOTHING_FORBIDDEN, apply
from leftfold.core.lifecycle import Who
from leftfold.core.record import FORMAT, Record, encode, link
from leftfold.store.audit import What
from leftfold.store.ops import EVENT_COLUMNS, event_rows, head_of
from leftfold.store.query import Operation, Query, Steps, ids
from leftfold.store.rows import COLUMNS, Log, Row, read_logs, row_of

OPERATOR: Final = c.Actor(who=Who.OPERATOR, name="ann")


class Shell:
    """Plain SQL, with `?` for values, in transactions that say who changes what stands."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.raw: Raw = SqliteRaw(place) if place.is_file else PostgresRaw(place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, and give its rows."""
        return self.raw.run(sql, values)

    def change(self, sql: str, *values: Any) -> None:
        """Change what stands."""
        self.raw.maintain()
        try:
            self.ask(sql, *values)
        except Refused:
            self.raw.run("ROLLBACK")
            raise
        self.raw.commit()

    def events_of(self, job_id: str) -> str:
        """Give the condition that means the events of a job."""
        return f"job = {self.number(job_id)}" if self.place.is_file else f"job_id = '{job_id}'"

    def number(self, job_id: str) -> int:
        """Give the number by which a file knows a job."""
        return int(self.ask(f"SELECT n FROM jobs WHERE {self.row_of(job_id)}")[0][0])  # noqa: S608 - our own

    def row_of(self, job_id: str) -> str:
        """Give the condition that means the row of a job."""
        return f"id = x'{job_id.replace('-', '')}'" if self.place.is_file else f"id = '{job_id}'"

    def edit(self, job_id: str, place: int, **columns: Any) -> None:
        """Change columns of an event."""
        self._set("events", f"{self.events_of(job_id)} AND version = {place}", columns)

    def edit_row(self, job_id: str, **columns: Any) -> None:
        """Change columns of a row."""
        self._set("jobs", self.row_of(job_id), columns)

    def _set(self, table: str, where: str, columns: dict[str, Any]) -> None:
        changes = ", ".join(f"{name} = ?" for name in columns)
        self.change(f"UPDATE {table} SET {changes} WHERE {where}", *columns.values())  # noqa: S608 - our own

    def remove(self, job_id: str, versions: str = "version > 0") -> None:
        """Take events of a job away."""
        self.change(f"DELETE FROM events WHERE {self.events_of(job_id)} AND {versions}")  # noqa: S608 - our own

    def remove_row(self, job_id: str) -> None:
        """Take a row away, and let the counters know."""
        if not self.place.is_file:  # a file counts by itself
            self.ask(f"INSERT INTO counts SELECT queue, kind, state, -1 FROM jobs WHERE {self.row_of(job_id)}")  # noqa: S608
        self.change(f"DELETE FROM jobs WHERE {self.row_of(job_id)}")  # noqa: S608

    def maintained(self) -> list[tuple[str, str]]:
        """Give who changed what stands, and why; but for what is done here."""
        found = self.ask("SELECT actor, reason FROM maintenance ORDER BY id")
        return [(actor, reason) for actor, reason in found if reason != "a law"]

    def contents(self) -> list[object]:
        """Give everything that stands in the store."""
        tables = ("events", "jobs", "counts", "requests", "queues", "feeds", "maintenance")
        return [sorted(self.ask(f"SELECT * FROM {table}"), key=repr) for table in tables]  # noqa: S608


def in_one(engine: Engine, queries: Iterable[Query]) -> None:
    """Let the store run queries of its own in one transaction."""

    def steps() -> Steps[None]:
        for query in queries:  # noqa: UP028 - a list takes no answers
            yield query

    engine.store.run(Operation(steps))


def log_of(engine: Engine, job_id: str) -> Log:
    """Give a job's log as the store gives it."""

    def steps() -> Steps[Log]:
        log = read_logs((yield ids("load", [job_id])))[job_id]
        assert isinstance(log, Log)
        return log

    return engine.store.run(Operation(steps, reads=True))


def forge(
    engine: Engine, job_id: str, event: e.AnyEvent, who: Who, *,
    actor: str = "forger", at: int = 0, stored: int = FORMAT,
) -> None:  # fmt: skip
    """Append an event that nobody decided, with its seal, and let the row know of it: who can write can do that."""
    log = log_of(engine, job_id)
    record = Record(
        job_id=job_id, version=log.job.version + 1, at=log.job.updated_at + at, who=who, actor=actor, event=event,
        data=encode(event), format=stored,
    )  # fmt: skip
    row = row_of(log.job, log.records, link(log.head, record))._replace(version=record.version, updated_at=record.at)
    _write(engine, [record], log.head, row)


def force(engine: Engine, job_id: str, command: c.AnyCommand) -> None:
    """Carry a command out without a look at the keys of others."""
    log = log_of(engine, job_id)
    job, records = apply(log.job, command, log.job.updated_at, NOTHING_FORBIDDEN)
    row = row_of(job, log.records + records, head_of(log.head, records))
    _write(engine, records, log.head, row)


def _write(engine: Engine, records: Iterable[Record], head: bytes, row: Row) -> None:
    events = list(event_rows(records, head))
    in_one(engine, [
        Query("append", columns=EVENT_COLUMNS, rows=events),
        Query("begin_maintenance", {"actor": "ann", "reason": "a law"}),
        Query("project", columns=("before", *COLUMNS), rows=[(row.version - len(events), *row)]),
        Query("end_maintenance"),
    ])  # fmt: skip


# --- every kind -------------------------------------------------------------------------------------------------------


def succeeded(engine: Engine, **job: Any) -> str:
    """Give a job that was made, run and completed: four events."""
    job_id: str = engine.enqueue("work", {"n": 1}, **job).job_id
    (claim,) = engine.claim("worker", job_id=job_id)
    engine.start(claim)
    engine.complete(claim, {"done": True})
    return job_id


class Damage(NamedTuple):
    """How to harm a job, and what is to be found. `job_id` of the finding is the job's, unless it is nobody's."""

    name: str
    what: What
    harm: Callable[[Engine, Shell, str], object]
    freezes: bool = True


def _two_with_one_key(engine: Engine, shell: Shell, job_id: str) -> None:
    first = engine.enqueue("keyed", key="k").job_id
    engine.dead_letter(first, "enough")
    engine.enqueue("keyed", key="k")
    shell.ask("DROP INDEX leftfold_jobs_key" if shell.place.is_file else "DROP INDEX jobs_key")
    if shell.place.is_file:
        shell.ask("DROP TRIGGER leftfold_jobs_keep_to_their_keys")
    force(engine, first, c.Requeue(by=OPERATOR, reason="again"))


def _miscount(engine: Engine, shell: Shell, job_id: str) -> None:
    if shell.place.is_file:
        shell.ask("UPDATE counts SET jobs = jobs + 2 WHERE state = 'succeeded'")
    else:
        shell.ask("INSERT INTO counts SELECT queue, kind, state, 2 FROM jobs WHERE state = 'succeeded' LIMIT 1")


def _unknown_event(engine: Engine, shell: Shell, job_id: str) -> None:
    """Let the second event be called by a name that no version of ours gave one."""
    if shell.place.is_file:
        shell.ask("INSERT INTO names (name) VALUES ('unheard_of')")
        ((number,),) = shell.ask("SELECT n FROM names WHERE name = 'unheard_of'")
    shell.edit(job_id, 2, event=number if shell.place.is_file else "unheard_of")


def _running(engine: Engine) -> str:
    (claim,) = engine.claim("worker", job_id=engine.enqueue("work").job_id)
    engine.start(claim)
    return claim.job_id


def _later_event(engine: Engine, _: Shell, job_id: str) -> None:
    forge(engine, job_id, e.Custom(name="later"), Who.OPERATOR, stored=FORMAT + 1)


TOKEN: Final = "0123456789abcdef"

#: Each is done to a job with four events: enqueued, claimed, started, succeeded.
ON_ENDED: Final = (
    Damage("data that is no event", What.UNREADABLE, lambda _, shell, job: shell.edit(job, 2, data="{")),
    Damage("an event of no known name", What.UNREADABLE, _unknown_event),
    Damage("an event by nobody", What.UNREADABLE, lambda _, shell, job: shell.edit(job, 3, who="ghost")),
    Damage("format 0", What.UNREADABLE, lambda _, shell, job: shell.edit(job, 3, format=0)),
    Damage("a later format", What.CHAIN, lambda _, shell, job: shell.edit(job, 4, format=FORMAT + 1)),
    Damage("a later format early", What.CHAIN, lambda _, shell, job: shell.edit(job, 2, format=9)),
    Damage("an event of a later version", What.NEWER, _later_event, freezes=False),
    Damage("no events", What.NO_LOG, lambda _, shell, job: shell.remove(job)),
    Damage("no row", What.NO_ROW, lambda _, shell, job: shell.remove_row(job), freezes=False),
    Damage("no first event", What.GAP, lambda _, shell, job: shell.remove(job, "version = 1")),
    Damage("no second event", What.GAP, lambda _, shell, job: shell.remove(job, "version = 2")),
    Damage("a version that was raised", What.GAP, lambda _, shell, job: shell.edit(job, 4, version=7)),
    Damage("another time", What.CHAIN, lambda _, shell, job: shell.edit(job, 2, at=5)),
    Damage("another result", What.CHAIN, lambda _, shell, job: shell.edit(job, 4, data='{"result":{"done":false}}')),
    Damage("another speaker", What.CHAIN, lambda _, shell, job: shell.edit(job, 1, who="operator")),
    Damage("a request that was not made", What.CHAIN, lambda _, shell, job: shell.edit(job, 1, request_id="r")),
    Damage("another seal", What.CHAIN, lambda _, shell, job: shell.edit(job, 3, seal=bytes(8))),
    Damage("a seal that is too long", What.CHAIN, lambda _, shell, job: shell.edit(job, 3, seal=bytes(32))),
    Damage("no last event", What.HEAD, lambda _, shell, job: shell.remove(job, "version = 4")),
    Damage("no last two events", What.HEAD, lambda _, shell, job: shell.remove(job, "version >= 3")),
    Damage("another head", What.HEAD, lambda _, shell, job: shell.edit_row(job, head=bytes(32))),
    Damage("an end and a beginning", What.AFTER_END,
           lambda engine, _, job: forge(engine, job, e.Started(), Who.OWNER)),
    Damage("a note behind the end", What.AFTER_END,
           lambda engine, _, job: forge(engine, job, e.Custom(name="seen"), Who.CLIENT)),
    Damage("a wrong priority", What.ROW, lambda _, shell, job: shell.edit_row(job, priority=3)),
    Damage("a wrong end", What.ROW, lambda _, shell, job: shell.edit_row(job, ended_at=5)),
    Damage("a wrong correlation", What.ROW, lambda _, shell, job: shell.edit_row(job, correlation_id="other")),
    Damage("a wrong lease end", What.ROW, lambda _, shell, job: shell.edit_row(job, until=5)),
    Damage("renewals of nobody", What.ROW, lambda _, shell, job: shell.edit_row(job, renewals=-1)),
    Damage("a wrong version", What.ROW, lambda _, shell, job: shell.edit_row(job, version=3)),
    Damage("one key twice", What.KEY, _two_with_one_key, freezes=False),
    Damage("wrong counters", What.COUNTS, _miscount, freezes=False),
)  # fmt: skip

#: Each is done to a job that somebody works on: enqueued, claimed, started.
ON_RUNNING: Final = (
    Damage("two leases", What.TWO_LEASES,
           lambda engine, _, job: forge(engine, job, e.Claimed(token=TOKEN), Who.WORKER)),
    Damage("a second start", What.ILLEGAL, lambda engine, _, job: forge(engine, job, e.Started(), Who.OWNER)),
    Damage("an end by a client", What.ILLEGAL,
           lambda engine, _, job: forge(engine, job, e.Succeeded(), Who.CLIENT)),
    Damage("time that falls", What.ILLEGAL,
           lambda engine, _, job: forge(engine, job, e.Custom(name="seen"), Who.CLIENT, at=-1)),
    Damage("an owner that holds nothing", What.ROW, lambda _, shell, job: shell.edit_row(job, owner="other")),
    Damage("a token of nobody", What.ROW, lambda _, shell, job: shell.edit_row(job, token="other")),
    Damage("a lease without end", What.ROW, lambda _, shell, job: shell.edit_row(job, until=2**60)),
    Damage("a renewal that was not asked for", What.ROW, lambda _, shell, job: shell.edit_row(job, renewed_by="r")),
)  # fmt: skip


def damaged(damage: Damage, engine: Engine, shell: Shell) -> str:
    """Make a job, harm it, and give its id."""
    job_id = succeeded(engine) if damage in ON_ENDED else _running(engine)
    damage.harm(engine, shell, job_id)
    return job_id
