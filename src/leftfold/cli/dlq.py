"""`leftfold dlq`: the jobs that were set aside, why, and how to try them again."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from leftfold.asking import PAGE_MAX
from leftfold.cli import incidents, redrive, shapes
from leftfold.cli.exits import complain, exit_code
from leftfold.cli.showing import error_line, fitted, history_lines, job_lines, shown_ids
from leftfold.cli.store import Place, emit, opened, with_actor, with_json, with_store
from leftfold.cli.text import ago, clean, number
from leftfold.cli.values import beginning_of, id_of
from leftfold.core import events as e
from leftfold.core import limits
from leftfold.core.errors import IllegalTransitionError, RefusedError, ValidationError
from leftfold.core.job import Job
from leftfold.core.lifecycle import State
from leftfold.core.record import Record
from leftfold.engine import Engine
from leftfold.store.replies import Receipt, Summary


@click.group()
def dlq() -> None:
    """List dead letters, show why, try them again.

    A dead letter is a job that was set aside: its retries are used up, or its failure will not pass. It stays as it is
    until somebody says otherwise. Those that the same thing went wrong with are one incident.
    """


dlq.add_command(incidents.list_incidents)
dlq.add_command(incidents.show_incident)
dlq.add_command(incidents.note)
dlq.add_command(incidents.resolve)
dlq.add_command(redrive.redrive)


@dlq.command("list")
@incidents.with_letters
@click.option("--resolved", is_flag=True, help="Those that are resolved, instead of those that are not.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=100, show_default=True, help="At most so many.")
@click.option("--after", metavar="ID", help="Go on behind this job: the last one of the list before.")
@with_store
@with_json
def list_letters(
    place: Place, *, incident: str | None, resolved: bool, limit: int, after: str | None, as_json: bool, **asked: Any
) -> None:
    """List dead letters, the newest jobs first, each with its reason and its last error."""
    if after is not None:
        after = beginning_of(after)
    with opened(place) as engine:
        behind = None if after is None else id_of(engine, after)
        found = None if incident is None else engine.incident(incident).id
        page = engine.list(
            states=State.DEAD_LETTERED, incident=found, resolved=resolved, limit=limit, after=behind, **asked
        )
        letters = [letter_of(records) for records in engine.histories(job.id for job in page.jobs).values()]
    if as_json:
        for job, record in zip(page.jobs, letters, strict=True):
            names = {"id": job.id, "kind": job.kind, "queue": job.queue, "state": job.state}
            emit({**names, **_letter(record, job.resolved_at)})
    elif page.jobs:
        click.echo("\n".join(_table(page.jobs, letters, time.time_ns() // 1000)))
    else:
        click.echo("no dead letters", err=True)
    if page.next is not None:
        click.echo(f"there are more: --after {page.next}", err=True)


def _table(jobs: Sequence[Summary], letters: Sequence[Any], now: int) -> list[str]:
    return fitted({
        "id": shown_ids([job.id for job in jobs]),
        "kind": [job.kind for job in jobs],
        "reason": [click.style(record.event.reason_code, fg="red") for record in letters],
        "error": [error_line(record.event.error) for record in letters],
        "since": [ago(record.at, now) for record in letters],
        "attempts": [str(record.event.attempts) for record in letters],
        "queue": [job.queue for job in jobs],
        "stage": [record.event.stage for record in letters],
        "incident": [job.incident or "" for job in jobs],
    }, least=3)  # fmt: skip


@dlq.command("show")
@click.argument("job_id", metavar="ID")
@with_store
@with_json
def show_letter(place: Place, *, job_id: str, as_json: bool) -> None:
    """Show one dead letter: everything that is known of why, and the job's history."""
    beginning_of(job_id)
    with opened(place) as engine:
        job = engine.get(id_of(engine, job_id))
        records = engine.history(job.id)
    record = letter_of(records)
    if as_json:
        history = [shapes.record_shape(each) for each in records]
        names = {"id": job.id, "kind": job.spec.kind, "queue": job.spec.queue, "state": job.state}
        emit({**names, **_letter(record, job.resolved_at), "history": history})
        return
    for line in _lines(job, record, records):
        click.echo(line)
    if job.state is State.DEAD_LETTERED:
        click.echo(f"\ntry it again: leftfold dlq retry {job.id} --reason TEXT", err=True)


def _lines(job: Job, record: Any, records: Sequence[Record]) -> Iterator[str]:
    letter, now = record.event, time.time_ns() // 1000
    yield from job_lines(job, now)
    since = f"set aside {ago(record.at, now)}, after {number(letter.attempts, 'attempts')}"
    yield f"\n{since}: {click.style(letter.reason_code, fg='red', bold=True)} at {letter.stage}"
    if letter.error.traceback:
        yield from ("", *(f"  {clean(line)}" for line in letter.error.traceback.rstrip().splitlines()))
    yield from ("", *history_lines(records))


@dlq.command("retry")
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", required=True, metavar="TEXT", help="Why it will do better now; it stands on the log.")
@with_actor
@with_store
@with_json
@click.pass_context
def retry(
    context: click.Context, place: Place, *, job_ids: Sequence[str], reason: str, actor: str | None, as_json: bool
) -> None:
    """Let dead letters be tried again, with their whole retry budget. Their history stays.

    What is refused is said, the others are tried again, and the exit code is that of the refusal. For all letters of an
    incident, a kind or a queue there is `leftfold dlq redrive`.

    \b
    leftfold dlq retry 019a1e34-5922 --reason "the mail server is back"
    """
    limits.words("reason", reason)
    for job_id in job_ids:
        beginning_of(job_id)
    with opened(place, actor=actor) as engine:
        again, refusal = _retried(engine, [id_of(engine, job_id) for job_id in job_ids], reason)
    if as_json:
        for receipt in again:
            emit(shapes.spelled_out(receipt))
    else:
        click.echo(f"{number(len(again), 'jobs')} will be tried again")
    context.exit(0 if refusal is None else exit_code(type(refusal)))


def _retried(engine: Engine, ids: Sequence[str], reason: str) -> tuple[list[Receipt], RefusedError | None]:
    """Give what was done, and the last refusal; each of these is said."""
    again, refusal = [], None
    for job_id in ids:
        try:
            again.append(_requeued(engine, job_id, reason))
        except RefusedError as problem:
            refusal = problem
            complain(problem.code, str(problem))
    return again, refusal


def _requeued(engine: Engine, job_id: str, reason: str) -> Receipt:
    job = engine.get(job_id)
    if job.state is not State.DEAD_LETTERED:
        raise IllegalTransitionError(f"job {job_id} is {job.state}, not dead_lettered: there is nothing to try again")
    return engine.requeue(job_id, reason=reason, expected_rev=job.rev)


def letter_of(records: Sequence[Record]) -> Any:
    """Give the record that set a job aside last."""
    for record in reversed(records):
        if isinstance(record.event, e.DeadLettered):
            return record
    raise ValidationError(f"job {records[0].job_id} is not a dead letter and never was: see `leftfold jobs show`")


def _letter(record: Any, resolved_at: int | None) -> dict[str, Any]:
    return {"dead_lettered_at": record.at, "resolved_at": resolved_at, **shapes.spelled_out(record.event)}
