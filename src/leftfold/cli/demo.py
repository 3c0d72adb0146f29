"""`leftfold demo`: five jobs on their way through an embedded store. Every line is read back from its log."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from leftfold.cli.text import table
from leftfold.core.commands import Actor
from leftfold.core.errors import BrokenChainError, LeftfoldError
from leftfold.core.job import Job, fold, logged
from leftfold.core.lifecycle import Who
from leftfold.core.limits import DAY, SECOND
from leftfold.core.record import GENESIS, Record, check_chain, link, seal
from leftfold.core.retry import Policy
from leftfold.core.values import Failure
from leftfold.dialects import DIALECTS
from leftfold.dialects.run import runs
from leftfold.engine import Engine
from leftfold.opening import open as open_store
from leftfold.store.replies import Claim

KEEPER = Actor(who=Who.KEEPER, name="keeper")
_DAYS = DAY // SECOND


class Clock:
    """The demo's own time, from now on: three days pass in no time."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000

    def __call__(self) -> int:
        """Give the time."""
        return self.now


class Scene:
    """One job on its way."""

    def __init__(self, jobs: Engine, clock: Clock, kind: str, policy: Policy = Policy()) -> None:
        self.jobs = jobs
        self._clock = clock
        self._began = clock.now
        self._seen = 0
        self.job_id = jobs.enqueue(kind, policy=policy, by="ann").job_id
        self._tell("ann", "enqueue")

    @property
    def log(self) -> list[Record]:
        """Give the job's log, as the store has it."""
        return self.jobs.history(self.job_id)

    def say(self, who: str, what: str, act: Callable[[], object]) -> None:
        """Do something, and print what came of it or why it was refused."""
        try:
            act()
        except LeftfoldError as error:
            click.echo(f"  {self._time()}  {click.style('refused', fg='red'):<25} {who}: {what}: {error.code}")
        else:
            self._tell(who, what)

    def claim(self, worker: str) -> Claim:
        """Let a worker claim and start the job."""
        (claim,) = self.jobs.claim(worker, job_id=self.job_id, lease=60)
        self._tell(worker, "claim")
        self.say(worker, "start", lambda: self.jobs.start(claim))
        return claim

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.now += int(seconds * SECOND)

    def _tell(self, who: str, what: str) -> None:
        log = self.log
        for record in log[self._seen :]:
            event = click.style(record.event.wire, fg="cyan")
            told = f"by {record.who} {record.actor}" if record.who.value != record.actor else f"by the {record.actor}"
            state = click.style(_state(fold(log[: record.version])), bold=True)
            click.echo(f"  {self._time()}  {event:<25} {told}, the job is {state}")
        if len(log) == self._seen:
            click.echo(f"  {self._time()}  {'nothing new':<16} {who}: {what}, it is so already")
        self._seen = len(log)

    def _time(self) -> str:
        return click.style(f"{(self._clock.now - self._began) / SECOND:>8.1f} s", dim=True)


def _state(job: Job | None) -> str:
    return job.state.value if job else "nothing"


def _title(text: str) -> None:
    click.echo(f"\n{click.style(text, bold=True)}")


@click.command()
@click.option("--keep", type=click.Path(dir_okay=False), help="Keep the store in this new file, to look around in it.")
def demo(keep: str | None) -> None:
    """Watch five jobs in an embedded store: retries, a crash, an approval, a cancellation, a dead letter."""
    if keep is not None and Path(keep).exists():
        raise click.UsageError(f"{keep} exists already: name a new file.")
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        with open_store(f"sqlite:///{keep or Path(folder, 'demo.db')}", clock=clock) as jobs:
            click.echo(
                "A job's state is the left fold of its events. Five jobs in an SQLite file, and what becomes of them:"
            )
            _flaky(jobs, clock)
            crashed = _crash(jobs, clock)
            _approval(jobs, clock)
            _cancellation(jobs, clock)
            _poison(jobs, clock)
            _fold_and_chain(crashed)
            _dialects(crashed)
    # Right after `make demo` the command is not on the path: show it as it was called.
    called = sys.argv[0] if Path(sys.argv[0]).name == "leftfold" and not shutil.which("leftfold") else "leftfold"
    if keep is None:
        look = f"{called} demo --keep demo.db && {called} jobs list --store sqlite:///demo.db"
    else:
        look = f"{called} jobs list --store sqlite:///{keep}"
    click.echo(
        f"\nLook around:   {look}\nThe tables:    {called} lifecycle | {called} lifecycle --matrix"
        f"\nProve it:      {called} lifecycle check"
    )


