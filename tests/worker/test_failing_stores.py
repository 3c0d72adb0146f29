"""Stores that fail at the wrong moment: lost answers, servers that restart, clocks that jump, files that go."""

import asyncio
import time
from collections.abc import Callable, Iterator
from operator import gt
from pathlib import Path
from typing import Any

import pytest
from tests.concurrency.crowd import eventually
from tests.places import Place, schema_on
from tests.worker.real import JOBS, SECONDS, TERM, Process, Town, sound, until, working

from leftfold import App, AsyncEngine, Context, Engine
from leftfold.core.errors import CorruptLogError, OutcomeUnknownError, StoreError, StoreUnavailableError
from leftfold.store import claiming
from leftfold.store.sqlite import bell
from leftfold.store.sqlite.library import sqlite
from leftfold.testing.postgres import OwnServer, running
from leftfold.worker.office import Office


def lose_answers(
    patch: pytest.MonkeyPatch, name: str, times: int, problem: type[Exception] = OutcomeUnknownError
) -> None:
    """Let calls of the async engine happen, but for their answers."""
    real = getattr(AsyncEngine, name)
    left = times

    async def lossy(self: AsyncEngine, *arguments: Any, **named: Any) -> Any:
        nonlocal left
        answer = await real(self, *arguments, **named)
        if left > 0 and answer:
            left -= 1
            raise problem("the answer was lost")
        return answer

    patch.setattr(AsyncEngine, name, lossy)


