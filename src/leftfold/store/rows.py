"""What a job's row says: a function of its log, and of the few things that renewals change beside it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from leftfold.core import events as e
from leftfold.core.errors import BrokenChainError, CorruptLogError
from leftfold.core.job import Job, fold
from leftfold.core.lifecycle import State, Who
from leftfold.core.record import GENESIS, Record, check_chain, covered, decode, encode, hashed, said, seal
from leftfold.core.retry import DEFAULT_POLICY


class Row(NamedTuple):
    """The row of a job. Where a field is a version, the log has the rest."""

    id: str
    created_at: int
    updated_at: int
    ended_at: int | None
    due: int | None
    until: int | None
    lease: int | None
    deadline: int | None
    cancel_requested_at: int | None
    version: int
    renewals: int
    attempt: int
    failures: int
    enqueued: int | None
    wait: int | None
    result: int | None
    error: int | None
    state: str
    priority: int
    head: bytes
    tenant: str
    kind: str
    queue: str
    key: str | None
    correlation_id: str | None
    owner: str | None
    token: str | None
    renewed_by: str | None
    renewed_hash: str | None
    incident: str | None
    resolved_at: int | None


COLUMNS: Final = Row._fields

#: The columns that `list` shows beside the id.
SUMMARY: Final = (
    "kind", "queue", "tenant", "key", "priority", "correlation_id", "state", "version", "renewals", "attempt",
    "failures", "created_at", "updated_at", "ended_at", "due", "owner", "until", "deadline", "cancel_requested_at",
    "incident", "resolved_at", "frozen_at",
)  # fmt: skip


#: Who says an event if its row does not tell: most rows need not.
USUALLY: Final[Mapping[str, Who]] = {
    e.Enqueued.wire: Who.CLIENT,
    e.Claimed.wire: Who.WORKER,
    e.Started.wire: Who.OWNER,
    e.Succeeded.wire: Who.OWNER,
}


#: Where in a row of the query `load` it stands when the job was frozen; its events follow.
FROZEN_AT: Final = 6


#: The event of an entry of two records: a claim, and the start that was said in the same breath.
TOGETHER: Final = f"{e.Claimed.wire}+{e.Started.wire}"
_STARTED: Final = encode(e.Started())


class Log(NamedTuple):
    """A job as it was read: its records, the hash of the last one, and what they come to."""

    job: Job
    records: tuple[Record, ...]
    head: bytes
    frozen_at: int | None = None


def read_logs(rows: Iterable[Sequence[Any]]) -> dict[str, Log | CorruptLogError]:
    """Make logs of what the query `load` gave. A log that cannot be true is given as the error that says so."""
    grouped: dict[str, list[Sequence[Any]]] = {}
    for row in rows:
        grouped.setdefault(row[0], []).append(row)
    return {job_id: _read_log(job_rows) for job_id, job_rows in grouped.items()}


def _read_log(rows: Sequence[Sequence[Any]]) -> Log | CorruptLogError:
    job_id, head, renewals, until, renewed_by, renewed_hash, frozen_at = rows[0][: FROZEN_AT + 1]
    try:
        entries = [(records_of(job_id, row[7:]), bytes(row[-1])) for row in rows if row[7] is not None]
        records = tuple(record for entry, _ in entries for record in entry)
        job = _of_log(job_id, records)
        _check_head(job_id, check_chain(entries, GENESIS), head)
    except CorruptLogError as corrupt:
        return corrupt
    under = {} if renewed_by is None else {renewed_by: renewed_hash}
    lease = job.lease and replace(job.lease, until=until)
    last = job.last_lease and replace(job.last_lease, until=job.last_lease.until if job.lease else until)
    job = replace(job, renewals=renewals, renewed_under=under, lease=lease, last_lease=last)
    return Log(job, records, bytes(head), frozen_at)


def _of_log(job_id: str, records: Sequence[Record]) -> Job:
    job = fold(records)
    if job is None:
        raise CorruptLogError(f"job {job_id} has no log")
    return job


def _check_head(job_id: str, found: bytes, head: bytes) -> None:
    if found != bytes(head):
        raise BrokenChainError(f"the log of job {job_id} does not end where its row says: records are missing")


def spread(columns: Sequence[Any]) -> tuple[Sequence[Any], ...]:
    """Give the columns of each event of an entry: most have one. The version of an entry is that of its last event."""
    if columns[3] != TOGETHER:
        return (columns,)
    version, at, stored, _, who, actor, *told = columns[:9]
    return (
        (version - 1, at, stored, e.Claimed.wire, who, actor, *told),
        (version, at, stored, e.Started.wire, None, actor, None, None, _STARTED),
    )


def records_of(job_id: str, columns: Sequence[Any]) -> tuple[Record, ...]:
    """Make records of an entry."""
    return tuple(record_of(job_id, each) for each in spread(columns))


def record_of(job_id: str, columns: Sequence[Any]) -> Record:
    """Make a record of an event's columns."""
    version, at, stored, event, who, actor, request_id, request_hash, data = columns[:9]
    return Record(
        job_id=job_id,
        version=version,
        at=at,
        who=_who(event, who),
        actor=actor,
        event=decode(event, data, stored),
        data=data,
        request_id=request_id,
        request_hash=request_hash,
        format=stored,
    )


