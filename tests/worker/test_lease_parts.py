"""How a worker keeps time: the watch of the store's clock, and leases, each by itself."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.concurrency.crowd import eventually
from tests.places import file_in
from tests.worker.parts import OWNER, SOON, Faults, held_in, unheld

from leftfold import Engine
from leftfold.core.errors import OutcomeUnknownError, StoreUnavailableError
from leftfold.store.replies import Claim
from leftfold.store.sqlite.library import sqlite
from leftfold.worker import lease
from leftfold.worker.clocks import now
from leftfold.worker.keeper import ClockWatch
from leftfold.worker.lease import Held, Leases
from leftfold.worker.pulse import Pulse

# --- the watch of the clock -----------------------------------------------------------------------------------------


def test_a_clock_that_goes_as_ours_does_is_known_since_the_first_look() -> None:
    watch = ClockWatch()
    assert {watch.look(1_000_000.0 + second, second, second + 0.1) for second in range(100)} == {1_000_000.0}


def test_a_slow_answer_is_no_jump() -> None:
    watch = ClockWatch()
    assert watch.look(1000.0, 0.0, 0.1) == 1000.0
    assert watch.look(1031.0, 1.0, 31.0) == 1000.0, "it was read at the end of half a minute"
    assert watch.look(1032.0, 31.0, 32.0) == 1000.0


def test_behind_a_jump_ahead_it_is_known_anew() -> None:
    watch = ClockWatch()
    watch.look(1000.0, 0.0, 0.0)
    assert watch.look(1101.0, 1.0, 1.0) == 1101.0, "100 s too many"
    assert watch.look(1200.0, 100.0, 100.0) == 1101.0
    assert watch.look(1300.0, 110.0, 110.0) == 1300.0, "and again"


def test_a_clock_that_is_set_back_is_known_since_then() -> None:
    watch = ClockWatch()
    watch.look(1000.0, 0.0, 0.0)
    assert watch.look(900.0, 1.0, 1.0) == 900.0
    assert watch.look(901.0, 2.0, 2.0) == 900.0


# --- leases ---------------------------------------------------------------------------------------------------------


def test_a_lease_counts_from_when_it_was_asked_for_and_is_given_up_before_its_end() -> None:
    held = Held(unheld(10.0), asked_at=100.0)
    assert (held.renew_at, held.give_up_at, held.deadline) == (105.0, 109.0, 110.0)
    held.renewed(104.0)
    assert (held.renew_at, held.deadline) == (109.0, 114.0)
    short = Held(unheld(1.0), asked_at=100.0)
    assert (short.renew_at, short.give_up_at) == (100.5, 100.9)


class Desk:
    """Leases of jobs in a real file, through an engine whose renewals can be kept back."""

    def __init__(self, folder: Path, *, look_every: float = 3600.0) -> None:
        self._place = file_in(folder)
        self.boss = self._place.open()
        self.faults = Faults()
        self.opened = 0
        self.refuse_to_open = 0
        self.lost: list[str] = []
        self.lost_at = 0.0
        self.asked_to_stop: list[str] = []
        self.leases = Leases(
            self._open,
            Pulse(OWNER, {}),
            look_every=look_every,
            cancel_grace=0.0,
            lost=self._lose,
            asked_to_stop=lambda held: self.asked_to_stop.append(held.claim.kind),
        )

    def _lose(self, held: Held, _: str) -> None:
        self.lost_at = now()
        self.lost.append(held.claim.kind)

    def _open(self) -> Engine:
        self.opened += 1
        if self.opened <= self.refuse_to_open:
            raise StoreUnavailableError("not yet")
        engine = self._place.open()
        real, close = engine.heartbeat_many, engine.close

        def renew(claims: Iterable[Claim], **_: Any) -> Any:
            asked = list(claims)
            problem = self.faults.met([claim.kind for claim in asked])
            answer = real(asked) if problem is None or self.faults.happens else None
            if problem is not None:
                raise problem
            return answer

        def closed() -> None:
            self.opened -= 1
            close()

        engine.heartbeat_many = renew  # type: ignore[method-assign]  # the real one, but for what happens to its answer
        engine.close = closed  # type: ignore[method-assign]  # to be counted
        return engine

    def hold(self, *names: str, seconds: float) -> list[Held]:
        asked_at = now()
        held = [Held(claim, asked_at) for claim in held_in(self.boss, list(names), seconds)]
        self.leases.hold(held)
        return held

    def wait_until_up(self) -> None:
        eventually(lambda: [worker.name for worker in self.boss.workers()] == [OWNER], SOON)

    def freeze(self, held: Held) -> None:
        """Say of a job what `verify` says of a broken one."""
        with sqlite.connect(self._place.path) as connection:
            connection.execute("UPDATE leftfold_jobs SET frozen_at = 1 WHERE id = ?", (UUID(held.claim.job_id).bytes,))

    def renewals(self, held: Held) -> int:
        return self.boss.get(held.claim.job_id).renewals


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.leases.stop()
    assert not any(thread.is_alive() for thread in desk.leases._threads)
    assert desk.opened in {0, desk.refuse_to_open}, "what was opened is closed"
    assert desk.boss.verify().is_clean
    desk.boss.close()


def test_leases_are_renewed_at_half_time_all_that_are_due_at_once(desk: Desk) -> None:
    held = desk.hold("a", "b", "c", "d", "e", seconds=1.0)
    (long,) = desk.hold("long", seconds=60)
    first = held[0].deadline
    desk.leases.start()
    eventually(lambda: len(desk.faults.asked) >= 3, SOON)
    assert sorted(desk.faults.asked[0]) == ["a", "b", "c", "d", "e"]
    assert all("long" not in asked for asked in desk.faults.asked)
    assert held[0].deadline > first
    assert desk.renewals(held[0]) >= 2
    assert desk.renewals(long) == 0
    assert desk.lost == []


def test_a_new_short_lease_wakes_a_thread_that_sleeps_for_a_long_one(desk: Desk) -> None:
    desk.leases.start()
    desk.wait_until_up()
    desk.hold("long", seconds=60)
    desk.hold("short", seconds=1.0)
    eventually(lambda: ["short"] in desk.faults.asked, SOON)
    assert desk.lost == []


def test_a_renewal_that_fails_is_tried_again_until_the_local_deadline(desk: Desk) -> None:
    desk.faults.problem = StoreUnavailableError("gone")
    (held,) = desk.hold("a", seconds=2.0)
    desk.leases.start()
    eventually(lambda: desk.lost == ["a"], SOON)
    assert held.give_up_at <= desk.lost_at < held.deadline, "it was given up before the store may give it away"
    assert len(desk.faults.asked) >= 3


@pytest.mark.parametrize("happens", [False, True])
@pytest.mark.parametrize("problem", [StoreUnavailableError("gone"), OutcomeUnknownError("lost"), ZeroDivisionError()])
def test_a_renewal_that_succeeds_in_the_end_loses_nothing(desk: Desk, problem: Exception, happens: bool) -> None:
    desk.faults.problem, desk.faults.happens = problem, happens
    (held,) = desk.hold("a", seconds=2.0)
    first = held.deadline
    desk.leases.start()
    eventually(lambda: len(desk.faults.asked) >= 2, SOON)
    desk.faults.problem = None
    eventually(lambda: held.deadline > first, SOON)
    assert desk.lost == []


def test_a_store_that_does_not_answer_at_all_does_not_keep_a_lease_from_being_given_up(desk: Desk) -> None:
    desk.faults.stuck = threading.Event()
    (held,) = desk.hold("a", seconds=2.0)
    desk.leases.start()
    eventually(lambda: desk.lost == ["a"], SOON)
    assert held.give_up_at <= desk.lost_at < held.deadline
    desk.faults.stuck.set()


def test_an_engine_that_cannot_be_opened_yet_is_opened_later(desk: Desk) -> None:
    desk.refuse_to_open = 2
    (held,) = desk.hold("a", seconds=3.0)
    first = held.deadline
    desk.leases.start()
    eventually(lambda: held.deadline > first, SOON)
    assert desk.opened == 3


@pytest.mark.parametrize("how", ["taken", "frozen"])
def test_one_that_is_refused_is_lost_and_the_others_are_renewed(desk: Desk, how: str) -> None:
    a, bad, b = desk.hold("a", "bad", "b", seconds=1.0)
    if how == "taken":
        desk.boss.cancel(bad.claim.job_id, mode="hard")
    else:
        desk.freeze(bad)
    desk.leases.start()
    eventually(lambda: len(desk.faults.asked) >= 4, SOON)
    assert desk.lost == ["bad"]
    assert [desk.renewals(each) >= 2 for each in (a, b)] == [True, True]


def test_a_request_to_stop_comes_with_the_renewal(desk: Desk) -> None:
    (held,) = desk.hold("a", seconds=3.0)
    desk.boss.cancel(held.claim.job_id)
    desk.leases.start()
    eventually(lambda: "a" in desk.asked_to_stop, SOON)
    assert desk.lost == []


def test_what_is_dropped_is_neither_renewed_nor_lost(desk: Desk) -> None:
    a, _ = desk.hold("a", "b", seconds=0.6)
    desk.leases.drop([a])
    desk.leases.start()
    eventually(lambda: len(desk.faults.asked) >= 4, SOON)
    assert all(asked == ["b"] for asked in desk.faults.asked)
    assert desk.lost == []


def test_more_than_one_statement_carries_are_renewed_by_several(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_MOST", 2)
    held = desk.hold("a", "b", "c", "d", "e", seconds=2.0)
    desk.leases.start()
    eventually(lambda: all(desk.renewals(each) for each in held), SOON)
    assert max(map(len, desk.faults.asked)) == 2
    assert desk.lost == []
