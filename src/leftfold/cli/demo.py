"""`leftfold demo`: some hundred jobs, three workers, one of them killed; and in the end every job is accounted for."""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from leftfold.app import Call
from leftfold.cli import demo_report
from leftfold.cli.demo_fleet import CONCURRENCY, LEASE, Fleet
from leftfold.cli.text import ProgressLine, bar, number, wrapped
from leftfold.core import events as e
from leftfold.core.errors import LeftfoldError
from leftfold.core.lifecycle import ENDED, State
from leftfold.core.record import Record
from leftfold.engine import Engine
from leftfold.store.replies import Summary

WORKERS: Final = ["worker-1", "worker-2", "worker-3"]
VICTIM: Final = "worker-2"
_MOST_SECONDS: Final = 120.0  # on any machine that is not much too busy it takes a fifth of that
_LOOK_EVERY: Final = 0.1
_STAMP: Final = 11  # columns in front of what is told

_TERMINATED: Final = 143


@click.command()
@click.option("--keep", type=click.Path(dir_okay=False), help="Keep the store in this new file.")
def demo(keep: str | None) -> None:
    """Watch some hundred jobs, three workers, and what becomes of the jobs of one that is killed.

    Everything is real: an SQLite file, worker processes, and SIGKILL. It takes about fifteen seconds, and prints how to
    look around in what it leaves behind.
    """
    if keep is not None and Path(keep).exists():
        raise click.UsageError(f"{keep} exists already: name a new file")
    if keep is not None and not Path(keep).absolute().parent.is_dir():
        raise click.UsageError(f"there is no folder to make {keep} in")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))  # by an exception: the workers must not stay
    with _folder(stays=keep is None) as folder:
        file = Path(keep).absolute() if keep else folder / "demo.db"
        # For this process and for the workers, which inherit it. The app reads it when it is imported.
        os.environ["LEFTFOLD_DATABASE_URL"] = url = f"sqlite:///{quote(str(file))}"
        from leftfold.cli.demo_app import app, calls  # noqa: PLC0415 - it reads where the store is when it is loaded

        with app:
            show = Show(app.engine)
            show.enqueue(calls())
            with Fleet(WORKERS, folder) as fleet:
                show.watch(fleet)
            demo_report.report(app.engine, show.jobs, show.lost)
            demo_report.look_further(app.engine, url, file if keep else folder, show.lost)


