"""`leftfold verify`: is what the store says true? `leftfold rebuild`: bring it to what the logs say."""

import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import click

from leftfold.cli.exits import FAILURE, complain
from leftfold.cli.files import lines_in
from leftfold.cli.findings import advice, grouped, lines_of, shape_of
from leftfold.cli.store import Place, emit, opened, with_actor, with_json, with_store
from leftfold.cli.text import Bar, clean, number, span
from leftfold.cli.values import beginning_of, kept_id_of, since_of
from leftfold.core import limits
from leftfold.core.errors import CorruptLogError, ValidationError
from leftfold.engine import Engine
from leftfold.engine.proving import FINDINGS_MAX
from leftfold.store import export
from leftfold.store.audit import Finding
from leftfold.store.replies import Verdict


class Looked(NamedTuple):
    """What a check came to, how long it took, and why a file is no whole export."""

    verdict: Verdict
    seconds: float
    problem: str | None = None

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing was found."""
        return self.verdict.is_clean and self.problem is None


@click.command()
@click.option("--job", "job_id", metavar="ID", help="This job only.")
@click.option("--since", metavar="TIME", help="Jobs that changed since: 30m, 2h, 1d ago, or 2026-12-24T18:00:00+01:00.")
@click.option("--file", metavar="EXPORT", help="An export instead of a store; - reads standard input.")
@click.option("--no-freeze", is_flag=True, help="Only look: do not freeze jobs that cannot be as they say.")
@with_actor
@with_store
@with_json
@click.pass_context
def verify(
    context: click.Context, place: Place, *, job_id: str | None, since: str | None, file: str | None, no_freeze: bool,
    actor: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Derive every job anew from its log, and say what differs.

    A job that cannot be as it says is frozen: nobody claims or changes it until `leftfold rebuild`. The others go on.
    Exit code 1 means that something was found.

    \b
    leftfold verify
    leftfold verify --since 2h --json
    leftfold export | leftfold verify --file -
    """
    given = [name for name, value in (("--job", job_id), ("--since", since), ("--file", file)) if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"choose one of {' and '.join(given)}")
    moment = since_of(since)
    if file is not None:
        looked = _in_file(file)
    else:
        if job_id is not None:
            beginning_of(job_id)
        with opened(place, actor=actor) as engine:
            looked = _in_store(engine, job_id, moment, freeze=not no_freeze)
    if as_json:
        emit(_shape(looked))
    else:
        click.echo("\n".join(_lines(looked, in_file=file is not None)))
    context.exit(0 if looked.is_clean else FAILURE)


def _in_store(engine: Engine, job_id: str | None, since: datetime | None, *, freeze: bool) -> Looked:
    job = None if job_id is None else kept_id_of(engine, job_id)
    total = sum(count.jobs for count in engine.counts()) if job is None and since is None else None
    began = time.monotonic()
    with Bar("jobs", total) as bar:
        verdict = engine.verify(job=job, since=since, freeze=freeze, progress=bar.show)
    return Looked(verdict, time.monotonic() - began)


def _in_file(file: str) -> Looked:
    jobs = events = total = 0
    findings: list[Finding] = []
    problem = None
    lines = lines_in(file)
    began = time.monotonic()
    with Bar("jobs") as bar:
        try:
            for (each,) in export.batches(lines, 1):  # one by one: what comes before a problem is told
                jobs, events = jobs + 1, events + each.kept.size
                total, findings = total + len(each.findings), [*findings, *each.findings][:FINDINGS_MAX]
                bar.show(jobs)
        except ValidationError as wrong:
            problem = str(wrong)
    verdict = Verdict(jobs=jobs, events=events, findings=tuple(findings), total=total, frozen=())
    return Looked(verdict, time.monotonic() - began, problem)


def _shape(looked: Looked) -> dict[str, object]:
    verdict, seconds, problem = looked
    return {
        "clean": looked.is_clean,
        "jobs": verdict.jobs,
        "events": verdict.events,
        "findings": [shape_of(finding) for finding in verdict.findings],
        "total": verdict.total,
        "frozen": verdict.frozen,
        "still_frozen": verdict.still_frozen,
        "problem": problem,
        "seconds": round(seconds, 3),
    }


