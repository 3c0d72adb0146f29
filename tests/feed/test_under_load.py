"""Many writers and a consumer that reads all the while; a consumer that is killed at any moment and goes on."""

import multiprocessing
import random
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from tests.concurrency.crowd import DEADLINE, Crowd, eventually, processes
from tests.feed.reading import Event, Reader, Transaction, check_order, log_of
from tests.places import Place

from leftfold import Engine, NewJob

WRITERS = 6


@pytest.fixture
def engine(place: Place) -> Iterator[Engine]:
    with place.open() as engine:
        yield engine


def lives(engine: Engine, name: str, count: int) -> None:
    """Let jobs be made and done."""
    for number in range(count):
        engine.enqueue_many([NewJob("work") for _ in range(1 + number % 3)])
        for claim in engine.claim(name, limit=2):
            engine.start(claim)
            engine.complete(claim)


def write_in_transactions(place: Place, engine: Engine, seed: int, count: int) -> None:
    """Write in transactions that overlap those of others: some were numbered early, some are undone."""
    dice = random.Random(seed)  # noqa: S311 - no secrets here
    transactions = [Transaction(place, engine) for _ in range(3)]
    for _ in range(count):
        transaction = dice.choice(transactions)
        transaction.take_number()
        transaction.enqueue(dice.randint(1, 2))
        lives(engine, f"worker-{seed}", dice.randint(0, 1))
        match dice.random():
            case chance if chance < 0.1:
                transaction.rollback()
            case chance if chance < 0.7:
                transaction.commit()
    for transaction in transactions:
        with transaction:
            transaction.commit()


def test_a_consumer_misses_nothing_that_writers_commit_meanwhile(on_postgres: Place) -> None:
    with on_postgres.open(pool_size=20) as engine, Crowd(WRITERS + 1) as crowd:
        reader = Reader(engine)
        ended: list[int] = []

        def take_part(who: int) -> None:
            if who == WRITERS:
                while len(ended) < WRITERS:
                    reader.page(limit=1 + len(reader.got) % 9)
                return
            try:
                write_in_transactions(on_postgres, engine, seed=who, count=25)
            finally:
                ended.append(who)

        for outcome in crowd.each(take_part):
            assert outcome is None, outcome
        assert reader.got, "it read while they wrote"
        reader.drain()
        reader.check()


def on_one_file(who: int, barrier: Barrier, place: Place) -> list[Event]:
    """Write, or read what the others write, as the first of the processes."""
    with place.open() as engine:
        reader = Reader(engine)
        barrier.wait(DEADLINE)
        if who:
            lives(engine, f"worker-{who}", 15)
            barrier.wait(DEADLINE)
            return []
        while barrier.n_waiting < barrier.parties - 1:
            reader.page(limit=1 + len(reader.got) % 9)
        barrier.wait(DEADLINE)
        reader.drain()
        return reader.got


def test_a_consumer_misses_nothing_that_processes_write_into_one_file(on_sqlite: Place) -> None:
    got, *_ = processes(4, on_one_file, on_sqlite)
    with on_sqlite.open() as engine:
        reader = Reader(engine)
        reader.got = got
        reader.check()


# --- killed -----------------------------------------------------------------------------------------------------------


def consume_until_killed(place: Place, told: str) -> None:
    """Do something about each event, which is a line in a file, and go on."""
    with place.open() as engine, Path(told).open("a", encoding="utf-8") as file:
        while True:
            for record in engine.follow("consumer", limit=3):
                file.write(f"{record.job_id} {record.version}\n")
                file.flush()


def consumer_of(place: Place, told: Path) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(
        target=consume_until_killed, args=(place, str(told)), daemon=True
    )
    process.start()
    return process


def lines(told: Path) -> list[Event]:
    """Give what was done; the last line may be cut short."""
    text = told.read_text(encoding="utf-8") if told.exists() else ""
    words = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [(job_id, int(version)) for job_id, version in words]


def test_a_consumer_that_is_killed_goes_on_where_it_was(place: Place, engine: Engine, tmp_path: Path) -> None:
    told, dice = tmp_path / "told", random.Random(4)  # noqa: S311 - no secrets here
    lives(engine, "worker", 12)
    total = len(log_of(engine))
    for _ in range(3):
        process = consumer_of(place, told)
        try:
            goal = min(len(lines(told)) + dice.randint(1, total // 4), total)
            eventually(lambda goal=goal: len(lines(told)) >= goal)  # type: ignore[misc]
        finally:
            process.kill()
            process.join()
        lives(engine, "worker", 2)
    everything = log_of(engine)
    last = consumer_of(place, told)
    try:
        eventually(lambda: set(lines(told)) >= everything)
    finally:
        last.kill()
        last.join()
    check_order(lines(told))
    assert set(lines(told)) == everything
