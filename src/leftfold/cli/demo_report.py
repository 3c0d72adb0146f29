"""What `leftfold demo` says in the end: all jobs, the dead letter, one history, and whether the logs are true."""

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from leftfold.asking import PAGE_MAX
from leftfold.cli.dlq import letter_of
from leftfold.cli.showing import SHORT_ID, history_lines, styled
from leftfold.cli.text import clean, number, table, wrapped
from leftfold.core import events as e
from leftfold.core.errors import LeftfoldError
from leftfold.core.lifecycle import State
from leftfold.engine import Engine
from leftfold.store.replies import Summary

#: What each kind of the demo's jobs is like.
KINDS: Final = {"resize": "quick", "fetch": "flaky", "report": "slow", "invoice": "poison", "payout": "waits"}


def report(engine: Engine, expected: int, lost: Sequence[str]) -> None:
    """Tell how it ended, or raise what is wrong."""
    jobs = engine.list(limit=PAGE_MAX).jobs
    _account(engine, jobs, expected, lost)
    _letter(engine, jobs)
    if lost:
        _title("One job's history: its worker was killed, another one took it over")
        click.echo("\n".join(history_lines(engine.history(lost[0]), indent=2)))
    _verify(engine)


def _title(text: str) -> None:
    click.echo(f"\n{click.style(text, bold=True)}")


def _account(engine: Engine, jobs: Sequence[Summary], expected: int, lost: Sequence[str]) -> None:
    _title("Every job is accounted for")
    states = Counter((job.kind, job.state) for job in jobs)
    attempts: Counter[str] = Counter()
    for job in jobs:
        attempts[job.kind] += job.attempt
    shown = (State.SUCCEEDED, State.DEAD_LETTERED)
    rows = [
        [kind, nature, str(sum(job.kind == kind for job in jobs)), *(str(states[kind, s] or "·") for s in shown),
         str(attempts[kind])]
        for kind, nature in KINDS.items()
    ]  # fmt: skip
    head = ["kind", "", "jobs", *(styled(state) for state in shown), "attempts"]
    click.echo("\n".join(f"  {line}" for line in table(head, rows)))
    told = Counter(type(record.event) for job in jobs for record in engine.history(job.id))
    succeeded, aside = told[e.Succeeded], told[e.DeadLettered]
    if not len(jobs) == succeeded + aside == expected:
        raise LeftfoldError(f"of {expected} jobs {succeeded} succeeded and {aside} were set aside: that is a bug")
    _say(
        f"{succeeded} succeeded + {aside} set aside = {expected} enqueued: none was lost, and none succeeded twice. "
        f"{number(told[e.Retried], 'attempts')} failed and were tried again; {number(len(lost), 'attempts')} died "
        "with their worker."
    )


def _letter(engine: Engine, jobs: Sequence[Summary]) -> None:
    _title("The dead letter, explained")
    job = engine.get(next(job.id for job in jobs if job.state is State.DEAD_LETTERED))
    letter = letter_of(engine.history(job.id)).event
    payload = bytes(job.spec.payload).decode()
    _say(f"{job.spec.kind} {job.id} with {clean(payload)} failed {letter.attempts} times, which is all that its kind "
         f"allows ({letter.reason_code}), always with {letter.error.type}: {clean(letter.error.message)}")  # fmt: skip
    for line in (letter.error.traceback or "").rstrip().splitlines():
        click.echo(click.style(f"    {clean(line)}", dim=True))
    _say("It is kept, and out of the way of all others, until somebody says `leftfold dlq retry`.")


def _verify(engine: Engine) -> None:
    _title("The log is the truth")
    verdict = engine.verify()
    if verdict.total:
        raise LeftfoldError(f"verify found {number(verdict.total, 'things')} that cannot be so: that is a bug")
    amount = f"{number(verdict.jobs, 'jobs')} with {number(verdict.events, 'events')}"
    clean_ = click.style("clean", fg="green")
    _say(f"verify: {clean_}: {amount}, each job derived anew from its events, each hash chain whole")


def _say(text: str) -> None:
    click.echo(f"  {wrapped(text, 2)}")


def look_further(engine: Engine, url: str, place: Path, lost: Sequence[str]) -> None:
    """Say which commands show more; they work as they are printed."""
    _title("Look further")
    (letter,) = engine.list(states=State.DEAD_LETTERED).jobs
    # Right after `make demo` the command is not on the path: show it as it was called.
    called = sys.argv[0] if Path(sys.argv[0]).name == "leftfold" and not shutil.which("leftfold") else "leftfold"
    rows = [
        ("the store of this demo:", f"export LEFTFOLD_DATABASE_URL={url}"),
        ("the slow jobs:", f"{called} jobs list --kind report"),
        *[("the history above, in other words:", f"{called} jobs history {job[:SHORT_ID]} --dialect reliability")
          for job in lost[:1]],
        ("the job that waited:", f"{called} jobs list --kind payout"),
        ("what went wrong, and how often:", f"{called} dlq incidents"),
        ("all about the dead letter:", f"{called} dlq show {letter.id[:SHORT_ID]}"),
        ("derive everything anew once more:", f"{called} verify"),
        ("the life of any job:", f"{called} lifecycle"),
    ]  # fmt: skip
    width = max(len(what) for what, _ in rows)
    for what, command in rows:
        click.echo(f"  {click.style(what.ljust(width), dim=True)}  {command}")
    click.echo(f"\n  It is all in {place}: delete that when you have seen enough.")
