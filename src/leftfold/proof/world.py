"""A world: jobs, workers with their memories, and a clock that stands still until it is told to tick.

Every duration in a world is a whole number of ticks, so what may happen next depends on how many ticks remain
and not on what time it is. That is why `identity` may leave out absolute time, and with it version, rev, log and
hash: they never influence a decision, and are checked on every edge instead.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

from leftfold.core import commands as c
from leftfold.core.job import Job, LastLease
from leftfold.core.lifecycle import BLOCKED, ENDED, LEASED, STALLED
from leftfold.core.limits import SECOND
from leftfold.core.record import GENESIS, Record, link
from leftfold.core.values import AFTER

T = TypeVar("T")
TICK: Final = SECOND


class Scope(NamedTuple):
    """How much is searched. `attempts` is both the retry budget and the most claims of a job."""

    jobs: int
    workers: int
    attempts: int

    def __str__(self) -> str:
        nouns = ("job", "worker", "attempt")
        return " x ".join(f"{n} {noun}{'s' * (n != 1)}" for n, noun in zip(self, nouns, strict=True))


class World(NamedTuple):
    """Everything there is, at one moment."""

    scope: Scope
    now: int
    jobs: tuple[Job | None, ...]
    logs: tuple[tuple[Record, ...], ...]
    heads: tuple[bytes, ...]
    held: tuple[tuple[int, ...], ...]  # the attempt that each worker believes to hold, by job; 0 is none
    asked: tuple[int, c.AnyCommand] | None  # the command that used the one request_id, and on which job

    def with_job(self, index: int, job: Job) -> "World":
        """Give the world in which one job has moved on; its log is still to be written."""
        return self._replace(jobs=_put(self.jobs, index, job))

    def with_records(self, index: int, records: tuple[Record, ...]) -> "World":
        """Give the world in which these records stand at the end of a job's log."""
        head = self.heads[index]
        for record in records:
            head = link(head, record)
        logs = _put(self.logs, index, self.logs[index] + records)
        return self._replace(logs=logs, heads=_put(self.heads, index, head))

    def with_memory(self, worker: int, index: int, attempt: int) -> "World":
        """Give the world in which a worker believes to hold that attempt."""
        return self._replace(held=_put(self.held, worker, _put(self.held[worker], index, attempt)))

    def without_worker(self, worker: int) -> "World":
        """Give the world in which a worker died and another one started in its place, knowing nothing."""
        return self._replace(held=_put(self.held, worker, (0,) * len(self.jobs)))

    def later(self) -> "World":
        """Give the world one tick later."""
        return self._replace(now=self.now + TICK)


def beginning(scope: Scope) -> World:
    """Give the world before anything happened."""
    return World(
        scope=scope,
        now=1_000 * TICK,
        jobs=(None,) * scope.jobs,
        logs=((),) * scope.jobs,
        heads=(GENESIS,) * scope.jobs,
        held=((0,) * scope.jobs,) * scope.workers,
        asked=None,
    )


def job_id(index: int) -> str:
    """Give the name of a job."""
    return f"job{index}"


def searched(world: World) -> Iterator[int]:
    """Give the jobs whose moves matter in this world.

    A job influences another one through a wait alone; moves of jobs that do not wait for each other commute, and
    searching them one job at a time finds the same states of each. So: a job is looked at while nobody is past
    its wait for it, and a later one while it does not exist, is blocked or has ended, or once it was resumed.
    """
    current = max((index for index, job in enumerate(world.jobs) if index == 0 or _was_resumed(job)), default=0)
    yield current
    for index in range(current + 1, len(world.jobs)):
        job = world.jobs[index]
        if job is None or job.state in BLOCKED or job.state in ENDED:
            yield index


def identity(world: World) -> tuple[object, ...]:
    """Give what makes two worlds the same as far as the future is concerned."""
    if len(world.jobs) == 1:
        return _job_identity(world, 0), world.held, world.asked is None
    looked_at = frozenset(searched(world))
    return (
        tuple(
            _job_identity(world, index) if index in looked_at else job and job.state
            for index, job in enumerate(world.jobs)
        ),
        tuple(tuple(held[index] for index in looked_at) for held in world.held),
        -1 if world.asked is None else world.asked[0],  # not True or False: they equal 1 and 0
    )


def is_pending(world: World) -> bool:
    """Tell whether the passing of time would change anything."""
    return any(job is not None and _remaining(_timer(job), world.now) for job in world.jobs)


def _was_resumed(job: Job | None) -> bool:
    return job is not None and AFTER in job.answers


def _job_identity(world: World, index: int) -> tuple[object, ...] | None:
    job = world.jobs[index]
    if job is None:
        return None
    # How the last lease ended matters to its owner alone, and only if that worker still remembers it.
    remembered = job.lease is None and any(held[index] == job.attempt for held in world.held)
    return (
        job.state,
        job.attempt,
        job.failures,
        job.policy.on_exhausted,
        _remaining(_timer(job), world.now),
        job.wait and (job.wait.until, job.wait.deadline is None),
        job.cancel_requested_at is not None and (job.state in LEASED or job.state is STALLED),
        tuple((key, answer.expired, answer.until) for key, answer in sorted(job.answers.items())),
        remembered and job.last_lease and _ending(job.last_lease),
    )


def _ending(last: LastLease) -> tuple[object, ...]:
    error = getattr(last.ended_by, "error", None)
    return last.ended_by.wire, last.ended_by_owner, error and error.code


def _timer(job: Job) -> int | None:
    """Give the moment that the job waits for; its shape lets it have one at the most."""
    if job.lease is not None:
        return job.lease.until
    return job.due if job.wait is None else job.wait.deadline


def _remaining(moment: int | None, now: int) -> int:
    return 0 if moment is None else max(0, moment - now)


def _put(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
