"""Is what the store says true? Each job's log is checked by itself, and its row against it.

A log whose records cannot be read, do not follow each other, break the chain or tell what the lifecycle forbids is
*corrupt*; a row that is not what a sound log comes to has *drifted*. Both freeze the job: nobody touches it. A drifted
row can be rebuilt; a corrupt log is never repaired.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec.structs import replace

from leftfold.core import events as e
from leftfold.core.errors import CorruptLogError, JobNotFoundError
from leftfold.core.frozen import Frozen
from leftfold.core.job import Job, evolve
from leftfold.core.lifecycle import ENDED
from leftfold.core.record import FORMAT, GENESIS, Record, link, seal
from leftfold.store.query import Arguments, Columns, Query, Steps, ids
from leftfold.store.rows import COLUMNS, Row, records_of, row_of, spread, unsealed


class What(StrEnum):
    """What can be wrong."""

    UNREADABLE = "unreadable"  # an event that is no event
    NEWER = "newer"  # an event of a later version: not wrong, only not ours to judge
    NO_LOG = "no_log"  # a row without events
    NO_ROW = "no_row"  # events without a row
    GAP = "gap"  # versions that do not follow each other
    CHAIN = "chain"  # a record that does not carry its seal
    HEAD = "head"  # a log that does not end where its row says
    ILLEGAL = "illegal"  # a move that the lifecycle does not have
    TWO_LEASES = "two_leases"  # a claim of what somebody holds
    AFTER_END = "after_end"  # an event behind the end
    ROW = "row"  # a row that is not what its log comes to
    KEY = "key"  # two live jobs with one key
    COUNTS = "counts"  # counters that are not what there is


#: What a rebuild can mend: the log is sound.
DRIFT: Final = frozenset({What.ROW, What.NO_ROW, What.COUNTS})
#: What freezes nobody: it is no job's fault, or not ours to judge.
HARMLESS: Final = frozenset({What.NEWER, What.COUNTS, What.KEY, What.NO_ROW})

#: How a job is called in a file where nothing but its events is left.
NUMBER: Final = "number "
_COUNT: Final = "queue {!r}, kind {!r}, {}: {} are counted, {} are there"


class Finding(Frozen):
    """Something that cannot be so: of which job, if it is of one, and what exactly."""

    what: What
    detail: str
    job_id: str | None = None

    @property
    def mendable(self) -> bool:
        """Tell whether `rebuild` mends it: not where the id of the job is lost with its row."""
        return self.what in DRIFT and not (self.job_id or "").startswith(NUMBER)


class Kept(NamedTuple):
    """A job as the store keeps it: its row, unless it has none, when it was frozen, and its events with their seals."""

    job_id: str
    row: Row | None
    frozen_at: int | None
    events: Sequence[Columns]  # entries, to be exact: some have two

    @property
    def size(self) -> int:
        """Give how many events there are."""
        return sum(len(spread(columns)) for columns in self.events)


class Examined(NamedTuple):
    """What a look at a job gave: what its log comes to if it is sound, and everything that is wrong."""

    kept: Kept
    job: Job | None
    records: tuple[Record, ...]
    head: bytes
    findings: tuple[Finding, ...]


def kept_of(rows: Iterable[Columns]) -> list[Kept]:
    """Group what the query `audit` gave: a row and one of its events on each line."""
    grouped: dict[str, list[Columns]] = {}
    for line in rows:
        grouped.setdefault(line[0], []).append(line)
    width = len(COLUMNS)
    return [
        Kept(job_id, _row(lines[0][:width]), lines[0][width], [line[width + 1 :] for line in lines if line[width + 1]])
        for job_id, lines in grouped.items()
    ]


def _row(columns: Columns) -> Row | None:
    if columns[COLUMNS.index("version")] is None:
        return None
    row = Row._make(columns)
    return row._replace(head=bytes(row.head))


def examine(kept: Kept) -> Examined:
    """Check one job."""
    job: Job | None = None
    records: list[Record] = []
    head = GENESIS
    findings: list[Finding] = []
    for columns in kept.events:
        place = len(records) + 1
        found = _next_records(kept.job_id, place, columns, head)
        if isinstance(found, Finding):
            findings.append(found)
            break
        head = link(head, *found)
        if seal(head) != bytes(columns[-1]):
            detail = f"event {place} is not the one that was sealed, or one before it is not"
            findings.append(Finding(what=What.CHAIN, detail=detail, job_id=kept.job_id))
            break
        records += found
        try:
            for record in found:
                job = evolve(job, record)
        except CorruptLogError as problem:
            findings.append(Finding(what=_kind_of(job, record), detail=str(problem), job_id=kept.job_id))
            break
    if not kept.events:
        findings.append(Finding(what=What.NO_LOG, detail="there is a row, and not one event", job_id=kept.job_id))
    if not findings and job is not None:
        findings += _compare(kept, job, records, head)
    return Examined(kept, None if findings and not _sound(findings) else job, tuple(records), head, tuple(findings))


def _sound(findings: Iterable[Finding]) -> bool:
    return all(finding.mendable for finding in findings)


def _next_records(job_id: str, place: int, columns: Columns, head: bytes) -> tuple[Record, ...] | Finding:
    version, _, stored = spread(columns)[0][:3]
    if version != place:
        return Finding(what=What.GAP, detail=f"event {place} is missing: {version} stands there", job_id=job_id)
    try:
        return records_of(job_id, columns)
    except CorruptLogError as problem:
        if stored <= FORMAT:
            return Finding(what=What.UNREADABLE, detail=f"event {place}: {problem}", job_id=job_id)
        if unsealed(head, job_id, columns):
            detail = f"event {place} says that a later version wrote it, and is not the one that was sealed"
            return Finding(what=What.CHAIN, detail=detail, job_id=job_id)
        return Finding(what=What.NEWER, detail=f"event {place}: {problem}", job_id=job_id)


def _kind_of(job: Job | None, record: Record) -> What:
    if job is not None and job.lease is not None and isinstance(record.event, e.Claimed):
        return What.TWO_LEASES
    return What.AFTER_END if job is not None and job.state in ENDED else What.ILLEGAL


def _compare(kept: Kept, job: Job, records: Sequence[Record], head: bytes) -> list[Finding]:
    row = kept.row
    if row is None:
        return [Finding(what=What.NO_ROW, detail=f"{len(records)} events, and no row", job_id=job.id)]
    if row.head != head:
        detail = f"the row says that event {row.version} is the last one: what came behind {job.version} is gone"
        if row.version <= job.version:
            detail = "the row's hash is not that of the last event"
        return [Finding(what=What.HEAD, detail=detail, job_id=job.id)]
    meant = row_of(_as_renewed(job, row), records, head)
    wrong = [name for name in COLUMNS if getattr(meant, name) != getattr(row, name)]
    if not wrong:
        return []
    told = ", ".join(f"{name} is {getattr(row, name)!r}, and should be {getattr(meant, name)!r}" for name in wrong)
    return [Finding(what=What.ROW, detail=told, job_id=job.id)]


def _as_renewed(job: Job, row: Row) -> Job:
    """Give a job with what only its row knows, if that can be so: renewals lengthen a lease, where there was one."""
    last = job.lease or job.last_lease
    if last is None or row.renewals <= 0:
        return job
    until = max(row.until or 0, last.until)
    under = {} if row.renewed_by is None else {row.renewed_by: row.renewed_hash or ""}
    renewed = replace(job, renewals=row.renewals, renewed_under=under)
    if job.lease is not None:
        return replace(renewed, lease=replace(job.lease, until=until))
    return replace(renewed, last_lease=job.last_lease and replace(job.last_lease, until=until))


def rebuilt(examined: Examined) -> Row:
    """Give the row that a sound log comes to, with what the old row knew of renewals."""
    if examined.job is None:
        raise CorruptLogError(f"the log of job {examined.kept.job_id} is not sound: {examined.findings[0].detail}")
    job, row = examined.job, examined.kept.row
    return row_of(job if row is None else _as_renewed(job, row), examined.records, examined.head)


# --- over the whole store ---------------------------------------------------------------------------------------------


class Selection(NamedTuple):
    """Which jobs are looked at. None asks for nothing."""

    ids: Sequence[str] | None = None
    since: int | None = None
    states: Sequence[str] | None = None
    queue: str | None = None
    kind: str | None = None
    tenant: str | None = None


class Pages:
    """How many jobs to read at a time: few at first, then more, as long as their logs are short."""

    def __init__(self) -> None:
        self.size = _PAGE_FIRST

    def learn(self, kept: Sequence[Kept]) -> None:
        """Choose the size of the next page by what was in this one."""
        length = sum(len(columns[_DATA]) for each in kept for columns in each.events)
        if length > _PAGE_BYTES:
            self.size = max(1, self.size // 4)
        elif length < _PAGE_BYTES // 8:
            self.size = min(_PAGE_MOST, 2 * self.size)


_PAGE_FIRST: Final = 64
_PAGE_MOST: Final = 512
_PAGE_BYTES: Final = 8 * 1024 * 1024
_KEYS_AT_ONCE: Final = 20_000  # SQLite may have been made to sort in memory, whatever it is asked
_DATA: Final = -2  # where an event's text stands among its columns


def page(selection: Selection, after: str | None, limit: int) -> Steps[list[Kept]]:
    """Give some jobs with their rows and logs, in the order of ids: each as it stood at one moment."""
    arguments: Arguments = {**selection._asdict(), "after": after, "limit": limit}
    return kept_of((yield Query("audit", arguments)))


def overall(orphans: int) -> Steps[list[Finding]]:
    """Check what is no single job's: counters, keys, events without a row."""
    findings = [
        Finding(what=What.COUNTS, detail=_COUNT.format(queue, kind, state, counted, there))
        for queue, kind, state, counted, there in (yield Query("audit_counts"))
    ]
    ((keyed,),) = yield Query("audit_keyed")
    parts = 1 + keyed // _KEYS_AT_ONCE
    for part in range(parts):
        findings += [
            Finding(what=What.KEY, detail=f"{jobs} live jobs have the key {key!r} of {kind!r}, tenant {tenant!r}")
            for tenant, kind, key, jobs in (yield Query("audit_keys", {"parts": parts, "part": part}))
        ]
    findings += [
        Finding(what=What.NO_ROW, detail=f"{events} events, and no row", job_id=job_id)
        for job_id, events in (yield Query("audit_orphans", {"limit": orphans}))
    ]
    return findings


