"""The parts of a worker, each by itself: the guard of the clock, leases, threads, the writer, the pulse, the logs."""

import asyncio
import io
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from tests.concurrency.crowd import eventually

from leftfold.core.commands import Actor, Complete
from leftfold.core.errors import (
    CorruptLogError,
    LeaseConflictError,
    LeftfoldError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from leftfold.core.lifecycle import State, Who
from leftfold.core.retry import Policy
from leftfold.core.values import Spec
from leftfold.store.replies import Claim, Receipt
from leftfold.worker import lease, writing
from leftfold.worker.clocks import now
from leftfold.worker.keeper import ClockWatch
from leftfold.worker.lease import Held, Leases
from leftfold.worker.logs import JobFilter, JsonFormatter, TextFormatter, about
from leftfold.worker.pulse import Pulse
from leftfold.worker.threads import Threads
from leftfold.worker.writing import Ended, Writer

SOON = 10.0


def claim_of(name: str, seconds: float = 60.0) -> Claim:
    policy = Policy(lease=int(seconds * 1_000_000))
    return Claim(
        job_id=name, attempt=1, token="t", owner="w", until=0, failures=0, spec=Spec(kind="k"), policy=policy
    )  # fmt: skip


def receipt_of(claim: Claim, **more: Any) -> Receipt:
    return Receipt(job_id=claim.job_id, state=State.RUNNING, version=3, rev=3, attempt=1, **more)


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


# --- threads --------------------------------------------------------------------------------------------------------


def test_threads_are_made_when_needed_and_used_again() -> None:
    async def main() -> None:
        threads = Threads()
        for _ in range(10):
            await threads.run(lambda: None)
            await asyncio.sleep(0.002)  # the thread is idle before it says so
        assert threads._all <= 2
        gate = threading.Event()
        busy = [threads.run(lambda: gate.wait(SOON)) for _ in range(20)]
        eventually(lambda: threads._all >= 20, SOON)
        gate.set()
        assert await asyncio.gather(*busy) == [True] * 20
        threads.close()
        names = [thread for thread in threading.enumerate() if thread.name.startswith("leftfold-handler")]
        eventually(lambda: not any(thread.is_alive() for thread in names), SOON)

    asyncio.run(main())


@pytest.mark.parametrize("problem", [ValueError("x"), SystemExit(1), KeyboardInterrupt()])
def test_what_a_function_raises_comes_out_of_its_future(problem: BaseException) -> None:
    async def main() -> BaseException | None:
        def fail() -> None:
            raise problem

        future = Threads().run(fail)
        await asyncio.wait([future])
        return future.exception()

    assert asyncio.run(main()) is problem


def test_a_stop_iteration_is_told_as_what_a_future_can_carry() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await Threads().run(lambda: next(iter(())))

    asyncio.run(main())


def test_a_thread_whose_loop_is_gone_ends_in_silence() -> None:
    gate, before = threading.Event(), set(threading.enumerate())

    async def main() -> None:
        Threads().run(lambda: gate.wait(SOON))
        await asyncio.sleep(0)

    asyncio.run(main())
    (thread,) = set(threading.enumerate()) - before
    gate.set()
    thread.join(SOON)
    assert not thread.is_alive()


# --- the writer -----------------------------------------------------------------------------------------------------


class _Attempt:
    def __init__(self, name: str, seconds: float = 60.0) -> None:
        self.held = Held(claim_of(name, seconds), now())


def ended(name: str, seconds: float = 60.0) -> Ended:
    attempt: Any = _Attempt(name, seconds)
    return Ended(attempt, Complete(by=Actor(who=Who.OWNER, name="w", attempt=1, token="t")))


class Settling:
    """A store that fails as it is told to."""

    def __init__(self, *problems: Exception) -> None:
        self.problems = list(problems)
        self.batches: list[list[str]] = []
        self.outcome: Callable[[str], Receipt | LeftfoldError] = lambda name: receipt_of(claim_of(name))
        self.gate = asyncio.Event()
        self.gate.set()

    async def settle_many(self, asks: Iterable[Any]) -> list[Receipt | LeftfoldError]:
        names = [ask.job_id for ask in asks]
        self.batches.append(names)
        await self.gate.wait()
        if self.problems:
            raise self.problems.pop(0)
        return [self.outcome(name) for name in names]


async def written_by(engine: Settling, *outcomes: Ended) -> list[str]:
    done: list[str] = []
    fake: Any = engine
    writer = Writer(fake, Pulse("w", {}), lambda attempt: done.append(attempt.held.claim.job_id))
    running = asyncio.create_task(writer.run())
    for outcome in outcomes:
        writer.put(outcome)
    async with asyncio.timeout(SOON):
        await writer.flushed()
    assert writer.unwritten == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return done


def test_outcomes_are_written_together() -> None:
    async def main() -> None:
        engine = Settling()
        assert await written_by(engine, *(ended(str(number)) for number in range(10))) == list("0123456789")
        assert engine.batches == [list("0123456789")]

    asyncio.run(main())


def test_outcomes_are_written_again_and_again_until_the_store_answers_also_behind_the_lease() -> None:
    async def main() -> None:
        problems = [StoreUnavailableError("down"), OutcomeUnknownError("lost")] * 4
        engine = Settling(*problems)
        assert await written_by(engine, ended("a", 0.1), ended("b", 60)) == ["a", "b"]
        assert engine.batches == [["a", "b"]] * 9

    asyncio.run(main())


def test_a_refusal_is_one_jobs_own(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        engine = Settling()
        engine.outcome = lambda name: LeaseConflictError("taken") if name == "b" else receipt_of(claim_of(name))
        assert await written_by(engine, ended("a"), ended("b"), ended("c")) == ["a", "b", "c"]

    asyncio.run(main())
    (record,) = caplog.records
    assert "job b, attempt 1 was taken from this worker" in record.getMessage()
    assert (vars(record)["job_id"], vars(record)["attempt"]) == ("b", 1)


def test_what_is_refused_behind_a_lost_answer_was_written_before(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        engine = Settling(OutcomeUnknownError("lost"))
        engine.outcome = lambda _: LeaseConflictError("it has ended")
        assert await written_by(engine, ended("a")) == ["a"]

    asyncio.run(main())
    assert "the store has an outcome already" in caplog.records[-1].getMessage()
    assert caplog.records[-1].levelno == logging.INFO


def test_an_outage_is_not_said_with_every_try(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_outage())
    assert sum("could not be written" in record.getMessage() for record in caplog.records) == 1


async def _outage() -> None:
    await written_by(Settling(*[StoreUnavailableError("down")] * 10), ended("a"))


def test_what_is_not_foreseen_ends_the_writer() -> None:
    async def main() -> None:
        fake: Any = Settling(ZeroDivisionError())
        done: list[Any] = []
        writer = Writer(fake, Pulse("w", {}), done.append)
        writer.put(ended("a"))
        with pytest.raises(ZeroDivisionError):
            await writer.run()
        assert len(done) == 1, "the attempt left the crew all the same"

    asyncio.run(main())


def test_a_writer_without_work_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MARK_EVERY", 0.02)

    async def main() -> None:
        fake: Any = Settling()
        pulse = Pulse("w", {})
        marks: list[str] = []
        monkeypatch.setattr(pulse, "mark", marks.append)
        running = asyncio.create_task(Writer(fake, pulse, lambda _: None).run())
        async with asyncio.timeout(SOON):
            while len(marks) < 5:  # noqa: ASYNC110 - nobody would set it
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert fake.batches == []

    asyncio.run(main())


# --- the pulse and the logs -----------------------------------------------------------------------------------------


def test_the_pulse_tells_the_age_of_each_loop() -> None:
    pulse = Pulse("w", {"queues": None})
    pulse.mark("keeper")
    pulse._marks["writing"] = now() - 60
    pulse.entered()
    pulse.entered()
    pulse.left()
    pulse.starved(2.5)
    told = pulse.told()
    assert (told["running"], told["done"], told["starved"]) == (1, 1, 2.5)
    assert told["loops"] == {"claiming": 0.0, "deadlines": 0.0, "keeper": 0.0, "renewals": 0.0, "writing": 60.0}


def logged(formatter: logging.Formatter, log: Callable[[logging.Logger], None]) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.addFilter(JobFilter())
    logger = logging.Logger("leftfold.test")
    logger.addHandler(handler)
    log(logger)
    return stream.getvalue()


def raise_hostile() -> None:
    raise ValueError("one\n2026-01-01T00:00:00.000Z INFO    leftfold.worker forged\x1b[2J")


def fail(logger: logging.Logger) -> None:
    try:
        raise_hostile()
    except ValueError as problem:
        logger.warning("failed: %s", problem, exc_info=problem, extra=about(claim_of("j")))


def test_a_hostile_text_cannot_write_lines_of_its_own() -> None:
    text = logged(TextFormatter(), fail)
    assert [line for line in text.splitlines() if not line.startswith("    ")] == [text.splitlines()[0]]
    assert "\x1b" not in text
    assert "[k j attempt 1] failed: one\\n2026" in text
    (line,) = logged(JsonFormatter(), fail).splitlines()
    told = json.loads(line)
    assert (told["job_id"], told["kind"], told["attempt"]) == ("j", "k", 1)
    assert told["message"].startswith("failed: one\n2026")
    assert "ValueError" in told["traceback"]


def test_json_lines_carry_what_else_somebody_says_and_cannot_be_broken_by_it() -> None:
    loop: dict[str, Any] = {}
    loop["itself"] = loop
    extra = {"n": 3, "level": "forged", "half": "\ud800", "thing": object(), "odd": {(1, 2): 3}}
    told = json.loads(logged(JsonFormatter(), lambda logger: logger.info("hi", extra=extra)))
    assert (told["n"], told["level"], told["message"]) == (3, "info", "hi")
    told = json.loads(logged(JsonFormatter(), lambda logger: logger.info("hi", extra={"loop": loop})))
    assert told["message"] == "hi"
    assert time.strftime("%Y") in told["at"]
