"""One job on a stage: drive it with commands through the real `apply` and read what came of it.

After every command the scene reads its log back as a store would, text by text, and demands that the fold of
what was read is the job.
"""

from collections.abc import Callable, Mapping
from typing import Final

import pytest
from msgspec import Raw
from msgspec.structs import replace

from leftfold.core import commands as c
from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden, apply
from leftfold.core.errors import LeftfoldError
from leftfold.core.job import Job, fold, logged
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.record import Record, decode
from leftfold.core.retry import Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor

NOW: Final = 1_700_000_000 * SECOND
JOB: Final = "job-1"
SPEC: Final = Spec(kind="demo", payload=Raw(b'{"n":1}'), correlation_id="order-7")

CLIENT: Final = c.Actor(who=Who.CLIENT, name="ann")
WORKER: Final = c.Actor(who=Who.WORKER, name="worker-1")
KEEPER: Final = c.Actor(who=Who.KEEPER, name="keeper-1")
OPERATOR: Final = c.Actor(who=Who.OPERATOR, name="olga")

FLAKY: Final = Failure(code="flaky", message="try again")
BROKEN: Final = Failure(code="broken", message="another error")
APPROVAL: Final = Wait(until=WaitFor.SIGNAL, key="approved")
TIMER: Final = Wait(until=WaitFor.TIMER, key="nap", deadline=NOW + MINUTE)
TIMED_APPROVAL: Final = Wait(until=WaitFor.SIGNAL, key="approved", deadline=NOW + MINUTE)


def owner_of(attempt: int, mark: str = "x", name: str = WORKER.name) -> c.Actor:
    """Give an owner that shows this attempt and the token made of this mark."""
    return c.Actor(who=Who.OWNER, name=name, attempt=attempt, token=f"token-{mark}")


class Scene:
    """A job, its log and the clock. `do` gives the wire names of the records that the command wrote."""

    def __init__(
        self, *, policy: Policy | None = None, spec: Spec = SPEC, forbidden: Forbidden = NOTHING_FORBIDDEN
    ) -> None:
        self.now = NOW
        self.log: list[Record] = []
        self.forbidden = forbidden
        self.owner = owner_of(1)
        self._job: Job | None = None
        self._pretends = False
        self.do(c.Enqueue(by=CLIENT, job_id=JOB, spec=spec, policy=policy or Policy()))

    @classmethod
    def empty(cls, *, forbidden: Forbidden = NOTHING_FORBIDDEN) -> "Scene":
        """Set a scene without a job."""
        scene = cls()
        scene._job, scene.log, scene.forbidden = None, [], forbidden
        return scene

    @classmethod
    def at(cls, state: State | None, policy: Policy | None = None) -> "Scene":
        """Lead a job to this state, by the shortest way; the moment is one at which it may go on."""
        if state is State.FAILED:
            policy = replace(policy or Policy(), on_exhausted="fail")
        scene = cls(policy=policy) if state not in {None, State.INBOX} else cls.empty()
        if state is not None:
            _WAYS[state](scene)
            assert scene.job.state is state
        if state is State.RETRYING:
            scene.now = scene.job.due or 0
        return scene

    @property
    def job(self) -> Job:
        """Give the job, which must exist."""
        assert self._job is not None
        return self._job

    def do(self, command: c.AnyCommand) -> list[str]:
        """Apply the command now."""
        applied = apply(self._job, command, self.now, self.forbidden)
        self._job = applied.job
        self.log += applied.records
        if not self._pretends:
            refolded = fold(map(_reread, self.log))
            assert refolded is not None
            assert logged(refolded) == logged(self.job)
        return [record.event.wire for record in applied.records]

    def refuse(self, command: c.AnyCommand, error: type[LeftfoldError], match: str | None = None) -> None:
        """Demand that the command is refused with this very error and writes nothing."""
        before = self._job
        with pytest.raises(error, match=match) as caught:
            self.do(command)
        assert type(caught.value) is error
        assert self._job is before

    def claim(self, name: str = WORKER.name, lease: int | None = None, *, direct: bool = False) -> c.Actor:
        """Claim the job with a token of its own and give its owner."""
        mark = f"of-version-{self.job.version}"
        owner = owner_of(self.job.attempt + 1, mark, name)
        by = c.Actor(who=Who.WORKER, name=name)
        assert self.do(c.Claim(by=by, token=owner.token, lease=lease, direct=direct)) == ["claimed"]
        self.owner = owner
        return owner

    def run(self) -> c.Actor:
        """Claim and start."""
        owner = self.claim()
        assert self.do(c.Start(by=owner)) == ["started"]
        return owner

    def fail(self, error: Failure = FLAKY) -> list[str]:
        """Run once and fail, at the moment at which the job is due."""
        self.now = max(self.now, self.job.due or 0)
        return self.do(c.Fail(by=self.run(), error=error))

    def ask_to_stop(self) -> None:
        """Request a soft cancellation of a leased job."""
        assert self.do(c.Cancel(by=CLIENT)) == ["cancel_requested"]

    def pretend(self, **changes: object) -> None:
        """Change the job past its log, where building the log would take too long."""
        self._job = replace(self.job, **changes)
        self._pretends = True

    def by(self, who: Who) -> c.Actor:
        """Give an actor of this kind; the owner is the last one that claimed the job."""
        others = {actor.who: actor for actor in (CLIENT, WORKER, KEEPER, OPERATOR)}
        return others.get(who, self.owner)


def _reread(record: Record) -> Record:
    return replace(record, event=decode(record.event.wire, record.data, record.format))


def _suspend(wait: Wait) -> Callable[[Scene], object]:
    return lambda scene: scene.do(c.Suspend(by=scene.run(), wait=wait))


_WAYS: Final[Mapping[State, Callable[[Scene], object]]] = {
    State.INBOX: lambda scene: scene.do(c.Receive(by=CLIENT, job_id=JOB, spec=SPEC)),
    State.QUEUED: lambda scene: scene.job,
    State.RETRYING: lambda scene: scene.fail(),
    State.CLAIMED: lambda scene: scene.claim(),
    State.RUNNING: lambda scene: scene.run(),
    State.WAITING: _suspend(TIMED_APPROVAL),
    State.PARKED: _suspend(APPROVAL),
    State.STALLED: lambda scene: (scene.run(), scene.do(c.Stall(by=OPERATOR))),
    State.SUCCEEDED: lambda scene: scene.do(c.Complete(by=scene.run(), result=Raw(b"1"))),
    State.FAILED: lambda scene: scene.do(c.Fail(by=scene.run(), error=BROKEN, permanent=True)),
    State.CANCELLED: lambda scene: scene.do(c.Cancel(by=CLIENT, mode=CancelMode.HARD)),
    State.DEAD_LETTERED: lambda scene: scene.do(
        c.DeadLetter(by=OPERATOR, error=BROKEN, reason_code=Reason.POLICY_VIOLATION, stage=Stage.INPUT)
    ),
}
