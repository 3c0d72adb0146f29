"""The parts of a worker, each by itself: threads, the writer, the pulse, the logs."""

import asyncio
import io
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.concurrency.crowd import eventually
from tests.worker.parts import SOON, claim_of, receipt_of

from leftfold.core.commands import Actor, Complete
from leftfold.core.errors import (
    LeaseConflictError,
    LeftfoldError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from leftfold.core.lifecycle import Who
from leftfold.store.replies import Receipt
from leftfold.worker import writing
from leftfold.worker.clocks import now
from leftfold.worker.lease import Held
from leftfold.worker.logs import JobFilter, JsonFormatter, TextFormatter, about
from leftfold.worker.pulse import Pulse
from leftfold.worker.threads import Threads
from leftfold.worker.writing import Ended, Writer

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
