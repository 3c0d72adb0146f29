"""Histories for the tests of the dialects: told by hand, drawn at random, or found by search.

Every record is made by `apply`, so every history here is one that the engine can write.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st
from msgspec import Raw

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import NOTHING_FORBIDDEN, Forbidden, apply
from leftfold.core.errors import LeftfoldError
from leftfold.core.letters import Reason
from leftfold.core.lifecycle import FINAL, Edge, Who
from leftfold.core.limits import SECOND
from leftfold.core.retry import Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor
from leftfold.dialects.dialect import Dialect, Step, walk

if TYPE_CHECKING:
    from leftfold.core.job import Job
    from leftfold.core.record import Record

ANN: Final = c.Actor(who=Who.CLIENT, name="ann")
KEEPER: Final = c.Actor(who=Who.KEEPER, name="keeper")
OLGA: Final = c.Actor(who=Who.OPERATOR, name="olga")
WORKER: Final = c.Actor(who=Who.WORKER, name="w1")
SPEC: Final = Spec(kind="demo")
BOOM: Final = Failure(code="boom")
LATE: Final = Failure(code="timeout")
LOST: Final = Failure(code="permanent")
YES: Final = Raw(b"true")
LEASE: Final = 60 * SECOND


class Story:
    """One job, its log, and a clock that moves when it is told to."""

    def __init__(self, forbidden: Forbidden = NOTHING_FORBIDDEN) -> None:
        self.forbidden = forbidden
        self.now = 0
        self.job: Job | None = None
        self.log: list[Record] = []

    def say(self, command: c.AnyCommand) -> list[str]:
        """Send a command, and give the wire names of the events that it wrote."""
        self.job, records = apply(self.job, command, self.now, self.forbidden)
        self.log += records
        return [record.event.wire for record in records]

    def tell(self, *acts: str) -> "Story":
        """Let these things happen, a good while after each other."""
        for act in acts:
            self.now += 2 * LEASE
            self.say(ACTS[act](self))
        return self

    def attempt(self, act: str, passing: int = 2 * LEASE) -> bool:
        """Let a thing happen if it may, and tell whether it did."""
        self.now += passing
        try:
            return bool(self.say(ACTS[act](self)))
        except LeftfoldError:
            return False

    def copy(self) -> "Story":
        """Give a story that goes on from here on its own."""
        twin = Story(self.forbidden)
        twin.now, twin.job, twin.log = self.now, self.job, [*self.log]
        return twin

    @property
    def owner(self) -> c.Actor:
        """Give whoever claimed the job last, holding the lease or not."""
        attempt = max(self.job.attempt if self.job else 0, 1)
        return c.Actor(who=Who.OWNER, name="w1", attempt=attempt, token=f"token {attempt}")

    @property
    def state(self) -> str:
        """Give where the job is."""
        return self.job.state.value if self.job else "(new)"

    def edges(self) -> list[Edge]:
        """Give the moves of the lifecycle that the job made."""
        return [edge for _, edge in walk(self.log)]


def _enqueue(policy: Policy = Policy(), after: tuple[str, ...] = ()) -> Callable[[Story], c.AnyCommand]:
    return lambda _: c.Enqueue(by=ANN, job_id="j", spec=SPEC, policy=policy, after=after)


def _claim(story: Story, *, direct: bool = False) -> c.AnyCommand:
    attempt = (story.job.attempt if story.job else 0) + 1
    return c.Claim(by=WORKER, token=f"token {attempt}", lease=LEASE, direct=direct)


def _letter(by: c.Actor) -> c.AnyCommand:
    return c.DeadLetter(by=by, error=LOST, reason_code=Reason.POLICY_VIOLATION)


def _wait(until: WaitFor, deadline: int | None) -> Wait:
    return Wait(until=until, key=f"{until} {deadline}".replace(" ", "-"), deadline=deadline)


def _signal(story: Story) -> c.AnyCommand:
    wait = story.job.wait if story.job else None
    return c.Signal(by=ANN, key=wait.key if wait else "early", payload=YES)


#: Everything that may happen to a job, each under a short name.
ACTS: Final[Mapping[str, Callable[[Story], c.AnyCommand]]] = {
    "receive": lambda _: c.Receive(by=ANN, job_id="j", spec=SPEC),
    "admit": lambda _: c.Admit(by=ANN),
    "enqueue": _enqueue(),
    "enqueue strict": _enqueue(Policy(max_failures=1, on_exhausted="fail")),
    "enqueue once": _enqueue(Policy(max_failures=1)),
    "enqueue held": _enqueue(Policy(hold_stalled=True)),
    "enqueue after": _enqueue(after=("other",)),
    "resume": lambda _: c.Resume(by=KEEPER, outcomes={"other": "succeeded"}),
    "claim": _claim,
    "claim by id": lambda story: _claim(story, direct=True),
    "start": lambda story: c.Start(by=story.owner),
    "heartbeat": lambda story: c.Heartbeat(by=story.owner),
    "complete": lambda story: c.Complete(by=story.owner, result=YES),
    "fail": lambda story: c.Fail(by=story.owner, error=BOOM),
    "fail late": lambda story: c.Fail(by=story.owner, error=LATE),
    "fail for good": lambda story: c.Fail(by=story.owner, error=LOST),
    "release": lambda story: c.Release(by=story.owner),
    "wait": lambda story: c.Suspend(by=story.owner, wait=_wait(WaitFor.SIGNAL, story.now + 9 * LEASE)),
    "park": lambda story: c.Suspend(by=story.owner, wait=_wait(WaitFor.SIGNAL, None)),
    "sleep": lambda story: c.Suspend(by=story.owner, wait=_wait(WaitFor.TIMER, story.now + SECOND)),
    "signal": _signal,
    "expire": lambda _: c.Expire(by=KEEPER),
    "stall": lambda _: c.Stall(by=KEEPER),
    "distrust": lambda _: c.Stall(by=OLGA),
    "requeue": lambda _: c.Requeue(by=OLGA, reason="looked at"),
    "bring back": lambda _: c.Requeue(by=KEEPER),
    "cancel": lambda _: c.Cancel(by=ANN),
    "kill": lambda _: c.Cancel(by=ANN, mode=CancelMode.HARD),
    "heed": lambda story: c.Cancel(by=story.owner),
    "clean up": lambda _: c.Cancel(by=KEEPER),
    "set aside": lambda _: _letter(OLGA),
    "give up": lambda story: _letter(story.owner),
    "note": lambda story: c.Note(by=story.owner, note=e.Progress(fraction=0.5)),
}


def told(*acts: str) -> Story:
    """Tell a story under no enforced dialect."""
    return Story().tell(*acts)


def found(forbidden: Forbidden = NOTHING_FORBIDDEN) -> dict[Edge, Story]:
    """Search breadth first, and give for each move that a job can make one of the shortest stories ending in it."""
    ends: dict[Edge, Story] = {}
    seen: set[object] = set()
    frontier = [Story(forbidden)]
    while frontier:
        story = frontier.pop(0)
        for act in ACTS:
            longer = story.copy()
            if not longer.attempt(act) or longer.job is None:
                continue
            for edge in longer.edges()[len(story.edges()) :]:
                ends.setdefault(edge, longer)
            job = longer.job
            key = (job.state, min(job.attempt, 2), min(job.failures, 1), job.cancel_requested_at is None, job.policy)
            if repr(key) not in seen:
                seen.add(repr(key))
                frontier.append(longer)
    return ends


def wandered(choices: list[tuple[int, int]], forbidden: Forbidden = NOTHING_FORBIDDEN) -> Story:
    """Go wherever the choices lead: each picks one of the acts that do something then, and how long it takes.

    Acts that end the job are picked rarely, so that it lives to see something.
    """
    story = Story(forbidden)
    for choice, passing in choices:
        branches = []
        for act in ACTS:
            branch = story.copy()
            if branch.attempt(act, passing) and branch.job is not None:
                branches += [branch] * (1 if branch.job.state in FINAL else 8)
        if not branches:
            break
        story = branches[choice % len(branches)]
    return story


#: What `wandered` takes.
CHOICES: Final = st.lists(
    st.tuples(st.integers(0, 999), st.sampled_from([0, SECOND, 2 * LEASE])), min_size=15, max_size=40
)


def shown(step: Step) -> str:
    """Give a step as text: the event (`*` marks a name of ours, `~` silence) and the state that it leads to."""
    return f"{step.move.event or '~'}{'*' * step.ours} {step.move.target}"


def merged(dialect: Dialect, state: str | None) -> frozenset[str | None]:
    """Give the states that the dialect's own derivation does not tell apart from this one."""
    return next((frozenset(merger) for merger in dialect.mergers if state in merger), frozenset({state}))
