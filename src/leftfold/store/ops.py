"""Commands on jobs that are there: load, decide, append, for any number of jobs in one transaction.

What an owner says most often (start, complete, renew, note) has a statement of its own that needs no load. It does
what `decide` would do, or nothing; what it leaves undone is decided here, and done or refused with the reason.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import Forbidden, apply
from leftfold.core.errors import (
    CorruptLogError,
    JobFrozenError,
    JobNotFoundError,
    KeyTakenError,
    LeaseConflictError,
    LeftfoldError,
    StoreError,
)
from leftfold.core.job import Job
from leftfold.core.lifecycle import ENDED, LEASED, SHAPE, TABLE, Edge, State, Who
from leftfold.core.limits import EVENTS_PER_JOB_MAX
from leftfold.core.payload import NULL
from leftfold.core.record import Record, encode, link, said, seal
from leftfold.store.query import Query, Steps, Value, ids
from leftfold.store.replies import Claim, Receipt
from leftfold.store.rows import COLUMNS, USUALLY, Log, read_logs, row_of

#: What became of one of many: where the job stands, or why nothing was written.
Outcome = Receipt | LeftfoldError


class Ask(NamedTuple):
    """A command, and the job that it is about."""

    job_id: str
    command: c.AnyCommand


def carry_out(asks: Sequence[Ask], forbidden: Forbidden) -> Steps[list[Outcome]]:
    """Decide each of the commands on the job's own log, and write what they come to. A refusal is its own only."""
    locked = yield ids("lock", sorted({ask.job_id for ask in asks}))
    before = read_logs((yield ids("load", [job_id for job_id, _ in locked]))) if locked else {}
    after: dict[str, Log | CorruptLogError] = dict(before)
    now = locked[-1][1] if locked else 0  # they come as they are locked: when the last one was, all were
    outcomes: list[Outcome] = []
    for ask in asks:
        outcome = _carry_out_one(after, ask, now, forbidden)
        outcomes.append(outcome)
    changed = [log for job_id, log in after.items() if isinstance(log, Log) and log is not before[job_id]]
    for job_id in (yield from _without_key(before, changed)):
        changed = [log for log in changed if log.job.id != job_id]
        refusal = KeyTakenError(f"job {job_id} cannot have its key: another live job holds it")
        outcomes = [refusal if ask.job_id == job_id else each for ask, each in zip(asks, outcomes, strict=True)]
    yield from _write([(_log_of(before[log.job.id]), log) for log in changed])
    return outcomes


def _carry_out_one(logs: dict[str, Log | CorruptLogError], ask: Ask, now: int, forbidden: Forbidden) -> Outcome:
    match logs.get(ask.job_id):
        case None:
            return JobNotFoundError(f"there is no job {ask.job_id}")
        case CorruptLogError() as corrupt:
            return corrupt
        case Log(frozen_at=int()):
            return JobFrozenError(f"job {ask.job_id} is frozen: `leftfold verify --job {ask.job_id}` says why")
        case Log() as log:
            try:
                job, records = apply(log.job, ask.command, now, forbidden)
            except LeftfoldError as refusal:
                return refusal
            changed = job is not log.job
            if changed:
                logs[ask.job_id] = Log(job, log.records + records, head_of(log.head, records))
            return receipt_of(job, changed=changed)


def _log_of(log: Log | CorruptLogError) -> Log:
    if isinstance(log, CorruptLogError):
        raise log
    return log


def _without_key(before: dict[str, Log | CorruptLogError], changed: Iterable[Log]) -> Steps[set[str]]:
    """Give the jobs that would come to a key, or back to it, that another one holds."""
    back = {
        (log.job.spec.tenant, log.job.spec.kind, log.job.spec.key): log.job.id
        for log in changed
        if log.job.spec.key and log.job.state not in ENDED and _holds_no_key(_log_of(before[log.job.id]).job, log.job)
    }
    if not back:
        return set()
    taken = yield Query("holders", columns=("tenant", "kind", "key"), rows=list(back))
    return {back[tenant, kind, key] for _, tenant, kind, key, *_ in taken}


def _holds_no_key(before: Job, after: Job) -> bool:
    def named(job: Job) -> tuple[str, str, str | None]:
        return job.spec.tenant, job.spec.kind, job.spec.key

    return before.state in ENDED or named(before) != named(after)


