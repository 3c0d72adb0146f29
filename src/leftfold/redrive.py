"""Dead letters tried again by the thousand: a job of its own, whose log says who does it, why, and how far it is.

Nothing of it lives in the process that does it. What it tries again are the letters that were there when it began; one
that was tried again since then is none of them, whatever became of it. So whoever goes on with it looks anew.
"""

import os
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final

import msgspec
from msgspec import Raw, field

from leftfold.asking import PAGE_MAX
from leftfold.core import events as e
from leftfold.core import limits
from leftfold.core.commands import Actor
from leftfold.core.errors import IllegalTransitionError, JobEndedError, LeftfoldError, ValidationError
from leftfold.core.frozen import Frozen
from leftfold.core.job import Job
from leftfold.core.lifecycle import ENDED, State, Who
from leftfold.core.limits import FAILURES_MAX, SECOND
from leftfold.core.retry import Policy
from leftfold.core.values import Failure
from leftfold.engine import Engine
from leftfold.store.ops import Outcome
from leftfold.store.replies import Claim, Incident, Receipt, Summary

KIND: Final = "leftfold.redrive"
QUEUE: Final = "leftfold"
CANARIES_MAX: Final = 100
RATE_MAX: Final = 10_000.0

_POLICY: Final = Policy(lease=15 * SECOND, max_failures=FAILURES_MAX, on_exhausted="fail")
_BEAT: Final = 2.0  # seconds until the lease is renewed, and a wish to stop is heard
_LOOK: Final = 0.5  # seconds between two looks at the canaries
_BATCH: Final = 100
_BATCHES_PER_SECOND: Final = 4  # where there is a rate


class Wish(Frozen):
    """Which dead letters are to be tried again, why, how fast, and how many of them before all others.

    `rate` is jobs per second. Letters that are resolved or frozen are left alone.
    """

    reason: str
    incident: str | None = None
    kind: str | None = None
    queue: str | None = None
    tenant: str | None = None
    rate: float | None = None
    canaries: int = 0

    def check(self) -> None:
        """Refuse what cannot be meant."""
        limits.words("reason", self.reason)
        for what in ("kind", "queue", "tenant"):
            if (value := getattr(self, what)) is not None:
                limits.name(what, value, empty=what == "tenant")
        limits.between("canaries", self.canaries, 0, CANARIES_MAX)
        if self.rate is not None and not 0 < self.rate <= RATE_MAX:
            raise ValidationError(f"rate is {self.rate:g} jobs per second: it lies above 0, and not above {RATE_MAX:g}")


class Plan(Frozen):
    """What was there when it began, and which of them go first."""

    letters: int
    canaries: list[str] = field(default_factory=list)


class Phase(StrEnum):
    """How far it is."""

    CANARIES = "canaries"
    REST = "rest"
    DONE = "done"
    STOPPED = "stopped"  # a canary did not succeed
    CANCELLED = "cancelled"


class Step(Frozen):
    """How far it is: of so many letters so many are tried again, and so many refused to be."""

    job_id: str
    phase: Phase
    letters: int
    redriven: int = 0
    refused: int = 0
    canaries: int = 0
    succeeded: int = 0  # of the canaries
    problem: str | None = None


def look(engine: Engine, wish: Wish) -> list[Incident]:
    """Give the incidents whose open letters would be tried again. Nothing is done."""
    wish.check()
    incidents: list[Incident] = []
    while page := engine.incidents(
        incident=wish.incident, kind=wish.kind, queue=wish.queue, tenant=wish.tenant, limit=PAGE_MAX,
        after=incidents[-1] if incidents else None,
    ):  # fmt: skip
        incidents += page
    if wish.incident is not None and not incidents:
        engine.incident(wish.incident)  # says it if there is no such incident at all
    return incidents


def begin(engine: Engine, wish: Wish) -> str:
    """Make the job that does it, and give its id; `go_on` does it."""
    wish.check()
    if wish.incident is not None:
        wish = msgspec.structs.replace(wish, incident=engine.incident(wish.incident).id)
    return engine.enqueue(KIND, wish, queue=QUEUE, policy=_POLICY).job_id


def go_on(engine: Engine, job_id: str, *, pause: Callable[[float], None] = time.sleep) -> Generator[Step]:
    """Do it, or go on with it where somebody stopped; the last step tells how it ended.

    Whoever stops to ask for steps gives it back, and may go on later; so may others if this process dies, once its
    lease has run out.
    """
    _check_free(engine, engine.get(job_id))
    (claim,) = engine.claim(f"redrive {socket.gethostname()}:{os.getpid()}", job_id=job_id)
    engine.start(claim)
    redrive = _Redrive(engine, claim, pause)
    try:
        yield from redrive.steps()
    except (GeneratorExit, KeyboardInterrupt):
        engine.release(claim, reason="interrupted")
        raise
    except _Cancelled:
        engine.cancel_claim(claim, reason="asked to stop")
        yield redrive.step(Phase.CANCELLED)


def _check_free(engine: Engine, job: Job) -> None:
    """Refuse what is no redrive, or what somebody does already. Who let his lease run out is not waited for."""
    if job.spec.kind != KIND:
        raise IllegalTransitionError(f"job {job.id} is of kind {job.spec.kind}: it is no redrive")
    if job.state in ENDED:
        raise JobEndedError(f"redrive {job.id} is {job.state}: begin another one")
    if job.lease is not None:
        left = job.lease.until / SECOND - engine.clock()
        if left > 0:
            holder = f"{job.lease.owner} has it for {left:.0f} s more"
            raise IllegalTransitionError(f"redrive {job.id} is under way: {holder}")
        engine.stall(job.id, by=Actor(who=Who.KEEPER, name=engine.actor))