def freeze(job_ids: Sequence[str], actor: str) -> Steps[list[str]]:
    """Look again at jobs, with their rows locked, and freeze those that still cannot be as they say."""
    yield ids("lock", sorted(job_ids))
    kept = kept_of((yield Query("audit", {**_of(job_ids), "after": None, "limit": len(job_ids)})))
    wrong = {
        each.job_id: found[0].detail
        for each in kept
        if each.frozen_at is None and (found := [f for f in examine(each).findings if f.what not in HARMLESS])
    }
    if wrong:
        told = "; ".join(f"{job_id}: {detail}" for job_id, detail in wrong.items())
        yield Query("begin_maintenance", {"actor": actor, "reason": f"froze {told}"[:_REASON_MAX]})
        yield ids("freeze", sorted(wrong))
        yield Query("end_maintenance")
    return sorted(wrong)


def rebuild(job_ids: Sequence[str], actor: str, reason: str) -> Steps[list[Finding]]:
    """Bring rows to what their logs say, unfreeze them, and give what was wrong. Refused where a log is not sound."""
    yield ids("lock", sorted(job_ids))
    kept = kept_of((yield Query("audit", {**_of(job_ids), "after": None, "limit": len(job_ids)})))
    for job_id in {*job_ids} - {each.job_id for each in kept}:
        raise JobNotFoundError(f"there is no job {job_id}")
    examined = [examine(each) for each in kept]
    drifted = [each for each in examined if each.findings or each.kept.frozen_at is not None]
    rows = [rebuilt(each) for each in drifted]
    homeless = yield from _without_their_key(rows)
    rows = [row for row in rows if row.id not in homeless]
    if rows:
        yield Query("begin_maintenance", {"actor": actor, "reason": f"rebuild: {reason}"[:_REASON_MAX]})
        yield Query("restore", columns=COLUMNS, rows=rows)
        yield Query("end_maintenance")
    mended = [finding for each in drifted for finding in each.findings if each.kept.job_id not in homeless]
    return mended + [
        Finding(what=What.KEY, detail=f"its key is held by job {holder} by now: it stays as it is", job_id=job_id)
        for job_id, holder in homeless.items()
    ]


