"""A random walk through both stores and the pure core at once: clients, workers that forget nothing, keepers."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from msgspec import Raw
from tests.store.model import Wish
from tests.store.world import CLIENT, KEEPER, OPERATOR, Place, World, edges_of

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.job import Job
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import CLOSED, Edge, State
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.retry import QUALITY_ALLOWANCES, Backoff, Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor
from leftfold.store.creating import OnConflict
from leftfold.store.ops import Ask

if TYPE_CHECKING:
    from leftfold.store.replies import Claim

T = TypeVar("T")

QUEUES = ("default", "mail", "slow")
KINDS = ("report", "refund")
WORKERS = ("worker-1", 'worker "2" \\ ☃')
NOBODY = "00000000-0000-7000-8000-000000000000"

SPANS = (None, None, 0, 1, SECOND, MINUTE, 10 * MINUTE)
WAIT_KEYS = ("approved", "paid", "nap")
PAYLOADS = (Raw(b"1"), Raw(b"null"), Raw('{"by":"änn \\" \\\\ ☃ 😀"}'.encode()))
REASONS = (None, "because", 'it\'s "so" \\ {1,2} ☃')
REQUESTS = (None,) * 12 + ("r1", "r2", "r3")
CLAIM_REQUESTS = (None,) * 6 + ("c1", "c2")
ERRORS = ("transient", "transient", "network", "timeout", "permanent", "validation_failed")
CONFLICTS: tuple[OnConflict, ...] = ("return", "return", "raise", "skip", "replace")
NOTES: tuple[e.AnyNote, ...] = (e.Progress(fraction=0.5), e.StepFinished(step="s"), e.EvidenceAdded(name="f"))
SPEAKERS = (CLIENT, KEEPER, OPERATOR)


class Chance:
    """What happens next. Hypothesis stirs it before each step: its own choices hardly leave the beaten track."""

    def __init__(self, start: int) -> None:
        self._random = Random(start)  # noqa: S311 - chance is no secret

    def stir(self, seed: int) -> None:
        self._random.seed(f"{self._random.random()} {seed}")

    def of(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def one_in(self, number: int) -> bool:
        return self._random.randrange(number) == 0

    def error(self) -> Failure:
        return Failure(code=self.of(ERRORS), message=self.of(["", "no route"]))

    def spec(self) -> Spec:
        return Spec(
            kind=self.of(KINDS),
            payload=self.of(PAYLOADS),
            queue=self.of(QUEUES),
            priority=self.of([0, 0, -1, 10]),
            key=self.of([None, None, None, "k1", "k2"]),
            tenant=self.of(["", "", "acme"]),
            correlation_id=self.of([None, "corr-1"]),
            cause=self.of([None, "test"]),
        )

    def policy(self) -> Policy:
        return Policy(
            max_failures=self.of([1, 2, 3]),
            backoff=self.of([Backoff(base=0), Backoff(base=SECOND, jitter=False), Backoff(base=MINUTE)]),
            by_error=self.of([{}, {}, QUALITY_ALLOWANCES]),
            lease=self.of([SECOND, MINUTE]),
            timeout=self.of([None, MINUTE]),
            on_exhausted="dead_letter" if self.one_in(2) else "fail",
            hold_stalled=self.one_in(2),
        )


class Differential(RuleBasedStateMachine):
    """Whatever happens, the stores and the core agree: `World` compares them after every step."""

    def __init__(self, place: Place, start: int, taken: Counter[Edge]) -> None:
        super().__init__()
        self.taken = taken
        self.world = World(place, hear=note)
        self.memory: list[Claim] = []
        self.said: list[Callable[[], None]] = []
        self.chance = Chance(start)

    def teardown(self) -> None:
        for log in self.world.model.logs.values():
            self.taken.update(edges_of(log.records))
        self.world.close()

    @rule(seed=st.integers(0, 2**64 - 1))
    def something_happens(self, seed: int) -> None:
        """Mostly let somebody speak whose turn it is: a blind choice hardly leaves the start."""
        chance = self.chance
        chance.stir(seed)
        if not self.world.model.logs:
            self.somebody_enqueues(chance)
            return
        likely: dict[Callable[[Chance], None], int] = {
            self.somebody_speaks: 20,
            self.somebody_repeats_what_was_said: 2,
            self.owners_speak_together: 3,
            self.a_worker_claims: 3,
            self.somebody_enqueues: 3 if len(self.world.model.logs) < 6 else 1,
            self.somebody_sends_a_job_in: 1,
            self.time_passes: 3,
            self.a_keeper_looks_for_leases_that_ran_out: 1,
            self.an_operator_pauses_or_goes_on: 1,
            self.the_stores_are_closed_and_opened: 1,
        }
        chance.of([act for act, weight in likely.items() for _ in range(weight)])(chance)

    # --- making jobs --------------------------------------------------------------------------------------------------

    def somebody_enqueues(self, chance: Chance) -> None:
        several = [chance.spec() for _ in range(chance.of([1, 1, 1, 2, 3]))]
        ids = sorted(self.world.model.logs)
        after: tuple[str, ...] = ()
        if len(several) == 1 and ids and chance.one_in(4):
            after = tuple(sorted({chance.of([*ids[-3:], NOBODY]), chance.of(ids)}))
        delay = chance.of(SPANS)
        asked: dict[str, Any] = {"delay": delay}
        if delay is not None and chance.one_in(2):
            asked = {"due": self.world.clock() + delay - SECOND}
        self.world.enqueue(
            several,
            chance.of(CONFLICTS),
            policy=chance.policy(),
            after=after,
            by=OPERATOR if chance.one_in(20) else CLIENT,
            request_id=chance.of(REQUESTS),
            **asked,
        )

    def somebody_sends_a_job_in(self, chance: Chance) -> None:
        self.world.receive(chance.spec(), chance.of(["return", "raise"]), chance.of(REQUESTS))

    # --- giving jobs away ---------------------------------------------------------------------------------------------

    def a_worker_claims(self, chance: Chance) -> None:
        """Claim by what is due; where stores may choose as they like, from one queue only."""
        owner = chance.of(WORKERS)
        asked: dict[str, Any] = {
            "queues": chance.of([None, None, QUEUES[:1], QUEUES[1:]]),
            "kinds": chance.of([None, None, KINDS[:1]]),
            "limit": chance.of([1, 2, 4]),
            "lease": chance.of([None, 5 * SECOND]),
        }
        if not self.world.model.is_settled(Wish(owner, "", **asked)):
            asked["queues"] = QUEUES[:1]
        self.claim(owner, **asked, request_id=chance.of(CLAIM_REQUESTS))

    def claim(self, owner: str, **asked: Any) -> None:
        """Claim, and remember both the words and the claims."""
        claims = self.world.claim(owner, **asked)
        self.memory += [claim for claim in claims if claim not in self.memory]
        if asked["request_id"] is not None:
            self.said.append(partial(self.claim, owner, **asked))

    # --- one job, and whoever has something to say about it -----------------------------------------------------------

    def somebody_speaks(self, chance: Chance) -> None:
        ids = sorted(self.world.model.logs)
        job = self.world.model.job(ids[-1 - chance.of([0, 0, 0, 1, 1, 2, 3]) % len(ids)])
        if chance.one_in(6):
            act = chance.of([self.owner_speaks, self.claim_by_id, self.others_speak])
        elif job.lease is not None:
            act = chance.of([self.owner_speaks] * 4 + [self.others_speak])
        else:
            act = chance.of([self.claim_by_id] * 4 + [self.others_speak]) if job.due is not None else self.others_speak
        act(chance, job)

    def claim_by_id(self, chance: Chance, job: Job) -> None:
        if job.due is not None and chance.of([True, True, False]):
            self.world.clock.now = max(self.world.clock.now, job.due - chance.of([0, 0, 0, 1]))
        self.claim(chance.of(WORKERS), job_id=job.id, request_id=chance.of(CLAIM_REQUESTS))

    def tell(self, job_id: str, command: c.AnyCommand) -> None:
        """Say it, and remember the words."""
        self.world.tell(job_id, command)
        self.said.append(partial(self.tell, job_id, command))

    def somebody_repeats_what_was_said(self, chance: Chance) -> None:
        """Say again, with the same words, what was said a while ago: its reply may have been lost."""
        if self.said:
            chance.of(self.said[-6:] if chance.one_in(2) else self.said)()

    def holder(self, chance: Chance, job: Job) -> c.Actor | None:
        """Give mostly the holder, sometimes whoever once was, sometimes a forger."""
        mine = [claim.actor for claim in self.memory if claim.job_id == job.id]
        if not mine:
            return None
        by = chance.of(mine) if chance.one_in(6) else mine[-1]
        forged = chance.of([None] * 12 + ["token", "attempt"])
        if forged is None:
            return by
        token = "forged" if forged == "token" else by.token
        return c.Actor(who=by.who, name=by.name, attempt=by.attempt + (forged == "attempt"), token=token)

    def owner_speaks(self, chance: Chance, job: Job) -> None:
        by = self.holder(chance, job)
        if by is None:
            return
        common: dict[str, Any] = {"by": by, "request_id": chance.of(REQUESTS)}
        options: list[Callable[[], c.AnyCommand]] = [
            *[lambda: c.Start(**common)] * (30 if job.state is State.CLAIMED else 1),
            *[lambda: c.Heartbeat(lease=chance.of([None, MINUTE]), **common)] * 3,
            lambda: c.Complete(result=chance.of(PAYLOADS), **common),
            *[lambda: c.Fail(error=chance.error(), permanent=chance.one_in(4), **common)] * 4,
            lambda: c.Fail(error=Failure(code="transient"), delay=chance.of(SPANS), **common),
            lambda: c.Release(delay=chance.of(SPANS), reason=chance.of(REASONS), **common),
            *[lambda: self.suspension(chance, common)] * 4,
            lambda: c.Cancel(reason=chance.of(REASONS), **common),
            lambda: c.DeadLetter(error=chance.error(), reason_code=Reason.PARSE_ERROR, stage=Stage.INPUT, **common),
            lambda: c.Note(note=chance.of(NOTES), **common),
        ]
        self.tell(job.id, chance.of(options)())

    def suspension(self, chance: Chance, common: dict[str, Any]) -> c.Suspend:
        kind, key, span = chance.of([*WaitFor, WaitFor.SIGNAL]), chance.of(WAIT_KEYS), chance.of(SPANS[2:])
        if kind is WaitFor.JOBS:
            ids = sorted(self.world.model.logs)
            jobs = tuple(sorted({chance.of(ids), chance.of(ids)}))
            return c.Suspend(wait=Wait(until=kind, key="children", jobs=jobs), **common)
        if kind is WaitFor.TIMER or chance.one_in(2):
            if chance.one_in(2):
                return c.Suspend(wait=Wait(until=kind, key=key), timeout=span, **common)
            return c.Suspend(wait=Wait(until=kind, key=key, deadline=self.world.clock() + (span or 0)), **common)
        return c.Suspend(wait=Wait(until=kind, key=key), **common)

    def others_speak(self, chance: Chance, job: Job) -> None:
        by, behind = CLIENT if job.wait or job.state is State.INBOX else OPERATOR, chance.of([None] * 6 + [0, 0, 1])
        if chance.one_in(3):
            by = chance.of(SPEAKERS)
        bare: dict[str, Any] = {"by": by, "request_id": chance.of(REQUESTS + CLAIM_REQUESTS)}
        common = bare if behind is None else {**bare, "expected_rev": max(0, job.rev - behind)}
        if job.state is State.INBOX and chance.one_in(2):
            self.admit(chance, job, common)
            return
        if job.wait is not None and not chance.one_in(4):
            self.end_the_wait(chance, job, by, common)
            return
        when, why = chance.of(SPANS), chance.of(REASONS)
        options: list[Callable[[], c.AnyCommand]] = [
            lambda: c.Signal(key=chance.of(WAIT_KEYS), payload=chance.of(PAYLOADS), **common),
            lambda: c.Expire(**bare),
            *[lambda: c.Stall(reason=why, **common)] * (4 if job.lease else 1),
            *[lambda: c.Requeue(delay=when, reason=why, **common)] * (8 if job.state in CLOSED else 2),
            lambda: c.Cancel(mode=chance.of(list(CancelMode)), reason=why, **common),
            lambda: c.DeadLetter(error=chance.error(), reason_code=Reason.POLICY_VIOLATION, **common),
            lambda: c.Note(note=e.Custom(name="seen", data=chance.of(PAYLOADS)), **common),
        ]
        self.tell(NOBODY if chance.one_in(20) else job.id, chance.of(options)())

    def admit(self, chance: Chance, job: Job, common: dict[str, Any]) -> None:
        """Let a job in as it is, or as another one."""
        spec, policy, delay = chance.of([None, chance.spec()]), chance.policy(), chance.of(SPANS)
        self.tell(job.id, c.Admit(spec=spec, policy=policy, delay=delay, **common))

    def end_the_wait(self, chance: Chance, job: Job, by: c.Actor, common: dict[str, Any]) -> None:
        if job.wait is None:
            return
        if job.wait.until is WaitFor.JOBS:
            self.tell(job.id, c.Resume(by=by, outcomes={}, request_id=chance.of(REQUESTS)))
        elif job.wait.deadline is not None and chance.one_in(2):
            self.world.clock.now = max(self.world.clock.now, job.wait.deadline - chance.of([0, 0, 0, 1]))
            self.tell(job.id, c.Expire(by=by))
        else:
            self.tell(job.id, c.Signal(key=job.wait.key, payload=chance.of(PAYLOADS), **common))

    # --- many at once -------------------------------------------------------------------------------------------------

    def owners_speak_together(self, chance: Chance) -> None:
        """Say the same about many jobs, some of them no longer ours, some of them twice."""
        if not self.memory:
            return
        claims = [chance.of(self.memory[-8:]) for _ in range(chance.of([1, 2, 3, 5]))]
        wait = Wait(until=WaitFor.SIGNAL, key=chance.of(WAIT_KEYS))
        makers: list[Callable[[c.Actor], c.AnyCommand]] = [
            *[lambda by: c.Start(by=by)] * 4,
            lambda by: c.Heartbeat(by=by),
            lambda by: c.Complete(by=by, result=Raw(b"1")),
            lambda by: c.Fail(by=by, error=Failure(code="transient")),
            lambda by: c.Release(by=by),
            lambda by: c.Suspend(by=by, wait=wait),
            lambda by: c.Note(by=by, note=e.Progress(fraction=0.25)),
        ]
        make = chance.of(makers)
        self.world.tell_many([Ask(claim.job_id, make(claim.actor)) for claim in claims])

    # --- time, queues, restarts ---------------------------------------------------------------------------------------

    def time_passes(self, chance: Chance) -> None:
        self.world.clock.now += chance.of([1, SECOND, MINUTE, 10 * MINUTE, -1, -MINUTE])

    def a_keeper_looks_for_leases_that_ran_out(self, chance: Chance) -> None:
        leased = [(job_id, log.job.lease) for job_id, log in self.world.model.logs.items() if log.job.lease]
        if leased:
            job_id, lease = chance.of(leased)
            self.world.clock.now = max(self.world.clock.now, lease.until - chance.of([0, 0, 0, 1]))
            self.tell(job_id, c.Stall(by=KEEPER))

    def an_operator_pauses_or_goes_on(self, chance: Chance) -> None:
        paused = sorted(self.world.model.paused)
        self.world.pause(chance.of(paused or QUEUES), paused=not paused)

    def the_stores_are_closed_and_opened(self, chance: Chance) -> None:
        if chance.one_in(2):
            self.world.fold_counts()
        self.world.reopen()
