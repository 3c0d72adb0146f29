"""Reading: one job, its log, many jobs, how many. Nothing here writes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Raw

from leftfold.core import events as e
from leftfold.core.errors import CorruptLogError, JobNotFoundError, ValidationError
from leftfold.core.job import Job
from leftfold.core.lifecycle import SHAPE, State
from leftfold.core.record import Record, decode
from leftfold.store.query import Query, Steps, ids
from leftfold.store.replies import Count, Incident, Page, Queue, Summary, WorkerView
from leftfold.store.rows import FROZEN_AT, SUMMARY, Log, read_logs, state_of

_ORDER: Final = {state: place for place, state in enumerate(State)}


class Filter(NamedTuple):
    """Which jobs a list shows. None asks for nothing."""

    states: Sequence[State] | None = None
    queue: str | None = None
    kind: str | None = None
    tenant: str | None = None
    key: str | None = None
    correlation_id: str | None = None
    owner: str | None = None
    incident: str | None = None
    resolved: bool | None = None
    ids: list[str] | None = None


class LetterFilter(NamedTuple):
    """Which dead letters the incidents speak of. None asks for nothing."""

    beginning: str | None = None
    queue: str | None = None
    kind: str | None = None
    tenant: str | None = None


def get(job_id: str) -> Steps[Job]:
    """Give a job: the fold of its log."""
    return (yield from _read(job_id)).job


def history(job_id: str) -> Steps[list[Record]]:
    """Give a job's log, its chain checked."""
    return list((yield from _read(job_id)).records)


def histories(job_ids: Sequence[str]) -> Steps[dict[str, list[Record]]]:
    """Give the logs of many jobs, their chains checked, in one look."""
    logs = read_logs((yield ids("load", sorted(set(job_ids))))) if job_ids else {}
    return {job_id: list(_sound(job_id, logs.get(job_id)).records) for job_id in job_ids}


def is_frozen(job_id: str) -> Steps[bool]:
    """Tell whether a job is frozen, be its log sound or not."""
    rows = yield ids("load", [job_id])
    if not rows:
        raise JobNotFoundError(f"there is no job {job_id}")
    return rows[0][FROZEN_AT] is not None


def _read(job_id: str) -> Steps[Log]:
    return _sound(job_id, read_logs((yield ids("load", [job_id]))).get(job_id))


def _sound(job_id: str, log: Log | CorruptLogError | None) -> Log:
    if log is None:
        raise JobNotFoundError(f"there is no job {job_id}")
    if isinstance(log, CorruptLogError):
        raise log
    return log


def page(asked: Filter, limit: int, after: str | None) -> Steps[Page]:
    """Give some jobs, newest first, and where to go on."""
    states = None if asked.states is None else [state.value for state in asked.states]
    arguments = {**asked._asdict(), **_shape_of(asked), "states": states, "before": after, "limit": limit + 1}
    rows = yield Query("list", arguments)
    jobs = tuple(_summary(row) for row in rows[:limit])
    return Page(jobs=jobs, next=jobs[-1].id if len(rows) > limit else None)


def _shape_of(asked: Filter) -> Mapping[str, bool | None]:
    """Say what all the jobs that are asked for have, by the table of the states: there are indexes of such jobs."""
    shapes = [SHAPE[state] for state in asked.states or ()]
    return {
        "leased": asked.owner is not None or _all(shape.lease for shape in shapes) or None,
        "waits": _all(shape.wait for shape in shapes) or None,
        "erred": (asked.incident is None and _all(shape.error for shape in shapes)) or None,  # which has its own
    }


def _all(has: Iterable[bool]) -> bool:
    there = list(has)
    return bool(there) and all(there)


def _summary(row: Sequence[object]) -> Summary:
    named = dict(zip(("id", *SUMMARY), row, strict=True))
    renewals, cancel_requested_at = named.pop("renewals"), named.pop("cancel_requested_at")
    frozen_at = named.pop("frozen_at")
    return Summary(
        **{**named, "state": state_of(str(named["id"]), str(named["state"]))},  # type: ignore[arg-type]  # a row has the columns of its query
        rev=int(str(named["version"])) + int(str(renewals)),
        cancel_requested=cancel_requested_at is not None,
        frozen=frozen_at is not None,
    )