def test_a_claim_whose_answer_is_lost_comes_back_behind_the_lease(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job(lease=0.5, max_failures=3)
    async def one(ctx: Context) -> int:
        return ctx.attempt

    handles = app.enqueue_many(one.call() for _ in range(5))
    lose_answers(monkeypatch, "claim", 1)

    async def main() -> None:
        async with working(app, until_idle=True):
            await until(lambda: all(handle.get().state == "succeeded" for handle in handles))

    asyncio.run(main())
    assert {handle.result(timeout=0) for handle in handles} == {2}
    sound(app.engine)


@pytest.mark.parametrize("problem", [OutcomeUnknownError, StoreUnavailableError])
def test_outcomes_whose_answer_is_lost_are_neither_lost_nor_written_twice(
    app: App, monkeypatch: pytest.MonkeyPatch, problem: type[Exception]
) -> None:
    runs: list[str] = []

    @app.job(lease=2, max_failures=5)
    async def one(ctx: Context) -> int:
        runs.append(ctx.job_id)
        if ctx.attempt == 1 and len(runs) % 2:
            raise ValueError("the first time")
        return ctx.attempt

    handles = app.enqueue_many(one.call() for _ in range(10))
    lose_answers(monkeypatch, "settle_quietly", 2, problem)

    async def main() -> None:
        async with working(app, until_idle=True):
            await until(lambda: all(handle.get().state == "succeeded" for handle in handles))

    asyncio.run(main())
    assert len(runs) == 15, "five were run twice, because they failed"
    assert not any("stalled" in events for events in sound(app.engine).values())


def test_an_outage_longer_than_the_lease_loses_no_outcome_that_nobody_else_took(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    down_until = 0.0

    async def nobody(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("no keeper looks: if one did, it could be the first behind the outage")

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def check() -> None:
            if time.monotonic() < down_until:
                raise StoreUnavailableError("down")

        async def afails(self: Any, *arguments: Any, **named: Any) -> Any:
            check()
            return await real(self, *arguments, **named)

        def fails(self: Any, *arguments: Any, **named: Any) -> Any:
            check()
            return real(self, *arguments, **named)

        return afails if asyncio.iscoroutinefunction(real) else fails

    @app.job(lease=0.4, max_failures=5)
    async def one(ctx: Context) -> int:
        nonlocal down_until
        runs.append(ctx.attempt)
        down_until = time.monotonic() + 1.2
        return ctx.attempt

    handle = one.enqueue()
    monkeypatch.setattr(AsyncEngine, "settle_quietly", failing(AsyncEngine.settle_quietly))
    monkeypatch.setattr(AsyncEngine, "reap", nobody)
    monkeypatch.setattr(Engine, "heartbeat_many", failing(Engine.heartbeat_many))

    async def main() -> None:
        async with working(app):
            await until(lambda: handle.get().state == "succeeded")

    asyncio.run(main())
    assert runs == [1]
    sound(app.engine)


def test_a_broken_log_among_those_that_were_claimed_takes_no_other_along(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can read what one of them is to do: to freeze it fails as well, and the others must not be lost for it."""

    @app.job(lease=30)
    async def one() -> int:
        return 1

    bad, *good = app.enqueue_many(one.call() for _ in range(4))
    real = claiming._claim_of

    def unread(row: Any, token: str, owner: str) -> Any:
        if row[0] == bad.id:
            raise CorruptLogError("nobody can read it")
        return real(row, token, owner)

    def no_freeze(*_: Any) -> Any:
        raise StoreUnavailableError("not now")

    monkeypatch.setattr(claiming, "_claim_of", unread)
    monkeypatch.setattr("leftfold.aengine.owning.audit.freeze", no_freeze)

    async def main() -> None:
        async with working(app):
            await until(lambda: all(handle.get().state == "succeeded" for handle in good))

    asyncio.run(main())
    assert all([record.event.wire for record in handle.history()].count("claimed") == 1 for handle in good)


def test_a_clock_that_jumps_takes_no_job_from_the_living(file_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's clock, and that of its leases, is set an hour ahead while a handler runs."""
    ahead = 0

    @file_app.job(lease=2, max_failures=1)
    async def long(ctx: Context) -> int:
        nonlocal ahead
        await asyncio.sleep(0.5)  # a look or two of the keeper
        ahead = 3600
        await asyncio.sleep(2.5)
        return ctx.attempt

    handle = long.enqueue()
    real = time.time_ns
    monkeypatch.setattr("leftfold.store.sqlite.driver.time.time_ns", lambda: real() + ahead * 1_000_000_000)

    async def main() -> None:
        async with working(file_app):
            await until(lambda: handle.get().state in {"succeeded", "dead_lettered"})

    asyncio.run(main())
    assert handle.result(timeout=0) == 1
    sound(file_app.engine)


def test_leases_that_ran_out_are_requeued_or_end_as_the_policy_says(app: App) -> None:
    @app.job(lease=0.2, max_failures=2)
    async def again(ctx: Context) -> int:
        return ctx.attempt

    @app.job(lease=0.2, max_failures=1)
    async def never() -> int:
        return 0

    first, second = again.enqueue(), never.enqueue()
    claims = app.engine.claim("somebody who dies", limit=10, start=True)
    assert len(claims) == 2

    async def main() -> None:
        async with working(app):
            await until(lambda: first.get().state == "succeeded" and second.get().state == "dead_lettered")

    asyncio.run(main())
    logs = sound(app.engine)
    assert logs[first.id] == [
        "enqueued",
        "claimed",
        "started",
        "stalled",
        "requeued",
        "claimed",
        "started",
        "succeeded",
    ]
    assert logs[second.id] == ["enqueued", "claimed", "started", "stalled", "dead_lettered"]


def test_waits_whose_time_is_up_end(app: App) -> None:
    @app.job
    async def parked(ctx: Context) -> int:
        return ctx.attempt

    handle = parked.enqueue()
    (claim,) = app.engine.claim("w", start=True)
    app.engine.suspend(claim, "answer", deadline=0.3)

    async def main() -> None:
        async with working(app):
            await until(lambda: handle.get().state == "succeeded")

    asyncio.run(main())
    assert handle.result(timeout=0) == 2
    assert handle.get().answers["answer"].expired


def test_a_file_that_was_moved_away_is_said_and_no_empty_one_takes_its_place(
    file_app: App, on_sqlite: Place, caplog: pytest.LogCaptureFixture
) -> None:
    @file_app.job
    async def one() -> int:
        return 1

    file_app.engine.close()

    def lives() -> bool:
        """All of its connections are open by then: the last one writes that it lives."""
        with on_sqlite.open() as engine:
            return bool(engine.workers())

    async def main() -> None:
        async with working(file_app, grace=0.0):
            await until(lives)
            on_sqlite.path.rename(on_sqlite.path.with_name("away"))
            await until(lambda: "was replaced or deleted" in caplog.text)

    asyncio.run(main())
    assert not on_sqlite.path.exists()


def test_a_file_that_cannot_be_watched_only_costs_time(
    file_app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Any) -> int:
        raise sqlite.OperationalError("disk I/O error")

    @file_app.job
    async def one() -> int:
        return 1

    monkeypatch.setattr(bell, "_version", broken)

    async def main() -> None:
        async with working(file_app):
            await until(lambda: "cannot be watched" in caplog.text)
            handle = await one.aenqueue()
            assert await handle.aresult(timeout=SECONDS) == 1

    asyncio.run(main())


def test_a_store_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    app = App("postgresql://nobody@127.0.0.1:1/nothing")

    @app.job
    async def one() -> int:
        return 1

    with pytest.raises(StoreError):
        app.run_worker()


# --- servers that restart -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_server() -> Iterator[OwnServer]:
    with running(durable=True) as server:
        yield server


def complaints(worker: Process) -> int:
    """Count what a worker says of a store that is gone; one with its hands full of outcomes does not try to claim."""
    return worker.log.count("no jobs can be claimed") + worker.log.count("outcomes could not be written")


def test_a_server_that_restarts_under_load_loses_nothing(own_server: OwnServer, tmp_path: Path) -> None:
    with schema_on(own_server) as place:
        town = Town(place, tmp_path)
        try:
            jobs = town.enqueue("nap", 150, lease=3, seconds=0.1)
            workers = [town.start("--concurrency", "6") for _ in range(2)]
            for worker in workers:
                worker.wait_until_up()  # one that comes to a server that is down leaves again
            for restart in (own_server.kill, own_server.stop):
                begun, said = town.begun(), [complaints(worker) for worker in workers]
                eventually(lambda begun=begun: town.begun() > begun + 20, SECONDS)  # type: ignore[misc]  # mypy infers no type for a lambda's default
                restart()
                eventually(lambda said=said: all(map(gt, map(complaints, workers), said)), SECONDS)  # type: ignore[misc]  # mypy infers no type for a lambda's default
                own_server.start()
            town.wait_until_all("succeeded")
            assert len(town.logs()) == len(jobs)
            for worker in workers:
                worker.tell(TERM)
                assert worker.left() == 0, worker.log
        finally:
            town.close()


def test_a_worker_that_is_to_leave_while_the_server_is_down_leaves_and_its_job_comes_back(
    own_server: OwnServer, tmp_path: Path
) -> None:
    """Its outcome, or the word that it gives the job back, is tried for a while: then the lease has to run out."""
    with schema_on(own_server) as place:
        town = Town(place, tmp_path, JOBS + "\nfrom leftfold.worker import loop\nloop._LAST_SECONDS = 1.0\n")
        try:
            jobs = [*town.enqueue("nap", lease=2, seconds=60), *town.enqueue("nap", lease=2, seconds=1.0)]
            first = town.start("--grace", "1.5")
            eventually(lambda: town.begun() == 2, SECONDS)
            own_server.kill()
            first.tell(TERM)
            assert first.left() == 0, first.log
            assert "Traceback" not in first.log
            own_server.start()
            second = town.start("--grace", "0")
            eventually(lambda: town.begun() >= 4, SECONDS)
            eventually(lambda: town.engine.get(jobs[1]).state == "succeeded", SECONDS)
            assert town.engine.get(jobs[0]).state == "running"
            second.tell(TERM)
            assert second.left() == 0, second.log
            logs = town.logs()
            assert [logs[job].count("stalled") for job in jobs] == [1, 1]
        finally:
            town.close()


def test_a_worker_that_is_to_leave_while_it_writes_has_written(file_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word to leave comes between an outcome's way into the store and its answer."""
    real = Office.settle_quietly
    workers: list[Any] = []

    async def settle(self: Office, asks: Any) -> Any:
        answer = await real(self, asks)
        for _ in range(2):  # and in a hurry
            workers[0].stop()
        return answer

    monkeypatch.setattr(Office, "settle_quietly", settle)

    @file_app.job
    async def one() -> int:
        return 1

    handles = file_app.enqueue_many(one.call() for _ in range(3))

    async def main() -> None:
        async with working(file_app, concurrency=1) as worker:
            workers.append(worker)
            await until(lambda: worker._stopped)

    asyncio.run(main())
    states = sorted(handle.get().state.value for handle in handles)
    assert states[-1] == "succeeded"
    assert set(states) <= {"queued", "succeeded"}
    sound(file_app.engine)
