"""`leftfold dlq incidents`, `incident`, `note` and `resolve`: dead letters by what went wrong."""

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import click

from leftfold import asking
from leftfold.asking import PAGE_MAX
from leftfold.cli import shapes
from leftfold.cli.exits import complain, exit_code
from leftfold.cli.showing import error_line, fitted, shown_ids
from leftfold.cli.store import Command, Place, emit, opened, with_actor, with_json, with_store
from leftfold.cli.text import Bar, ago, clean, clock, number
from leftfold.cli.values import beginning_of, id_of
from leftfold.core import events as e
from leftfold.core import limits
from leftfold.core.errors import LeftfoldError
from leftfold.core.lifecycle import State
from leftfold.core.record import Record
from leftfold.engine import Engine
from leftfold.store.ops import Outcome
from leftfold.store.replies import Incident, Summary

_BATCH = 100
_LETTERS = 10  # that are shown of an incident


def with_letters(command: Command) -> Command:
    """Add the options that say which dead letters are meant, and check what they are given."""

    @click.option("--incident", metavar="NAME", help="Of this incident; the beginning of its name will do.")
    @click.option("--kind", metavar="NAME", help="Of this kind.")
    @click.option("--queue", metavar="NAME", help="In this queue.")
    @click.option("--tenant", metavar="NAME", help="Of this tenant.")
    @functools.wraps(command)
    def checked(*arguments: Any, incident: str | None, **options: Any) -> None:
        for what in ("kind", "queue", "tenant"):
            if options[what] is not None:
                limits.name(what, options[what], empty=what == "tenant")
        if incident is not None:
            asking.incident_of(incident)
        command(*arguments, incident=incident, **options)

    return checked


