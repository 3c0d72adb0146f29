"""What a worker takes, and what it is to the one who runs it."""

import asyncio
import threading
import time
from contextlib import suppress

import pytest
from tests.worker.real import SECONDS, sound, until, working

from leftfold import App


def test_who_ran_a_worker_is_not_cancelled_behind_it(file_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftfold.worker.loop._LAST_SECONDS", 0.05)

    @file_app.job
    async def work() -> None: ...

    async def main() -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await file_app.arun_worker()
        await asyncio.sleep(0.3)  # for longer than a worker in a hurry gives its lifespan
        return "went on"

    assert asyncio.run(main()) == "went on"


def test_no_more_are_claimed_than_there_is_room_for(app: App) -> None:
    most = running = 0

    @app.job
    async def count() -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    app.enqueue_many(count.call() for _ in range(40))
    states: list[int] = []

    async def main() -> None:
        async with working(app, concurrency=4, until_idle=True):
            while any(job.state != "succeeded" for job in app.engine.list(limit=100).jobs):
                states.append(sum(c.jobs for c in app.engine.counts() if c.state in {"claimed", "running"}))
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert most == 4
    assert max(states) <= 8, "so many run, and as many are not written yet"
    sound(app.engine)


def test_a_cancelled_worker_gives_back_what_runs_and_is_cancelled(app: App) -> None:
    @app.job(lease=30)
    async def wait() -> None:
        await asyncio.sleep(SECONDS)

    handle = wait.enqueue()

    async def main() -> None:
        task = asyncio.create_task(app.arun_worker(grace=SECONDS))
        await until(lambda: handle.get().state == "running")
        began = time.monotonic()
        for _ in range(3):  # impatience does not keep it from leaving as it should
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 5
        await app.aclose()

    asyncio.run(main())
    assert [record.event.wire for record in handle.history()][-1] == "released"
    assert app.engine.workers() == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("leftfold-ren", "leftfold-dead"))]


def test_a_worker_in_a_thread_that_gets_no_signals_works_as_well(file_app: App) -> None:
    @file_app.job
    def one() -> int:
        return 1

    handle = one.enqueue()
    thread = threading.Thread(target=file_app.run_worker, kwargs={"until_idle": True})
    thread.start()
    thread.join(SECONDS)
    assert handle.result(timeout=0) == 1
