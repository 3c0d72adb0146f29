"""How workers hear of jobs: at once where the bell is heard, and by looking where it is not."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.concurrency.crowd import eventually
from tests.places import Place
from tests.worker.pooling import Pooler, pooler_to
from tests.worker.real import SECONDS, TERM, Town, sound, until, working

from leftfold import App, Context
from leftfold.store.postgres import bell
from leftfold.store.postgres.bell import Listener, Ringer, channel_of
from leftfold.store.postgres.wire import connect_options
from leftfold.worker import claiming

SELDOM = 30.0  # who finds something sooner was woken
AT_ONCE = 5.0


def test_a_job_is_run_at_once_by_a_worker_that_looks_seldom(app: App) -> None:
    @app.job
    async def one() -> float:
        return time.monotonic()

    async def main() -> list[float]:
        async with working(app, poll=SELDOM):
            await until(lambda: len(app.engine.workers()) == 1)
            took = []
            for _ in range(10):
                asked = time.monotonic()
                handle = await one.aenqueue()
                took.append(await handle.aresult(timeout=AT_ONCE) - asked)
                await until(lambda handle=handle: handle.get().state == "succeeded")  # type: ignore[misc]  # mypy infers no type for a lambda's default
            return took

    took = asyncio.run(main())
    assert sorted(took)[5] < 0.5, took


def test_a_job_that_is_due_later_is_run_when_it_is_due(app: App) -> None:
    @app.job
    async def one(due: float) -> float:
        return time.time() - due

    async def main() -> float:
        async with working(app, poll=SELDOM):
            await until(lambda: len(app.engine.workers()) == 1)
            handle = await one.options(due=0.7).aenqueue(time.time() + 0.7)
            return await handle.aresult(timeout=AT_ONCE)

    assert -0.1 < asyncio.run(main()) < 1


def test_a_job_that_becomes_due_behind_a_claim_is_not_slept_over(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "_BREATHS", (0.3,))  # so long it takes to ask when the next one is due

    @app.job
    async def one() -> None: ...

    async def main() -> None:
        async with working(app, poll=SELDOM):
            await until(lambda: len(app.engine.workers()) == 1)
            handles = await app.aenqueue_many(one.options(due=due).call() for due in (0.7, 0.8))
            async with asyncio.timeout(AT_ONCE):
                await asyncio.gather(*(handle.aresult() for handle in handles))

    asyncio.run(main())


def test_behind_a_full_claim_all_lanes_are_looked_at_once_more(
    app: App, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a full claim, PostgreSQL is asked for one lane only: what it gives may not be all there is."""
    monkeypatch.setattr(claiming, "_MOST", 5)
    engine = place.open()

    @app.job
    async def light() -> None: ...

    @app.job(priority=5)
    async def one(first: bool) -> None:
        if first:
            engine.enqueue("light", {})  # it rings no bell, and the next claim is full as well

    async def main() -> None:
        await app.aenqueue_many(one.call(number == 0) for number in range(12))
        async with working(app, poll=SELDOM, concurrency=100), asyncio.timeout(AT_ONCE):
            await until(lambda: [job.state for job in engine.list(kind="light").jobs] == ["succeeded"])

    with engine:
        asyncio.run(main())


def test_a_retry_is_run_when_it_is_due(app: App) -> None:
    @app.job(retry_delay=0.3, max_failures=3)
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.attempt

    async def main() -> int:
        async with working(app, poll=SELDOM):
            return await (await flaky.aenqueue()).aresult(timeout=AT_ONCE)

    assert asyncio.run(main()) == 3


def test_jobs_of_somebody_elses_transaction_are_found_by_looking(on_postgres: Place) -> None:
    with App(on_postgres.url, schema=on_postgres.schema) as app:

        @app.job
        async def one() -> int:
            return 1

        async def main() -> int:
            async with working(app, poll=0.3):
                await until(lambda: len(app.engine.workers()) == 1)
                with psycopg.connect(on_postgres.url) as connection:
                    handle = one.options(within=connection).enqueue()
                    await asyncio.sleep(0.5)  # longer than the bell, and than a look
                    connection.commit()
                return await handle.aresult(timeout=AT_ONCE)

        assert asyncio.run(main()) == 1


