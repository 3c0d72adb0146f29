"""Long random walks through the real core, with real policies, jitter and time: far from the small worlds that the
model checker searches completely, under the same invariants."""

from collections import Counter
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from msgspec import Raw

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import apply
from leftfold.core.errors import LeaseConflictError, LeftfoldError, RefusedError, ValidationError
from leftfold.core.job import Job, fold, logged
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import EDGES, FINAL, Edge, State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.record import GENESIS, Record, check_chain, link, seal
from leftfold.core.retry import QUALITY_ALLOWANCES, Backoff, Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor
from leftfold.dialects import DIALECTS
from leftfold.dialects.dialect import first_step_back
from leftfold.proof import invariants

TAKEN: Counter[Edge] = Counter()

moments = st.sampled_from([0, SECOND, MINUTE, 3 * MINUTE, 10 * MINUTE])
keys = st.sampled_from(["approved", "paid", "nap"])
payloads = st.sampled_from([Raw(b"1"), Raw(b"null"), Raw(b'{"by":"ann"}')])
reasons = st.sampled_from([None, "because"])
request_ids = st.sampled_from([None, None, None, "r1", "r2", "r3"])
revs = st.sampled_from([None, None, None, 0, 1])  # how far behind the rev is that a caller has read
failures = st.builds(Failure, code=st.sampled_from(["transient", "network", "timeout", "dependency", "permanent"]))
policies = st.builds(
    Policy,
    max_failures=st.integers(1, 4),
    backoff=st.builds(Backoff, base=st.integers(0, MINUTE), cap=st.integers(0, 2 * MINUTE), jitter=st.booleans()),
    by_error=st.sampled_from([{}, QUALITY_ALLOWANCES]),
    lease=st.integers(SECOND, 2 * MINUTE),
    on_exhausted=st.sampled_from(["dead_letter", "fail"]),
    hold_stalled=st.booleans(),
)
others = st.sampled_from([c.Actor(who=who, name=who.value) for who in (Who.CLIENT, Who.KEEPER, Who.OPERATOR)])


