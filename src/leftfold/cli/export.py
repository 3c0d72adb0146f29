"""`leftfold export` and `leftfold import`: whole jobs out of a store, and into one."""

from collections.abc import Iterable, Iterator
from typing import Any

import click
import msgspec

from leftfold.cli.exits import FAILURE
from leftfold.cli.files import beginning_with_a_head, lines_in, write
from leftfold.cli.findings import lines_of
from leftfold.cli.store import Place, emit, opened, with_filter, with_json, with_store
from leftfold.cli.text import Bar, number
from leftfold.cli.values import beginning_of, kept_id_of, since_of
from leftfold.core import limits
from leftfold.core.errors import ValidationError
from leftfold.engine import Engine
from leftfold.store.export import Foot, Imported


@click.command("export")
@click.option("--output", "-o", "file", metavar="FILE", help="Into this file, as a whole or not at all.")
@click.option("--job", "job_ids", metavar="ID", multiple=True, help="This job; may be repeated.")
@with_filter
@click.option("--since", metavar="TIME", help="Changed since: 30m, 2h, 1d ago, or 2026-12-24T18:00:00+01:00.")
@with_store
def export_jobs(
    place: Place, file: str | None, *, job_ids: tuple[str, ...], states: tuple[str, ...], since: str | None,
    **names: str | None,
) -> None:  # fmt: skip
    """Write whole jobs with their logs, a line of JSON each.

    `leftfold verify --file` checks an export without a store; `leftfold import` takes it in.

    \b
    leftfold export -o jobs.jsonl
    leftfold export --state dead_lettered --since 1d | gzip > dead.jsonl.gz
    """
    for name, value in names.items():
        if value is not None:
            limits.name(name, value, empty=name == "tenant")
    for job_id in job_ids:
        beginning_of(job_id)
    moment = since_of(since)
    with opened(place) as engine:
        asked: dict[str, Any] = {**names, "states": states or None, "since": moment}
        asked["jobs"] = [kept_id_of(engine, job_id) for job_id in job_ids] or None
        last: list[str] = []
        with Bar("jobs", _total(engine, asked), data=file in {None, "-"}) as bar:
            write(_counted(engine.export_jobs(**asked), bar, last), file)
    if file not in {None, "-"}:
        foot = msgspec.json.decode(last[0], type=Foot)
        click.echo(f"{number(foot.jobs, 'jobs')} with {number(foot.events, 'events')} are in {file}", err=True)


def _total(engine: Engine, asked: dict[str, Any]) -> int | None:
    """Give how many jobs will come, if the counters know."""
    if asked["jobs"] is not None:
        return len(asked["jobs"])
    if asked["since"] is not None or asked["tenant"] is not None:
        return None
    return sum(
        count.jobs
        for count in engine.counts()
        if (asked["states"] is None or count.state in asked["states"])
        and asked["queue"] in {None, count.queue}
        and asked["kind"] in {None, count.kind}
    )


def _counted(lines: Iterable[str], bar: Bar, last: list[str]) -> Iterator[str]:
    for done, line in enumerate(lines):
        bar.show(done)
        last[:] = [line]
        yield line


@click.command("import")
@click.argument("file")
@with_store
@with_json
@click.pass_context
def import_jobs(context: click.Context, place: Place, file: str, *, as_json: bool) -> None:
    """Take in the jobs of an export: ids, times and logs as they are. FILE may be -, for standard input.

    What is there already is left alone. A job whose log is not sound, or whose key a live job holds, is refused, and
    the others come in; the exit code is 1 then. A store in a file is made if there is none.

    \b
    leftfold import jobs.jsonl
    leftfold export --store sqlite:///old.db | leftfold import - --store postgresql:///jobs
    """
    lines = beginning_with_a_head(lines_in(file))  # before there is a store: bad input makes no file
    with opened(place, create=True) as engine:
        done = _take_in(engine, lines)
    if as_json:
        emit({
            "imported": done.imported,
            "present": done.present,
            "refused": [{"what": each.what, "job_id": each.job_id, "detail": each.detail} for each in done.refused],
        })  # fmt: skip
    else:
        click.echo("\n".join(_lines(done)))
    context.exit(FAILURE if done.refused else 0)


def _take_in(engine: Engine, lines: Iterator[str]) -> Imported:
    heard = 0

    def progress(done: int) -> None:
        nonlocal heard
        heard = done
        bar.show(done)

    with Bar("jobs") as bar:
        try:
            return engine.import_jobs(lines, progress=progress)
        except ValidationError as problem:
            if not heard:
                raise
            found = problem
    # Not the exit code of wrong input, which says that nothing was done.
    raise click.ClickException(f"{found}; the {number(heard, 'jobs')} before that place are dealt with")


def _lines(done: Imported) -> Iterator[str]:
    if done.refused:
        yield click.style("refused", bold=True)
        yield from lines_of(done.refused)
        yield ""
    told = [f"{number(done.imported, 'jobs')} came in"]
    if done.present:
        told.append(f"{done.present:,} {'was' if done.present == 1 else 'were'} there already")
    if done.refused:
        told.append(
            click.style(f"{len(done.refused):,} {'was' if len(done.refused) == 1 else 'were'} refused", fg="red")
        )
    yield ", ".join(told)