@pytest.fixture
def dead_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ring where nobody hears it."""
    monkeypatch.setattr(Ringer, "ring", lambda _: None)
    monkeypatch.setattr(bell, "_PROBE_SECONDS", 0.2)
    monkeypatch.setattr(Listener, "_hear", lambda *_: None)


def test_dead_notifications_are_noticed_and_only_cost_time(
    on_postgres: Place, dead_bell: None, caplog: pytest.LogCaptureFixture
) -> None:
    with App(on_postgres.url, schema=on_postgres.schema) as app:

        @app.job
        async def one() -> int:
            return 1

        async def main() -> int:
            async with working(app, poll=0.2):
                await until(lambda: "notifications of PostgreSQL do not arrive" in caplog.text)
                return await (await one.aenqueue()).aresult(timeout=AT_ONCE)

        assert asyncio.run(main()) == 1


def listener_on(place: Place, wake: asyncio.Event) -> Listener:
    return Listener(place.url, place.schema, connect_options(place.url), wake.set)


def ringer_on(place: Place, connections: list[psycopg.Connection[object]]) -> Ringer:
    def connect() -> psycopg.Connection[object]:
        connections.append(psycopg.connect(place.url, autocommit=True))
        return connections[-1]

    return Ringer(connect, place.schema)


def test_the_first_ring_is_heard_at_once_and_those_behind_it_together(on_postgres: Place) -> None:
    connections: list[psycopg.Connection[object]] = []
    ringer = ringer_on(on_postgres, connections)
    with psycopg.connect(on_postgres.url, autocommit=True) as listening:
        listening.execute(f'LISTEN "{channel_of(on_postgres.schema)}"'.encode())
        ringer.ring()
        assert len(list(listening.notifies(timeout=AT_ONCE, stop_after=1))) == 1
        for _ in range(1000):
            ringer.ring()
        heard = len(list(listening.notifies(timeout=0.3)))
        assert 1 <= heard <= 20
        connections[0].execute("SELECT 1")
        listening.execute("SELECT pg_terminate_backend(%s)", (connections[0].info.backend_pid,))
        ringer.ring()  # on a connection that broke while nobody used it
        assert len(list(listening.notifies(timeout=AT_ONCE, stop_after=1))) == 1
        ringer.ring()
        ringer.close()
        assert len(list(listening.notifies(timeout=0.3))) >= 1, "what was left was rung for"
    assert len(connections) == 2
    assert all(connection.closed for connection in connections)
    assert not [thread for thread in threading.enumerate() if thread.name == "leftfold-ringer"]


def test_a_listener_whose_connection_breaks_listens_again(on_postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell, "_AGAIN_SECONDS", 0.05)

    async def main() -> None:
        woken = asyncio.Event()
        listener = listener_on(on_postgres, woken)
        task = asyncio.create_task(listener.run())
        await until(lambda: listener.works)
        woken.clear()
        with psycopg.connect(on_postgres.url, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s",
                (f'LISTEN "{channel_of(on_postgres.schema)}"%',),
            )
            async with asyncio.timeout(SECONDS):
                await woken.wait()  # by the new connection: what came while nobody listened
            await until(lambda: listener.works)
            woken.clear()
            admin.execute("SELECT pg_notify(%s, '')", (channel_of(on_postgres.schema),))
            async with asyncio.timeout(SECONDS):
                await woken.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_listener_survives_whatever_goes_wrong(
    on_postgres: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(bell, "_AGAIN_SECONDS", 0.05)
    problems: list[Exception] = [OSError("no route"), ZeroDivisionError(), psycopg.OperationalError("gone")]
    real = Listener._connect

    async def connect(self: Listener) -> psycopg.AsyncConnection[object]:
        if problems:
            raise problems.pop()
        return await real(self)

    monkeypatch.setattr(Listener, "_connect", connect)

    async def main() -> None:
        listener = listener_on(on_postgres, asyncio.Event())
        task = asyncio.create_task(listener.run())
        await until(lambda: listener.works)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert caplog.text.count("the bell is not heard") == 3


# --- a pooler that parts transactions -------------------------------------------------------------------------------


@pytest.fixture
def pooled(on_postgres: Place) -> Iterator[tuple[Pooler, Place]]:
    with pooler_to(on_postgres.url) as pooler:
        yield pooler, on_postgres._replace(url=pooler.url)


def test_workers_behind_a_pooler_that_parts_transactions_lose_nothing(
    pooled: tuple[Pooler, Place], on_postgres: Place, tmp_path: Path
) -> None:
    town, through = Town(on_postgres, tmp_path), Town(pooled[1], tmp_path)
    try:
        town.enqueue("nap", 40, lease=1, seconds=0.1)
        workers = [through.start("--concurrency", "5", LEFTFOLD_PREPARE="0") for _ in range(3)]
        eventually(lambda: town.begun() > 5, SECONDS)
        workers[0].kill()
        town.wait_until_all("succeeded")
        for worker in workers[1:]:
            worker.tell(TERM)
            assert worker.left() == 0, worker.log
            assert "Traceback" not in worker.log
        assert len(town.logs()) == 40
    finally:
        through.close()
        town.close()


def test_a_listener_behind_it_notices_that_it_is_deaf(
    pooled: tuple[Pooler, Place], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bell, "_PROBE_SECONDS", 0.3)
    place = pooled[1]
    with App(place.url, schema=place.schema, prepare=False) as app:

        @app.job
        async def one() -> int:
            return 1

        async def main() -> int:
            async with working(app, poll=0.2):
                await until(lambda: "do not arrive" in caplog.text)
                return await (await one.aenqueue()).aresult(timeout=AT_ONCE)

        assert asyncio.run(main()) == 1
        sound(app.engine)
