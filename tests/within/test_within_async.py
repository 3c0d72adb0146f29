"""The same for asyncio: psycopg's async connections, and SQLAlchemy's async connections and sessions."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from tests.places import Place, logs_of
from tests.within.hands import NO_TRACE, alchemy_url, orders, traces

from leftfold import AsyncEngine, NewJob
from leftfold.core.errors import KeyTakenError, ValidationError
from leftfold.store.sqlite.library import sqlite

KINDS = ("psycopg", "psycopg with dicts", "sqlalchemy connection", "sqlalchemy session")

#: A test's body: the engine, what it is given as `within`, and how to run a statement of one's own.
Run = Callable[[str], Coroutine[Any, Any, None]]
Body = Callable[[AsyncEngine, Any, Run], Coroutine[Any, Any, None]]


@asynccontextmanager
async def held(kind: str, place: Place) -> AsyncIterator[tuple[Any, Run]]:
    """Give what `within` takes, and a way to run a statement of one's own."""
    if kind.startswith("psycopg"):
        connection: Any = await psycopg.AsyncConnection.connect(place.url)
        if kind.endswith("dicts"):
            connection.row_factory = dict_row

        async def plainly(sql: str) -> None:
            await connection.execute(sql)

        try:
            yield connection, plainly
        finally:
            await connection.close()
        return
    engine = create_async_engine(alchemy_url(place))
    session: Any = AsyncSession(engine) if kind == "sqlalchemy session" else await engine.connect()

    async def run(sql: str) -> None:
        await session.execute(sqlalchemy.text(sql))

    try:
        yield session, run
    finally:
        await session.close()
        await engine.dispose()


def play(kind: str, place: Place, body: Body) -> None:
    async def main() -> None:
        async with await place.aopen() as engine, held(kind, place) as (within, run):
            await body(engine, within, run)

    asyncio.run(main())


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_a_commit_makes_the_job_claimable_and_not_before(kind: str, on_postgres: Place) -> None:
    async def body(engine: AsyncEngine, within: Any, run: Run) -> None:
        receipt = await engine.enqueue("work", {"n": 1}, within=within)
        assert (await engine.list()).jobs == ()
        await within.commit()
        (claim,) = await engine.claim("worker")
        assert (claim.job_id, claim.payload) == (receipt.job_id, {"n": 1})

    play(kind, on_postgres, body)


def test_a_rollback_leaves_no_trace(kind: str, on_postgres: Place) -> None:
    async def body(engine: AsyncEngine, within: Any, run: Run) -> None:
        await engine.enqueue("work", key="key", request_id="ask", within=within)
        await engine.enqueue_many([NewJob("work"), NewJob("other")], within=within)
        await within.rollback()
        assert traces(on_postgres) == NO_TRACE
        assert (await engine.enqueue("work", key="key", request_id="ask")).changed

    play(kind, on_postgres, body)


def test_to_leave_without_a_commit_leaves_no_trace(kind: str, on_postgres: Place) -> None:
    async def body(engine: AsyncEngine, within: Any, run: Run) -> None:
        await run("INSERT INTO orders VALUES (1)")
        await engine.enqueue("work", request_id="ask", within=within)

    play(kind, on_postgres, body)
    assert traces(on_postgres) == NO_TRACE
    assert orders(on_postgres) == []


def test_two_jobs_and_own_rows_are_one_transaction(kind: str, on_postgres: Place) -> None:
    async def body(engine: AsyncEngine, within: Any, run: Run) -> None:
        await run("INSERT INTO orders VALUES (1)")
        first = await engine.enqueue("work", within=within)
        await run("INSERT INTO orders VALUES (2)")
        await engine.enqueue("work", after=[first.job_id], within=within)
        assert traces(on_postgres) == NO_TRACE
        await within.commit()

    play(kind, on_postgres, body)
    assert orders(on_postgres) == [1, 2]
    with on_postgres.open() as engine:
        assert sorted(logs_of(engine).values()) == [["enqueued"], ["enqueued", "suspended"]]