class _Cancelled(Exception):  # noqa: N818 - not an error: somebody wished it
    """Raised where somebody asked it to stop."""


class _Redrive:
    """One process's part of it."""

    def __init__(self, engine: Engine, claim: Claim, pause: Callable[[float], None]) -> None:
        self._engine = engine
        self._claim = claim
        self._pause = pause
        self._wish = msgspec.json.decode(claim.spec.payload, type=Wish)
        self._began = engine.get(claim.job_id).created_at
        self._request = f"redrive {claim.job_id}"
        self._beaten = time.monotonic()
        self._told = 0
        self._redriven = self._refused = self._succeeded = 0
        self._plan = Plan(letters=0)

    def step(self, phase: Phase, problem: str | None = None) -> Step:
        """Say how far it is."""
        return Step(
            job_id=self._claim.job_id,
            phase=phase,
            letters=self._plan.letters,
            redriven=self._redriven,
            refused=self._refused,
            canaries=len(self._plan.canaries),
            succeeded=self._succeeded,
            problem=problem,
        )

    def steps(self) -> Iterator[Step]:
        """Do all of it."""
        self._plan = self._planned() or self._made_plan()
        if self._plan.canaries:
            yield from self._send_canaries()
            if problem := self._problem_of_canaries():
                failure = Failure(code="canary_failed", message=problem)
                self._engine.fail(self._claim, failure, permanent=True)
                yield self.step(Phase.STOPPED, problem)
                return
        yield from self._send_the_rest()
        result = {"letters": self._plan.letters, "redriven": self._redriven, "refused": self._refused}
        self._engine.complete(self._claim, result)
        yield self.step(Phase.DONE)

    def _planned(self) -> Plan | None:
        """Give the plan of who began: what is gone of it since then was tried again."""
        events = [record.event for record in self._engine.history(self._claim.job_id)]
        plans = [event.plan for event in events if isinstance(event, e.PlanGenerated)]
        if not plans:
            return None
        plan = msgspec.json.decode(plans[0], type=Plan)
        self._redriven = max(plan.letters - sum(1 for _ in self._letters()), 0)
        return plan

    def _made_plan(self) -> Plan:
        """Fix which are the canaries before one of them is touched: nobody else could find them behind that."""
        canaries = [letter.id for letter in islice(self._letters(), self._wish.canaries)]
        plan = Plan(letters=sum(each.open for each in look(self._engine, self._wish)), canaries=canaries)
        self._engine.note(self._claim, e.PlanGenerated(plan=Raw(msgspec.json.encode(plan))))
        return plan

    def _letters(self) -> Iterator[Summary]:
        """Give the letters that are left of those that were there when it began."""
        wish, after = self._wish, None
        while True:
            page = self._engine.list(
                states=State.DEAD_LETTERED, incident=wish.incident, kind=wish.kind, queue=wish.queue,
                tenant=wish.tenant, resolved=False, limit=PAGE_MAX, after=after,
            )  # fmt: skip
            for job in page.jobs:
                if not job.frozen and job.ended_at is not None and job.ended_at < self._began:
                    yield job
            after = page.next
            if after is None:
                return
            self._beat()

    def _send_canaries(self) -> Iterator[Step]:
        outcomes = self._engine.requeue_many(self._plan.canaries, reason=self._wish.reason, request_id=self._request)
        self._count(outcomes)
        while True:
            states = [self._engine.get(job_id).state for job_id in self._plan.canaries]
            self._succeeded = states.count(State.SUCCEEDED)
            yield self.step(Phase.CANARIES)
            if all(state in ENDED for state in states):
                return
            self._wait(_LOOK)

    def _problem_of_canaries(self) -> str | None:
        wrong = [job for job in map(self._engine.get, self._plan.canaries) if job.state is not State.SUCCEEDED]
        if not wrong:
            return None
        of = f"{len(wrong)} of {len(self._plan.canaries)} canaries did not succeed"
        return f"{of}, the first of them is {wrong[0].id}, which is {wrong[0].state}; the other letters were left alone"

    def _send_the_rest(self) -> Iterator[Step]:
        rate = self._wish.rate
        most = _BATCH if rate is None else max(1, min(_BATCH, int(rate / _BATCHES_PER_SECOND)))
        letters, sent, began = self._letters(), 0, time.monotonic()
        while batch := list(islice(letters, most)):
            self._count(self._engine.requeue_many(batch, reason=self._wish.reason, request_id=self._request))
            sent += len(batch)
            self._tell()
            yield self.step(Phase.REST)
            self._beat()
            if rate is not None:
                self._wait(began + sent / rate - time.monotonic())

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        self._refused += sum(isinstance(outcome, LeftfoldError) for outcome in outcomes)
        self._redriven += sum(isinstance(outcome, Receipt) and outcome.changed for outcome in outcomes)

    def _tell(self) -> None:
        """Write on the log how far it is, a hundred times at most."""
        percent = min(100 * (self._redriven + self._refused) // max(self._plan.letters, 1), 100)
        if percent > self._told:
            self._told = percent
            message = f"{self._redriven} of {self._plan.letters}"
            self._engine.note(self._claim, e.Progress(fraction=percent / 100, message=message))

    def _wait(self, seconds: float) -> None:
        while seconds > 0:
            self._pause(min(seconds, _BEAT))
            seconds -= _BEAT
            self._beat()

    def _beat(self) -> None:
        if time.monotonic() - self._beaten < _BEAT:
            return
        self._beaten = time.monotonic()
        if self._engine.heartbeat(self._claim).cancel_requested:
            raise _Cancelled
