"""Anything in any order, by a seed: what each consumer got, against the log; and its lag, at every step."""

import os
import random
from typing import Final

import pytest
from tests.feed.reading import Event, Reader, Transaction, event, log_of
from tests.places import Place

from leftfold import NewJob
from leftfold.core.lifecycle import ENDED, State
from leftfold.store import feed
from leftfold.testing.clock import FakeClock

SEEDS: Final = range(10 * int(os.environ.get("LEFTFOLD_ROUNDS", "1")))
STEPS: Final = 60


class Story:
    """A store, some transactions that are open, some consumers, and what they are to get."""

    def __init__(self, place: Place, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - no secrets here
        self.clock = FakeClock()
        self.place = place
        self.engine = place.open(clock=self.clock)
        self.open: list[Transaction] = []
        self.busy: dict[str, Transaction] = {}
        self.readers = {name: Reader(self.engine, name) for name in ("slow", "fast")}
        self.before: dict[str, set[Event]] = {"slow": set(), "fast": set()}
        self.told = 0

    def step(self) -> None:
        acts = [self.make] * 3 + [self.work] * 4 + [self.tell] * 2 + [self.read] * 6 + [self.begin_reading]
        if not self.place.is_file:
            acts += [self.begin] * 3 + [self.go_on] * 5 + [self.end] * 3 + [self.undo]
        self.dice.choice(acts)()
        self.clock.advance(self.dice.choice([0, 0, 0, 0.000001, 1]))

    # --- what is written ----------------------------------------------------------------------------------------------

    def make(self) -> None:
        self.engine.enqueue_many([NewJob("work") for _ in range(self.dice.randint(1, 4))])

    def work(self) -> None:
        for claim in self.engine.claim("worker", limit=self.dice.randint(1, 3)):
            self.engine.start(claim)
            if self.dice.random() < 0.5:
                self.engine.complete(claim)
            else:
                self.engine.release(claim)

    def tell(self) -> None:
        for job_id in self.free():
            self.engine.signal(job_id, self.word())

    def word(self) -> str:
        self.told += 1
        return f"word-{self.told}"

    def free(self) -> list[str]:
        """Give a job that goes on and that no open transaction has locked, if there is one."""
        alive = [state for state in State if state not in ENDED]
        jobs = [job.id for job in self.engine.list(states=alive, limit=1000).jobs if job.id not in self.busy]
        return [self.dice.choice(jobs)] if jobs else []

    def begin(self) -> None:
        if len(self.open) < 4:
            self.open.append(Transaction(self.place, self.engine))
            if self.dice.random() < 0.5:
                self.open[-1].take_number()

    def go_on(self) -> None:
        if not self.open:
            return
        transaction = self.dice.choice(self.open)
        if self.dice.random() < 0.5:
            transaction.enqueue(self.dice.randint(1, 3))
        else:
            for job_id in self.free():
                transaction.signal(job_id, self.word())
                self.busy[job_id] = transaction

    def end(self) -> None:
        if self.open:
            self.finish(self.open.pop(self.dice.randrange(len(self.open))), commits=self.dice.random() < 0.8)

    def finish(self, transaction: Transaction, *, commits: bool) -> None:
        with transaction:
            if commits:
                transaction.commit()
        self.busy = {job_id: each for job_id, each in self.busy.items() if each is not transaction}

    def undo(self) -> None:
        with Transaction(self.place, self.engine) as undone:
            undone.enqueue(2)

    # --- what is read -------------------------------------------------------------------------------------------------

    def read(self) -> None:
        reader = self.dice.choice(list(self.readers.values()))
        page = self.engine.feed(reader.name, limit=self.dice.choice([1, 2, 5, 20]))
        if self.dice.random() < 0.7:  # else it died before it could say so
            self.engine.acknowledge(page)
            reader.got += map(event, page.records)
            self.check_lag(reader)

    def begin_reading(self) -> None:
        name = f"since-{len(self.readers)}"
        self.before[name] = log_of(self.engine)
        self.engine.feed(name, start="now")
        self.readers[name] = Reader(self.engine, name)
        self.check_lag(self.readers[name])

    def check_lag(self, reader: Reader) -> None:
        left = log_of(self.engine) - self.before[reader.name] - set(reader.got)
        assert reader.lag.behind == len(left)

    def finally_check(self) -> None:
        while self.open:
            self.finish(self.open.pop(), commits=True)
        for name, reader in self.readers.items():
            reader.drain(self.dice.choice([1, 3, 500]))
            # Who starts in the middle of a job's life has no beginning of it to be in order with.
            assert len(reader.got) == len(set(reader.got))
            assert set(reader.got) == log_of(self.engine) - self.before[name]
            for job_id in {job_id for job_id, _ in reader.got}:
                versions = [version for each, version in reader.got if each == job_id]
                assert versions == sorted(versions)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_consumer_gets_every_event_once_and_in_order(
    place: Place, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "WINDOW", random.Random(seed).choice([1, 4, 30]))  # noqa: S311
    story = Story(place, seed)
    try:
        for _ in range(STEPS):
            story.step()
        story.finally_check()
    finally:
        for transaction in story.open:
            transaction.connection.close()
        story.engine.close()