def incidents(
    asked: LetterFilter, limit: int, after: Incident | None = None, *, is_open: bool | None = None
) -> Steps[list[Incident]]:
    """Give the dead letters by what went wrong, the last one seen first: those behind `after`."""
    behind, behind_at = (None, None) if after is None else (after.id, after.last_at)
    arguments = {**asked._asdict(), "is_open": is_open, "after": behind, "after_at": behind_at, "limit": limit}
    rows = yield Query("incidents", arguments)
    return [_incident(row) for row in rows]


def incident(beginning: str) -> Steps[Incident]:
    """Give the one incident whose name begins so."""
    found = yield from incidents(LetterFilter(beginning=beginning), 2)
    if not found:
        raise JobNotFoundError(f"there is no incident {beginning}: no dead letter is of it any more")
    if len(found) > 1:
        raise ValidationError(f"more than one incident begins with {beginning}: give more of it")
    return found[0]


def _incident(row: Sequence[Any]) -> Incident:
    *told, event, stored, data = row
    letter = None if event is None else decode(event, data, stored)
    if not isinstance(letter, e.DeadLettered):
        raise CorruptLogError(
            f"the row of job {told[-1]} says that it is a dead letter, and its log does not: run `leftfold verify`"
        )
    names = ("id", "kind", "open", "resolved", "first_at", "last_at", "oldest", "newest")
    return Incident(
        **dict(zip(names, told, strict=True)), reason_code=letter.reason_code, stage=letter.stage, error=letter.error
    )


def find(beginning: str) -> Steps[str]:
    """Give the one job whose id begins so."""
    low = str(beginning).lower()
    pattern = "00000000-0000-0000-0000-000000000000"
    low_id, high_id = low + pattern[len(low) :], low + pattern.replace("0", "f")[len(low) :]
    if not re.fullmatch(r"[0-9a-f-]{1,36}", low) or any(
        a != b for a, b in zip(low_id, pattern, strict=True) if "-" in (a, b)
    ):
        raise ValidationError(f"{beginning!r} is not the beginning of a job id")
    rows = yield Query("find", {"low": low_id, "high": high_id})
    if not rows:
        raise JobNotFoundError(f"there is no job {beginning}")
    if len(rows) > 1:
        raise ValidationError(f"more than one job id begins with {beginning}: give more of it")
    return str(rows[0][0])


def clock() -> Steps[int]:
    """Give the store's time."""
    ((now,),) = yield Query("clock")
    return int(now)


def next_due(queues: list[str] | None, lately: int) -> Steps[int | None]:
    """Give how long until another job of these queues becomes due, if any is known to; or since when, if lately."""
    ((wait,),) = yield Query("next_due", {"queues": queues, "lately": lately})
    return None if wait is None else int(wait)


def workers() -> Steps[list[WorkerView]]:
    """Give the workers that live, or died without a word."""
    rows = yield Query("workers")
    return [
        WorkerView(name=name, started_at=started_at, beat_at=beat_at, age=now - beat_at, told=Raw(told.encode()))
        for name, started_at, beat_at, told, now in rows
    ]


def counts() -> Steps[list[Count]]:
    """Give how many jobs are where, without a look at the jobs."""
    rows = yield Query("counts")
    found = [Count(queue=queue, kind=kind, state=State(state), jobs=jobs) for queue, kind, state, jobs in rows]
    return sorted(found, key=lambda count: (count.queue, count.kind, _ORDER[count.state]))


def queues() -> Steps[list[Queue]]:
    """Give the queues that were ever used or paused."""
    rows = yield Query("queues")
    found = [Queue(name=name, paused_at=at, paused_by=by, reason=reason) for name, at, by, reason in rows]
    return sorted(found, key=lambda queue: queue.name)