@click.command("incidents")
@with_letters
@click.option("--resolved", is_flag=True, help="Those of which all letters are resolved, instead of the others.")
@click.option("--limit", type=click.IntRange(1, PAGE_MAX), default=100, show_default=True, help="At most so many.")
@click.option("--after", metavar="NAME", help="Go on behind this incident: the last one of the list before.")
@with_store
@with_json
def list_incidents(place: Place, *, limit: int, after: str | None, as_json: bool, **asked: Any) -> None:
    """List dead letters by what went wrong, the last one seen first.

    Letters are of one incident if jobs of one kind ended for the same reason, at the same stage, with the same error:
    one that was raised at the same place, or that says the same but for what is quoted and numbered.
    """
    with opened(place) as engine:
        behind = None if after is None else engine.incident(after)
        found = engine.incidents(**asked, limit=limit, after=behind)
        more = len(found) == limit and engine.incidents(**asked, limit=1, after=found[-1])
    if as_json:
        for incident in found:
            emit(shapes.spelled_out(incident))
    elif found:
        click.echo("\n".join(incident_table(found, time.time_ns() // 1000)))
    else:
        click.echo("no incidents", err=True)
    if more:
        click.echo(f"there are more: --after {found[-1].id}", err=True)


def incident_table(incidents: Sequence[Incident], now: int) -> list[str]:
    """Give incidents as a table."""
    return fitted({
        "incident": [click.style(each.id, bold=True) for each in incidents],
        "letters": [_letters(each) for each in incidents],
        "kind": [each.kind for each in incidents],
        "reason": [click.style(each.reason_code, fg="red") for each in incidents],
        "error": [error_line(each.error) for each in incidents],
        "last": [ago(each.last_at, now) for each in incidents],
        "first": [ago(each.first_at, now) for each in incidents],
        "stage": [each.stage for each in incidents],
    }, least=4)  # fmt: skip


def _letters(incident: Incident) -> str:
    return f"{incident.open:,} open, {incident.resolved:,} resolved" if incident.resolved else f"{incident.open:,}"


@click.command("incident")
@click.argument("name", metavar="NAME")
@with_store
@with_json
def show_incident(place: Place, *, name: str, as_json: bool) -> None:
    """Show one incident: what went wrong, what operators said of it, and which letters it has.

    What operators say stands on the log of each letter; here are the words on the oldest and on the newest ten.
    """
    asking.incident_of(name)
    with opened(place) as engine:
        incident = engine.incident(name)
        letters = engine.list(incident=incident.id, resolved=not incident.open, limit=_LETTERS).jobs
        said = _said(engine.histories({incident.oldest, *(job.id for job in letters)}).values())
    if as_json:
        emit({**shapes.spelled_out(incident), "said": [shapes.record_shape(each) for each in said]})
        return
    now = time.time_ns() // 1000
    for line in _lines(incident, said, now):
        click.echo(line)
    click.echo("")
    click.echo("\n".join(fitted({
        "id": shown_ids([job.id for job in letters]),
        "since": [ago(job.ended_at or now, now) for job in letters],
        "queue": [job.queue for job in letters],
        "attempts": [str(job.attempt) for job in letters],
        "resolved": ["" if job.resolved_at is None else ago(job.resolved_at, now) for job in letters],
    }, least=2)))  # fmt: skip
    if (incident.open or incident.resolved) > len(letters):
        option = "" if incident.open else " --resolved"
        click.echo(f"all of them: leftfold dlq list --incident {incident.id}{option}", err=True)
    if incident.open:
        click.echo(f"\ntry them again: leftfold dlq redrive --incident {incident.id} --reason TEXT", err=True)


def _lines(incident: Incident, said: Sequence[Record], now: int) -> Iterator[str]:
    reason = click.style(incident.reason_code, fg="red", bold=True)
    yield f"incident {click.style(incident.id, bold=True)}: {incident.kind}, {reason} at {incident.stage}"
    yield f"letters: {_letters(incident)}"
    yield f"first {clock(incident.first_at)}, {ago(incident.first_at, now)}"
    yield f"last  {clock(incident.last_at)}, {ago(incident.last_at, now)}"
    yield ""
    if incident.error.traceback:
        yield from (f"  {clean(line)}" for line in incident.error.traceback.rstrip().splitlines())
    else:
        yield f"  {error_line(incident.error, most=None)}"
    if said:
        yield ""
    for record in said:
        words = record.event.text if isinstance(record.event, e.Remarked) else getattr(record.event, "reason", "")
        yield f"{clock(record.at)}  {clean(record.actor)} {record.event.wire}: {clean(words)}"


def _said(histories: Iterable[Sequence[Record]]) -> list[Record]:
    """Give what operators said of letters since they are letters; the same word on many logs once."""
    found: dict[tuple[str, e.AnyEvent], Record] = {}
    for records in histories:
        since = max(record.version for record in records if isinstance(record.event, e.DeadLettered))
        for record in records[since:]:
            if isinstance(record.event, e.OperatorsNote):
                before = found.setdefault((record.actor, record.event), record)
                found[record.actor, record.event] = min(before, record, key=lambda each: each.at)
    return sorted(found.values(), key=lambda record: record.at)


def _with_targets(command: Command) -> Command:
    @click.argument("job_ids", metavar="[ID]...", nargs=-1)
    @click.option("--incident", metavar="NAME", help="All letters of this incident that are not resolved.")
    @with_actor
    @with_store
    @with_json
    @click.pass_context
    @functools.wraps(command)
    def checked(context: click.Context, /, *, job_ids: Sequence[str], incident: str | None, **options: Any) -> None:
        if (incident is None) is (not job_ids):
            raise click.UsageError("name jobs, or an --incident" if not job_ids else "choose one of ID and --incident")
        if incident is not None:
            asking.incident_of(incident)
        for job_id in job_ids:
            beginning_of(job_id)
        command(context, job_ids=job_ids, incident=incident, **options)

    return checked


@click.command("note")
@_with_targets
@click.option("--text", required=True, metavar="TEXT", help="What others should know; it stands on the log.")
def note(
    context: click.Context, place: Place, *, job_ids: Sequence[str], incident: str | None, text: str,
    actor: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Write down what others should know of dead letters, or of all letters of an incident.

    \b
    leftfold dlq note --incident 3f9a --text "asked the bank, they look into it"
    """
    limits.words("text", text)
    with opened(place, actor=actor) as engine:

        def act(letters: list[Summary | str]) -> list[Outcome]:
            return engine.remark_many([each if isinstance(each, str) else each.id for each in letters], text)

        code = _each(engine, job_ids, incident, act, "noted", as_json=as_json)
    context.exit(code)


@click.command("resolve")
@_with_targets
@click.option("--reason", required=True, metavar="TEXT", help="Why nobody has to look at them; it stands on the log.")
def resolve(
    context: click.Context, place: Place, *, job_ids: Sequence[str], incident: str | None, reason: str,
    actor: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Settle dead letters, or all letters of an incident, without trying them again.

    They stay what they are, are listed with --resolved only, and no redrive takes them. One can still be tried again by
    its id. A letter that comes later opens the incident anew.

    \b
    leftfold dlq resolve --incident 3f9a --reason "refunded by hand"
    """
    limits.words("reason", reason)
    with opened(place, actor=actor) as engine:
        act = functools.partial(engine.resolve_many, reason=reason)
        code = _each(engine, job_ids, incident, act, "resolved", as_json=as_json)
    context.exit(code)


def _each(
    engine: Engine, job_ids: Sequence[str], incident: str | None, act: Callable[[list[Summary | str]], list[Outcome]],
    done: str, *, as_json: bool,
) -> int:  # fmt: skip
    """Do it to these jobs a hundred at a time, say what is refused, and give the exit code."""
    found = None if incident is None else engine.incident(incident)
    targets: Iterator[Summary | str] = iter([id_of(engine, job_id) for job_id in job_ids])
    if found is not None:
        targets = _open_letters(engine, found.id)
    code = count = 0
    with Bar("letters", found.open if found else None, data=as_json) as bar:
        while batch := list(islice(targets, _BATCH)):
            for outcome in act(batch):
                if isinstance(outcome, LeftfoldError):
                    complain(outcome.code, str(outcome))
                    code = exit_code(type(outcome))
                    continue
                count += 1
                if as_json:
                    emit(shapes.spelled_out(outcome))
            bar.show(count)
    if not as_json:
        click.echo(f"{number(count, 'letters')} {done}")
    return code


def _open_letters(engine: Engine, incident: str) -> Iterator[Summary]:
    after: str | None = None
    while True:
        page = engine.list(states=State.DEAD_LETTERED, incident=incident, resolved=False, limit=_BATCH, after=after)
        yield from (job for job in page.jobs if not job.frozen)
        after = page.next
        if after is None:
            return