def _lines(looked: Looked, *, in_file: bool) -> Iterator[str]:
    verdict, seconds, problem = looked
    yield from grouped(verdict.findings)
    if verdict.total > len(verdict.findings):
        yield f"… and {verdict.total - len(verdict.findings):,} more\n"
    if problem is not None:
        yield f"{click.style('no whole export:', bold=True)} {clean(problem)}\n"
    amount = f"{number(verdict.jobs, 'jobs')} with {number(verdict.events, 'events')}"
    speed = f" in {span(round(seconds * limits.SECOND))}, {verdict.jobs / max(seconds, 0.001):,.0f} jobs/s"
    if verdict.still_frozen:
        frozen = number(len(verdict.still_frozen), "jobs")
        yield f"{frozen} still frozen, in which nothing is wrong by now: `leftfold rebuild` lets them go on\n"
    if looked.is_clean:
        yield f"{click.style('clean', fg='green')}: {amount}{speed}"
        return
    frozen = f", {number(len(verdict.frozen), 'jobs')} newly frozen" if verdict.frozen else ""
    found = number(verdict.total, "findings") if problem is None or verdict.total else "not whole"
    yield f"{click.style(found, fg='red')}{frozen}: {amount}{speed}"
    yield from advice(verdict.findings, in_file=in_file)


@click.command()
@click.argument("job_ids", metavar="[JOB]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All jobs whose rows differ from their logs, and the counters.")
@click.option("--reason", metavar="TEXT", required=True, help="Why; it stands on record.")
@with_actor
@with_store
@with_json
@click.pass_context
def rebuild(
    context: click.Context, place: Place, *, job_ids: tuple[str, ...], everything: bool, reason: str,
    actor: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Bring rows and counters to what the logs say, and let frozen jobs go on.

    A job whose log is not sound stays as it is; for one that is named, the exit code is 1.

    \b
    leftfold rebuild 01a1e1c2-10a9 --reason "the disk was full"
    leftfold rebuild --all --reason "restored from a backup"
    """
    if everything is bool(job_ids):
        raise click.UsageError("name jobs, or say --all" if not job_ids else "choose one of JOB and --all")
    limits.text("reason", reason)
    if not reason.strip():
        raise ValidationError("a rebuild needs a reason: it stands on record")
    for job_id in job_ids:
        beginning_of(job_id)
    with opened(place, actor=actor) as engine:
        ids = [kept_id_of(engine, job_id) for job_id in job_ids]
        mended, refused = (engine.rebuild(reason=reason), {}) if everything else _rebuild(engine, ids, reason)
    if as_json:
        emit({
            "mended": [shape_of(finding) for finding in mended],
            "refused": [{"job_id": job_id, "detail": detail} for job_id, detail in refused.items()],
        })  # fmt: skip
    else:
        _tell(mended, any_left=everything)
        for detail in refused.values():
            complain(CorruptLogError.code, detail)
    context.exit(FAILURE if refused else 0)


def _rebuild(engine: Engine, ids: Iterable[str], reason: str) -> tuple[list[Finding], dict[str, str]]:
    """Mend what can be: one unsound log does not stop the others."""
    mended: list[Finding] = []
    refused: dict[str, str] = {}
    for job_id in dict.fromkeys(ids):
        try:
            mended += engine.rebuild(job_id, reason=reason)
        except CorruptLogError as problem:
            refused[job_id] = str(problem)
    return mended, refused


def _tell(mended: list[Finding], *, any_left: bool) -> None:
    for line in lines_of(mended):
        click.echo(line)
    if mended:
        click.echo(f"{click.style('mended', fg='green')}: {number(len(mended), 'findings')}")
    else:
        click.echo("nothing to mend")
    if any_left:
        click.echo("`leftfold verify` tells whether anything is left", err=True)
