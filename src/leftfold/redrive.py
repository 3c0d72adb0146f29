"""Dead letters tried again by the thousand: a job of its own, whose log says who does it, why, and how far it is.

Nothing of it lives in the process that does it. What it tries again are the letters that were there when it was
planned, each under one request id: whoever goes on with it looks anew, and a letter that it has tried again already is
left as it is, whatever became of it.
"""

import os
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from leftfold.asking import PAGE_MAX, incident_of
from leftfold.core import events as e
from leftfold.core import limits
from leftfold.core.commands import Actor
from leftfold.core.errors import (
    IllegalTransitionError,
    JobEndedError,
    LeftfoldError,
    RevisionConflictError,
    ValidationError,
)
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
REFUSALS_MAX: Final = 100  # that are told one by one

_POLICY: Final = Policy(lease=15 * SECOND, max_failures=FAILURES_MAX, on_exhausted="fail")
_BEAT: Final = 2.0  # seconds until the lease is renewed, and a wish to stop is heard, while there is nothing to do
_LOOK: Final = 0.5  # seconds between two looks at the canaries
_BATCH: Final = 100
_BATCHES_PER_SECOND: Final = 4  # where there is a rate
_CANARIES: Final = "canaries"  # the note that says which were chosen, before one of them is touched


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
        if self.incident is not None:
            incident_of(self.incident)
        limits.between("canaries", self.canaries, 0, CANARIES_MAX)
        if self.rate is not None and not 0 < self.rate <= RATE_MAX:
            raise ValidationError(f"rate is {self.rate:g} jobs per second: it lies above 0, and not above {RATE_MAX:g}")


class Plan(Frozen):
    """What was there when it was planned: how many letters, and the moment behind which others died."""

    letters: int
    before: int


class Phase(StrEnum):
    """How far it is."""

    CANARIES = "canaries"
    REST = "rest"
    DONE = "done"
    STOPPED = "stopped"  # a canary did not succeed
    CANCELLED = "cancelled"


class Refusal(Frozen):
    """A letter that cannot be tried again, and why."""

    job_id: str
    code: str
    message: str


class Step(Frozen):
    """How far it is: of so many letters so many are tried again, and so many cannot be.

    What a process did that was killed is known up to its last note on the log, which it writes every hundredth part.
    """

    job_id: str
    phase: Phase
    letters: int
    redriven: int = 0
    refused: int = 0
    canaries: int = 0
    succeeded: int = 0  # of the canaries
    refusals: tuple[Refusal, ...] = ()  # the first of them
    problem: str | None = None


def look(engine: Engine, wish: Wish) -> Iterator[Incident]:
    """Give the incidents whose open letters would be tried again. Nothing is done."""
    return _incidents(engine, _named(engine, wish))


def _incidents(engine: Engine, wish: Wish) -> Iterator[Incident]:
    after: Incident | None = None
    while page := engine.incidents(
        incident=wish.incident, kind=wish.kind, queue=wish.queue, tenant=wish.tenant, limit=PAGE_MAX, after=after
    ):
        yield from page
        after = page[-1]


def begin(engine: Engine, wish: Wish) -> str:
    """Make the job that does it, and give its id; `go_on` does it."""
    return engine.enqueue(KIND, _named(engine, wish), queue=QUEUE, policy=_POLICY).job_id


def _named(engine: Engine, wish: Wish) -> Wish:
    wish.check()
    return wish if wish.incident is None else replace(wish, incident=engine.incident(wish.incident).id)


def go_on(
    engine: Engine,
    job_id: str,
    *,
    reason: str = "resumed",
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Step]:
    """Do it, or go on with it where somebody stopped; the last step tells how it ended.

    Whoever stops to ask for steps gives it back, and may go on later; so may others if this process dies, once its
    lease has run out. Who goes on, and the `reason`, stand on its log.
    """
    job = engine.get(job_id)
    wish = _wish_of(job)
    _check_free(engine, job)
    if job.attempt:
        engine.remark_many([job.id], reason)
    claim: Claim | None = None
    redrive: _Redrive | None = None
    try:
        (claim,) = engine.claim(f"redrive {socket.gethostname()}:{os.getpid()}", job_id=job.id)
        engine.start(claim)
        redrive = _Redrive(engine, claim, wish, pause, clock)
        yield from redrive.steps()
    except (GeneratorExit, KeyboardInterrupt, SystemExit):
        if redrive is not None:
            with suppress(LeftfoldError):  # then a little less is known of how far it came
                redrive.tell()
        if claim is not None:
            with suppress(LeftfoldError):  # then its lease runs out
                engine.release(claim, reason="interrupted")
        raise


