"""`leftfold dlq`: the jobs that were set aside, why, and how to try them again."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from leftfold.asking import PAGE_MAX
from leftfold.cli import shapes
from leftfold.cli.showing import history_lines, job_lines
from leftfold.cli.store import Place, emit, opened, with_actor, with_json, with_store
from leftfold.cli.text import ago, clean, number, shorten, table
from leftfold.cli.values import id_of
from leftfold.core import events as e
from leftfold.core.errors import LeftfoldError, ValidationError
from leftfold.core.job import Job
from leftfold.core.lifecycle import State
from leftfold.core.record import Record
from leftfold.engine import Engine

_WIDE = 60


@click.group()
def dlq() -> None:
    """List dead letters, jobs that were set aside; show why; try them again."""


@dlq.command("list")
@click.option("--queue", metavar="NAME", help="In this queue.")
@click.option("--kind", metavar="NAME", help="Of this kind.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=100, show_default=True, help="At most so many.")
@with_store
@with_json
def list_letters(place: Place, *, queue: str | None, kind: str | None, limit: int, as_json: bool) -> None:
    """List dead letters, the newest jobs first."""
    with opened(place) as engine:
        page = engine.list(states=State.DEAD_LETTERED, queue=queue, kind=kind, limit=limit)
        letters = [letter_of(engine.history(job.id)) for job in page.jobs]
        jobs = [engine.get(job.id) for job in page.jobs]
    now = time.time_ns() // 1000
    if as_json:
        for job, record in zip(jobs, letters, strict=True):
            emit(_shape(job, record))
        return
    if not jobs:
        click.echo("no dead letters", err=True)
        return
    rows = [_row(job, record, now) for job, record in zip(jobs, letters, strict=True)]
    click.echo("\n".join(table(("JOB", "KIND", "QUEUE", "REASON", "STAGE", "ATTEMPTS", "SINCE", "ERROR"), rows)))
    if page.next is not None:
        click.echo("there are more: --limit, or --kind and --queue to see fewer", err=True)


@dlq.command("show")
@click.argument("job")
@with_store
@with_json
def show_letter(place: Place, *, job: str, as_json: bool) -> None:
    """Show one dead letter: everything that is known of why, and the job's history."""
    with opened(place) as engine:
        found = engine.get(id_of(engine, job))
        records = engine.history(found.id)
    record = letter_of(records)
    if as_json:
        emit({**_shape(found, record), "history": [shapes.record_shape(each) for each in records]})
        return
    letter = record.event
    click.echo("\n".join(job_lines(found, time.time_ns() // 1000)))
    click.echo(f"\nset aside because of {letter.reason_code} at {letter.stage}")
    if letter.error.traceback:
        click.echo(f"\n{clean(letter.error.traceback).rstrip()}")
    click.echo("\n" + "\n".join(history_lines(records)))
    click.echo(f"\ntry again: leftfold dlq retry {found.id} --reason TEXT", err=True)


@dlq.command("retry")
@click.argument("jobs", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them, or all of the given --kind and --queue.")
@click.option("--queue", metavar="NAME", help="With --all: in this queue.")
@click.option("--kind", metavar="NAME", help="With --all: of this kind.")
@click.option("--reason", required=True, metavar="TEXT", help="Why it will do better now; it stands on the log.")
@with_actor
@with_store
@with_json
def retry(
    place: Place, *, jobs: Sequence[str], everything: bool, queue: str | None, kind: str | None, reason: str,
    actor: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Let dead letters be tried again, with their whole retry budget. Their history stays.

    \b
    leftfold dlq retry 019a… --reason "the mail server is back"
    leftfold dlq retry --all --kind send --reason "deployed the fix"
    """
    if bool(jobs) == everything:
        raise click.UsageError("name the jobs, or say --all")
    if (queue or kind) and not everything:
        raise click.UsageError("--queue and --kind go with --all")
    again = 0
    refused: LeftfoldError | None = None
    with opened(place, actor=actor) as engine:
        ids = list(_all(engine, queue, kind)) if everything else [id_of(engine, job) for job in jobs]
        for job_id in ids:
            try:
                receipt = engine.requeue(job_id, reason=reason)
            except LeftfoldError as problem:
                refused = problem
                click.echo(f"{job_id}: {problem}", err=True)
                continue
            again += 1
            if as_json:
                emit({"id": job_id, "state": receipt.state, "rev": receipt.rev})
    if not as_json:
        click.echo(f"{number(again, 'job')} will be tried again")
    if refused is not None:
        raise refused


def _all(engine: Engine, queue: str | None, kind: str | None) -> Iterator[str]:
    after: str | None = None
    while True:
        page = engine.list(states=State.DEAD_LETTERED, queue=queue, kind=kind, limit=PAGE_MAX, after=after)
        yield from (job.id for job in page.jobs)
        after = page.next
        if after is None:
            return


def letter_of(records: Sequence[Record]) -> Any:
    """Give the record that set a job aside last."""
    for record in reversed(records):
        if isinstance(record.event, e.DeadLettered):
            return record
    raise ValidationError(f"job {records[0].job_id} is not a dead letter and never was: see `leftfold jobs show`")


def _shape(job: Job, record: Any) -> dict[str, Any]:
    return {"id": job.id, "kind": job.spec.kind, "queue": job.spec.queue, "state": job.state,
            "dead_lettered_at": record.at, **shapes.spelled_out(record.event)}  # fmt: skip


def _row(job: Job, record: Any, now: int) -> tuple[str, ...]:
    letter = record.event
    error = f"{letter.error.type or letter.error.code}: {letter.error.message}".partition("\n")[0]
    return (
        job.id, job.spec.kind, job.spec.queue, str(letter.reason_code), str(letter.stage), str(job.attempt),
        ago(record.at, now), shorten(clean(error), _WIDE),
    )  # fmt: skip
