"""`leftfold worker`: run an app's jobs. `leftfold workers`: see who does."""

import logging
import os
import signal
import sys
import threading
import time
from typing import Any

import click
import msgspec

from leftfold.cli.loading import load_app
from leftfold.cli.showing import fitted
from leftfold.cli.store import Place, emit, opened, with_json, with_store
from leftfold.cli.text import ago, clean
from leftfold.cli.values import span_of
from leftfold.core import limits
from leftfold.store.replies import WorkerView

#: A loop that has not run for so many seconds is dead, or something blocks it.
_SILENT = 15.0
#: How long threads of handlers have to end when everything else has.
_STUCK_SECONDS = 2.0


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
    default="30s",
    show_default=True,
    metavar="SPAN",
    help="How long attempts may go on when the worker is to stop; then they are given back.",
)
@click.option(
    "--cancel-grace",
    default="30s",
    show_default=True,
    metavar="SPAN",
    help="How long a handler may take to stop when its job is cancelled; then it ends without it.",
)
@click.option(
    "--poll",
    default="1s",
    show_default=True,
    metavar="SPAN",
    help="How often to look for jobs, and for cancellations, that nobody told us of.",
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
    *, name: str, queues: str | None, concurrency: int, processes: int, until_idle: bool, grace: str,
    cancel_grace: str, poll: str, worker: str | None, log_level: str, log_format: Any,
) -> None:  # fmt: skip
    """Run the jobs of an app, from the store that the app names.

    SIGTERM or Ctrl-C stop the claims and let attempts end within the grace; a second one stops them now. Jobs that did
    not end are given back, uncharged. A worker that dies is noticed by any other one when its leases run out.

    \b
    leftfold worker -A jobs:app
    leftfold worker -A jobs:app --queues mail,reports --concurrency 50 --processes 4
    leftfold worker -A jobs:app --until-idle
    """
    for number in (signal.SIGTERM, signal.SIGINT):  # as long as nothing has begun there is nothing to bring to an end,
        signal.signal(number, lambda *_: os._exit(0))  # and whoever imports the app may catch any exception
    from leftfold.worker import Worker  # noqa: PLC0415 - the help needs none
    from leftfold.worker.logs import set_up  # noqa: PLC0415 - the help needs none
    from leftfold.worker.processes import Processes, is_child  # noqa: PLC0415 - the help needs none

    child = is_child()
    made = Worker(
        load_app(name),
        queues=None if queues is None else _names(queues),
        concurrency=concurrency,
        grace=_seconds("grace", grace, 0, limits.DAY),
        cancel_grace=_seconds("cancel grace", cancel_grace, 0, limits.DAY),
        until_idle=until_idle,
        poll=_seconds("poll", poll, limits.SECOND // 100, limits.MINUTE),
        name=worker,
    )
    set_up(log_level, log_format)
    if processes > 1 and not child:
        with made.app:
            made.app.engine.clock()  # what is wrong with the store is said once, and not by every child again and again
        Processes(processes, [sys.executable, "-m", "leftfold", *sys.argv[1:]], until_idle=until_idle).run()
    else:
        made.run()
        _leave_stuck_threads()


def _leave_stuck_threads() -> None:
    """End without threads that handlers began and nobody can stop: Python itself would wait for them for ever."""
    for number in (signal.SIGTERM, signal.SIGINT):  # who asks once more only repeats himself
        signal.signal(number, signal.SIG_IGN)
    patience = time.monotonic() + _STUCK_SECONDS
    while _others() and time.monotonic() < patience:
        time.sleep(0.01)
    if names := ", ".join(thread.name for thread in _others()):
        logging.getLogger("leftfold.worker").warning("leaving without threads that do not end: %s", names)
        logging.shutdown()
        os._exit(0)


def _others() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]


def _names(queues: str) -> list[str]:
    found = [name.strip() for name in queues.split(",")]
    for name in found:
        limits.name("queue", name)
    return found


def _seconds(what: str, text: str, low: int, high: int) -> float:
    return (span_of(what, text, low, high) or 0) / limits.SECOND


@click.command()
@with_store
@with_json
def workers(place: Place, *, as_json: bool) -> None:
    """List the workers that run, or died without a word, and say which of their loops are silent."""
    with opened(place) as engine:
        found = [_shape(each) for each in engine.workers()]
    if as_json:
        for each in found:
            emit(each)
    elif found:
        click.echo("\n".join(_table(found)))
    else:
        click.echo("no workers", err=True)


def _shape(view: WorkerView) -> dict[str, Any]:
    told = msgspec.json.decode(view.told)
    age = view.age / 1_000_000
    loops = {name: round(at + age, 1) for name, at in told.pop("loops", {}).items()}
    silent = sorted(name for name, seconds in loops.items() if seconds > _SILENT)
    return {"worker": view.name, "started_at": view.started_at, "age": round(age, 1), **told, "loops": loops,
            "silent": silent}  # fmt: skip


def _table(found: list[dict[str, Any]]) -> list[str]:
    return fitted({
        "worker": [clean(each["worker"]) for each in found],
        "running": [f"{each.get('running', '?')} of {each.get('concurrency', '?')}" for each in found],
        "done": [str(each.get("done", "")) for each in found],
        "heard of": [_heard(each["age"]) for each in found],
        "silent loops": [click.style(", ".join(each["silent"]), fg="red") if each["silent"] else "" for each in found],
        "queues": [clean(", ".join(each.get("queues") or ["all"])) for each in found],
        "pid": [str(each.get("pid", "")) for each in found],
        "host": [clean(each.get("host", "")) for each in found],
    }, least=4)  # fmt: skip


def _heard(seconds: float) -> str:
    told = ago(0, round(seconds * limits.SECOND))
    return click.style(told, fg="red") if seconds > _SILENT else told
