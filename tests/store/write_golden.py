"""Write the logs of the golden corpus that are not there yet: `python -m tests.store.write_golden`.

What is there stays: the corpus is what older versions wrote.
"""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw
from tests.store import corpus
from tests.store.stories import job_id

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import apply
from leftfold.core.job import Job
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.retry import Allowance, Backoff, Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor

if TYPE_CHECKING:
    from leftfold.core.record import Record

ANN: Final = c.Actor(who=Who.CLIENT, name="ann@häuser.example")
KEEPER: Final = c.Actor(who=Who.KEEPER, name="keeper-1")
OLGA: Final = c.Actor(who=Who.OPERATOR, name="olga")
WORKER: Final = c.Actor(who=Who.WORKER, name="worker-a")
FLAKY: Final = Failure(code="network", message="no route", type="OSError", traceback="line 1\nline 2")
BROKEN: Final = Failure(code="permanent", message='"no" \\ ☃ 😀', details=Raw(b'{"a":[1,2.5,null]}'))
SPEC: Final = Spec(
    kind="refund", payload=Raw('{"order":42,"who":"änn ☃"}'.encode()), queue="mail", priority=-3, key="order:42",
    tenant="acme", correlation_id="corr-7", cause="order-7",
)  # fmt: skip
POLICY: Final = Policy(
    max_failures=2,
    backoff=Backoff(base=SECOND, factor=3.0, cap=MINUTE, jitter=False),
    by_error={
        "network": Allowance(max_failures=3, delays=(SECOND, MINUTE)),
        "dependency": Allowance(max_failures=None),
    },
    lease=30 * SECOND,
    timeout=10 * MINUTE,
    on_exhausted="fail",
    hold_stalled=True,
)
YES: Final = Raw(b'{"yes":true}')


class Teller:
    """Tells the life of one job; a minute passes before each word."""

    def __init__(self, number: int) -> None:
        self.id = job_id(number)
        self.now = 1_700_000_000_000_000
        self.records: list[Record] = []
        self.told: Job | None = None

    @property
    def job(self) -> Job:
        assert self.told is not None
        return self.told

    @property
    def owner(self) -> c.Actor:
        return c.Actor(who=Who.OWNER, name="worker 1", attempt=self.job.attempt, token=f"token-{self.job.attempt}")

    def say(self, *commands: c.AnyCommand) -> None:
        for command in commands:
            self.now = max(self.now + MINUTE, self.told.due or 0 if self.told else 0)
            self.told, records = apply(self.told, command, self.now)
            self.records += records

    def enqueue(self, **asked: Any) -> None:
        self.say(c.Enqueue(by=ANN, job_id=self.id, **{"spec": Spec(kind="report"), **asked}))

    def run(self) -> c.Actor:
        attempt = self.job.attempt + 1
        self.say(c.Claim(by=c.Actor(who=Who.WORKER, name="worker 1"), token=f"token-{attempt}", direct=True))
        self.say(c.Start(by=self.owner))
        return self.owner


def _every_note(job: Teller) -> None:
    job.say(c.Receive(by=ANN, job_id=job.id, spec=Spec(kind="refund"), request_id="in-1"))
    job.say(c.Admit(by=ANN, spec=SPEC, policy=POLICY, delay=MINUTE, request_id="in-2"))
    job.say(c.Signal(by=ANN, key="early", payload=YES, request_id="early-1"))
    by = job.run()
    notes: tuple[e.AnyNote, ...] = (
        e.PlanGenerated(plan=Raw(b'["a","b"]')),
        e.NodeStarted(node="a", data=YES),
        e.StepStarted(step="s-1"),
        e.ToolInvocationStarted(tool="mail", invocation="i-1", data=YES),
        e.ToolInvocationFinished(tool="mail", invocation="i-1"),
        e.StepFinished(step="s-1", result=Raw(b"42")),
        e.EvidenceAdded(name="report.json", data=YES),
        e.Compensated(step="s-1", data=YES),
        e.NodeFinished(node="a"),
        e.Progress(fraction=0.5, message="half"),
        e.Custom(name="mine", data=Raw('"ü"'.encode())),
    )
    job.say(*(c.Note(by=by, note=note) for note in notes))
    job.say(c.Suspend(by=by, wait=Wait(until=WaitFor.TIMER, key="nap"), timeout=SECOND), c.Expire(by=KEEPER))
    job.say(c.Complete(by=job.run(), result=YES, request_id="done-1"))


def _dead_letter(job: Teller) -> None:
    job.enqueue(spec=SPEC, policy=Policy(max_failures=2))
    job.say(c.Fail(by=job.run(), error=FLAKY))
    job.say(c.Fail(by=job.run(), error=FLAKY, stage=Stage.FETCH, request_id="failed-2"))
    job.say(c.Note(by=OLGA, note=e.Custom(name="seen")))


