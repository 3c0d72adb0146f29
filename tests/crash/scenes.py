"""What is there before an operation: jobs in some state, and the claims on them.

The scenes play at one moment of a clock that stands still, the operations at a later one: leases and waits have run
out by then, and every job is due. So two runs of an operation write the same.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.places import Place
from tests.verify.planting import Shell

import leftfold
from leftfold import Backoff, Claim, Engine, Policy
from leftfold.core.values import WaitFor
from leftfold.store.feed import FeedPage
from leftfold.store.postgres.driver import PostgresStore
from leftfold.store.sqlite.driver import SqliteStore
from leftfold.testing.clock import START

THEN: Final = START
NOW: Final = START + 3600 * 1_000_000
ACTOR: Final = "client"

# The jitter would come from the job's id, which is another one each time.
PLAIN: Final = Policy(backoff=Backoff(jitter=False))
LAST_TRY: Final = Policy(max_failures=1)
LAST_TRY_CLOSED: Final = Policy(max_failures=1, on_exhausted="fail")
HELD: Final = Policy(hold_stalled=True)


class Held(NamedTuple):
    """What the caller knows of the scene. Each job is of a kind of its own."""

    jobs: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    others: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # of an export
    pages: tuple[FeedPage, ...] = ()

    @property
    def page(self) -> FeedPage:
        return self.pages[0]

    @property
    def job(self) -> str:
        return self.jobs[0]

    @property
    def claim(self) -> Claim:
        return self.claims[0]


def nothing(engine: Engine) -> Held:
    return Held()


def _queued(*kinds: str, policy: Policy = PLAIN) -> Callable[[Engine], Held]:
    return lambda engine: Held(tuple(engine.enqueue(kind, {"of": kind}, policy=policy).job_id for kind in kinds))


def _claimed(*kinds: str, policy: Policy = PLAIN) -> Callable[[Engine], Held]:
    def scene(engine: Engine) -> Held:
        jobs = _queued(*kinds, policy=policy)(engine).jobs
        return Held(jobs, tuple(engine.claim("worker", job_id=job)[0] for job in jobs))

    return scene


def _running(*kinds: str, policy: Policy = PLAIN) -> Callable[[Engine], Held]:
    def scene(engine: Engine) -> Held:
        held = _claimed(*kinds, policy=policy)(engine)
        engine.start_many(held.claims)
        return held

    return scene


queued = _queued("a")
two_queued = _queued("a", "b")
claimed = _claimed("a")
two_claimed = _claimed("a", "b")
running = _running("a")
two_running = _running("a", "b")
running_last_try = _running("a", policy=LAST_TRY)
running_last_try_closed = _running("a", policy=LAST_TRY_CLOSED)
running_to_be_held = _running("a", policy=HELD)


def with_key(engine: Engine) -> Held:
    return Held((engine.enqueue("a", key="k").job_id,))


def received(engine: Engine) -> Held:
    return Held((engine.receive("a", 1).job_id,))


def one_started_of_two(engine: Engine) -> Held:
    """The second one cannot be completed: each of the two goes its own way through the engine."""
    held = two_claimed(engine)
    engine.start(held.claim)
    return held


def running_beside_another(engine: Engine) -> Held:
    held = running(engine)
    return held._replace(others=(engine.enqueue("z").job_id,))


def stalled(engine: Engine) -> Held:
    held = running_to_be_held(engine)
    engine.stall(held.job)
    return held


def parked(engine: Engine) -> Held:
    held = running(engine)
    engine.suspend(held.claim, "approved")
    return held


def napping(engine: Engine) -> Held:
    held = running(engine)
    engine.suspend(held.claim, "nap", until=WaitFor.TIMER, deadline=60)
    return held


def to_be_cancelled(engine: Engine) -> Held:
    held = running(engine)
    engine.cancel(held.job)
    return held


def set_aside(engine: Engine) -> Held:
    held = running(engine)
    engine.fail(held.claim, "no", permanent=True)
    return held


def waiting_for_an_ended_one(engine: Engine) -> Held:
    first = running(engine)
    waiting = engine.enqueue("b", after=[first.job])
    engine.complete(first.claim, 1)
    return Held((waiting.job_id,), others=first.jobs)


def paused(engine: Engine) -> Held:
    held = queued(engine)
    engine.pause("default", reason="stop", by="ann")
    return held


def two_overdue(engine: Engine) -> Held:
    """A lease and a wait that have run out by the time of the operation."""
    held = two_running(engine)
    engine.suspend(held.claims[1], "nap", until=WaitFor.TIMER, deadline=60)
    return held


def read(engine: Engine) -> Held:
    """A page that a new consumer has read."""
    running(engine)
    return Held(pages=(engine.feed("reader", limit=2),))


def read_on(engine: Engine) -> Held:
    """The next page of a consumer that is known."""
    engine.acknowledge(read(engine).page)
    return Held(pages=(engine.feed("reader", limit=1),))


def shell_of(engine: Engine) -> Shell:
    """Give a shell on the database that an engine stands on: for what no engine would do."""
    store = engine.store
    if isinstance(store, SqliteStore):
        return Shell(Place(f"sqlite:///{store.path}"))
    assert isinstance(store, PostgresStore)
    return Shell(Place(store.url, store.schema))


def _harmed(scene: Callable[[Engine], Held], harm: Callable[[Shell, Held], object]) -> Callable[[Engine], Held]:
    def harmed(engine: Engine) -> Held:
        held = scene(engine)
        with shell_of(engine) as shell:
            harm(shell, held)
        return held

    return harmed


def _drift(shell: Shell, *jobs: str) -> None:
    for job_id in jobs:
        shell.edit_row(job_id, failures=3, correlation_id="nobody's")


def _spoil(shell: Shell, job_id: str) -> None:
    """Let the first event be none."""
    shell.edit(job_id, 1, data="{")


def _drift_and_spoil(shell: Shell, held: Held) -> None:
    _drift(shell, held.jobs[0])
    _spoil(shell, held.jobs[1])


def _miscount(shell: Shell, _: Held) -> None:
    if shell.place.is_file:
        shell.ask("UPDATE counts SET jobs = jobs + 2 WHERE state = 'running'")
    else:
        shell.ask("INSERT INTO counts SELECT queue, kind, state, 2 FROM jobs")


def _lose(shell: Shell, held: Held) -> None:
    shell.change(f"DELETE FROM jobs WHERE {shell.row_of(held.job)}")  # noqa: S608 - our own


drifted_beside_an_unreadable = _harmed(two_running, _drift_and_spoil)
two_drifted = _harmed(two_running, lambda shell, held: _drift(shell, *held.jobs))
miscounted = _harmed(running, _miscount)
without_its_row = _harmed(two_running, _lose)
overdue_beside_an_unreadable = _harmed(two_overdue, lambda shell, held: _spoil(shell, held.job))
queued_beside_an_unreadable = _harmed(two_queued, lambda shell, held: _spoil(shell, held.job))


def frozen(engine: Engine) -> Held:
    held = _harmed(running, lambda shell, held: _drift(shell, held.job))(engine)
    engine.verify()
    return held


def exported(engine: Engine) -> Held:
    """Jobs of another store, on their way into this one."""
    with leftfold.open("sqlite:///:memory:", clock=lambda: THEN, actor=ACTOR) as other:
        two_running(other)
        return Held(lines=tuple(other.export_jobs()))
