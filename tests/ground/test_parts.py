"""A batch that goes to PostgreSQL part by part, each made ready while the one before is written: all, or nothing."""

import asyncio
from collections.abc import Sequence

import psycopg
import pytest
from tests.places import Place, logs_of

from leftfold import NewJob, Receipt
from leftfold.core.errors import StoreError, ValidationError
from leftfold.store.creating import PART

MANY = 2 * PART + 7


def _enqueue(place: Place, jobs: Sequence[NewJob], *, is_async: bool) -> list[Receipt | None]:
    """Make jobs; the same engine must be good for another one afterwards, whatever became of them."""
    if is_async:
        return asyncio.run(_aenqueue(place, jobs))
    with place.open() as engine:
        try:
            return engine.enqueue_many(jobs)
        finally:
            engine.enqueue("behind")


async def _aenqueue(place: Place, jobs: Sequence[NewJob]) -> list[Receipt | None]:
    async with await place.aopen() as engine:
        try:
            return await engine.enqueue_many(jobs)
        finally:
            await engine.enqueue("behind")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kinds", [["work"], ["work", "other"]], ids=["alike", "of two kinds"])
def test_a_large_batch_is_made_in_one_transaction_in_the_order_it_was_given(
    place: Place, kinds: list[str], is_async: bool
) -> None:
    jobs = [NewJob(kinds[number % len(kinds)], number) for number in range(MANY)]
    receipts = _enqueue(place, jobs, is_async=is_async)
    made = [receipt.job_id for receipt in receipts if receipt]
    assert made == sorted(set(made))
    assert len(made) == MANY
    with place.open() as engine:
        assert [bytes(engine.get(job_id).spec.payload) for job_id in (made[0], made[PART], made[-1])] == [
            b"0", str(PART).encode(), str(MANY - 1).encode(),
        ]  # fmt: skip
        assert len(logs_of(engine)) == MANY + 1
        assert engine.verify().is_clean
    if not place.is_file:
        with psycopg.connect(place.url) as connection:
            asked = f'SELECT count(DISTINCT xid) FROM "{place.schema}".events WHERE job_id = ANY (%s)'  # noqa: S608 - our own
            assert connection.execute(asked.encode(), (made,)).fetchall() == [(1,)]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_job_that_cannot_be_meant_leaves_none_of_the_others(place: Place, is_async: bool) -> None:
    jobs = [NewJob("work") for _ in range(MANY)]
    with pytest.raises(ValidationError, match="queue"):
        _enqueue(place, [*jobs, NewJob("work", queue="\n")], is_async=is_async)
    with place.open() as engine:
        assert list(logs_of(engine).values()) == [["enqueued"]]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("bad", [0, PART, MANY - 1])
def test_a_job_that_the_server_refuses_leaves_none_of_the_others(on_postgres: Place, bad: int, is_async: bool) -> None:
    with psycopg.connect(on_postgres.url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE \"{on_postgres.schema}\".jobs ADD CHECK (kind <> 'bad')".encode())
    with pytest.raises(StoreError, match="violates check constraint"):
        _enqueue(on_postgres, [NewJob("bad" if n == bad else "work") for n in range(MANY)], is_async=is_async)
    with on_postgres.open() as engine:
        assert list(logs_of(engine).values()) == [["enqueued"]]
