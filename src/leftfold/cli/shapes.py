"""What `--json` gives: every key is always there, times are microseconds since 1970, payloads are the JSON they are."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw, Struct

from leftfold.core.job import Job
from leftfold.core.lifecycle import State
from leftfold.core.record import Record
from leftfold.dialects.dialect import Dialect, Step
from leftfold.dialects.run import runs
from leftfold.store.replies import Count, Queue

Shape = dict[str, Any]


def spelled_out(value: Any) -> Any:
    """Give a value with all of its fields; msgspec alone would leave out those that have their default."""
    match value:
        case Struct():
            return {field: spelled_out(getattr(value, field)) for field in value.__struct_fields__}
        case Mapping():
            return {key: spelled_out(item) for key, item in value.items()}
        case tuple() | list():
            return [spelled_out(item) for item in value]
        case _:
            return value


def job_shape(job: Job, *, frozen: bool) -> dict[str, Any]:
    """Give a job: first everything that a list shows of it, then the rest."""
    spec, lease = job.spec, job.lease or job.last_lease
    return {
        "id": job.id,
        "kind": spec.kind,
        "queue": spec.queue,
        "tenant": spec.tenant,
        "key": spec.key,
        "priority": spec.priority,
        "correlation_id": spec.correlation_id,
        "state": job.state,
        "version": job.version,
        "rev": job.rev,
        "attempt": job.attempt,
        "failures": job.failures,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "ended_at": job.ended_at,
        "due": job.due,
        "owner": job.lease.owner if job.lease else None,
        "until": lease.until if lease else None,
        "deadline": job.wait.deadline if job.wait else None,
        "cancel_requested": job.cancel_requested_at is not None,
        "incident": job.incident,
        "resolved_at": job.resolved_at,
        "frozen": frozen,
        "cause": spec.cause,
        "payload": spec.payload,
        "result": job.result,
        "error": spelled_out(job.error),
        "last_error": spelled_out(job.last_error),
        "wait": spelled_out(job.wait),
        "answers": spelled_out(job.answers),
        "policy": spelled_out(job.policy),
    }


def job_in_dialect(job: Job, records: Sequence[Record], dialect: Dialect) -> dict[str, Any]:
    """Give what a job is called in a dialect; its runs where the dialect has such."""
    shape: dict[str, Any] = {
        "name": dialect.name,
        "state": dialect.names[job.state],
        "stand_in": job.state in dialect.stand_ins,
    }
    if dialect.has_runs:
        shape["runs"] = [{"attempt": run.attempt, "status": run.status} for run in runs(records)]
    return shape


def record_shape(record: Record) -> dict[str, Any]:
    """Give a line of a log."""
    return {
        "job_id": record.job_id,
        "version": record.version,
        "at": record.at,
        "event": record.event.wire,
        "who": record.who,
        "actor": record.actor,
        "request_id": record.request_id,
        "format": record.format,
        "data": Raw(record.data.encode()),
    }


def step_shape(dialect: Dialect, step: Step | None) -> dict[str, Any] | None:
    """Give a line of a log in a dialect's words; None of a note, which no dialect speaks of."""
    if step is None:
        return None
    source, event, target = step.move
    return {"name": dialect.name, "event": event, "from": source, "to": target, "ours": step.ours}


def queue_shape(queue: Queue, counts: Sequence[Count]) -> dict[str, Any]:
    """Give a queue with how many of its jobs are in which state."""
    jobs = dict.fromkeys(State, 0)
    for count in counts:
        if count.queue == queue.name:
            jobs[count.state] += count.jobs
    return {**spelled_out(queue), "jobs": jobs}
