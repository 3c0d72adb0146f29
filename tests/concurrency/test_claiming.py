"""Many claimers: no job is ever given to two of them, and none is given to nobody."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier

import psycopg
from tests.concurrency.crowd import DEADLINE, Crowd, of_kind, processes, rounds, tasks
from tests.places import Place, logs_of

from leftfold import Claim, Engine, NewJob

QUEUES = ("mail", "images", "reports")
KINDS = ("send", "resize", "sum")
#: Who may claim what; None is anything. Together they leave nothing over.
TASTES: tuple[tuple[Sequence[str] | None, Sequence[str] | None], ...] = (
    (None, None),
    (("mail",), None),
    (("mail", "images"), ("send",)),
    (None, ("resize", "sum")),
)


def test_of_64_claimers_of_one_job_one_gets_it(on_postgres: Place) -> None:
    with on_postgres.open(pool_size=64) as engine, Crowd(64) as crowd:
        for _ in range(rounds(50)):
            job_id = engine.enqueue("work").job_id
            answers = of_kind(crowd.each(lambda place: engine.claim(f"worker-{place}")), list)
            assert sorted(map(len, answers)) == [0] * 63 + [1]
            ((claim,),) = filter(None, answers)
            assert claim.job_id == job_id
            assert engine.start(claim).attempt == 1, "the winner holds what it was given"
        assert set(map(tuple, logs_of(engine).values())) == {("enqueued", "claimed", "started")}


def test_of_64_who_claim_a_job_by_its_id_one_gets_it(on_postgres: Place) -> None:
    with on_postgres.open(pool_size=64) as engine, Crowd(64) as crowd:
        for _ in range(rounds(10)):
            job_id = engine.enqueue("work").job_id
            outcomes = crowd.same(engine.claim, "worker", job_id=job_id)
            assert [len(claims) for claims in of_kind(outcomes, list)] == [1]
            refused = Counter(getattr(each, "code", "") for each in outcomes if not isinstance(each, list))
            assert refused == {"illegal_transition": 63}
        assert set(map(tuple, logs_of(engine).values())) == {("enqueued", "claimed")}


def test_of_64_tasks_that_claim_one_job_one_gets_it(on_postgres: Place) -> None:
    async def main() -> None:
        async with await on_postgres.aopen(pool_size=64) as engine:
            for _ in range(rounds(20)):
                await engine.enqueue("work")
                answers = of_kind(await tasks(64, lambda place: engine.claim(f"worker-{place}")), list)
                assert sorted(map(len, answers)) == [0] * 63 + [1]

    asyncio.run(main())
    with on_postgres.open() as engine:
        assert set(map(tuple, logs_of(engine).values())) == {("enqueued", "claimed")}


def test_of_8_processes_that_claim_one_job_one_gets_it(on_sqlite: Place, library: str) -> None:
    repeated = rounds(25)
    told = processes(8, claim_the_same, on_sqlite, repeated)
    for answers in zip(*told, strict=True):
        assert sorted(answers) == [0] * 7 + [1]
    with on_sqlite.open() as engine:
        logs = logs_of(engine)
        assert len(logs) == repeated
        assert set(map(tuple, logs.values())) == {("enqueued", "claimed")}


def claim_the_same(place: int, barrier: Barrier, where: Place, repeated: int) -> list[int]:
    answers = []
    with where.open() as engine:
        for _ in range(repeated):
            if place == 0:
                engine.enqueue("work")
            barrier.wait(DEADLINE)
            answers.append(len(engine.claim(f"worker-{place}")))
            barrier.wait(DEADLINE)
    return answers


def test_of_8_engines_in_one_process_on_one_file_one_gets_the_job(on_sqlite: Place) -> None:
    engines = [on_sqlite.open() for _ in range(8)]
    with Crowd(8) as crowd:
        for _ in range(rounds(25)):
            engines[0].enqueue("work")
            answers = of_kind(crowd.each(lambda place: engines[place].claim("worker")), list)
            assert sorted(map(len, answers)) == [0] * 7 + [1]
    assert set(map(tuple, logs_of(engines[0]).values())) == {("enqueued", "claimed")}
    for engine in engines:
        engine.close()


def test_a_claimer_does_not_wait_for_a_job_that_somebody_else_has_in_hand(on_postgres: Place) -> None:
    impatient = on_postgres._replace(url=f"{on_postgres.url}?options=-c%20lock_timeout%3D1s")
    with impatient.open() as engine, psycopg.connect(on_postgres.url) as other:
        first, second = engine.enqueue("work"), engine.enqueue("work")
        row = f'SELECT FROM "{on_postgres.schema}".jobs WHERE id = %s FOR UPDATE'
        other.execute(row.encode(), (first.job_id,))
        assert [claim.job_id for claim in engine.claim("worker", limit=2)] == [second.job_id]
        assert engine.claim("worker") == []
        other.rollback()
        assert [claim.job_id for claim in engine.claim("worker")] == [first.job_id]


def varied(count: int) -> list[NewJob]:
    dice = random.Random(count)  # noqa: S311 - no secrets here
    return [
        NewJob(dice.choice(KINDS), n, queue=dice.choice(QUEUES), priority=dice.choice([-5, 0, 0, 10, 30]))
        for n in range(count)
    ]


def take_all(claim: Callable[..., list[Claim]], place: int) -> list[Claim]:
    """Claim until there is nothing left that one likes, and look at each answer on the way."""
    queues, kinds = TASTES[place % len(TASTES)]
    taken: list[Claim] = []
    while claims := claim(f"worker-{place}", queues=queues, kinds=kinds, limit=1 + place % 7):
        assert len(claims) <= 1 + place % 7
        assert all(queues is None or each.spec.queue in queues for each in claims)
        assert all(kinds is None or each.kind in kinds for each in claims)
        priorities = [each.spec.priority for each in claims]
        assert priorities == sorted(priorities, reverse=True), "the highest priority comes first"
        taken += claims
    return taken


def check_each_once(engine: Engine, claimed: Sequence[str], expected: int) -> None:
    assert len(claimed) == len(set(claimed)) == expected, "each job was given once"
    logs = logs_of(engine)
    assert set(claimed) == set(logs)
    assert set(map(tuple, logs.values())) == {("enqueued", "claimed")}, "there are as many events as claims"


def test_64_claimers_share_1000_jobs_without_a_quarrel(on_postgres: Place) -> None:
    with on_postgres.open(pool_size=64) as engine, Crowd(64) as crowd:
        engine.enqueue_many(varied(1000))
        answers = of_kind(crowd.each(lambda place: take_all(engine.claim, place)), list)
        assert len(answers) == 64
        check_each_once(engine, [claim.job_id for claims in answers for claim in claims], 1000)


def test_64_tasks_share_1000_jobs_without_a_quarrel(on_postgres: Place) -> None:
    async def main() -> list[str]:
        async with await on_postgres.aopen(pool_size=64) as engine:
            await engine.enqueue_many(varied(1000))
            found: list[str] = []

            async def take(place: int) -> None:
                queues, kinds = TASTES[place % len(TASTES)]
                while claims := await engine.claim(f"worker-{place}", queues=queues, kinds=kinds, limit=1 + place % 7):
                    found.extend(claim.job_id for claim in claims)

            assert await tasks(64, take) == [None] * 64
            return found

    found = asyncio.run(main())
    with on_postgres.open() as engine:
        check_each_once(engine, found, 1000)


def test_8_processes_share_1000_jobs_without_a_quarrel(on_sqlite: Place, library: str) -> None:
    with on_sqlite.open() as engine:
        engine.enqueue_many(varied(1000))
    told = processes(8, take_your_share, on_sqlite)
    with on_sqlite.open() as engine:
        check_each_once(engine, [job_id for ids in told for job_id in ids], 1000)


def take_your_share(place: int, barrier: Barrier, where: Place) -> list[str]:
    with where.open() as engine:
        barrier.wait(DEADLINE)
        return [claim.job_id for claim in take_all(engine.claim, place)]


def test_claimers_and_makers_at_once_leave_nothing_over(place: Place) -> None:
    """Jobs come while others are taken, given back and completed; in the end each has succeeded once."""
    makers, workers, each = 4, 12, 40
    with place.open(pool_size=16) as engine, Crowd(makers + workers) as crowd:

        def act(number: int) -> int:
            if number < makers:
                for n in range(each):
                    engine.enqueue("work", n, priority=n % 3)
                return 0
            done = 0
            while sum(count.jobs for count in engine.counts() if count.state == "succeeded") < makers * each:
                for claim in engine.claim(f"worker-{number}", limit=3):
                    engine.start(claim)
                    if claim.attempt == 1 and claim.payload % 5 == 0:
                        engine.release(claim)
                    else:
                        done += engine.complete(claim).changed
            return done

        assert sum(of_kind(crowd.each(act), int)) == makers * each
        for events in logs_of(engine).values():
            assert events.count("succeeded") == 1
            assert events.count("claimed") == events.count("released") + 1
