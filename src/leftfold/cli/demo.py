"""`leftfold demo`: a tour of the lifecycle in the terminal. Every line is decided by the engine's own core."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
from msgspec import Raw

from leftfold.cli.text import table
from leftfold.core import commands as c
from leftfold.core.decide import apply
from leftfold.core.errors import BrokenChainError, LeftfoldError
from leftfold.core.job import Job, fold, logged
from leftfold.core.lifecycle import Who
from leftfold.core.limits import DAY, SECOND
from leftfold.core.record import GENESIS, Record, check_chain, link
from leftfold.core.retry import Policy
from leftfold.core.values import Failure, Spec, Wait, WaitFor
from leftfold.dialects import DIALECTS
from leftfold.dialects.run import runs

ANN = c.Actor(who=Who.CLIENT, name="ann")
KEEPER = c.Actor(who=Who.KEEPER, name="keeper")
OPERATOR = c.Actor(who=Who.OPERATOR, name="olga")


class Scene:
    """One job on its way, with its log and a clock of its own."""

    def __init__(self, kind: str, policy: Policy = Policy()) -> None:
        self.now = 0
        self.job: Job | None = None
        self.log: list[Record] = []
        self.say(c.Enqueue(by=ANN, job_id=f"{kind}-1", spec=Spec(kind=kind), policy=policy))

    def say(self, command: c.AnyCommand) -> None:
        """Send a command, and print what it did or why it was refused."""
        try:
            self.job, records = apply(self.job, command, self.now)
        except LeftfoldError as error:
            said = f"{command.by.name}: {command.wire}"
            click.echo(f"  {_clock(self.now)}  {click.style('refused', fg='red'):<25} {said}: {error.code}")
            return
        self.log += records
        for record in records:
            event = click.style(record.event.wire, fg="cyan")
            told = f"by {record.who} {record.actor}" if record.who.value != record.actor else f"by the {record.actor}"
            click.echo(
                f"  {_clock(self.now)}  {event:<25} {told}, the job is {_state(fold(self.log[: record.version]))}"
            )
        if not records:
            click.echo(f"  {_clock(self.now)}  {'nothing new':<16} {command.by.name}: {command.wire}, it is so already")

    def claim(self, worker: str) -> c.Actor:
        """Let a worker claim and start the job, and give it as the owner it then is."""
        attempt = (self.job.attempt if self.job else 0) + 1
        token = f"secret of {worker}, attempt {attempt}"
        self.say(c.Claim(by=c.Actor(who=Who.WORKER, name=worker), token=token, lease=60 * SECOND))
        owner = c.Actor(who=Who.OWNER, name=worker, attempt=attempt, token=token)
        self.say(c.Start(by=owner))
        return owner

    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.now += seconds * SECOND


def _clock(now: int) -> str:
    return click.style(f"{now / SECOND:>8.1f} s", dim=True)


def _state(job: Job | None) -> str:
    return click.style(job.state.value, bold=True) if job else "nothing"


def _title(text: str) -> None:
    click.echo(f"\n{click.style(text, bold=True)}")


@click.command()
def demo() -> None:
    """Tour the lifecycle: retries, a crash, an approval, a cancellation, a dead letter, and the proof of it."""
    click.echo("A job's state is the left fold of its events. Five jobs, and what becomes of them:")
    _flaky()
    crashed = _crash()
    _approval()
    _cancellation()
    _poison()
    _fold_and_chain(crashed)
    _dialects(crashed)
    # Right after `make demo` the command is not on the path: show it as it was called.
    called = sys.argv[0] if Path(sys.argv[0]).name == "leftfold" and not shutil.which("leftfold") else "leftfold"
    click.echo(
        f"\nLook further:  {called} lifecycle | {called} lifecycle --matrix | {called} lifecycle --svg lifecycle.svg"
        f"\nProve it:      {called} lifecycle check"
    )


def _flaky() -> None:
    _title("1. A flaky job is tried again, later and later")
    scene = Scene("flaky")
    for pause in (1, 2):
        owner = scene.claim("worker-a")
        scene.say(c.Fail(by=owner, error=Failure(code="network", message="connection reset")))
        scene.wait(pause)
    scene.say(c.Complete(by=scene.claim("worker-b"), result=Raw(b'"done"')))


def _crash() -> Scene:
    _title("2. A worker dies; its lease runs out, another one takes over, and the dead one comes back too late")
    scene = Scene("crash")
    zombie = scene.claim("worker-a")
    scene.say(c.Stall(by=KEEPER))
    scene.wait(61)
    scene.say(c.Stall(by=KEEPER, reason="lease expired"))
    owner = scene.claim("worker-b")
    scene.say(c.Complete(by=zombie, result=Raw(b'"from the grave"')))
    done = c.Complete(by=owner, result=Raw(b'"from the living"'))
    scene.say(done)
    scene.say(done)
    return scene


def _approval() -> None:
    _title("3. A job waits three days for an approval and holds no worker meanwhile")
    scene = Scene("refund")
    owner = scene.claim("worker-a")
    scene.say(c.Suspend(by=owner, wait=Wait(until=WaitFor.SIGNAL, key="approved", deadline=scene.now + 3 * DAY)))
    scene.wait(86_400)
    scene.say(c.Signal(by=ANN, key="approved", payload=Raw(b'{"by":"ann"}')))
    scene.say(c.Signal(by=ANN, key="approved", payload=Raw(b'{"by":"ann"}')))
    scene.say(c.Complete(by=scene.claim("worker-b")))


def _cancellation() -> None:
    _title("4. Cancelled while it runs: asked first, heeded by its owner")
    scene = Scene("report")
    owner = scene.claim("worker-a")
    scene.say(c.Cancel(by=ANN, reason="no longer needed"))
    scene.say(c.Release(by=owner))
    scene.say(c.Cancel(by=ANN))


def _poison() -> None:
    _title("5. A job that cannot succeed is set aside with a reason, looked at, and reopened")
    scene = Scene("import", Policy(max_failures=1))
    scene.say(c.Fail(by=scene.claim("worker-a"), error=Failure(code="validation_failed", message="no such column")))
    scene.say(c.Requeue(by=OPERATOR))
    scene.say(c.Requeue(by=OPERATOR, reason="column added"))


def _fold_and_chain(scene: Scene) -> None:
    _title("The log is the truth")
    job = fold(scene.log)
    same = job is not None and scene.job is not None and logged(job) == logged(scene.job)
    click.echo(f"  folding the {len(scene.log)} records of {scene.log[0].job_id} again gives the same job: {same}")
    hashes = list(_hashes(scene.log))
    check_chain(zip(scene.log, hashes, strict=True))
    click.echo(f"  its hash chain holds, up to {hashes[-1].hex()[:16]}…")
    forged = [*scene.log]
    forged[2] = forged[3]
    try:
        check_chain(zip(forged, hashes, strict=True))
    except BrokenChainError as error:
        click.echo(f"  with one record exchanged: {error}")


def _hashes(log: list[Record]) -> Iterator[bytes]:
    head = GENESIS
    for record in log:
        head = link(head, record)
        yield head


class _Row(NamedTuple):
    dialect: str
    state: str
    events: str


def _dialects(scene: Scene) -> None:
    _title("One history, five vocabularies (a name that the specification lacks is marked *)")
    rows = []
    for dialect in DIALECTS.values():
        steps = dialect.project(scene.log)
        said = [f"{step.move.event}{'*' * step.ours}" for step in steps if step.move.event]
        rows.append(_Row(dialect.name, steps[-1].move.target, ", ".join(said)))
    last = ", ".join(f"run {run.attempt} {run.status}" for run in runs(scene.log))
    rows.append(_Row("", "", f"({last})"))
    click.echo("\n".join("  " + line for line in table(["dialect", "state", "events"], rows)))