def test_a_refused_job_leaves_the_transaction_as_it_was(kind: str, on_postgres: Place) -> None:
    async def body(engine: AsyncEngine, within: Any, run: Run) -> None:
        holder = await engine.enqueue("work", key="key")
        await run("INSERT INTO orders VALUES (1)")
        batch = [NewJob("work"), NewJob("work", key="key")]
        with pytest.raises(KeyTakenError, match=holder.job_id):
            await engine.enqueue_many(batch, on_conflict="raise", request_id="ask", within=within)
        with pytest.raises(ValidationError):
            await engine.enqueue("no name at all", within=within)
        await run("INSERT INTO orders VALUES (2)")
        await within.commit()

    play(kind, on_postgres, body)
    assert orders(on_postgres) == [1, 2]
    assert traces(on_postgres) == {"jobs": 1, "events": 1, "requests": 0, "counts": 1}


async def break_off(engine: AsyncEngine, session: AsyncSession) -> None:
    async with session, session.begin():
        await engine.enqueue("work", request_id="ask", within=session)
        raise ZeroDivisionError


def test_a_block_that_begins_and_ends_the_transaction_takes_the_job_along(on_postgres: Place) -> None:
    async def main() -> list[str]:
        alchemy = create_async_engine(alchemy_url(on_postgres))
        async with await on_postgres.aopen() as engine:
            async with AsyncSession(alchemy) as session, session.begin():
                first = await engine.enqueue("work", within=session)
            async with alchemy.begin() as connection:
                second = await engine.enqueue("work", within=connection)
            with pytest.raises(ZeroDivisionError):
                await break_off(engine, AsyncSession(alchemy))
            psycopgs = await psycopg.AsyncConnection.connect(on_postgres.url, autocommit=True)
            async with psycopgs, psycopgs.transaction():
                third = await engine.enqueue("work", within=psycopgs)
        await alchemy.dispose()
        return [first.job_id, second.job_id, third.job_id]

    made = asyncio.run(main())
    with on_postgres.open() as engine:
        assert sorted(logs_of(engine)) == sorted(made)


def test_tasks_with_connections_of_their_own_do_not_mix(on_postgres: Place) -> None:
    async def main() -> list[str]:
        async with await on_postgres.aopen() as engine:

            async def one(n: int) -> str | None:
                connection = await psycopg.AsyncConnection.connect(on_postgres.url)
                async with connection:
                    receipt = await engine.enqueue("work", n, within=connection)
                    if n % 2:
                        await connection.rollback()
                        return None
                return receipt.job_id

            return [job_id for job_id in await asyncio.gather(*map(one, range(20))) if job_id]

    made = asyncio.run(main())
    with on_postgres.open() as engine:
        assert sorted(logs_of(engine)) == sorted(made)


def test_a_connection_of_sqlite_serves_the_async_engine_as_well(on_sqlite: Place) -> None:
    async def main() -> None:
        async with await on_sqlite.aopen() as engine:
            connection = sqlite.connect(on_sqlite.path)
            await engine.enqueue("work", request_id="ask", within=connection)
            connection.rollback()
            assert traces(on_sqlite) == NO_TRACE
            job = await engine.enqueue("work", within=connection)
            connection.commit()
            connection.close()
            assert [claim.job_id for claim in await engine.claim("worker")] == [job.job_id]

    asyncio.run(main())


def test_a_connection_of_the_other_kind_is_refused(on_postgres: Place) -> None:
    async def main() -> None:
        async with await on_postgres.aopen() as engine:
            with psycopg.connect(on_postgres.url) as connection:
                for wrong in (connection, "a connection", object(), 7):
                    with pytest.raises(ValidationError, match="within takes an async"):
                        await engine.enqueue("work", within=wrong)
            autocommitting = await psycopg.AsyncConnection.connect(on_postgres.url, autocommit=True)
            async with autocommitting:
                with pytest.raises(ValidationError, match="commits by itself"):
                    await engine.enqueue("work", within=autocommitting)
        with on_postgres.open() as sync:
            theirs = await psycopg.AsyncConnection.connect(on_postgres.url)
            async with theirs:
                with pytest.raises(ValidationError, match="within takes a psycopg"):
                    sync.enqueue("work", within=theirs)

    asyncio.run(main())
    assert traces(on_postgres) == NO_TRACE
