"""`leftfold jobs cancel` and `leftfold jobs signal`: what people tell jobs."""

from collections.abc import Callable, Sequence

import click

from leftfold.cli import shapes
from leftfold.cli.exits import complain, exit_code
from leftfold.cli.store import Place, emit, opened, with_actor, with_json, with_store
from leftfold.cli.values import beginning_of, id_of, payload_of
from leftfold.core import limits
from leftfold.core.errors import RefusedError
from leftfold.core.lifecycle import LEASED, State
from leftfold.core.values import CancelMode
from leftfold.engine import Engine
from leftfold.store.replies import Receipt


@click.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--hard", is_flag=True, help="At once: what its handler comes to does not count any more.")
@click.option("--reason", metavar="TEXT", help="Why; it stands on the log.")
@with_actor
@with_store
@with_json
@click.pass_context
def cancel(
    context: click.Context, place: Place, *, job_ids: Sequence[str], hard: bool, reason: str | None,
    actor: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Cancel jobs. One that runs is asked to stop; success still wins.

    Its worker hears of it within a second or two, tells the handler, and ends the job without it after a grace. What is
    refused is said, the others are cancelled, and the exit code is that of the refusal.

    \b
    leftfold jobs cancel 019a1e34-5922 --reason "ordered twice"
    leftfold jobs list --kind report --state queued --all --json | jq -r .id | xargs leftfold jobs cancel
    """
    limits.text("reason", reason)
    for job_id in job_ids:
        beginning_of(job_id)
    mode = CancelMode.HARD if hard else CancelMode.SOFT
    with opened(place, actor=actor) as engine:
        code = _each(engine, job_ids, lambda found: engine.cancel(found, mode=mode, reason=reason), as_json=as_json)
    context.exit(code)


@click.command()
@click.argument("job_id", metavar="ID")
@click.argument("key")
@click.argument("payload", required=False)
@with_actor
@with_store
@with_json
@click.pass_context
def signal(
    context: click.Context, place: Place, *, job_id: str, key: str, payload: str | None, actor: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Answer what a job waits for under KEY, or will wait for.

    PAYLOAD is JSON; - reads it from standard input, @FILE from a file. Without one it is null. To say the same again is
    fine; another answer to the same key is refused.

    \b
    leftfold jobs signal 019a1e34-5922 approved '{"by": "ann"}'
    """
    beginning_of(job_id)
    limits.name("signal key", key)
    given = payload_of(payload)
    with opened(place, actor=actor) as engine:
        code = _each(engine, [job_id], lambda found: engine.signal(found, key, given), as_json=as_json)
    context.exit(code)


def _each(engine: Engine, job_ids: Sequence[str], act: Callable[[str], Receipt], *, as_json: bool) -> int:
    """Do it to each of these, say what came of it, and give the exit code."""
    code = 0
    for job_id in job_ids:
        try:
            receipt = act(id_of(engine, job_id))
        except RefusedError as refusal:
            complain(refusal.code, str(refusal))
            code = exit_code(type(refusal))
            continue
        if as_json:
            emit(shapes.spelled_out(receipt))
        else:
            click.echo(f"{receipt.job_id} {_story(receipt)}")
    return code


def _story(receipt: Receipt) -> str:
    if receipt.state is State.CANCELLED:
        return "is cancelled"
    if receipt.cancel_requested and receipt.state in LEASED:
        return f"is {receipt.state}: its handler is asked to stop"
    return f"is {receipt.state}: {'answered' if receipt.changed else 'it was answered so already'}"