def _wish_of(job: Job) -> Wish:
    if job.spec.kind != KIND:
        raise IllegalTransitionError(f"job {job.id} is of kind {job.spec.kind}: it is no redrive")
    try:
        wish = msgspec.json.decode(job.spec.payload, type=Wish)
    except msgspec.ValidationError as problem:
        raise ValidationError(f"job {job.id} is no redrive that anybody could do: {problem}") from problem
    wish.check()
    return wish


def _check_free(engine: Engine, job: Job) -> None:
    """Refuse what has ended, or what somebody does already. Who let his lease run out is not waited for."""
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

    def __init__(
        self, engine: Engine, claim: Claim, wish: Wish, pause: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self._engine = engine
        self._claim = claim
        self._wish = wish
        self._pause, self._clock = pause, clock
        self._log = engine.history(claim.job_id)
        # What is asked under one request id is the same whoever goes on with it: it is the wish of who began.
        self._by = Actor(who=Who.OPERATOR, name=self._log[0].actor)
        self._request = f"redrive {claim.job_id}"
        self._plan = Plan(letters=0, before=0)
        self._redriven = self._succeeded = self._told = 0
        self._refused: dict[str, Refusal] = {}
        self._canaries: list[str] = []
        self._next_at = 0.0

    def steps(self) -> Iterator[Step]:
        """Do all of it."""
        try:
            self._plan = self._planned() or self._made_plan()
            if self._wish.canaries:
                yield from self._send_canaries()
                if problem := self._problem_of_canaries():
                    self._engine.fail(self._claim, Failure(code="canary_failed", message=problem), permanent=True)
                    yield self._step(Phase.STOPPED, problem)
                    return
            yield from self._send_the_rest()
        except _Cancelled:
            self._engine.cancel_claim(self._claim, reason="asked to stop")
            yield self._step(Phase.CANCELLED)
            return
        last = self._step(Phase.DONE)
        result = {name: getattr(last, name) for name in ("letters", "redriven", "refused", "refusals")}
        self._engine.complete(self._claim, result)
        yield last

    def _step(self, phase: Phase, problem: str | None = None) -> Step:
        return Step(
            job_id=self._claim.job_id,
            phase=phase,
            letters=self._plan.letters,
            redriven=self._redriven,
            refused=len(self._refused),
            canaries=len(self._canaries),
            succeeded=self._succeeded,
            refusals=tuple(self._refused.values())[:REFUSALS_MAX],
            problem=problem,
        )

    # --- what there is to do ------------------------------------------------------------------------------------------

    def _planned(self) -> Plan | None:
        """Give the plan of who began, and take over what is known of how far it came."""
        for event in (record.event for record in self._log):
            if isinstance(event, e.Progress) and event.message:
                self._redriven = int(event.message.partition(" ")[0])
        plans = (record.event.plan for record in self._log if isinstance(record.event, e.PlanGenerated))
        plan = next(plans, None)
        return None if plan is None else msgspec.json.decode(plan, type=Plan)

    def _made_plan(self) -> Plan:
        # Of letters that are dated later than now the clock was set back since: they are there all the same.
        letters, before = 0, int(self._engine.clock() * SECOND)
        for incident in _incidents(self._engine, self._wish):
            letters, before = letters + incident.open, max(before, incident.last_at)
        plan = Plan(letters=letters, before=before)
        self._engine.note(self._claim, e.PlanGenerated(plan=Raw(msgspec.json.encode(plan))))
        return plan

    def _batches(self, most: int) -> Iterator[list[Summary]]:
        """Give the letters that are left of those that were there, as they are now, the newest jobs first."""
        wish, after = self._wish, None
        while True:
            page = self._engine.list(
                states=State.DEAD_LETTERED, incident=wish.incident, kind=wish.kind, queue=wish.queue,
                tenant=wish.tenant, resolved=False, limit=most, after=after,
            )  # fmt: skip
            left = [job for job in page.jobs if self._is_left(job)]
            if left:
                yield left
            else:
                self._beat()
            after = page.next
            if after is None:
                return

    def _is_left(self, job: Summary) -> bool:
        was_there = job.ended_at is not None and job.ended_at <= self._plan.before
        return was_there and not job.frozen and job.id not in self._refused

    # --- the canaries -------------------------------------------------------------------------------------------------

    def _send_canaries(self) -> Iterator[Step]:
        self._canaries = [job_id for job_id in self._chosen_before() if self._was_sent(job_id)]
        for letters in self._batches(self._wish.canaries):
            missing = self._wish.canaries - len(self._canaries)
            if missing <= 0:
                break
            chosen = letters[:missing]
            names = Raw(msgspec.json.encode([letter.id for letter in chosen]))
            self._engine.note(self._claim, e.NodeStarted(node=_CANARIES, data=names))
            self._canaries += self._send(chosen)
        while True:
            there = {job.id: job for job in self._engine.list(ids=self._canaries, limit=CANARIES_MAX).jobs}
            self._succeeded = sum(job.state is State.SUCCEEDED for job in there.values())
            yield self._step(Phase.CANARIES)
            if all(job.state in ENDED or job.frozen for job in there.values()):
                return
            self._wait(_LOOK)

    def _chosen_before(self) -> list[str]:
        notes = [record.event for record in self._log if isinstance(record.event, e.NodeStarted)]
        return [job_id for note in notes if note.node == _CANARIES for job_id in msgspec.json.decode(note.data)]

    def _was_sent(self, job_id: str) -> bool:
        try:
            return self._request in self._engine.get(job_id).requests
        except LeftfoldError:  # nobody can read its log any more: it does not succeed either
            return True

    def _problem_of_canaries(self) -> str | None:
        if not self._canaries and self._refused:
            first = next(iter(self._refused.values()))
            return f"no canary can be tried again: job {first.job_id}: {first.message}"
        there = self._engine.list(ids=self._canaries, limit=CANARIES_MAX).jobs
        wrong = [job for job in there if job.state is not State.SUCCEEDED]
        missing = len(self._canaries) - len(there)
        if not wrong:
            return f"{missing} canaries are not there any more" if missing else None
        count = f"{len(wrong) + missing} of {len(self._canaries)} canaries did not succeed"
        state = "frozen" if wrong[0].frozen else wrong[0].state
        return f"{count}, the first of them is {wrong[0].id}, which is {state}; the other letters were left alone"

    # --- all others ---------------------------------------------------------------------------------------------------

    def _send_the_rest(self) -> Iterator[Step]:
        """Go through the letters until none is left but those that cannot be tried again."""
        rate = self._wish.rate
        most = _BATCH if rate is None else max(1, min(_BATCH, int(rate / _BATCHES_PER_SECOND)))
        changed = True
        while changed:  # somebody noted something on a letter between our look and our word: then it is looked at anew
            changed = False
            for letters in self._batches(most):
                if rate is not None:
                    self._wait(self._next_at - self._clock())
                    self._next_at = max(self._next_at, self._clock()) + len(letters) / rate
                self._beat()
                known = len(self._refused)
                changed |= len(self._send(letters)) + len(self._refused) - known < len(letters)
                if self._part() > self._told:
                    self._told = self._part()
                    self.tell()
                yield self._step(Phase.REST)

    def _send(self, letters: Sequence[Summary]) -> list[str]:
        """Try letters again, and give those that are."""
        outcomes = self._engine.requeue_many(letters, reason=self._wish.reason, request_id=self._request, by=self._by)
        return [letter.id for letter, outcome in zip(letters, outcomes, strict=True) if self._is_sent(letter, outcome)]

    def _is_sent(self, letter: Summary, outcome: Outcome) -> bool:
        if isinstance(outcome, Receipt):
            self._redriven += outcome.changed
            return True
        if not isinstance(outcome, RevisionConflictError):
            self._refused[letter.id] = Refusal(job_id=letter.id, code=outcome.code, message=str(outcome))
        return False

    def tell(self) -> None:
        """Write on the log how far it is."""
        message = f"{self._redriven} of {self._plan.letters}"
        self._engine.note(self._claim, e.Progress(fraction=self._part() / 100, message=message))

    def _part(self) -> int:
        return min(100 * (self._redriven + len(self._refused)) // max(self._plan.letters, 1), 100)

    def _wait(self, seconds: float) -> None:
        while seconds > 0:
            self._pause(min(seconds, _BEAT))
            seconds -= _BEAT
            self._beat()

    def _beat(self) -> None:
        """See that it is ours, and that nobody wants it to stop."""
        if self._engine.heartbeat(self._claim).cancel_requested:
            raise _Cancelled