def _without_their_key(rows: Sequence[Row]) -> Steps[dict[str, str]]:
    """Give the jobs that would come back to a key that another one holds by now, and who holds it."""
    live = {(row.tenant, row.kind, row.key): row.id for row in rows if row.key is not None and row.ended_at is None}
    if not live:
        return {}
    holders = yield Query("holders", columns=("tenant", "kind", "key"), rows=list(live))
    held = {live[tenant, kind, key]: holder for holder, tenant, kind, key, *_ in holders}
    return {job_id: holder for job_id, holder in held.items() if holder != job_id}


def rebuild_lost(most: int, actor: str, reason: str) -> Steps[list[Finding]]:
    """Make the rows anew that were lost while their logs were not."""
    rows = yield Query("audit_orphans", {"limit": most})
    lost = [job_id for job_id, _ in rows if not job_id.startswith(NUMBER)]
    return (yield from rebuild(lost, actor, reason)) if lost else []


def recount(actor: str, reason: str) -> Steps[list[Finding]]:
    """Bring the counters to what there is, and give how they differed."""
    wrong = [finding for finding in (yield from overall(0)) if finding.what is What.COUNTS]
    if wrong:
        yield Query("begin_maintenance", {"actor": actor, "reason": f"recount: {reason}"[:_REASON_MAX]})
        yield Query("recount")
        yield Query("end_maintenance")
    return wrong


_REASON_MAX: Final = 4000


def _of(job_ids: Sequence[str]) -> Arguments:
    return {**Selection(ids=sorted(job_ids))._asdict()}
