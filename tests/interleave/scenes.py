"""Set-ups: one job in some state, in a queue of its own, with a claim on it that holds or held it; another beside it.

Scenes are made many at a time, each with a number in its names, so that hundreds of schedules share one schema.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from tests.migration.raw import PostgresRaw
from tests.places import Place

from leftfold import Actor, Claim, Engine
from leftfold.asking import NewJob
from leftfold.core.lifecycle import Who
from leftfold.core.retry import Backoff, Policy
from leftfold.store.postgres.driver import PostgresStore
from leftfold.testing.clock import FakeClock

KEEPER: Final = Actor(who=Who.KEEPER, name="keeper")
#: What passes between the set-up and the two calls: leases, backoffs and deadlines of waits have run out by then.
LATER_SECONDS: Final = 90
DEADLINE_SECONDS: Final = 30
#: When jobs become due that are not yet when their set-up is made, and how long before a scene is played its sides may
#: have done something: before that.
SOON_SECONDS: Final = 80
BEFORE_SECONDS: Final = 30
#: The keys of the two jobs: their order is not that of the ids, so that who goes by keys meets who goes by ids.
KEYS: Final = ("key", "fellow")
#: Without jitter, which is another for each job. A stalled job waits for somebody's word.
POLICY: Final = Policy(backoff=Backoff(jitter=False), hold_stalled=True)


class Scene(NamedTuple):
    """What two calls are about."""

    number: int
    job: str
    other: str  # a second job in the queue
    claims: tuple[Claim, Claim] | None  # on the two; the lease may be over
    consumed: list[tuple[str, int]]  # the events that consumers were given, by job and version

    @property
    def queue(self) -> str:
        return self.named("queue")

    @property
    def key(self) -> str:
        return self.named("key")

    @property
    def request(self) -> str:
        return self.named("request")

    def named(self, word: str) -> str:
        """Give a name that no other scene has."""
        return f"{word}.{tag_of(self.number)}"

    @property
    def claim(self) -> Claim:
        """Give the claim on the job."""
        return self.both[0]

    @property
    def both(self) -> tuple[Claim, Claim]:
        assert self.claims is not None, "nobody ever claimed these jobs"
        return self.claims

    def rev(self, engine: Engine) -> int:
        """Give the rev that everybody has read."""
        return engine.get(self.job).rev


def tag_of(number: int) -> str:
    """Give the part of a scene's names that is its own."""
    return f"n{number}n"


Made = Sequence[Scene]
Next = Callable[[Engine, Made], object]


def _claimed(engine: Engine, numbers: Sequence[int]) -> Made:
    """Make jobs, and claim them all."""
    new = [
        NewJob("work", queue=f"queue.{tag_of(number)}", key=f"{word}.{tag_of(number)}", policy=POLICY)
        for number in numbers
        for word in KEYS
    ]
    ids = [receipt.job_id for receipt in engine.enqueue_many(new) if receipt is not None]
    claims = {
        claim.job_id: claim for claim in engine.claim("worker", queues=[job.queue for job in new], limit=len(ids))
    }
    pairs = zip(ids[::2], ids[1::2], strict=True)
    return [
        Scene(number, job, other, (claims[job], claims[other]), [])
        for number, (job, other) in zip(numbers, pairs, strict=True)
    ]


def _inbox(engine: Engine, numbers: Sequence[int]) -> Made:
    def one(number: int, word: str) -> str:
        return engine.receive("work", queue=f"queue.{tag_of(number)}", key=f"{word}.{tag_of(number)}").job_id

    return [Scene(number, one(number, KEYS[0]), one(number, KEYS[1]), None, []) for number in numbers]


def _each(scenes: Made) -> list[Claim]:
    return [claim for scene in scenes for claim in scene.both]


def _first(scenes: Made) -> list[Claim]:
    return [scene.claim for scene in scenes]


def _start(engine: Engine, scenes: Made) -> None:
    engine.start_many(_each(scenes))


def _stall(engine: Engine, scenes: Made) -> None:
    for scene in scenes:
        engine.stall(scene.job, by="set-up")


def _ask_to_stop(engine: Engine, scenes: Made) -> None:
    for scene in scenes:
        engine.cancel(scene.job, by="set-up")


def _await_the_other(engine: Engine, scenes: Made) -> None:
    for scene in scenes:
        engine.suspend(scene.claim, "others", jobs=[scene.other])


def _dead_letter(engine: Engine, scenes: Made) -> None:
    for scene in scenes:
        engine.dead_letter(scene.claim, "beyond hope")


