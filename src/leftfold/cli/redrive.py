"""`leftfold dlq redrive`: many dead letters once more, a few of them first if you like."""

import re
import signal
import sys
import time
from typing import Any, Final

import click

from leftfold import redrive as driving
from leftfold.cli import shapes
from leftfold.cli.exits import FAILURE, complain
from leftfold.cli.incidents import incident_table, with_letters
from leftfold.cli.store import Place, emit, opened, with_actor, with_json, with_store
from leftfold.cli.text import ProgressLine, bar, clean, number, span
from leftfold.cli.values import beginning_of, id_of
from leftfold.core.errors import ValidationError
from leftfold.core.limits import SECOND
from leftfold.engine import Engine
from leftfold.redrive import CANARIES_MAX, Phase, Step, Wish
from leftfold.store.replies import Incident

_SHOWN: Final = 50  # incidents
_PER: Final = {"s": 1, "m": 60, "h": 3600}


@click.command("redrive")
@with_letters
@click.option("--reason", metavar="TEXT", help="Why they will do better now; it stands on the log of each letter.")
@click.option(
    "--rate", metavar="N/s", help="No more than so many per s, m or h, as in 10/s.  [default: as fast as can be]"
)
@click.option(
    "--canary",
    type=click.IntRange(0, CANARIES_MAX),
    default=0,
    metavar="N",
    help="So many first; the others if these succeed.",
)
@click.option("--go", is_flag=True, help="Do it: without it, only what would be done is told.")
@click.option("--resume", metavar="ID", help="Go on with one that was interrupted.")
@with_actor
@with_store
@with_json
@click.pass_context
def redrive(
    context: click.Context, /, place: Place, *, reason: str | None, rate: str | None, canary: int, go: bool,
    resume: str | None, actor: str | None, as_json: bool, **asked: Any,
) -> None:  # fmt: skip
    """Try many dead letters again: all, or those of an incident, a kind, a queue, a tenant.

    Without --go nothing is done. A redrive is a job of its own: `leftfold jobs history` tells how far it came, and
    `leftfold jobs cancel` stops it. One that was interrupted or killed goes on with --resume. Letters that die while it
    runs are not taken once more, and those that are resolved are left alone.

    \b
    leftfold dlq redrive --incident 3f9a --reason "deployed the fix" --canary 10 --rate 50/s --go
    leftfold dlq redrive --resume 019a1e34-5922
    """
    if resume is not None:
        if rate is not None or canary or go or any(asked.values()):
            raise click.UsageError("--resume goes on as it was begun: no option but --reason goes with it")
        beginning_of(resume)
    elif reason is None:
        raise click.UsageError("Missing option '--reason'")
    wish = Wish(reason="resumed" if reason is None else reason, rate=_rate_of(rate), canaries=canary, **asked)
    wish.check()
    with opened(place, actor=actor) as engine:
        if resume is not None:
            context.exit(_run(engine, id_of(engine, resume), wish.reason, as_json=as_json))
        incidents = list(driving.look(engine, wish))
        if go and incidents:
            context.exit(_run(engine, driving.begin(engine, wish), wish.reason, as_json=as_json))
        _tell_plan(incidents, wish, as_json=as_json)


def _rate_of(text: str | None) -> float | None:
    """Read a rate as jobs per second."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?:/([smh]))?", text)
    if not match:
        raise ValidationError(f"rate {text!r} is not a rate: write 10/s, 100/m or 1000/h")
    return float(match[1]) / _PER[match[2] or "s"]


def _tell_plan(incidents: list[Incident], wish: Wish, *, as_json: bool) -> None:
    letters = sum(incident.open for incident in incidents)
    if as_json:
        emit({"go": False, "letters": letters, "incidents": [shapes.spelled_out(each) for each in incidents]})
        return
    if not incidents:
        click.echo("no dead letters", err=True)
        return
    click.echo("\n".join(incident_table(incidents[:_SHOWN], time.time_ns() // 1000)))
    if len(incidents) > _SHOWN:
        click.echo(f"and {number(len(incidents) - _SHOWN, 'incidents')} more", err=True)
    first = min(wish.canaries, letters)
    told = [f"{number(letters, 'letters')} would be tried again"]
    if first:
        told.append(f"{first} of them first, the others if {'it succeeds' if first == 1 else 'these succeed'}")
    if wish.rate is not None:
        told.append(f"in {span(round((letters - first) / wish.rate * SECOND))}")
    click.echo(f"\n{', '.join(told)}. Nothing is done yet: add --go", err=True)


def _run(engine: Engine, job_id: str, reason: str, *, as_json: bool) -> int:
    """Do it, and show how far it is."""
    click.echo(f"redrive {job_id}: if it is interrupted, leftfold dlq redrive --resume {job_id}", err=True)
    for number_ in (signal.SIGTERM, signal.SIGHUP):  # as by Ctrl-C: it is given back, and need not wait for its lease
        signal.signal(number_, lambda got, _: sys.exit(128 + got))
    line, told = ProgressLine(), 0
    try:
        for step in driving.go_on(engine, job_id, reason=reason):
            for refusal in step.refusals[told:]:
                line.clear()
                complain(refusal.code, f"job {refusal.job_id}: {refusal.message}")
            told = len(step.refusals)
            line.show(_progress(step))
    finally:
        line.clear()
    if as_json:
        emit(shapes.spelled_out(step))
    else:
        click.echo(_story(step))
    return 0 if step.phase is Phase.DONE and not step.refused else FAILURE


def _progress(step: Step) -> str:
    if step.phase is Phase.CANARIES:
        return f"waits for the canaries: {step.succeeded} of {step.canaries} succeeded"
    part = min((step.redriven + step.refused) / max(step.letters, 1), 1.0)
    return f"{bar(part)} {part:4.0%}  {step.redriven:,} of {step.letters:,} letters"


def _story(step: Step) -> str:
    again = f"{number(step.redriven, 'letters')} will be tried again"
    refused = f", {step.refused:,} cannot be" if step.refused else ""
    match step.phase:
        case Phase.STOPPED:
            return f"stopped: {clean(step.problem or '')}"
        case Phase.CANCELLED:
            return f"cancelled: {again}{refused}, the others were left alone"
        case _:
            return f"{again}{refused}; the redrive is job {step.job_id}"
