"""`leftfold jobs`: list them, show one, read its history, tell it something."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from leftfold.asking import PAGE_MAX
from leftfold.cli import shapes, telling
from leftfold.cli.showing import history_lines, job_lines, job_table
from leftfold.cli.store import Place, emit, opened, with_filter, with_json, with_store
from leftfold.cli.values import beginning_of, id_of
from leftfold.core import limits
from leftfold.core.errors import CorruptLogError
from leftfold.dialects import DIALECTS
from leftfold.engine import Engine
from leftfold.store.replies import Page

with_dialect = click.option(
    "--dialect", "name", type=click.Choice(list(DIALECTS)), help="In the words of one specification."
)


@click.group()
def jobs() -> None:
    """List jobs, show one, read its history, cancel it, answer what it waits for.

    A job is named by its id, or by a beginning of it that no other job shares.
    """


jobs.add_command(telling.cancel)
jobs.add_command(telling.signal)


@jobs.command("list")
@with_filter
@click.option("--key", metavar="KEY", help="With this key.")
@click.option("--correlation-id", metavar="ID", help="With this correlation id.")
@click.option("--owner", metavar="NAME", help="Held by this worker.")
@click.option("--limit", type=int, help=f"At most so many, {PAGE_MAX} and no more.  [default: 100]")
@click.option("--after", metavar="ID", help="Go on behind this job: the last one of the list before.")
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@with_store
@with_json
def list_jobs(
    place: Place, *, limit: int | None, after: str | None, everything: bool, as_json: bool, **asked: Any
) -> None:
    """List jobs, the newest first.

    \b
    leftfold jobs list --state dead_lettered --state failed
    leftfold jobs list --all --json | jq -r .id
    """
    if everything and limit is not None:
        raise click.UsageError("choose one of --all and --limit")
    _check_filter(asked)
    limits.between("limit", 1 if limit is None else limit, 1, PAGE_MAX)
    if after is not None:
        after = beginning_of(after)
    with opened(place) as engine:
        behind = None if after is None else id_of(engine, after)
        shown = 0
        for page in _pages(engine, behind, PAGE_MAX if everything else limit, endless=everything, asked=asked):
            shown += len(page.jobs)
            _show_page(page, as_json=as_json)
    if not shown and not as_json:
        click.echo("no such jobs", err=True)
    elif page.next is not None:
        click.echo(f"there are more: --after {page.next}, or --all", err=True)


def _check_filter(asked: dict[str, Any]) -> None:
    for name in ("queue", "kind", "tenant"):
        if asked[name] is not None:
            limits.name(name, asked[name], empty=name == "tenant")
    for name in ("key", "correlation_id", "owner"):
        limits.key(name, asked[name])
    asked["states"] = asked["states"] or None


def _pages(
    engine: Engine, after: str | None, limit: int | None, *, endless: bool, asked: dict[str, Any]
) -> Iterator[Page]:
    asked = asked if limit is None else {**asked, "limit": limit}
    page = engine.list(after=after, **asked)
    yield page
    while endless and page.next is not None:
        page = engine.list(after=page.next, **asked)
        yield page


def _show_page(page: Page, *, as_json: bool) -> None:
    if as_json:
        for job in page.jobs:
            emit(shapes.spelled_out(job))
    elif page.jobs:
        click.echo("\n".join(job_table(page.jobs, _now())))


def _now() -> int:
    return time.time_ns() // 1000


@jobs.command()
@click.argument("job_id", metavar="ID")
@with_dialect
@with_store
@with_json
def show(place: Place, job_id: str, name: str | None, *, as_json: bool) -> None:
    """Show everything about one job."""
    beginning_of(job_id)
    dialect = DIALECTS[name] if name else None
    with opened(place) as engine:
        found = id_of(engine, job_id)
        with _looking_at(found):
            job = engine.get(found)
            records = engine.history(found) if dialect else []
        frozen = engine.is_frozen(found)
    called = shapes.job_in_dialect(job, records, dialect) if dialect else None
    if as_json:
        emit({**shapes.job_shape(job, frozen=frozen), **({"dialect": called} if called else {})})
    else:
        click.echo("\n".join(job_lines(job, _now(), _called(called), frozen=frozen)))


@contextmanager
def _looking_at(job_id: str) -> Iterator[None]:
    """Say of a log that cannot be true how to find out more."""
    try:
        yield
    except CorruptLogError as problem:
        raise type(problem)(f"{problem}; `leftfold verify --job {job_id}` says what is wrong") from problem


def _called(called: dict[str, Any] | None) -> str:
    if called is None:
        return ""
    runs = "".join(f", run {run['attempt']} {run['status']}" for run in called.get("runs", ()))
    return f", {called['name']}: {called['state']}{' (the nearest it has)' * called['stand_in']}{runs}"


@jobs.command()
@click.argument("job_id", metavar="ID")
@with_dialect
@with_store
@with_json
def history(place: Place, job_id: str, name: str | None, *, as_json: bool) -> None:
    """Read a job's log, its hash chain checked.

    In a dialect, * marks a name that its specification lacks, and — an event that it is silent about.
    """
    beginning_of(job_id)
    dialect = DIALECTS[name] if name else None
    with opened(place) as engine:
        found = id_of(engine, job_id)
        with _looking_at(found):
            records = engine.history(found)
    if not as_json:
        click.echo("\n".join(history_lines(records, dialect)))
        return
    steps = {step.record.version: step for step in dialect.project(records)} if dialect else {}
    for record in records:
        shape = shapes.record_shape(record)
        if dialect is not None:
            shape["dialect"] = shapes.step_shape(dialect, steps.get(record.version))
        emit(shape)
