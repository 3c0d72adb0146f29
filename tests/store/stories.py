"""Logs told in the pure core and put into the stores whole: any job, in any state, in no time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from msgspec import Raw
from tests.store.world import CLIENT, OPERATOR, World

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.decide import apply
from leftfold.core.job import Job
from leftfold.core.letters import Reason
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.retry import Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor
from leftfold.testing.clock import START

if TYPE_CHECKING:
    from leftfold.core.record import Record

ERROR: Final = Failure(code="transient", message="no route")
POLICY: Final = Policy(on_exhausted="fail", lease=20 * SECOND)
NAME: Final = 'worker "1" \\ ☃'


def job_id(number: int) -> str:
    """Give a job id by its number."""
    return str(UUID(int=0x018BCFE5_6800_7000_8000_000000000000 + number))


def owner(attempt: int, token: str) -> c.Actor:
    """Give an owner that shows this."""
    return c.Actor(who=Who.OWNER, name=NAME, attempt=attempt, token=token)


FIRST: Final = owner(1, "token-1")
SECOND_CLAIM: Final = owner(2, "token-2")


class Story:
    """One job and its log. Everything happens a second after the other."""

    def __init__(self, number: int, queue: str = "default", key: str | None = None) -> None:
        self.id = job_id(number)
        self.spec = Spec(kind="told", queue=queue, key=key, payload=Raw(b"1"))
        self.now = START
        self.records: list[Record] = []
        self.told: Job | None = None

    @property
    def job(self) -> Job:
        assert self.told is not None
        return self.told

    def say(self, command: c.AnyCommand) -> None:
        """Let somebody say something that has an effect."""
        self.now += SECOND
        self.told, records = apply(self.told, command, self.now)
        self.records += records

    def claim(self, by: c.Actor) -> None:
        """Let a worker claim it and become this owner."""
        self.say(c.Claim(by=c.Actor(who=Who.WORKER, name=by.name), token=by.token))


_WAIT: Final = Wait(until=WaitFor.SIGNAL, key="approved")

#: How a job that was claimed for the second time comes to each state.
_LAST: Final[Mapping[State, tuple[c.AnyCommand, ...]]] = {
    State.QUEUED: (c.Release(by=SECOND_CLAIM),),
    State.RETRYING: (c.Start(by=SECOND_CLAIM), c.Fail(by=SECOND_CLAIM, error=ERROR)),
    State.CLAIMED: (),
    State.RUNNING: (c.Start(by=SECOND_CLAIM),),
    State.WAITING: (c.Start(by=SECOND_CLAIM), c.Suspend(by=SECOND_CLAIM, wait=_WAIT, timeout=MINUTE)),
    State.PARKED: (c.Start(by=SECOND_CLAIM), c.Suspend(by=SECOND_CLAIM, wait=_WAIT)),
    State.STALLED: (c.Start(by=SECOND_CLAIM), c.Stall(by=OPERATOR)),
    State.SUCCEEDED: (c.Start(by=SECOND_CLAIM), c.Complete(by=SECOND_CLAIM, result=Raw(b"42"))),
    State.FAILED: (c.Start(by=SECOND_CLAIM), c.Fail(by=SECOND_CLAIM, error=ERROR, permanent=True)),
    State.CANCELLED: (c.Cancel(by=CLIENT, mode=CancelMode.HARD),),
    State.DEAD_LETTERED: (c.DeadLetter(by=OPERATOR, error=ERROR, reason_code=Reason.POLICY_VIOLATION),),
}


def tell(
    number: int,
    state: State,
    *,
    asked_to_stop: bool = False,
    events: int = 0,
    queue: str = "default",
    key: str | None = None,
) -> Story:
    """Tell how a job came to this state in its second attempt, with at least this many events."""
    story = Story(number, queue, key)
    if state is State.INBOX:
        story.say(c.Receive(by=CLIENT, job_id=story.id, spec=story.spec))
        _pad(story, events)
        return story
    story.say(c.Enqueue(by=CLIENT, job_id=story.id, spec=story.spec, policy=POLICY))
    more = [c.Cancel(by=CLIENT)] if asked_to_stop else []
    _pad(story, events - 3 - len(more) - len(_LAST[state]))
    story.claim(FIRST)
    story.say(c.Release(by=FIRST))
    story.claim(SECOND_CLAIM)
    for command in (*more, *_LAST[state]):
        story.say(command)
    return story


def _pad(story: Story, events: int) -> None:
    while len(story.records) < events:
        story.say(c.Note(by=CLIENT, note=e.Custom(name="more")))


def put(world: World, stories: Sequence[Story]) -> None:
    """Put stories into the stores; time goes on from the last of them."""
    world.load([(story.job, story.records) for story in stories])
    world.clock.now = max(story.now for story in stories)


class Fenced(NamedTuple):
    """A job, and an owner that speaks of it."""

    name: str
    story: Story
    by: c.Actor


#: Who shows what: the job is in its second attempt, unless it never had one.
SHOWN: Final[Mapping[str, c.Actor]] = {
    "right fence": SECOND_CLAIM,
    "wrong token": owner(2, "forged"),
    "wrong attempt": owner(3, "token-2"),
    "stale attempt": FIRST,
    "old token, new attempt": owner(2, "token-1"),
    "new token, old attempt": owner(1, "token-2"),
}


def fenced(events_max: int, first: int = 0) -> Iterator[Fenced]:
    """Give a job in every state under every fence, asked to stop, and at the limit of events."""
    number = first
    for state in State:
        for name, by in SHOWN.items():
            yield Fenced(f"{state}, {name}", tell(number, state), by)
            number += 1
        for by in (SECOND_CLAIM, FIRST):
            yield Fenced(f"{state}, at the limit", tell(number, state, events=events_max), by)
            number += 1
            story = tell(number, state, asked_to_stop=True) if state is not State.INBOX else tell(number, state)
            yield Fenced(f"{state}, asked to stop", story, by)
            number += 1


#: What owners say by a statement of its own.
QUICK: Final[Mapping[str, Callable[[c.Actor], c.AnyCommand]]] = {
    "start": lambda by: c.Start(by=by),
    "complete": lambda by: c.Complete(by=by, result=Raw('{"a":["ü","\\"",1.5]}'.encode())),
    "heartbeat": lambda by: c.Heartbeat(by=by),
    "long heartbeat": lambda by: c.Heartbeat(by=by, lease=10 * MINUTE),
    "note": lambda by: c.Note(by=by, note=e.Progress(fraction=0.5, message='☃ \\ "half"')),
    "custom note": lambda by: c.Note(by=by, note=e.Custom(name="mine", data=Raw(b"[null]"))),
}
