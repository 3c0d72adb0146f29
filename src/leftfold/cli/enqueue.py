"""`leftfold enqueue`: make a job."""

import sys
from typing import Any, Final

import click

from leftfold import asking
from leftfold.asking import NewJob
from leftfold.cli import shapes
from leftfold.cli.store import Place, emit, opened, with_actor, with_json, with_store
from leftfold.cli.text import ago, clean
from leftfold.cli.values import beginning_of, due_of, id_of, payload_of, span_of
from leftfold.core import limits
from leftfold.core.commands import Actor
from leftfold.core.lifecycle import Who
from leftfold.core.retry import DEFAULT_POLICY, Policy
from leftfold.store.replies import Receipt

_DEFAULT: Final = DEFAULT_POLICY
_ANY_ID: Final = "00000000-0000-7000-8000-000000000000"


@click.command()
@click.argument("kind")
@click.argument("payload", required=False)
@click.option("--queue", metavar="NAME", default="default", show_default=True)
@click.option(
    "--priority", metavar="N", default="0", show_default=True, help="P0, P1, P2, P3 or a number; more is sooner."
)
@click.option("--due", metavar="WHEN", help="Not before: 30, 30s, 5m, 2h, 1d from now, or 2026-12-24T18:00:00+01:00.")
@click.option("--key", metavar="KEY", help="Only one live job of the tenant and kind has it.")
@click.option(
    "--on-conflict",
    type=click.Choice(asking.ON_CONFLICT),
    default="return",
    show_default=True,
    help="If the key is taken: give that job, fail, do nothing, or replace it.",
)
@click.option("--after", metavar="ID", multiple=True, help="Not before this job has ended; may be repeated.")
@click.option("--correlation-id", metavar="ID", help="What it belongs to; jobs can be listed by it.")
@click.option("--cause", metavar="ID", help="What it was that made it.")
@click.option("--tenant", metavar="NAME", default="", help="Whose it is.")
@click.option("--request-id", metavar="ID", help="Asked again with the same, no second job is made.")
@click.option("--max-failures", metavar="N", type=int, default=_DEFAULT.max_failures, show_default=True)
@click.option("--lease", metavar="SPAN", default="60s", show_default=True, help="How long a worker has it unheard of.")
@click.option("--timeout", metavar="SPAN", help="How long an attempt may take.")
@click.option(
    "--on-exhausted",
    type=click.Choice(["dead_letter", "fail"]),
    default=_DEFAULT.on_exhausted,
    show_default=True,
    help="What becomes of it after its last failure.",
)
@click.option("--hold-stalled", is_flag=True, help="Keep it back if its worker was lost, until somebody looks.")
@click.option("--verbose", "-v", is_flag=True, help="Say what was done, also where nobody watches.")
@with_actor
@with_store
@with_json
def enqueue(
    place: Place, kind: str, payload: str | None, actor: str | None, *, as_json: bool, verbose: bool, **options: Any
) -> None:
    """Make a job of this KIND, and print its id.

    PAYLOAD is JSON; - reads it from standard input, @FILE from a file. Without one it is null.

    \b
    leftfold enqueue refund '{"order": 42}' --key order:42
    leftfold enqueue report @report.json --due 2h --queue slow
    leftfold enqueue cleanup --after "$(leftfold enqueue import)"
    """
    after, on_conflict, request_id = options.pop("after"), options.pop("on_conflict"), options.pop("request_id")
    job = _job(kind, payload, options)
    # Everything is checked before there is a store: bad input makes no file.
    asking.enqueue(job, _ANY_ID, Actor(who=Who.CLIENT, name=actor or "somebody"), request_id)
    limits.most("jobs waited for", after, limits.WAIT_JOBS_MAX)
    for other in after:
        beginning_of(other)
    with opened(place, create=not after, actor=actor) as engine:
        job = job._replace(after=[id_of(engine, other) for other in after])
        (receipt,) = engine.enqueue_many([job], on_conflict=on_conflict, request_id=request_id)
    _tell(job, receipt, as_json=as_json, verbose=verbose)


def _job(kind: str, payload: str | None, options: dict[str, Any]) -> NewJob:
    policy = Policy(
        max_failures=options.pop("max_failures"),
        lease=span_of("lease", options.pop("lease"), limits.LEASE_MIN, limits.LEASE_MAX) or _DEFAULT.lease,
        timeout=span_of("timeout", options.pop("timeout"), 1, limits.DELAY_MAX),
        on_exhausted=options.pop("on_exhausted"),
        hold_stalled=options.pop("hold_stalled"),
    )
    due = due_of(options.pop("due"))
    return NewJob(kind, payload_of(payload), due=due, policy=policy, **options)


def _tell(job: NewJob, receipt: Receipt | None, *, as_json: bool, verbose: bool) -> None:
    """Give the id to programs, and the rest to people."""
    if as_json:
        emit(shapes.spelled_out(receipt))
    elif receipt is not None:
        click.echo(receipt.job_id)
    watched = sys.stdout is not None and sys.stdout.isatty() and sys.stderr.isatty()
    if verbose or (watched and not as_json):
        click.echo(click.style(_story(job, receipt), dim=True), err=True)


def _story(job: NewJob, receipt: Receipt | None) -> str:
    if receipt is None:
        return f"nothing was made: a live job has the key {clean(job.key or '')}"
    if not receipt.changed:
        return f"nothing was made: this job has the key {clean(job.key or '')}, and is {receipt.state}"
    due = ""
    if isinstance(job.due, float):
        due = f", due {ago(round(job.due * limits.SECOND), 0)}"
    elif job.due is not None:
        due = f", due {job.due}"
    return f"{receipt.state}: {job.kind} in {job.queue}{due}"
