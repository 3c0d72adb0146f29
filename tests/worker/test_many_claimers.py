"""What seed 002 asks for, to the letter: 64 claimers, 1,000 jobs, expiries, and no way back within an attempt."""

import asyncio
from collections import Counter

from tests.places import Place
from tests.worker.real import sound, until, working

from leftfold import App, AsyncEngine, NewJob
from leftfold.core import commands as c
from leftfold.store.ops import Ask
from leftfold.store.replies import Claim, Receipt

CLAIMERS, JOBS = 64, 1_000


def test_64_claimers_never_claim_one_job_twice_and_events_equal_transitions(place: Place) -> None:
    claimed: Counter[str] = Counter()

    async def work(engine: AsyncEngine, name: str) -> None:
        while claims := await engine.claim(name, limit=4, start=True):
            claimed.update(claim.job_id for claim in claims)
            outcomes = await engine.settle_many([Ask(claim.job_id, done(claim)) for claim in claims])
            assert all(isinstance(outcome, Receipt) for outcome in outcomes)

    def done(claim: Claim) -> c.Complete:
        return c.Complete(by=claim.actor)

    async def main() -> None:
        engine = await place.aopen(pool_size=16)
        try:
            await engine.enqueue_many([NewJob("k") for _ in range(JOBS)])
            await asyncio.gather(*(work(engine, f"claimer-{number}") for number in range(CLAIMERS)))
        finally:
            await engine.close()

    asyncio.run(main())
    assert len(claimed) == JOBS
    assert set(claimed.values()) == {1}, "zero double claims"
    with place.open() as engine:
        logs = sound(engine)
        assert all(log == ["enqueued", "claimed", "started", "succeeded"] for log in logs.values())
        assert engine.verify().events == 4 * JOBS


def test_1000_jobs_of_a_worker_leave_exactly_the_events_of_their_transitions(app: App) -> None:
    @app.job
    async def count(n: int) -> int:
        return n

    handles = app.enqueue_many(count.call(n) for n in range(JOBS))

    async def main() -> None:
        async with working(app, concurrency=100, until_idle=True):
            await until(lambda: all(each.state == "succeeded" for each in app.engine.counts() if each.jobs))

    asyncio.run(main())
    logs = sound(app.engine)
    assert all(log == ["enqueued", "claimed", "started", "succeeded"] for log in logs.values())
    assert app.engine.verify().events == 4 * JOBS
    assert [handle.result(timeout=0) for handle in handles[::100]] == list(range(0, JOBS, 100))


def test_what_64_claimers_leave_behind_is_requeued_and_done(app: App) -> None:
    @app.job(lease=0.3, max_failures=3)
    async def one() -> int:
        return 1

    app.enqueue_many(one.call() for _ in range(CLAIMERS))
    for number in range(CLAIMERS):
        assert len(app.engine.claim(f"dead-{number}", start=True)) == 1

    async def main() -> None:
        async with working(app, concurrency=20), working(app, concurrency=20):
            await until(lambda: all(each.state == "succeeded" for each in app.engine.counts() if each.jobs))

    asyncio.run(main())
    again = ["claimed", "started"]
    expected = ["enqueued", *again, "stalled", "requeued", *again, "succeeded"]
    assert all(log == expected for log in sound(app.engine).values())
