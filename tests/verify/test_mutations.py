"""Whatever is done to any event is found: one byte of any column, one event less, two that changed places."""

import os
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from tests.migration.raw import Refused
from tests.places import Place
from tests.verify.planting import Shell

from leftfold import Engine, NewJob

MUTATIONS: Final = 250 * int(os.environ.get("LEFTFOLD_ROUNDS", "1"))

#: Everything that an event says. Its number (seq, xid) is where the feed finds it, and no part of it.
COLUMNS: Final = ("version", "at", "format", "event", "who", "actor", "request_id", "request_hash", "data", "seal")
NUMBERS: Final = ("version", "at", "format")


def lives(engine: Engine) -> None:
    """Make a log with something in every column."""
    engine.enqueue_many([NewJob("work", {"text": "Zoë", "n": n}) for n in range(3)], request_id="ask")
    for claim in engine.claim("worker", limit=3, request_id="take"):
        engine.start(claim)
        engine.signal(claim.job_id, "approved", {"by": "ann"}, request_id="tell")
    (claim,) = engine.claim("other", job_id=engine.enqueue("work").job_id, lease=30)
    engine.start(claim)
    engine.fail(claim, "broken")


Statement = tuple[str, list[Any]]


class Mutator:
    """Changes events by a seed, and undoes it."""

    def __init__(self, shell: Shell, seed: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - no secrets here
        self.shell = shell
        self.job = "job" if shell.place.is_file else "job_id"

    def events(self) -> list[dict[str, Any]]:
        columns = (self.job, *COLUMNS)
        rows = self.shell.ask(f"SELECT {', '.join(columns)} FROM events ORDER BY {self.job}, version")  # noqa: S608
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def where(self, event: dict[str, Any]) -> str:
        return f"{self.job} = '{event[self.job]}' AND version = {event['version']}"

    def edited(self, value: Any) -> Any:
        """Give a value with one bit or one byte of it changed."""
        match value:
            case int():
                return value ^ (1 << self.dice.randrange(15))
            case bytes():
                place = self.dice.randrange(len(value))
                return value[:place] + bytes([value[place] ^ (1 << self.dice.randrange(8))]) + value[place + 1 :]
            case None:
                return self.dice.choice("xyz")
        place, letter = self.dice.randrange(len(value) + 1), self.dice.choice('abz019 "{}')
        return self.dice.choice([
            value[:place] + letter + value[place:],
            value[:place] + letter + value[place + 1 :],
            value[:place] + value[place + 1 :],
        ])  # fmt: skip

    def mutate(self) -> tuple[str, list[Statement], list[Statement]]:
        """Choose a change: its name, the statements, and those that undo it."""
        one, other = self.dice.sample(self.events(), 2)
        if self.dice.random() < 0.15:
            pair = [self._set(one, {"data": other["data"]}), self._set(other, {"data": one["data"]})]
            back = [self._set(one, {"data": one["data"]}), self._set(other, {"data": other["data"]})]
            return "swapped", pair, back
        column = self.dice.choice(COLUMNS)
        new = self.edited(one[column])
        changed = {**one, column: new}
        return column, [self._set(one, {column: new})], [self._set(changed, {column: one[column]})]

    def _set(self, event: dict[str, Any], columns: dict[str, Any]) -> Statement:
        changes = ", ".join(f"{name} = ?" for name in columns)
        return f"UPDATE events SET {changes} WHERE {self.where(event)}", list(columns.values())  # noqa: S608

    def run(self, statements: Iterable[Statement]) -> None:
        self.shell.raw.maintain()
        try:
            for sql, values in statements:
                self.shell.ask(sql, *values)
        except Refused:
            self.shell.raw.run("ROLLBACK")
            raise
        self.shell.raw.commit()


def test_every_change_to_any_event_is_found(place: Place) -> None:
    with place.open(actor="tester") as engine, Shell(place) as shell:
        lives(engine)
        mutator = Mutator(shell, seed=20_260)
        before = mutator.events()
        tried: Counter[str] = Counter()
        while tried.total() < MUTATIONS:
            name, change, undo = mutator.mutate()
            try:
                mutator.run(change)
            except Refused:  # two events of one version, say: the database itself will not have it
                continue
            if mutator.events() == before:
                continue  # nothing to be found
            tried[name] += 1
            assert not engine.verify(freeze=False).is_clean, f"not found: {change}"
            mutator.run(undo)
        assert set(tried) == {*COLUMNS, "swapped"}
        assert mutator.events() == before
        assert engine.verify().is_clean


def test_every_event_that_is_taken_away_is_missed(place: Place) -> None:
    with place.open(actor="tester") as engine, Shell(place) as shell:
        lives(engine)
        columns = ", ".join((["seq", "job"] if place.is_file else ["xid", "job_id"]) + list(COLUMNS))
        for event in Mutator(shell, seed=1).events():
            where = Mutator(shell, seed=1).where(event)
            (row,) = shell.ask(f"SELECT {columns} FROM events WHERE {where}")  # noqa: S608
            shell.change(f"DELETE FROM events WHERE {where}")  # noqa: S608
            assert engine.verify(freeze=False).total == 1, event
            shell.ask(f"INSERT INTO events ({columns}) VALUES ({', '.join('?' * len(row))})", *row)  # noqa: S608
        assert engine.verify().is_clean