def _write(changed: Sequence[tuple[Log, Log]]) -> Steps[None]:
    """Append what is new to each log, and let the rows follow."""
    events: list[Sequence[Value]] = []
    for before, after in changed:
        events += event_rows(after.records[len(before.records) :], before.head)
    if events:
        yield Query("append", columns=EVENT_COLUMNS, rows=events)
    if changed:
        rows = [(before.job.version, *row_of(after.job, after.records, after.head)) for before, after in changed]
        moved = yield Query("project", columns=("before", *COLUMNS), rows=rows)
        if len(moved) != len(changed):
            raise StoreError("a locked row changed under our hands: somebody writes past the engine")


EVENT_COLUMNS: Final = (
    "job_id", "version", "at", "format", "event", "who", "actor", "request_id", "request_hash", "data", "seal",
)  # fmt: skip


def event_rows(records: Iterable[Record], head: bytes) -> Iterable[Sequence[Value]]:
    """Give records as rows of the events table, chained to `head`."""
    for record in records:
        head = link(head, record)
        yield (
            record.job_id, record.version, record.at, record.format, record.event.wire,
            None if record.who is USUALLY.get(record.event.wire) else record.who.value,
            record.actor, record.request_id, record.request_hash, record.data, seal(head),
        )  # fmt: skip


def head_of(head: bytes, records: Iterable[Record]) -> bytes:
    """Give the hash of the last of the records, chained to `head`."""
    for record in records:
        head = link(head, record)
    return head


def receipt_of(job: Job, *, changed: bool) -> Receipt:
    """Say where a job stands."""
    return Receipt(
        job_id=job.id,
        state=job.state,
        version=job.version,
        rev=job.rev,
        attempt=job.attempt,
        until=job.lease.until if job.lease else None,
        cancel_requested=job.cancel_requested_at is not None,
        changed=changed,
    )


# --- what owners say most often ---------------------------------------------------------------------------------------

_MOVES: Final = {c.Start: e.Started, c.Complete: e.Succeeded}
_QUICK: Final = frozenset({c.Start, c.Complete, c.Heartbeat, c.Note})


def is_quick(ask: Ask) -> bool:
    """Tell whether a statement of its own may answer the command; with a request_id the log must be asked first."""
    command = ask.command
    return type(command) in _QUICK and command.request_id is None and command.by.who is Who.OWNER


def look(claims: Sequence[Claim]) -> Steps[list[Outcome]]:
    """Say where jobs stand that their owners hold, or that they do not."""
    fences = [(claim.job_id, claim.attempt, c.digest(claim.token)) for claim in claims]
    rows = (yield Query("look", columns=("id", "attempt", "token"), rows=fences)) if fences else []
    found = {(receipt.job_id, receipt.attempt, token): receipt for *row, token in rows for receipt in [_receipt(row)]}
    return [found.get(fence) or _not_held(claim) for fence, claim in zip(fences, claims, strict=True)]


def _not_held(claim: Claim) -> LeaseConflictError:
    return LeaseConflictError(f"{claim.owner} does not hold job {claim.job_id} any more; stop working on it")


def quickly(asks: Sequence[Ask], forbidden: Forbidden, *, quietly: bool = False) -> Steps[dict[int, Receipt | None]]:
    """Answer what needs no look at the log, by its place among the asks. All are of one command.

    `quietly` is for who only wants to know that it was written: there are no receipts then.
    """
    times = Counter(ask.job_id for ask in asks)
    # In the order of ids, so that two batches never wait for each other in a circle.
    places = sorted((ask.job_id, place) for place, ask in enumerate(asks) if times[ask.job_id] == 1 and is_quick(ask))
    if not places:
        return {}
    query = _quick_query([asks[place] for _, place in places], forbidden)
    if quietly and query.name == "own":
        ((moved, which),) = yield query._replace(
            name="own_quietly", arguments={**query.arguments, "asked": len(places)}
        )
        if moved == len(places):
            return dict.fromkeys(place for _, place in places)
        found = frozenset(msgspec.json.decode(which or "[]"))
        return dict.fromkeys(place for job_id, place in places if job_id in found)
    done = {row[0]: row for row in (yield query)}
    return {place: _receipt(done[job_id]) for job_id, place in places if job_id in done}