def _reopened(job: Teller) -> None:
    job.enqueue(policy=POLICY, request_id="r-1")
    job.say(c.Fail(by=job.run(), error=BROKEN, permanent=True))
    job.say(c.Requeue(by=OLGA, reason="mended", delay=SECOND))
    job.say(c.Release(by=job.run(), reason="shutdown", delay=SECOND))
    job.run()
    job.say(c.Stall(by=OLGA, reason="switched off"), c.Requeue(by=KEEPER))
    job.say(c.Cancel(by=ANN, mode=CancelMode.HARD, reason="not needed"))


def _waiting_for_others(job: Teller) -> None:
    job.enqueue(after=(job_id(1), job_id(2)), delay=SECOND)
    job.say(c.Resume(by=KEEPER, outcomes={job_id(1): "succeeded", job_id(2): "dead_lettered"}))
    job.say(c.Suspend(by=job.run(), wait=Wait(until=WaitFor.SIGNAL, key="approved")))
    job.say(c.Signal(by=ANN, key="approved", payload=YES))
    by = job.run()
    job.say(c.Heartbeat(by=by), c.Cancel(by=ANN, reason="please"), c.Fail(by=by, error=FLAKY))


def _lost_owner(job: Teller) -> None:
    job.enqueue(policy=Policy(max_failures=1, on_exhausted="fail"))
    job.run()
    job.say(c.Stall(by=KEEPER))


def _set_aside(job: Teller) -> None:
    job.say(c.Receive(by=ANN, job_id=job.id, spec=SPEC))
    job.say(c.DeadLetter(by=ANN, error=BROKEN, reason_code=Reason.PARSE_ERROR, stage=Stage.INPUT))


def _held(job: Teller) -> None:
    job.enqueue(policy=POLICY)
    job.run()
    job.say(c.Stall(by=KEEPER, reason="no heartbeat"))


def _running(job: Teller) -> None:
    job.enqueue(spec=SPEC)
    job.say(c.Note(by=job.run(), note=e.Progress(fraction=0.125)))


def _suspended(job: Teller) -> None:
    job.enqueue()
    job.say(c.Suspend(by=job.run(), wait=Wait(until=WaitFor.SIGNAL, key="approved", deadline=job.now + MINUTE)))


def _retrying(job: Teller) -> None:
    job.enqueue(policy=POLICY)
    job.say(c.Fail(by=job.run(), error=FLAKY))


def _usual(job: Teller) -> None:
    job.enqueue()
    job.say(c.Complete(by=job.run()))


def _cancelled_in_time(job: Teller) -> None:
    job.enqueue()
    by = job.run()
    job.say(c.Cancel(by=ANN, reason="enough"), c.Note(by=by, note=e.CancelDelivered()), c.Cancel(by=by))


def _starved(job: Teller) -> None:
    job.enqueue()
    job.run()
    job.say(c.Stall(by=OLGA, reason="silent"))
    job.say(c.Note(by=WORKER, note=e.Starved(attempt=1, length=MINUTE)))


def _resolved(job: Teller) -> None:
    job.enqueue()
    job.say(c.Fail(by=job.run(), error=BROKEN, permanent=True))
    job.say(c.Note(by=OLGA, note=e.Remarked(text="asked the bank ☃\nthey look into it")))
    job.say(c.Note(by=OLGA, note=e.Resolved(reason="paid by hand"), request_id="settle"))


def _later(job: Teller) -> None:
    job.enqueue(delay=MINUTE)
    job.say(c.Claim(by=c.Actor(who=Who.WORKER, name="worker 1"), token="token-1", lease=MINUTE // 2))


LIVES: Final[Mapping[str, Callable[[Teller], None]]] = {
    "01-every-note": _every_note,
    "02-dead-letter": _dead_letter,
    "03-reopened": _reopened,
    "04-waiting-for-others": _waiting_for_others,
    "05-lost-owner": _lost_owner,
    "06-set-aside": _set_aside,
    "07-held": _held,
    "08-running": _running,
    "09-suspended": _suspended,
    "10-retrying": _retrying,
    "11-usual": _usual,
    "12-later": _later,
    "13-cancelled-in-time": _cancelled_in_time,
    "14-starved": _starved,
    "15-resolved": _resolved,
}


def main() -> None:
    """Write what is missing, and its checksums."""
    for number, (name, live) in enumerate(LIVES.items(), start=1):
        if name not in corpus.names():
            job = Teller(number)
            live(job)
            corpus.write(name, job.job, job.records)
            sys.stdout.write(f"{name}: {len(job.records)} events, {job.job.state}\n")
    lines = [f"{checksum}  {file}" for file, checksum in corpus.checksums().items()]
    corpus.CHECKSUMS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
