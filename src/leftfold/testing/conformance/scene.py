"""One case's stage: an engine on a world of its own, a clock, and the ways that lead a job to any state."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, cast

import pytest
from msgspec.structs import replace

import leftfold
from leftfold.core import commands as c
from leftfold.core.errors import LeftfoldError
from leftfold.core.job import Job
from leftfold.core.lifecycle import State, Who
from leftfold.core.record import Record
from leftfold.core.retry import Policy
from leftfold.core.values import Failure, Spec
from leftfold.store.audit import Kept, Selection, examine, kept_of
from leftfold.store.query import Operation, Query, Steps, ids
from leftfold.store.replies import Claim, Receipt, Summary
from leftfold.store.rows import COLUMNS
from leftfold.testing.clock import FakeClock
from leftfold.testing.conformance.bridge import Blocking, Loop
from leftfold.testing.conformance.worlds import World

KIND: Final = "email.send"
OWNER: Final = "worker-1"
FLAKY: Final = Failure(code="flaky", message="try again")
BROKEN: Final = Failure(code="broken", message="another error")
FAILS: Final = Policy(on_exhausted="fail")
#: An id that no job has.
NOBODY: Final = "00000000-0000-7000-8000-000000000000"
_PAGE: Final = 1_000


def actor(who: Who) -> c.Actor:
    """Give somebody in this role."""
    return c.Actor(who=who, name=f"some-{who}")


CLIENT: Final = actor(Who.CLIENT)
WORKER: Final = actor(Who.WORKER)
KEEPER: Final = actor(Who.KEEPER)
OPERATOR: Final = actor(Who.OPERATOR)


class Reached(NamedTuple):
    """A job in some state, and the claim that it was held by last; where it never was, a claim that nobody gave."""

    job_id: str
    claim: Claim


class Scene:
    """An engine on a world of its own. `loop` is where it runs if it is the async one."""

    def __init__(self, world: World, loop: Loop | None, another_world: Callable[[], World]) -> None:
        self.world = world
        self._another_world = another_world
        self._elsewhere: list[Scene] = []
        self.clock = FakeClock()
        self._loop = loop
        self._engines: list[leftfold.Engine] = []
        self.engine = self.open()

    def open(self, enforce: str | None = None) -> leftfold.Engine:
        """Open an engine, closed with the scene if not before."""
        if self._loop is None:
            engine = self.world.open(self.clock, enforce)
        else:
            inner = self._loop.run(self.world.aopen(self.clock, enforce))
            engine = cast("leftfold.Engine", Blocking(inner, self._loop))
        self._engines.append(engine)
        return engine

    def another(self, enforce: str | None = None) -> leftfold.Engine:
        """Open a second engine on the same world."""
        if not self.world.shared:
            pytest.skip("this world has room for one engine only")
        return self.open(enforce)

    def elsewhere(self) -> "Scene":
        """Give another scene, on a world that knows nothing of this one; closed with it."""
        self._elsewhere.append(Scene(self._another_world(), self._loop, self._another_world))
        return self._elsewhere[-1]

    def shut(self, engine: leftfold.Engine) -> None:
        """Close an engine before the scene ends."""
        self._engines.remove(engine)
        engine.close()

    def close(self) -> None:
        """Close what is open, and leave no trace."""
        for scene in self._elsewhere:
            scene.close()
        for engine in self._engines:
            engine.close()
        self.world.drop()

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def enqueued(self, kind: str = KIND, payload: Any = None, **job: Any) -> str:
        """Make a job and give its id."""
        receipt: Receipt = self.engine.enqueue(kind, payload, **job)
        return receipt.job_id

    def held(self, job_id: str | None = None, owner: str = OWNER, **job: Any) -> Claim:
        """Claim a job, made for it if none is named."""
        (claim,) = self.engine.claim(owner, job_id=job_id or self.enqueued(**job))
        return claim

    def started(self, job_id: str | None = None, **job: Any) -> Claim:
        """Claim a job and start it."""
        claim = self.held(job_id, **job)
        self.engine.start(claim)
        return claim

    def reach(self, state: State, **job: Any) -> Reached:
        """Lead a job to this state, at a moment at which it can go on."""
        reached = _WAYS[state](self, job)
        assert self.engine.get(reached.job_id).state is state
        return reached

    # --- what is there ------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        """Read a job."""
        return self.engine.get(job_id)

    def wires(self, job_id: str) -> list[str]:
        """Give the names of a job's events."""
        return [record.event.wire for record in self.engine.history(job_id)]

    def last(self, job_id: str) -> Record:
        """Give the last record of a job's log."""
        return self.engine.history(job_id)[-1]

    def everything(self) -> list[Summary]:
        """Give all jobs, newest first."""
        found: list[Summary] = []
        after = None
        while True:
            page = self.engine.list(limit=_PAGE, after=after)
            found += page.jobs
            assert len({job.id for job in found}) == len(found), "no page shows a job again"
            after = page.next
            if after is None:
                return found

    def raw(self, job_ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """Give the logs of jobs as the store gives them."""
        return self.ask(ids("load", job_ids)) if job_ids else []

    def ask(self, query: Query) -> list[tuple[Any, ...]]:
        """Ask the store itself."""

        def steps() -> Steps[list[tuple[Any, ...]]]:
            return (yield query)

        answer: Any = self.engine.store.run(Operation(steps, apart=True, reads=True))
        return cast("list[tuple[Any, ...]]", answer if self._loop is None else self._loop.run(answer))

    def past_the_engine(self, *queries: Query) -> None:
        """Let the store run queries of its own in one transaction, as an operator with a shell could."""

        def steps() -> Steps[None]:
            yield Query("begin_maintenance", {"actor": "ann", "reason": "to see what comes of it"})
            for query in queries:  # noqa: UP028 - a tuple takes no answers
                yield query
            yield Query("end_maintenance")

        answer: Any = self.engine.store.run(Operation(steps))
        if self._loop is not None:
            self._loop.run(answer)

    def drift(self, job_id: str, **changes: Any) -> None:
        """Change a job's row, and not its log."""
        row = self._kept(job_id).row
        assert row is not None
        self.past_the_engine(Query("restore", columns=COLUMNS, rows=[row._replace(**changes)]))

    def head(self, job_id: str) -> bytes:
        """Give the hash of the last event of a job."""
        return examine(self._kept(job_id)).head

    def _kept(self, job_id: str) -> Kept:
        asked = {**Selection(ids=[job_id])._asdict(), "after": None, "limit": 1}
        (kept,) = kept_of(self.ask(Query("audit", asked)))
        return kept

    def trace(self) -> tuple[object, ...]:
        """Give everything that an operation could leave a trace in."""
        jobs = self.everything()
        return jobs, self.raw([job.id for job in jobs]), self.engine.counts(), self.engine.queues()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Hold a block to leaving no trace."""
        before = self.trace()
        yield
        assert self.trace() == before

    @contextmanager
    def refuses(self, error: type[Exception]) -> Iterator[None]:
        """Hold a block to being refused with this very error, without a trace."""
        with self.unchanged(), pytest.raises(error) as raised:
            yield
        assert type(raised.value) is error, f"a {error.__name__} was expected, not {raised.value!r}"


def shown(value: object) -> str:
    """Give a value as the name of a case."""
    return value.__name__ if isinstance(value, type) else ascii(value)[:40]


def refused(outcome: object, error: type[LeftfoldError]) -> bool:
    """Tell whether this outcome of a batch is a refusal with this very error."""
    return type(outcome) is error


def forged(job_id: str, **changes: Any) -> Claim:
    """Give a claim that nobody gave."""
    claim = Claim(
        job_id=job_id,
        attempt=1,
        token="forged",
        owner=OWNER,
        until=0,
        failures=0,
        spec=Spec(kind=KIND),
        policy=Policy(),
    )
    return replace(claim, **changes)


# --- the ways to the states -------------------------------------------------------------------------------------------

_Way = Callable[[Scene, dict[str, Any]], Reached]


def _inbox(scene: Scene, job: dict[str, Any]) -> Reached:
    job_id = scene.engine.receive(KIND, **job).job_id
    return Reached(job_id, forged(job_id))


def _queued(scene: Scene, job: dict[str, Any]) -> Reached:
    job_id = scene.enqueued(**job)
    return Reached(job_id, forged(job_id))


def _claimed(scene: Scene, job: dict[str, Any]) -> Reached:
    claim = scene.held(**job)
    return Reached(claim.job_id, claim)


def _after(act: Callable[[Scene, Claim], object], **defaults: Any) -> _Way:
    def way(scene: Scene, job: dict[str, Any]) -> Reached:
        claim = scene.started(**{**defaults, **job})
        act(scene, claim)
        return Reached(claim.job_id, claim)

    return way


def _fail(scene: Scene, claim: Claim) -> None:
    scene.engine.fail(claim, FLAKY)
    scene.clock.now = scene.job(claim.job_id).due or 0


_WAYS: Final[dict[State, _Way]] = {
    State.INBOX: _inbox,
    State.QUEUED: _queued,
    State.RETRYING: _after(_fail),
    State.CLAIMED: _claimed,
    State.RUNNING: _after(lambda scene, claim: None),
    State.WAITING: _after(lambda scene, claim: scene.engine.suspend(claim, "approved", deadline=3600)),
    State.PARKED: _after(lambda scene, claim: scene.engine.suspend(claim, "approved")),
    State.STALLED: _after(lambda scene, claim: scene.engine.stall(claim.job_id)),
    State.SUCCEEDED: _after(lambda scene, claim: scene.engine.complete(claim, {"sent": True})),
    State.FAILED: _after(lambda scene, claim: scene.engine.fail(claim, FLAKY, permanent=True), policy=FAILS),
    State.CANCELLED: _after(lambda scene, claim: scene.engine.cancel(claim.job_id, mode="hard")),
    State.DEAD_LETTERED: _after(lambda scene, claim: scene.engine.fail(claim, FLAKY, permanent=True)),
}
