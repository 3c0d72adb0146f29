"""What the processes do that hammer one file: some write and remember what they were told, one reads all the while."""

import os
import random
import signal
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

from tests.concurrency.crowd import DEADLINE
from tests.places import Place

from leftfold import Engine, NewJob
from leftfold.store.sqlite.library import sqlite


class Seen(NamedTuple):
    """What the reader saw: how many jobs it read, how long the write-ahead log was at most, and how long it ended."""

    reads: int
    log_max: int
    log_last: int


def log_size(place: Place) -> int:
    """Give the length of the write-ahead log."""
    log = Path(f"{place.path}-wal")
    return log.stat().st_size if log.exists() else 0


def work(engine: Engine, name: str) -> Iterator[tuple[str, str]]:
    """Make jobs and complete some of them, for ever; give each acknowledgement: (job id, event that is on its log)."""
    for n in range(1_000_000):
        for receipt in engine.enqueue_many(NewJob("work", {"text": "x" * (n % 7) * 300}) for _ in range(1 + n % 3)):
            assert receipt is not None
            yield receipt.job_id, "enqueued"
        claims = engine.claim(name, limit=2)
        yield from ((claim.job_id, "claimed") for claim in claims)
        for claim in claims:
            engine.start(claim)
            yield claim.job_id, "started"
        engine.heartbeat_many(claims)
        for claim, ended in zip(claims, engine.complete_many((claim, n) for claim in claims), strict=True):
            assert not isinstance(ended, Exception), ended
            yield claim.job_id, "succeeded"


def take_part(place: int, barrier: Barrier, where: Place, acknowledgements: int) -> list[tuple[str, str]] | Seen:
    """Read, as the first of the processes, or write."""
    with where.open() as engine:
        barrier.wait(DEADLINE)
        if place == 0:
            return read_all_the_while(engine, barrier, where)
        told = [answer for answer, _ in zip(work(engine, f"worker-{place}"), range(acknowledgements), strict=False)]
        barrier.wait(DEADLINE)
    return told


def read_all_the_while(engine: Engine, barrier: Barrier, where: Place) -> Seen:
    dice = random.Random(1)  # noqa: S311 - no secrets here
    reads, longest, jobs = 0, 0, 0
    while barrier.n_waiting < barrier.parties - 1:
        page = engine.list(limit=20)
        for job in dice.sample(page.jobs, min(3, len(page.jobs))):
            assert engine.get(job.id).version >= job.version, "a job never goes back"
            reads += 1
        counted = sum(count.jobs for count in engine.counts())
        assert counted >= jobs, "no job goes away"
        jobs = counted
        longest = max(longest, log_size(where))
    last = log_size(where)
    barrier.wait(DEADLINE)
    return Seen(reads, longest, last)


def write_until_killed(where: Place, told: Path, statement: int | None = None) -> None:
    """Write, and note each acknowledgement in a file, until we are killed: by ourselves, if a statement is given."""
    with told.open("a", encoding="utf-8") as file, where.open() as engine:
        if statement is not None:
            die_at(engine.store, statement)
        for job_id, event in work(engine, f"worker-{os.getpid()}"):
            file.write(f"{job_id} {event}\n")
            file.flush()


def die_at(store: Any, statement: int) -> None:
    """Kill this process when its connection begins the statement of that number."""
    begun = 0

    def trace(_: str) -> None:
        nonlocal begun
        begun += 1
        if begun == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    store._connection.set_trace_callback(trace)


def is_whole(place: Place) -> bool:
    """Ask SQLite to check the file, each page and index of it."""
    connection = sqlite.connect(place.path)
    try:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
    finally:
        connection.close()