def unsealed(head: bytes, job_id: str, columns: Sequence[Any]) -> bool:
    """Tell whether an event that nobody here can read does not carry the seal of its columns.

    A later version may have events of its own: if one does not tell who said it, nobody can tell here.
    """
    version, at, stored, *_, data, stored_seal = columns
    words = ""
    for _, _, _, event, who, actor, request_id, request_hash, *_ in spread(columns):
        usual = USUALLY.get(event)
        if who is None and usual is None:
            return False
        words += said(event, who or str(usual), actor, request_id, request_hash, stored=stored)
    return seal(hashed(head + covered(job_id, version, at, words, data))) != bytes(stored_seal)


def state_of(job_id: str, name: str) -> State:
    """Read the state of a row."""
    try:
        return State(name)
    except ValueError as problem:
        raise CorruptLogError(
            f"the row of job {job_id} says {name!r}, which is no state: `leftfold rebuild {job_id}` mends it"
        ) from problem


def _who(event: str, name: str | None) -> Who:
    try:
        return USUALLY[event] if name is None else Who(name)
    except (KeyError, ValueError) as problem:
        raise CorruptLogError(f"nobody who says {event!r} is called {name!r}") from problem


def row_of(job: Job, records: Sequence[Record], head: bytes) -> Row:
    """Give the row of a job with this whole log."""
    last = job.lease or job.last_lease
    renewed_by, renewed_hash = next(iter(job.renewed_under.items()), (None, None))
    return Row(
        id=job.id,
        created_at=job.created_at,
        updated_at=job.updated_at,
        ended_at=job.ended_at,
        due=job.due,
        until=last.until if last else None,
        lease=None if job.policy.lease == DEFAULT_POLICY.lease else job.policy.lease,
        deadline=job.wait.deadline if job.wait else None,
        cancel_requested_at=job.cancel_requested_at,
        version=job.version,
        renewals=job.renewals,
        attempt=job.attempt,
        failures=job.failures,
        enqueued=_last(records, e.Enqueued),
        wait=_last(records, e.Suspended | e.Parked) if job.wait else None,
        result=_last(records, e.Succeeded) if job.result is not None else None,
        error=_last(records, e.Retried | e.Failed | e.DeadLettered) if job.error else None,
        state=job.state.value,
        priority=job.spec.priority,
        head=head,
        tenant=job.spec.tenant,
        kind=job.spec.kind,
        queue=job.spec.queue,
        key=job.spec.key,
        correlation_id=job.spec.correlation_id,
        owner=job.lease.owner if job.lease else None,
        token=job.lease.token if job.lease else None,
        renewed_by=renewed_by,
        renewed_hash=renewed_hash,
        incident=job.incident,
        resolved_at=job.resolved_at,
    )


def _last(records: Sequence[Record], kind: Any) -> int | None:
    return next((record.version for record in reversed(records) if isinstance(record.event, kind)), None)
