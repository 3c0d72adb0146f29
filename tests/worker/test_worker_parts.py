"""The parts of a worker, each by itself: threads, the writer, the pulse, the logs."""

import asyncio
import io
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.concurrency.crowd import eventually
from tests.places import file_in
from tests.worker.parts import SOON, Faults, held_in, unheld
from tests.worker.real import sound, until

from leftfold import App, Context
from leftfold.core import events as e
from leftfold.core.commands import Complete
from leftfold.core.errors import OutcomeUnknownError, StoreUnavailableError
from leftfold.store.ops import Ask
from leftfold.store.replies import Claim, WorkerView
from leftfold.worker import writing
from leftfold.worker.attempt import Attempt
from leftfold.worker.clocks import now
from leftfold.worker.lease import Held
from leftfold.worker.logs import JobFilter, JsonFormatter, TextFormatter, about
from leftfold.worker.pulse import Pulse
from leftfold.worker.suspects import Suspects
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


def work() -> None: ...


class Office:
    """A writer of what came of jobs in a real file, through an engine whose answers can be kept back."""

    def __init__(self, folder: Path) -> None:
        self.place = file_in(folder)
        self.boss = self.place.open()
        self.app = App(self.place.url)
        self.faults = Faults()
        self.done: list[str] = []
        self._kinds: dict[str, str] = {}

    async def writer(self, pulse: Pulse | None = None) -> Writer:
        engine = await self.app.aengine()
        real = engine.settle_quietly

        async def settle(asks: Iterable[Ask]) -> Any:
            asked = list(asks)
            problem = self.faults.met([self._kinds[ask.job_id] for ask in asked])
            answer = await real(asked) if problem is None or self.faults.happens else None
            if problem is not None:
                raise problem
            return answer

        engine.settle_quietly = settle  # type: ignore[method-assign]  # the real one, but for what happens to its answer
        return Writer(engine, pulse or Pulse("w", {}), self._note)

    def _note(self, written: Sequence[Ended]) -> None:
        self.done += [ended.attempt.held.claim.kind for ended in written]

    def ended(self, *names: str, seconds: float = 60.0) -> list[Ended]:
        """Give attempts of jobs of these kinds that have come to their end."""
        for name in names:
            self.app.job(name=name)(work)
        claims = held_in(self.boss, list(names), seconds)
        self._kinds.update({claim.job_id: claim.kind for claim in claims})
        return [self._ended(claim) for claim in claims]

    def _ended(self, claim: Claim) -> Ended:
        handler, held = self.app.handlers[claim.kind], Held(claim, now())
        context = Context(self.app, claim, None)  # type: ignore[arg-type]  # this one says nothing
        return Ended(Attempt(handler, held, context, Threads()), Complete(by=claim.actor))

    async def write(self, ended: list[Ended]) -> None:
        writer = await self.writer()
        running = asyncio.create_task(writer.run())
        for each in ended:
            writer.put(each)
        async with asyncio.timeout(SOON):
            await writer.flushed()
        assert writer.unwritten == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await self.app.aclose()

    @property
    def states(self) -> dict[str, str]:
        return {job.kind: job.state.value for job in self.boss.list().jobs}


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    sound(office.boss)
    office.boss.close()


def test_outcomes_are_written_together(office: Office) -> None:
    names = list("abcdefghij")
    asyncio.run(office.write(office.ended(*names)))
    assert office.done == names
    assert office.faults.asked == [names]
    assert set(office.states.values()) == {"succeeded"}


@pytest.mark.parametrize("happens", [False, True])
def test_outcomes_are_written_again_and_again_until_the_store_answers_also_behind_the_lease(
    office: Office, happens: bool
) -> None:
    office.faults.problems = [StoreUnavailableError("down"), OutcomeUnknownError("lost")] * 4
    office.faults.happens = happens
    asyncio.run(office.write([*office.ended("a", seconds=0.1), *office.ended("b")]))
    assert office.done == ["a", "b"]
    assert office.faults.asked == [["a", "b"]] * 9
    assert office.states == {"a": "succeeded", "b": "succeeded"}


