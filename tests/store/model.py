"""What the stores must come to: the pure core over logs in memory, and the few rules that speak of several jobs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden, apply
from leftfold.core.errors import JobNotFoundError, KeyTakenError, LeftfoldError, QueuePausedError, RequestReusedError
from leftfold.core.job import Job
from leftfold.core.lifecycle import CLAIMABLE, ENDED, TARGETS, Edge, State, Who
from leftfold.core.record import GENESIS, Record
from leftfold.core.values import Spec
from leftfold.store.creating import OnConflict
from leftfold.store.ops import Ask, event_rows, head_of, receipt_of
from leftfold.store.query import Columns
from leftfold.store.replies import Claim, Count, Receipt
from leftfold.store.rows import Log, Row, row_of
from leftfold.testing.clock import FakeClock

#: A call by its id, and what it asked: two with the same id must ask the same.
Remembered = tuple[object, Any]


class Wish(NamedTuple):
    """What a worker asks for when it claims."""

    owner: str
    token: str
    queues: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    limit: int = 1
    lease: int | None = None
    request_id: str | None = None

    def command(self) -> c.Claim:
        by = c.Actor(who=Who.WORKER, name=self.owner)
        return c.Claim(by=by, token=self.token, lease=self.lease, request_id=self.request_id)


class Model:
    """Logs, by job, and what was answered to requests that speak of no one job."""

    def __init__(self, clock: FakeClock, forbidden: Forbidden = NOTHING_FORBIDDEN) -> None:
        self._clock = clock
        self._forbidden = forbidden
        self.logs: dict[str, Log] = {}
        self.paused: set[str] = set()
        self._answered: dict[tuple[str, str], Remembered] = {}
        self._known: dict[str, tuple[Log, Row, list[Columns]]] = {}

    def job(self, job_id: str) -> Job:
        return self.logs[job_id].job

    # --- what it comes to ---------------------------------------------------------------------------------------------

    def row(self, job_id: str) -> Row:
        return self._stored(job_id)[1]

    def events(self, job_id: str) -> list[Columns]:
        return self._stored(job_id)[2]

    def _stored(self, job_id: str) -> tuple[Log, Row, list[Columns]]:
        """Give a job as a store keeps it, worked out anew when its log changed."""
        log = self.logs[job_id]
        known = self._known.get(job_id)
        if known is None or known[0] is not log:
            events = [tuple(row) for row in event_rows(log.records, GENESIS)]
            known = self._known[job_id] = (log, row_of(log.job, log.records, log.head), events)
        return known

    def counts(self) -> list[Count]:
        jobs = [log.job for log in self.logs.values()]
        found = Counter((job.spec.queue, job.spec.kind, job.state) for job in jobs)
        order = list(State)
        counts = [Count(queue=queue, kind=kind, state=state, jobs=n) for (queue, kind, state), n in found.items()]
        return sorted(counts, key=lambda count: (count.queue, count.kind, order.index(count.state)))

    # --- commands -----------------------------------------------------------------------------------------------------

    def tell(self, job_id: str, command: c.AnyCommand) -> Receipt:
        if job_id not in self.logs:
            raise JobNotFoundError(job_id)
        log = self.logs[job_id]
        if isinstance(command, c.Suspend):
            self._check_there(command.wait.jobs)
        job, records = apply(log.job, command, self._clock(), self._forbidden)
        if job.state not in ENDED and self._holder(job.spec) not in {None, job_id}:
            raise KeyTakenError(job_id)
        if job is not log.job:
            self.logs[job_id] = Log(job, log.records + records, head_of(log.head, records))
        return receipt_of(job, changed=job is not log.job)

    def tell_many(self, asks: Sequence[Ask]) -> list[Receipt | LeftfoldError]:
        outcomes: list[Receipt | LeftfoldError] = []
        for ask in asks:
            if isinstance(ask.command, c.Suspend):
                self._check_there(ask.command.wait.jobs)
        for ask in asks:
            try:
                outcomes.append(self.tell(*ask))
            except LeftfoldError as refusal:
                outcomes.append(refusal)
        return outcomes

    def _check_there(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            if job_id not in self.logs:
                raise JobNotFoundError(job_id)

    def outcomes(self, job_id: str, request_id: str | None) -> Mapping[str, str]:
        """Give how the jobs ended that this one waits for, of those that have; if asked again, as they had then."""
        if job_id not in self.logs:
            return {}
        for record in self.logs[job_id].records:
            if request_id is not None and record.request_id == request_id and isinstance(record.event, e.Resumed):
                return record.event.outcomes
        wait = self.job(job_id).wait
        states = {other: self.job(other).state for other in wait.jobs} if wait else {}
        return {other: state.value for other, state in states.items() if state in ENDED}

    # --- making jobs --------------------------------------------------------------------------------------------------

    def create(self, commands: Sequence[c.Enqueue | c.Receive], on_conflict: OnConflict) -> list[Receipt | None]:
        first = commands[0]
        name = (first.spec.tenant, first.request_id or "")
        asked = ([c.fingerprint(command) for command in commands], on_conflict)
        if first.request_id is not None and name in self._answered:
            answer: list[Receipt | None] = self._recall(name, asked)
            return answer
        before = dict(self.logs)
        try:
            receipts = [self._create(command, on_conflict) for command in commands]
            if on_conflict == "replace":  # also by a later one of the same batch
                receipts = [each and receipt_of(self.job(each.job_id), changed=each.changed) for each in receipts]
        except LeftfoldError:
            self.logs = before
            raise
        if first.request_id is not None:
            self._answered[name] = (asked, receipts)
        return receipts

    def _recall(self, name: tuple[str, str], asked: object) -> Any:
        remembered, answer = self._answered[name]
        if remembered != asked:
            raise RequestReusedError(name[1])
        return answer

    def _create(self, command: c.Enqueue | c.Receive, on_conflict: OnConflict) -> Receipt | None:
        if isinstance(command, c.Enqueue):
            self._check_there(command.after)
        job, records = apply(None, command, self._clock(), self._forbidden)
        holder = self._holder(command.spec)
        if holder is not None:
            if on_conflict == "skip":
                return None
            if on_conflict == "return":
                return self._as_found(self.job(holder))
            if on_conflict == "raise" or not self._may_be_replaced(self.job(holder)):
                raise KeyTakenError(holder)
            self.tell(holder, c.Cancel(by=command.by, reason=f"replaced by {command.job_id}"))
        self.logs[job.id] = Log(job, records, head_of(GENESIS, records))
        return receipt_of(job, changed=True)

    @staticmethod
    def _as_found(job: Job) -> Receipt:
        return Receipt(
            job_id=job.id, state=job.state, version=job.version, rev=job.rev, attempt=job.attempt, changed=False
        )

    @staticmethod
    def _may_be_replaced(job: Job) -> bool:
        return job.state in {State.INBOX, State.QUEUED, State.RETRYING} or not job.attempt

    def _holder(self, spec: Spec) -> str | None:
        wanted = (spec.tenant, spec.kind, spec.key)
        for job in (log.job for log in self.logs.values()):
            if spec.key and job.state not in ENDED and (job.spec.tenant, job.spec.kind, job.spec.key) == wanted:
                return job.id
        return None

    # --- giving jobs away ---------------------------------------------------------------------------------------------

    def candidates(self, wish: Wish) -> list[Job]:
        """Give the jobs that the worker could have, best first."""
        sources = {state for state in CLAIMABLE if Edge(state, e.Claimed, TARGETS[e.Claimed]) not in self._forbidden}
        found = [
            job
            for job in (log.job for log in self.logs.values())
            if job.state in sources
            and (job.due or 0) <= self._clock()
            and job.spec.queue not in self.paused
            and (wish.queues is None or job.spec.queue in wish.queues)
            and (wish.kinds is None or job.spec.kind in wish.kinds)
            and wish.request_id not in job.requests
        ]
        return sorted(found, key=lambda job: (-job.spec.priority, job.due or 0, job.id))

    def is_settled(self, wish: Wish) -> bool:
        """Tell whether everybody must choose alike: between queues of one priority a store may choose as it likes."""
        found = self.candidates(wish)
        if len(found) <= wish.limit:
            return True
        lane = [job.spec.queue for job in found if job.spec.priority == found[wish.limit - 1].spec.priority]
        return len(set(lane)) == 1

    def claim(self, wish: Wish) -> list[Claim]:
        asked = (c.fingerprint(wish.command()), wish.queues, wish.kinds, wish.limit, None)
        name = ("", wish.request_id or "")
        if wish.request_id is not None and name in self._answered:
            return [self._held_now(claim) for claim in self._recall(name, asked)]
        claims = [self._claim(job.id, wish.command()) for job in self.candidates(wish)[: wish.limit]]
        if wish.request_id is not None and claims:
            self._answered[name] = (asked, claims)
        return claims

    def claim_job(self, job_id: str, wish: Wish) -> list[Claim]:
        command = c.Claim(
            by=c.Actor(who=Who.WORKER, name=wish.owner), token=wish.token, lease=wish.lease, direct=True,
            request_id=wish.request_id,
        )  # fmt: skip
        asked = (c.fingerprint(command), wish.queues, wish.kinds, wish.limit, job_id)
        name = ("", wish.request_id or "")
        if wish.request_id is not None and name in self._answered:
            return [self._held_now(claim) for claim in self._recall(name, asked)]
        if job_id in self.logs and self.job(job_id).spec.queue in self.paused:
            raise QueuePausedError(job_id)
        claims = [self._claim(job_id, command)]
        if wish.request_id is not None:
            self._answered[name] = (asked, claims)
        return claims

    def _claim(self, job_id: str, command: c.Claim) -> Claim:
        self.tell(job_id, command)
        job = self.job(job_id)
        return Claim(
            job_id=job_id,
            attempt=job.attempt,
            token=command.token,
            owner=command.by.name,
            until=job.lease.until if job.lease else 0,
            failures=job.failures,
            spec=job.spec,
            policy=job.policy,
            lost=job.failures > 0 and any(isinstance(record.event, e.Stalled) for record in self.logs[job_id].records),
        )

    def _held_now(self, claim: Claim) -> Claim:
        """Give a claim that is asked for again with the end that its lease has by now."""
        lease = self.job(claim.job_id).lease
        return replace(claim, until=lease.until) if lease and self.holds(claim) else claim

    def holds(self, claim: Claim) -> bool:
        """Tell whether the claim is still its owner's."""
        job = self.job(claim.job_id)
        return job.lease is not None and job.attempt == claim.attempt and job.lease.token == c.digest(claim.token)

    # --- logs that come from elsewhere --------------------------------------------------------------------------------

    def adopt(self, job: Job, records: Sequence[Record]) -> None:
        """Take in a whole log."""
        self.logs[job.id] = Log(job, tuple(records), head_of(GENESIS, records))
