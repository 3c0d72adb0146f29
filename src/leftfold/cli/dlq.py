"""`leftfold dlq`: the jobs that were set aside, why, and how to try them again."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from leftfold.asking import PAGE_MAX
from leftfold.cli import shapes
from leftfold.cli.exits import complain, exit_code
from leftfold.cli.showing import fitted, history_lines, job_lines, shown_ids
from leftfold.cli.store import Place, emit, opened, with_actor, with_json, with_store
from leftfold.cli.text import ago, clean, number, shorten
from leftfold.cli.values import beginning_of, id_of
from leftfold.core import events as e
from leftfold.core import limits
from leftfold.core.errors import IllegalTransitionError, RefusedError, ValidationError
from leftfold.core.job import Job
from leftfold.core.lifecycle import State
from leftfold.core.record import Record
from leftfold.engine import Engine
from leftfold.store.replies import Receipt, Summary

_ERROR_CHARS = 60


@click.group()
def dlq() -> None:
    """List dead letters, show why, try them again.

    A dead letter is a job that was set aside: its retries are used up, or its failure will not pass. It stays as it is
    until somebody says otherwise.
    """


@dlq.command("list")
@click.option("--queue", metavar="NAME", help="In this queue.")
@click.option("--kind", metavar="NAME", help="Of this kind.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=100, show_default=True, help="At most so many.")
@click.option("--after", metavar="ID", help="Go on behind this job: the last one of the list before.")
@with_store
@with_json
def list_letters(
    place: Place, *, queue: str | None, kind: str | None, limit: int, after: str | None, as_json: bool
) -> None:
    """List dead letters, the newest jobs first, each with its reason and its last error."""
    _check_filter(queue, kind)
    if after is not None:
        after = beginning_of(after)
    with opened(place) as engine:
        behind = None if after is None else id_of(engine, after)
        page = engine.list(states=State.DEAD_LETTERED, queue=queue, kind=kind, limit=limit, after=behind)
        letters = [letter_of(records) for records in engine.histories(job.id for job in page.jobs).values()]
    if as_json:
        for job, record in zip(page.jobs, letters, strict=True):
            emit(_shape(job.id, job.kind, job.queue, job.state, record))
    elif page.jobs:
        click.echo("\n".join(_table(page.jobs, letters, time.time_ns() // 1000)))
    else:
        click.echo("no dead letters", err=True)
    if page.next is not None:
        click.echo(f"there are more: --after {page.next}", err=True)


def _check_filter(queue: str | None, kind: str | None) -> None:
    for what, given in (("queue", queue), ("kind", kind)):
        if given is not None:
            limits.name(what, given)


def _table(jobs: Sequence[Summary], letters: Sequence[Any], now: int) -> list[str]:
    return fitted({
        "id": shown_ids([job.id for job in jobs]),
        "kind": [job.kind for job in jobs],
        "reason": [click.style(record.event.reason_code, fg="red") for record in letters],
        "error": [shorten(_error(record), _ERROR_CHARS) for record in letters],
        "since": [ago(record.at, now) for record in letters],
        "attempts": [str(record.event.attempts) for record in letters],
        "queue": [job.queue for job in jobs],
        "stage": [record.event.stage for record in letters],
    }, least=3)  # fmt: skip


def _error(record: Any) -> str:
    error = record.event.error
    return clean(f"{error.type or error.code}: {error.message}".partition("\n")[0])


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
        shape = _shape(job.id, job.spec.kind, job.spec.queue, job.state, record)
        emit({**shape, "history": [shapes.record_shape(each) for each in records]})
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
@click.argument("job_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All of them, or all of the given --kind and --queue.")
@click.option("--queue", metavar="NAME", help="With --all: in this queue.")
@click.option("--kind", metavar="NAME", help="With --all: of this kind.")
@click.option("--reason", required=True, metavar="TEXT", help="Why it will do better now; it stands on the log.")
@with_actor
@with_store
@with_json
@click.pass_context
def retry(
    context: click.Context, place: Place, *, job_ids: Sequence[str], everything: bool, queue: str | None,
    kind: str | None, reason: str, actor: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Let dead letters be tried again, with their whole retry budget. Their history stays.

    What is refused is said, the others are tried again, and the exit code is that of the refusal.

    \b
    leftfold dlq retry 019a1e34-5922 --reason "the mail server is back"
    leftfold dlq retry --all --kind send --reason "deployed the fix"
    """
    if everything is bool(job_ids):
        raise click.UsageError("name jobs, or say --all" if not job_ids else "choose one of ID and --all")
    if (queue or kind) and not everything:
        raise click.UsageError("--queue and --kind go with --all")
    limits.text("reason", reason)
    if not reason.strip():
        raise ValidationError("to try a dead letter again needs a reason: it stands on the log")
    _check_filter(queue, kind)
    for job_id in job_ids:
        beginning_of(job_id)
    with opened(place, actor=actor) as engine:
        ids = list(_all(engine, queue, kind)) if everything else [id_of(engine, job_id) for job_id in job_ids]
        again, refusal = _retried(engine, ids, reason)
    if as_json:
        for receipt in again:
            emit(shapes.spelled_out(receipt))
    elif ids:
        click.echo(f"{number(len(again), 'jobs')} will be tried again")
    else:
        click.echo("no dead letters", err=True)
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


def _shape(job_id: str, kind: str, queue: str, state: State, record: Any) -> dict[str, Any]:
    return {"id": job_id, "kind": kind, "queue": queue, "state": state, "dead_lettered_at": record.at,
            **shapes.spelled_out(record.event)}  # fmt: skip