def _dead_letter_both(engine: Engine, scenes: Made) -> None:
    for claim in _each(scenes):
        engine.dead_letter(claim, "beyond hope")


def _renew_the_other(engine: Engine, scenes: Made) -> None:
    engine.heartbeat_many([scene.both[1] for scene in scenes], lease=3600)


def _pause(engine: Engine, scenes: Made) -> None:
    engine.release_many(_first(scenes))
    for scene in scenes:
        engine.pause(scene.queue, by="set-up")


def _close_another(engine: Engine, scenes: Made) -> None:
    """Pause a queue that nothing is in as yet."""
    for scene in scenes:
        engine.pause(scene.named("closed"), by="set-up")


def _follow(engine: Engine, scenes: Made) -> None:
    engine.release_many(_first(scenes))
    for scene in scenes:
        engine.feed(scene.named("consumer"), start="now")


def _drift(engine: Engine, scenes: Made) -> None:
    """Change rows by hand, so that they are not what their logs come to."""
    with _shell(engine) as shell:
        shell.maintain()
        for scene in scenes:
            shell.run("UPDATE jobs SET failures = 3, priority = 3 WHERE id = ?", [scene.job])
        shell.commit()


def _miscount(engine: Engine, scenes: Made) -> None:
    with _shell(engine) as shell:
        for scene in scenes:
            shell.run("INSERT INTO counts SELECT queue, kind, state, 2 FROM jobs WHERE id = ?", [scene.job])


def _shell(engine: Engine) -> PostgresRaw:
    store = engine.store
    assert isinstance(store, PostgresStore)
    return PostgresRaw(Place(store.url, store.schema))


#: What is done to claimed jobs, to bring the first of each pair to a state; the other one stays with its owner.
STATES: Final[Mapping[str, tuple[Next, ...]]] = {
    "inbox": (_close_another,),
    "queued": (lambda engine, scenes: engine.release_many(_first(scenes)),),
    "both queued": (lambda engine, scenes: engine.release_many(_each(scenes)),),
    "due soon": (lambda engine, scenes: engine.release_many(_first(scenes), due=SOON_SECONDS),),
    "both due soon": (lambda engine, scenes: engine.release_many(_each(scenes), due=SOON_SECONDS),),
    "retrying": (_start, lambda engine, scenes: engine.fail_many([(claim, "oops") for claim in _first(scenes)])),
    "claimed": (),
    "running": (_start,),
    "asked to stop": (_start, _ask_to_stop),
    "waiting": (
        _start,
        lambda engine, scenes: engine.suspend_many(_first(scenes), "go", deadline=DEADLINE_SECONDS),
    ),
    "parked": (_start, lambda engine, scenes: engine.suspend_many(_first(scenes), "go")),
    "waiting for the other": (_start, _await_the_other),
    "stalled": (_start, _stall),
    "dead-lettered": (_start, _dead_letter),
    "both dead-lettered": (_start, _dead_letter_both),
    "in a paused queue": (_pause,),
    "followed": (_follow,),
    "overdue": (_start, _renew_the_other),
    "drifted": (_start, _renew_the_other, _drift),
    "drifted and miscounted": (_start, _renew_the_other, _drift, _miscount),
    "overdue wait": (
        _start,
        _renew_the_other,
        lambda engine, scenes: engine.suspend_many(_first(scenes), "go", deadline=DEADLINE_SECONDS),
    ),
}

_NUMBERS: Final = count(1)
_AT_ONCE: Final = 12


class Stage:
    """Makes scenes in time. The clock stands at the set-up while one is made, and later whenever one is played."""

    def __init__(self, engine: Engine, clock: FakeClock, *, alone: bool = False) -> None:
        self.engine, self.clock, self._at_once = engine, clock, 1 if alone else _AT_ONCE
        self.known: set[str] = set()  # jobs that somebody was told of
        self._kept: dict[str, list[Scene]] = {}

    def scene(self, state: str) -> Scene:
        """Give a scene that nobody played yet."""
        kept = self._kept.setdefault(state, [])
        if not kept:
            self.clock.advance(-LATER_SECONDS)
            kept += self._make(state)
            self.clock.advance(LATER_SECONDS)
        return kept.pop()

    def _make(self, state: str) -> Made:
        numbers = [next(_NUMBERS) for _ in range(self._at_once)]
        scenes = (_inbox if state == "inbox" else _claimed)(self.engine, numbers)
        for step in STATES[state]:
            step(self.engine, scenes)
        self.known.update(job_id for scene in scenes for job_id in (scene.job, scene.other))
        return scenes