@contextmanager
def _folder(*, stays: bool) -> Iterator[Path]:
    """Make a folder for the store and the log lines of the workers. It stays if all went well and it is wanted."""
    folder = Path(tempfile.mkdtemp(prefix="leftfold-demo-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not stays:
        shutil.rmtree(folder, ignore_errors=True)


class Show:
    """The demo while it runs: what is to be told, and a line that says how far it is."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._began = time.monotonic()
        self._line = ProgressLine()
        self.jobs = 0
        self._killed_at = 0
        self._slow_before: set[str] = set()
        self.lost: list[str] = []  # the jobs that were killed with their worker
        self._noticed = self._taken_over = self._approved = False

    def tell(self, text: str) -> None:
        """Say what happened, and when."""
        self._line.clear()
        stamp = click.style(f"{time.monotonic() - self._began:>6.1f} s", dim=True)
        click.echo(f"{stamp}   {wrapped(text, _STAMP)}")

    def enqueue(self, calls: list[Call[Any]]) -> None:
        """Make all jobs."""
        click.echo(click.style("Three workers, one SQLite file, and a worker that will not live to the end", bold=True))
        self.jobs = len(calls)
        self._engine.enqueue_many([call.job for call in calls])
        kinds = Counter(call.of.handler.kind for call in calls)
        mixed = ", ".join(f"{kinds[kind]} {kind} ({nature})" for kind, nature in demo_report.KINDS.items())
        self.tell(f"{number(self.jobs, 'jobs')} were enqueued in one transaction: {mixed}")

    def watch(self, fleet: Fleet) -> None:
        """Look on until all jobs have ended, and kill a worker in between."""
        processes = ", ".join(f"{name} (pid {fleet.pid(name)})" for name in WORKERS)
        self.tell(f"started {processes}, each with room for {CONCURRENCY} jobs at once")
        try:
            while self._look(fleet) < self.jobs:
                if time.monotonic() - self._began > _MOST_SECONDS:
                    raise LeftfoldError(f"the jobs did not end within {_MOST_SECONDS:.0f} s: is this machine busy?")
                time.sleep(_LOOK_EVERY)
            self._line.show("all jobs have ended, the workers leave")
            fleet.left()
        finally:
            self._line.clear()
        self.tell("all jobs have ended, and the two workers that were left have ended by themselves")

    def _look(self, fleet: Fleet) -> int:
        """Look once, and give how many jobs have ended."""
        fleet.check()
        counts: Counter[State] = Counter()
        for count in self._engine.counts():
            counts[count.state] += count.jobs
        ended = sum(jobs for state, jobs in counts.items() if state in ENDED)
        at_work = self._engine.list(states=(State.CLAIMED, State.RUNNING)).jobs
        if not self._approved and ended >= self.jobs // 2:
            self._approve()
        if not self.lost and ended >= self.jobs // 4:
            self._kill_if_busy(fleet, at_work)
        elif self.lost and not self._taken_over:
            self._hear_of_the_lost()
        self._line.show(self._told(ended, counts[State.RETRYING], at_work))
        return ended

    def _approve(self) -> None:
        """Answer what one job waits for, as a person would hours later."""
        for job in self._engine.list(states=State.WAITING, kind="payout").jobs:
            waits = (time.time_ns() // 1000 - job.updated_at) / 1_000_000
            self._engine.signal(job.id, "approved", {"by": "ann"}, by="ann")
            self._approved = True
            self.tell(
                f"payout {job.id[:8]}… has waited {waits:.1f} s for an approval, and held no worker; ann approves it "
                "(leftfold jobs signal), and it goes on"
            )

    def _told(self, ended: int, again: int, at_work: tuple[Summary, ...]) -> str:
        by_worker = Counter(_name(job) for job in at_work)
        busy = ", ".join(f"{name} {'killed' if self.lost and name == VICTIM else by_worker[name]}" for name in WORKERS)
        return (
            f"{bar(ended / self.jobs)} {ended} of {self.jobs} jobs have ended; at work: {busy}; "
            f"{again} to be tried again"
        )

    def _kill_if_busy(self, fleet: Fleet, at_work: tuple[Summary, ...]) -> None:
        """Kill the victim when a slow job has just begun there: that one cannot have ended before the signal comes."""
        slow = {job.id for job in at_work if job.kind == "report" and _name(job) == VICTIM}
        fresh, self._slow_before = slow - self._slow_before, slow
        if not fresh:
            return
        pid = fleet.pid(VICTIM)
        fleet.kill(VICTIM)
        self._killed_at = time.time_ns() // 1000
        held = [job for job in self._engine.list(states=(State.CLAIMED, State.RUNNING)).jobs if _name(job) == VICTIM]
        # A slow one comes first: its history shows best what happened.
        self.lost = [job.id for job in sorted(held, key=lambda job: job.kind != "report")]
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(job.kind for job in held).items()))
        told = click.style(f"{VICTIM} (pid {pid}) was killed with SIGKILL", fg="red", bold=True)
        self.tell(f"{told} while it ran {number(len(held), 'jobs')}: {kinds}")

    def _hear_of_the_lost(self) -> None:
        """Say so when all of them are back in the queue, and when all of them have somebody else."""
        since = [
            [record for record in self._engine.history(job_id) if record.at > self._killed_at] for job_id in self.lost
        ]
        keepers = _who(since, e.Stalled)
        if keepers and not self._noticed:
            self._noticed = True
            self.tell(
                f"its leases of {LEASE:g} s ran out: {' and '.join(sorted(set(keepers)))} noticed, and put its "
                f"{number(len(self.lost), 'jobs')} back into the queue"
            )
        if owners := _who(since, e.Claimed):
            self._taken_over = True
            took = click.style(f"{' and '.join(sorted(set(owners)))} took over", fg="green", bold=True)
            self.tell(f"{took} all that {VICTIM} had")


def _who(logs: list[list[Record]], event: type[e.Transition]) -> list[str]:
    """Give who said this of each job, or nothing as long as it was not said of all."""
    said = [next((_short(each.actor) for each in log if isinstance(each.event, event)), None) for log in logs]
    return [name for name in said if name] if all(said) else []


def _short(worker: str) -> str:
    """Give a worker's name without what tells two of one name apart."""
    return worker.partition(":")[0]


def _name(job: Summary) -> str:
    return _short(job.owner or "")