def _quick_query(asks: Sequence[Ask], forbidden: Forbidden) -> Query:
    first = asks[0].command
    if isinstance(first, c.Heartbeat):
        fences = [_fence(ask) for ask in asks]
        return Query("renew", {"lease": first.lease}, ("id", "attempt", "token"), fences)
    rule = next((rule for rule in TABLE if rule.event is _MOVES.get(type(first))), None)
    sources = rule.sources if rule else tuple(LEASED)
    target = rule.target if rule else State.RUNNING  # any leased state: a note changes nothing
    allowed = [state for state in sources if state and not (rule and Edge(state, rule.event, target) in forbidden)]
    arguments = {
        "sources": [state.value for state in allowed],
        "target": target.value if rule else None,
        "leased": SHAPE[target].lease,
        "has_result": SHAPE[target].result,
        "ended": target in ENDED,
        "events_max": EVENTS_PER_JOB_MAX,
        "who": None if rule else Who.OWNER.value,
    }
    return Query("own", arguments, _OWN_COLUMNS, _own_rows(asks))


_OWN_COLUMNS: Final = ("id", "attempt", "token", "actor", "event", "data", "said")


def _own_rows(asks: Sequence[Ask]) -> list[Sequence[Value]]:
    """Give what owners say. Most often one owner says the same of each of its jobs: that is looked up once."""
    rows: list[Sequence[Value]] = []
    owner, event, fence, words = None, "", (0, ""), ""
    for job_id, command in asks:
        by, (wire, data) = command.by, _told(command)
        if by is not owner or wire != event:
            owner, event, fence, words = by, wire, (by.attempt, c.digest(by.token)), said(wire, _OWNER, by.name)
        rows.append((job_id, *fence, by.name, wire, data, words))
    return rows


def _fence(ask: Ask) -> tuple[str, int, str]:
    by = ask.command.by
    return ask.job_id, by.attempt, c.digest(by.token)


_OWNER: Final = Who.OWNER.value  # nobody else is quick
#: What is said most often, as it is written.
_STARTED: Final = (e.Started.wire, encode(e.Started()))
_SUCCEEDED: Final = (e.Succeeded.wire, encode(e.Succeeded()))


def _told(command: c.AnyCommand) -> tuple[str, str]:
    """Give the event that a command comes to: its name, and the text that is stored."""
    if isinstance(command, c.Complete) and command.result is NULL:
        return _SUCCEEDED
    match command:
        case c.Complete(result=result):
            return e.Succeeded.wire, encode(e.Succeeded(result=result))
        case c.Start():
            return _STARTED
        case c.Note(note=note):
            return note.wire, encode(note)
        case _:
            raise TypeError(f"{command.wire} has no statement of its own")


_STATES: Final = {state.value: state for state in State}  # faster than to ask the enum


def _receipt(row: Sequence[Any]) -> Receipt:
    job_id, name, version, renewals, attempt, until, cancel_requested_at = row
    state = _STATES[name]
    return Receipt(
        job_id=job_id,
        state=state,
        version=version,
        rev=version + renewals,
        attempt=attempt,
        until=until if state in LEASED else None,
        cancel_requested=cancel_requested_at is not None,
    )


# --- waits for other jobs ---------------------------------------------------------------------------------------------


def check_there(job_ids: Sequence[str]) -> Steps[None]:
    """Refuse to wait for jobs that are not there: nothing would ever end the wait."""
    there = {row[0] for row in (yield ids("states", list(dict.fromkeys(job_ids))))} if job_ids else set()
    missing = [job_id for job_id in job_ids if job_id not in there]
    if missing:
        raise JobNotFoundError(f"there is no job {missing[0]} to wait for")


def suspend(asks: Sequence[Ask], forbidden: Forbidden) -> Steps[list[Outcome]]:
    """Carry out suspensions, of which none may wait for a job that is not there."""
    yield from check_there([job for ask in asks if isinstance(ask.command, c.Suspend) for job in ask.command.wait.jobs])
    return (yield from carry_out(asks, forbidden))


def resume(job_id: str, by: c.Actor, request_id: str | None, forbidden: Forbidden) -> Steps[list[Outcome]]:
    """End a wait for jobs with what became of them."""
    yield ids("lock", [job_id])
    log = read_logs((yield ids("load", [job_id]))).get(job_id)
    waits = log.job.wait.jobs if isinstance(log, Log) and log.job.wait else ()
    states = (yield ids("states", waits)) if waits else []
    outcomes = {job: state for job, state in states if State(state) in ENDED}
    if isinstance(log, Log) and request_id in log.job.requests:
        # Asked again: what the others came to then is what was asked.
        asked = next(record.event for record in log.records if record.request_id == request_id)
        outcomes = dict(asked.outcomes) if isinstance(asked, e.Resumed) else outcomes
    command = c.Resume(by=by, outcomes=outcomes, request_id=request_id)
    return (yield from carry_out([Ask(job_id, command)], forbidden))
