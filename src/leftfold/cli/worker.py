"""`leftfold worker`: run an app's jobs. `leftfold workers`: see who does."""

import os
import sys
from typing import Any

import click
import msgspec

from leftfold.cli.loading import load_app
from leftfold.cli.store import Place, emit, opened, with_json, with_store
from leftfold.cli.text import span, table
from leftfold.store.replies import WorkerView

#: A loop that has not run for so many seconds is dead, or something blocks it.
_SILENT = 15.0


@click.command()
@click.option("-A", "--app", "name", required=True, metavar="MODULE:APP", help="The App, for example jobs:app.")
@click.option("-Q", "--queues", metavar="NAMES", help="Only these queues, with commas between them.  [default: all]")
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=16,
    show_default=True,
    help="How many attempts run at once, in each process.",
)
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="How many processes; those that crash are started anew.",
)
@click.option("--until-idle", is_flag=True, help="End when nothing is due, runs, or will be tried again.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long attempts may go on when the worker is to stop; then they are given back.",
)
@click.option(
    "--poll",
    type=click.FloatRange(0.01, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look for jobs that nobody told us of.",
)
@click.option("--name", "worker", metavar="NAME", help="How the worker is called on the log.  [default: the host]")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people or for programs.",
)
def worker(
    *, name: str, queues: str | None, concurrency: int, processes: int, until_idle: bool, grace: float, poll: float,
    worker: str | None, log_level: str, log_format: Any,
) -> None:  # fmt: skip
    """Run the jobs of an app, from the store that the app names.

    SIGTERM or Ctrl-C stop the claims and let attempts end within the grace; a second one stops them now. Jobs that did
    not end are given back, uncharged. A worker that dies is noticed by any other one when its leases run out.

    \b
    leftfold worker -A jobs:app
    leftfold worker -A jobs:app --queues mail,reports --concurrency 50 --processes 4
    leftfold worker -A jobs:app --until-idle
    """
    from leftfold.worker import Worker  # noqa: PLC0415 - the help needs none
    from leftfold.worker.logs import set_up  # noqa: PLC0415 - the help needs none

    app = load_app(name)
    wanted = None if queues is None else [each.strip() for each in queues.split(",") if each.strip()]
    made = Worker(
        app, queues=wanted, concurrency=concurrency, grace=grace, until_idle=until_idle, poll=poll, name=worker
    )
    set_up(log_level, log_format)
    if processes > 1 and "LEFTFOLD_WORKER_CHILD" not in os.environ:
        from leftfold.worker.processes import Processes  # noqa: PLC0415 - only who wants several needs it

        Processes(processes, [sys.executable, "-m", "leftfold", *sys.argv[1:]]).run()
    else:
        made.run()


@click.command()
@with_store
@with_json
def workers(place: Place, *, as_json: bool) -> None:
    """List the workers that run, or died without a word, and say which of their loops are silent."""
    with opened(place) as engine:
        found = engine.workers()
    for each in found if as_json else ():
        emit(_shape(each))
    if not as_json:
        if not found:
            click.echo("no workers", err=True)
            return
        rows = [_row(_shape(each)) for each in found]
        click.echo("\n".join(table(("WORKER", "HOST", "PID", "RUNS", "DONE", "HEARD OF", "SILENT LOOPS"), rows)))


def _shape(view: WorkerView) -> dict[str, Any]:
    told = msgspec.json.decode(view.told)
    age = view.age / 1_000_000
    loops = {name: round(at + age, 1) for name, at in told.pop("loops", {}).items()}
    silent = sorted(name for name, seconds in loops.items() if seconds > _SILENT)
    return {"worker": view.name, "started_at": view.started_at, "age": round(age, 1), **told, "loops": loops,
            "silent": silent}  # fmt: skip


def _row(shape: dict[str, Any]) -> tuple[str, ...]:
    heard = f"{span(int(shape['age'] * 1_000_000))} ago"
    return (
        str(shape["worker"]), str(shape.get("host", "")), str(shape.get("pid", "")), str(shape.get("running", "")),
        str(shape.get("done", "")), heard, ", ".join(shape["silent"]) or "-",
    )  # fmt: skip
