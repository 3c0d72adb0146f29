"""How a worker keeps time: the watch of the store's clock, and leases, each by itself."""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from tests.concurrency.crowd import eventually
from tests.worker.parts import SOON, claim_of, receipt_of

from leftfold.core.errors import (
    CorruptLogError,
    LeaseConflictError,
    LeftfoldError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from leftfold.store.replies import Claim, Receipt
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
    held = Held(claim_of("a", 10.0), asked_at=100.0)
    assert (held.renew_at, held.give_up_at, held.deadline) == (105.0, 109.0, 110.0)
    held.renewed(104.0)
    assert (held.renew_at, held.deadline) == (109.0, 114.0)
    short = Held(claim_of("a", 1.0), asked_at=100.0)
    assert (short.renew_at, short.give_up_at) == (100.5, 100.9)


class FakeEngine:
    """Renews as it is told to, and notes how often and what."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.beats = 0
        self.answer: Callable[[Claim], Receipt | LeftfoldError] = receipt_of
        self.problem: BaseException | None = None
        self.stuck: threading.Event | None = None
        self.closed = False

    def heartbeat_many(self, claims: Iterable[Claim]) -> list[Receipt | LeftfoldError]:
        if self.stuck:
            self.stuck.wait(SOON)
        asked = list(claims)
        self.asked.append([claim.job_id for claim in asked])
        if self.problem:
            raise self.problem
        return [self.answer(claim) for claim in asked]

    def beat(self, *_: Any) -> None:
        self.beats += 1

    def close(self) -> None:
        self.closed = True


class Desk:
    """Leases on a fake engine."""

    def __init__(self) -> None:
        self.engine = FakeEngine()
        self.opened = 0
        self.refuse_to_open = 0
        self.lost: list[str] = []
        self.asked_to_stop: list[str] = []
        self.leases = Leases(
            self._open,
            Pulse("w", {}),
            lost=lambda held, _: self.lost.append(held.claim.job_id),
            asked_to_stop=lambda held: self.asked_to_stop.append(held.claim.job_id),
        )

    def _open(self) -> Any:
        self.opened += 1
        if self.opened <= self.refuse_to_open:
            raise StoreUnavailableError("not yet")
        return self.engine

    def hold(self, name: str, seconds: float) -> Held:
        held = Held(claim_of(name, seconds), now())
        self.leases.hold(held)
        return held


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.leases.stop()
    assert not any(thread.is_alive() for thread in desk.leases._threads)


def test_leases_are_renewed_at_half_time_all_that_are_due_at_once(desk: Desk) -> None:
    desk.leases.start()
    eventually(lambda: desk.engine.beats == 1, SOON)
    held = [desk.hold(str(number), 0.6) for number in range(5)]
    long = desk.hold("long", 60)
    first = held[0].deadline
    eventually(lambda: len(desk.engine.asked) >= 3, SOON)
    assert sorted(desk.engine.asked[0]) == ["0", "1", "2", "3", "4"]
    assert all("long" not in asked for asked in desk.engine.asked)
    assert held[0].deadline > first
    assert desk.lost == []
    desk.leases.drop(long)


def test_a_new_short_lease_wakes_a_thread_that_sleeps_for_a_long_one(desk: Desk) -> None:
    desk.leases.start()
    eventually(lambda: desk.engine.beats == 1, SOON)
    desk.hold("long", 60)
    desk.hold("short", 0.2)
    eventually(lambda: ["short"] in desk.engine.asked, 0.9)
    assert desk.lost == []


def test_a_renewal_that_fails_is_tried_again_until_the_local_deadline(desk: Desk) -> None:
    desk.engine.problem = StoreUnavailableError("gone")
    desk.leases.start()
    held = desk.hold("a", 1.0)
    eventually(lambda: desk.lost == ["a"], SOON)
    assert now() < held.deadline, "it was given up before the store may give it away"
    assert now() >= held.give_up_at
    assert len(desk.engine.asked) >= 3


@pytest.mark.parametrize("problem", [StoreUnavailableError("gone"), OutcomeUnknownError("lost"), ZeroDivisionError()])
def test_a_renewal_that_succeeds_in_the_end_loses_nothing(desk: Desk, problem: Exception) -> None:
    desk.engine.problem = problem
    desk.leases.start()
    held = desk.hold("a", 1.5)
    first = held.deadline
    eventually(lambda: len(desk.engine.asked) >= 2, SOON)
    desk.engine.problem = None
    eventually(lambda: held.deadline > first, SOON)
    assert desk.lost == []


def test_a_store_that_does_not_answer_at_all_does_not_keep_a_lease_from_being_given_up(desk: Desk) -> None:
    desk.engine.stuck = threading.Event()
    desk.leases.start()
    held = desk.hold("a", 0.4)
    eventually(lambda: desk.lost == ["a"], SOON)
    assert now() < held.deadline
    desk.engine.stuck.set()


def test_an_engine_that_cannot_be_opened_yet_is_opened_later(desk: Desk) -> None:
    desk.refuse_to_open = 2
    desk.leases.start()
    held = desk.hold("a", 2.0)
    first = held.deadline
    eventually(lambda: held.deadline > first, SOON)
    assert desk.opened == 3


@pytest.mark.parametrize("refusal", [LeaseConflictError("taken"), CorruptLogError("broken")])
def test_one_that_is_refused_is_lost_and_the_others_are_renewed(desk: Desk, refusal: LeftfoldError) -> None:
    desk.engine.answer = lambda claim: refusal if claim.job_id == "bad" else receipt_of(claim)
    held = [desk.hold(name, 0.6) for name in ("a", "bad", "b", "c")]
    desk.leases.start()
    eventually(lambda: len(desk.engine.asked) >= 4, SOON)
    assert desk.lost == ["bad"]
    assert all(each.deadline > now() for each in held if each.claim.job_id != "bad")


def test_a_request_to_stop_comes_with_the_renewal(desk: Desk) -> None:
    desk.engine.answer = lambda claim: receipt_of(claim, cancel_requested=True)
    desk.leases.start()
    desk.hold("a", 0.3)
    eventually(lambda: "a" in desk.asked_to_stop, SOON)
    assert desk.lost == []


def test_what_is_dropped_is_neither_renewed_nor_lost(desk: Desk) -> None:
    desk.leases.start()
    desk.leases.drop(desk.hold("a", 0.2))
    desk.hold("b", 0.2)
    eventually(lambda: len(desk.engine.asked) >= 4, SOON)
    assert all(asked == ["b"] for asked in desk.engine.asked)
    assert desk.lost == []


def test_more_than_one_statement_carries_are_renewed_by_several(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_MOST", 2)
    held = [desk.hold(str(number), 1.0) for number in range(5)]
    first = held[0].deadline
    desk.leases.start()
    eventually(lambda: all(each.deadline > first + 0.1 for each in held), SOON)
    assert max(map(len, desk.engine.asked)) == 2
    assert desk.lost == []


def test_stopping_closes_the_engine() -> None:
    desk = Desk()
    desk.leases.start()
    eventually(lambda: desk.engine.beats == 1, SOON)
    desk.leases.stop()
    assert desk.engine.closed