def _flaky(jobs: Engine, clock: Clock) -> None:
    _title("1. A flaky job is tried again, later and later")
    scene = Scene(jobs, clock, "flaky")
    for pause in (1, 2):
        claim = scene.claim("worker-a")
        error = Failure(code="network", message="connection reset")
        scene.say("worker-a", "fail", partial(jobs.fail, claim, error))
        scene.wait(pause)
    claim = scene.claim("worker-b")
    scene.say("worker-b", "complete", lambda: jobs.complete(claim, "done"))


def _crash(jobs: Engine, clock: Clock) -> Scene:
    _title("2. A worker dies; its lease runs out, another one takes over, and the dead one comes back too late")
    scene = Scene(jobs, clock, "crash")
    zombie = scene.claim("worker-a")
    scene.say("keeper", "stall", lambda: jobs.stall(scene.job_id, by=KEEPER))
    scene.wait(61)
    scene.say("keeper", "stall", lambda: jobs.stall(scene.job_id, reason="lease expired", by=KEEPER))
    claim = scene.claim("worker-b")
    scene.say("worker-a", "complete", lambda: jobs.complete(zombie, "from the grave"))
    for _ in range(2):
        scene.say("worker-b", "complete", lambda: jobs.complete(claim, "from the living"))
    return scene


def _approval(jobs: Engine, clock: Clock) -> None:
    _title("3. A job waits three days for an approval and holds no worker meanwhile")
    scene = Scene(jobs, clock, "refund")
    claim = scene.claim("worker-a")
    scene.say("worker-a", "suspend", lambda: jobs.suspend(claim, "approved", deadline=3 * _DAYS))
    scene.wait(1 * _DAYS)
    for _ in range(2):
        scene.say("ann", "signal", lambda: jobs.signal(scene.job_id, "approved", {"by": "ann"}, by="ann"))
    again = scene.claim("worker-b")
    scene.say("worker-b", "complete", lambda: jobs.complete(again))


def _cancellation(jobs: Engine, clock: Clock) -> None:
    _title("4. Cancelled while it runs: asked first, heeded by its owner")
    scene = Scene(jobs, clock, "report")
    claim = scene.claim("worker-a")
    scene.say("ann", "cancel", lambda: jobs.cancel(scene.job_id, reason="no longer needed", by="ann"))
    scene.say("worker-a", "release", lambda: jobs.release(claim))
    scene.say("ann", "cancel", lambda: jobs.cancel(scene.job_id, by="ann"))


def _poison(jobs: Engine, clock: Clock) -> None:
    _title("5. A job that cannot succeed is set aside with a reason, looked at, and reopened")
    scene = Scene(jobs, clock, "import", Policy(max_failures=1))
    claim = scene.claim("worker-a")
    error = Failure(code="validation_failed", message="no such column")
    scene.say("worker-a", "fail", lambda: jobs.fail(claim, error))
    scene.say("olga", "requeue", lambda: jobs.requeue(scene.job_id, by="olga"))
    scene.say("olga", "requeue", lambda: jobs.requeue(scene.job_id, reason="column added", by="olga"))


def _fold_and_chain(scene: Scene) -> None:
    _title("The log is the truth")
    log = scene.log
    job = fold(log)
    same = job is not None and logged(job) == logged(scene.jobs.get(scene.job_id))
    click.echo(f"  folding the {len(log)} records of the second job again gives the same job: {same}")
    seals, head = [], GENESIS
    for record in log:
        head = link(head, record)
        seals.append(seal(head))
    check_chain(zip(log, seals, strict=True))
    click.echo("  its hash chain holds, from the first record to the last")
    forged = [*log]
    forged[2] = forged[3]
    try:
        check_chain(zip(forged, seals, strict=True))
    except BrokenChainError:
        click.echo("  with one record exchanged, the next one does not carry the hash of its content")


class _Row(NamedTuple):
    dialect: str
    state: str
    events: str


def _dialects(scene: Scene) -> None:
    _title("One history, five vocabularies (a name that the specification lacks is marked *)")
    log = scene.log
    rows = []
    for dialect in DIALECTS.values():
        steps = dialect.project(log)
        said = [f"{step.move.event}{'*' * step.ours}" for step in steps if step.move.event]
        rows.append(_Row(dialect.name, steps[-1].move.target, ", ".join(said)))
    last = ", ".join(f"run {run.attempt} {run.status}" for run in runs(log))
    rows.append(_Row("", "", f"({last})"))
    click.echo("\n".join("  " + line for line in table(["dialect", "state", "events"], rows)))