def test_a_refusal_is_one_jobs_own(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    ended = office.ended("a", "b", "c")
    taken = ended[1].attempt.held.claim
    office.boss.cancel(taken.job_id, mode="hard")
    asyncio.run(office.write(ended))
    assert office.done == ["a", "b", "c"]
    assert office.states == {"a": "succeeded", "b": "cancelled", "c": "succeeded"}
    (record,) = caplog.records
    assert f"job {taken.job_id}, attempt 1 was taken from this worker" in record.getMessage()
    assert (vars(record)["job_id"], vars(record)["attempt"]) == (taken.job_id, 1)


def test_what_is_refused_behind_a_lost_answer_may_have_been_written_before(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ended = office.ended("a")
    office.faults.problems = [OutcomeUnknownError("lost")]
    office.boss.cancel(ended[0].attempt.held.claim.job_id, mode="hard")
    asyncio.run(office.write(ended))
    assert "the store has an outcome already" in caplog.records[-1].getMessage()
    assert caplog.records[-1].levelno == logging.INFO


def test_an_outage_is_not_said_with_every_try(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    office.faults.problems = [StoreUnavailableError("down")] * 10
    asyncio.run(office.write(office.ended("a")))
    assert sum("could not be written" in record.getMessage() for record in caplog.records) == 1


def test_what_is_not_foreseen_ends_the_writer(office: Office) -> None:
    office.faults.problem = ZeroDivisionError()

    async def main() -> None:
        writer = await office.writer()
        writer.put(*office.ended("a"))
        with pytest.raises(ZeroDivisionError):
            await writer.run()
        await office.app.aclose()

    asyncio.run(main())
    assert office.done == ["a"], "the attempt left the crew all the same"


def test_notes_are_tried_again_but_for_progress(office: Office) -> None:
    async def main() -> None:
        writer = await office.writer()
        (ended,) = office.ended("a")
        claim = ended.attempt.held.claim
        engine = await office.app.aengine()
        real, asked = engine.note_many, list[list[str]]()

        async def note(notes: Any) -> Any:
            given = list(notes)
            asked.append([each.wire for _, each in given])
            if len(asked) < 3:
                raise StoreUnavailableError("not yet")
            return await real(given)

        engine.note_many = note  # type: ignore[method-assign]  # the real one, but for what happens before it
        writer.tell(claim, e.Progress(fraction=0.5))
        writer.tell(claim, e.CancelDelivered())
        writer.put(ended)
        running = asyncio.create_task(writer.run())
        async with asyncio.timeout(SOON):
            await writer.flushed()
        assert asked == [["cancel_delivered", "progress"], ["cancel_delivered"], ["cancel_delivered"]]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await office.app.aclose()

    asyncio.run(main())
    (job,) = office.boss.list().jobs
    assert [record.event.wire for record in office.boss.history(job.id)][-2:] == ["cancel_delivered", "succeeded"]


def test_a_writer_without_work_says_that_it_lives(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MARK_EVERY", 0.02)

    async def main() -> None:
        pulse = Pulse("w", {})
        marks: list[str] = []
        monkeypatch.setattr(pulse, "mark", marks.append)
        running = asyncio.create_task((await office.writer(pulse)).run())
        await until(lambda: len(marks) >= 5, SOON)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await office.app.aclose()

    asyncio.run(main())
    assert office.faults.asked == []


# --- the pulse and the logs -----------------------------------------------------------------------------------------


def test_the_pulse_tells_the_age_of_each_loop() -> None:
    pulse = Pulse("w", {"queues": None})
    pulse.mark("keeper")
    pulse._marks["writing"] = now() - 60
    pulse.entered(2)
    pulse.left(1)
    pulse.starved(2.5)
    told = pulse.told()
    assert (told["running"], told["done"], told["starved"]) == (1, 1, 2.5)
    assert told["suspects"] == {}
    assert told["loops"] == {"claiming": 0.0, "deadlines": 0.0, "keeper": 0.0, "renewals": 0.0, "writing": 60.0}


def test_a_kind_is_suspected_while_it_is_tried_and_guilty_for_a_while() -> None:
    suspects = Suspects()
    suspects.accuse("poison")
    suspects.accuse("poison")
    suspects.accuse("innocent")
    assert "poison" in suspects
    assert "innocent" in suspects
    assert "other" not in suspects
    suspects.acquit("innocent")
    suspects.acquit("poison")
    assert "innocent" not in suspects
    assert "poison" in suspects
    suspects.convict("poison")
    suspects.acquit("poison")
    assert "poison" in suspects
    assert suspects.told() == {"poison": 600.0}


def test_a_worker_learns_from_those_before_it() -> None:
    def view(told: object, age: float) -> WorkerView:
        text = msgspec.json.encode(told)
        return WorkerView(name="w", started_at=0, beat_at=0, age=round(age * 1_000_000), told=Raw(text))

    suspects = Suspects()
    suspects.learn([
        view({"suspects": {"poison": 500.0, "old": 20.0, "absurd": 1e9}}, 30),
        view({"suspects": {"poison": 100.0}}, 1),
        view({}, 1),
    ])  # fmt: skip
    assert "old" not in suspects
    assert suspects.told() == {"absurd": 570.0, "poison": 470.0}


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
        logger.warning("failed: %s", problem, exc_info=problem, extra=about(unheld(1.0)))


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