class Walk(RuleBasedStateMachine):
    """One job, three workers that never forget, and everybody who may speak about it."""

    job: Job | None = None

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000 * SECOND
        self.log: list[Record] = []
        self.memory: list[c.Actor] = []

    def send(self, command: c.AnyCommand) -> bool:
        before = self.job
        try:
            applied = apply(before, command, self.now)
        except (RefusedError, ValidationError) as refusal:
            self.check_refusal(command, refusal)
            return False
        move = invariants.taken(before, command, applied, self.now)
        assert invariants.check_move(move) is None, invariants.check_move(move)
        if command.request_id is not None and applied.job != before:
            assert not invariants.had_effect(applied.job, command, self.now)
        TAKEN.update(invariants.edges(move))
        self.job = applied.job
        self.log += applied.records
        return True

    def check_refusal(self, command: c.AnyCommand, refusal: LeftfoldError) -> None:
        if self.job is not None and command.by.who is Who.OWNER and isinstance(refusal, LeaseConflictError):
            assert self.job.lease is None or command.by.attempt != self.job.attempt

    def shared(self, behind: int | None) -> dict[str, Any]:
        return {} if behind is None or self.job is None else {"expected_rev": max(0, self.job.rev - behind)}

    @rule(policy=policies, received=st.booleans(), after=st.booleans(), due=st.none() | moments)
    @precondition(lambda self: self.job is None or self.job.state in FINAL)
    def a_new_job(self, policy: Policy, received: bool, after: bool, due: int | None) -> None:
        self.check_whole_log()
        self.job, self.log, self.memory = None, [], []
        client = c.Actor(who=Who.CLIENT, name="client")
        spec = Spec(kind="walk", correlation_id="c-1")
        if received:
            self.send(c.Receive(by=client, job_id="job-1", spec=spec))
            self.send(c.Admit(by=client, policy=policy))
        else:
            when = None if due is None else self.now + due
            waits = ("job-0",) if after else ()
            self.send(c.Enqueue(by=client, job_id="job-1", spec=spec, policy=policy, due=when, after=waits))

    @rule(data=st.data(), request_id=request_ids)
    @precondition(lambda self: self.job is not None)
    def somebody_speaks(self, data: st.DataObject, request_id: str | None) -> None:
        """Let mostly those speak whose turn it is, sometimes anybody: a blind choice hardly leaves the start."""
        assert self.job is not None
        if self.job.lease is not None:
            likely = ["owner"] * 5 + ["time", "time", "others", "others"]
        elif self.job.due is not None:
            likely = ["claim"] * 4 + ["time"]
        else:
            likely = ["others"] * 6 + ["time", "time"]
        speaker = data.draw(st.sampled_from([*likely, "owner", "claim", "others", "time"]))
        if speaker == "time":
            self.now += data.draw(moments)
        elif speaker == "claim":
            self.claim(data.draw(st.integers(0, 2)), data.draw(st.booleans()), request_id)
        elif speaker == "owner":
            self.owner_speaks(data, request_id)
        else:
            self.others_speak(data.draw(others), data, data.draw(revs), request_id)

    def claim(self, worker: int, direct: bool, request_id: str | None) -> None:
        attempts = self.job.attempt if self.job else 0
        token = f"token-{attempts + 1}-{len(self.log)}"
        by = c.Actor(who=Who.WORKER, name=f"worker{worker}")
        self.send(c.Claim(by=by, token=token, direct=direct, request_id=request_id))
        if self.job and self.job.attempt == attempts + 1:
            self.memory.append(c.Actor(who=Who.OWNER, name=by.name, attempt=attempts + 1, token=token))

    def owner_speaks(self, data: st.DataObject, request_id: str | None) -> None:
        if not self.memory:
            return
        # Mostly the youngest memory, sometimes an old one.
        by = self.memory[-1] if data.draw(st.integers(0, 3)) else data.draw(st.sampled_from(self.memory))
        error = data.draw(failures)
        deadline = self.now + data.draw(moments)
        common: dict[str, Any] = {"by": by, "request_id": request_id}
        options: list[c.AnyCommand] = [
            *[c.Start(**common)] * 6,
            c.Heartbeat(**common),
            c.Complete(result=data.draw(payloads), **common),
            c.Fail(error=error, permanent=data.draw(st.booleans()), **common),
            c.Fail(error=error, **common),
            c.Release(due=data.draw(st.none() | st.just(deadline)), **common),
            c.Suspend(wait=Wait(until=WaitFor.SIGNAL, key=data.draw(keys), deadline=deadline), **common),
            c.Suspend(wait=Wait(until=WaitFor.SIGNAL, key=data.draw(keys)), **common),
            c.Suspend(wait=Wait(until=WaitFor.TIMER, key="nap", deadline=deadline), **common),
            c.Suspend(wait=Wait(until=WaitFor.JOBS, key="children", jobs=("a", "b")), **common),
            c.Cancel(**common),
            c.DeadLetter(error=error, reason_code=Reason.PARSE_ERROR, stage=Stage.INPUT, **common),
            c.Note(note=e.Progress(fraction=0.5), **common),
        ]
        self.send(data.draw(st.sampled_from(options)))

    def others_speak(self, by: c.Actor, data: st.DataObject, behind: int | None, request_id: str | None) -> None:
        common: dict[str, Any] = {"by": by, "request_id": request_id, **self.shared(behind)}
        outcomes = {"job-0": "succeeded", "a": "failed", "b": "cancelled"}
        options: list[c.AnyCommand] = [
            c.Signal(key=data.draw(keys), payload=data.draw(payloads), **common),
            c.Expire(**common),
            c.Resume(outcomes=outcomes, **common),
            *[c.Stall(**common)] * 5,
            *[c.Requeue(reason=data.draw(reasons), **common)] * 3,
            c.Cancel(mode=data.draw(st.sampled_from(CancelMode)), **common),
            c.DeadLetter(error=data.draw(failures), reason_code=Reason.POLICY_VIOLATION, **common),
            c.Note(note=e.Custom(name="seen"), **common),
            *([c.Note(note=e.Resolved(reason="known"), **common)] if by.who is Who.OPERATOR else []),
        ]
        self.send(data.draw(st.sampled_from(options)))

    @invariant()
    def the_job_is_the_fold_of_its_log(self) -> None:
        folded = fold(self.log)
        assert (folded and logged(folded)) == (self.job and logged(self.job))

    def teardown(self) -> None:
        self.check_whole_log()

    def check_whole_log(self) -> None:
        assert first_step_back(self.log) is None
        if not self.log:
            return
        hashes = list(accumulate(self.log, link, initial=GENESIS))[1:]
        assert (
            check_chain(((record,), seal(hash_)) for record, hash_ in zip(self.log, hashes, strict=True)) == hashes[-1]
        )
        for dialect in DIALECTS.values():
            for step in dialect.project(self.log):
                assert step.move.target in dialect.states


@pytest.mark.timeout(600)
def test_nothing_breaks_on_long_walks_and_they_go_nearly_everywhere() -> None:
    TAKEN.clear()
    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=200,
            stateful_step_count=100,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    missed = {edge for edge in EDGES if edge not in TAKEN and edge.source is not State.INBOX}
    assert len(missed) <= 8, [str(edge) for edge in missed]
