"""Many who read the same revision: one of them writes, the others are told that the job has moved on."""

import asyncio
from multiprocessing.synchronize import Barrier

from tests.concurrency.crowd import DEADLINE, Crowd, of_kind, outcome, processes, rounds, tasks
from tests.places import Place, logs_of

from leftfold import Receipt
from leftfold.core.errors import RevisionConflictError


def test_of_64_threads_with_one_revision_one_writes(on_postgres: Place) -> None:
    repeated = rounds(15)
    with on_postgres.open(pool_size=64) as engine, Crowd(64) as crowd:
        job_id = engine.enqueue("work").job_id
        winners = []
        for _ in range(repeated):
            rev = engine.get(job_id).rev
            outcomes = crowd.each(lambda place, rev: engine.requeue(job_id, expected_rev=rev, reason=str(place)), rev)
            (winner,) = of_kind(outcomes, Receipt)
            assert winner.rev == rev + 1
            assert len(of_kind(outcomes, RevisionConflictError)) == 63
            winners.append(str(outcomes.index(winner)))
        told = [getattr(record.event, "reason", None) for record in engine.history(job_id)[1:]]
        assert told == winners, "the log tells of the winners, in their order, and of nobody else"
        assert logs_of(engine) == {job_id: ["enqueued"] + ["requeued"] * repeated}


def test_commands_of_different_kinds_compete_for_the_revision_as_well(on_postgres: Place) -> None:
    with on_postgres.open(pool_size=32) as engine, Crowd(32) as crowd:

        def act(place: int, job_id: str) -> Receipt:
            match place % 4:
                case 0:
                    return engine.requeue(job_id, expected_rev=1)
                case 1:
                    return engine.signal(job_id, f"key-{place}", place, expected_rev=1)
                case 2:
                    return engine.cancel(job_id, expected_rev=1)
                case _:
                    return engine.dead_letter(job_id, "enough", expected_rev=1)

        for _ in range(rounds(10)):
            job = engine.enqueue("work")
            outcomes = crowd.each(act, job.job_id)
            assert len(of_kind(outcomes, Receipt)) == 1
            assert len(of_kind(outcomes, RevisionConflictError)) == 31
            assert len(engine.history(job.job_id)) == 2


def test_of_64_tasks_with_one_revision_one_writes(on_postgres: Place) -> None:
    async def main() -> None:
        async with await on_postgres.aopen(pool_size=64) as engine:
            job_id = (await engine.enqueue("work")).job_id
            for _ in range(rounds(10)):
                rev = (await engine.get(job_id)).rev
                outcomes = await tasks(64, lambda _, rev: engine.requeue(job_id, expected_rev=rev), rev)
                assert len(of_kind(outcomes, Receipt)) == 1
                assert len(of_kind(outcomes, RevisionConflictError)) == 63

    asyncio.run(main())
    with on_postgres.open() as engine:
        ((_, events),) = logs_of(engine).items()
        assert len(events) == 1 + rounds(10)


def test_of_8_processes_with_one_revision_one_writes(on_sqlite: Place, library: str) -> None:
    repeated = rounds(30)
    with on_sqlite.open() as engine:
        job_id = engine.enqueue("work").job_id
    told = processes(8, write_at_one_revision, on_sqlite, job_id, repeated)
    for answers in zip(*told, strict=True):
        assert sorted(answers) == ["Receipt"] + ["RevisionConflictError"] * 7
    with on_sqlite.open() as engine:
        assert logs_of(engine) == {job_id: ["enqueued"] + ["requeued"] * repeated}


def write_at_one_revision(_: int, barrier: Barrier, place: Place, job_id: str, repeated: int) -> list[str]:
    answers = []
    with place.open() as engine:
        for _ in range(repeated):
            barrier.wait(DEADLINE)
            rev = engine.get(job_id).rev
            barrier.wait(DEADLINE)
            told = outcome(engine.requeue, job_id, expected_rev=rev)
            answers.append(type(told).__name__)
    return answers
