"""What `within` asks of a connection to PostgreSQL: the right database, and a transaction that can go on."""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.places import Place, database_on, logs_of
from tests.within.hands import NO_TRACE, traces

import leftfold
from leftfold.core.errors import StoreUnavailableError, ValidationError
from leftfold.testing.postgres import Server


def with_(place: Place, **changes: Any) -> str:
    """Give the connection string of the place with some parameters changed."""
    return make_conninfo(**{**conninfo_to_dict(place.url), **changes})


def test_a_connection_to_another_database_is_refused(on_postgres: Place, postgres: Server) -> None:
    """It may well have tables of the same names: the jobs would be there, and nobody would look for them."""
    with database_on(postgres) as other, on_postgres.open() as engine:
        leftfold.migrate(other, schema=on_postgres.schema)
        with psycopg.connect(other) as connection:
            with pytest.raises(ValidationError, match="the very database of this store"):
                engine.enqueue("work", within=connection)
            assert connection.execute("SELECT 1").fetchall() == [(1,)], "its transaction lives on"
            connection.rollback()
        with leftfold.open(other, schema=on_postgres.schema) as theirs:
            assert logs_of(theirs) == {}

        async def main() -> None:
            async with await on_postgres.aopen() as engine, await psycopg.AsyncConnection.connect(other) as connection:
                with pytest.raises(ValidationError, match="the very database of this store"):
                    await engine.enqueue("work", within=connection)

        asyncio.run(main())
    assert traces(on_postgres) == NO_TRACE


def test_the_same_database_by_another_name_is_taken(on_postgres: Place) -> None:
    """As behind a proxy: what counts is the server that answers."""
    given = conninfo_to_dict(on_postgres.url)["host"]
    url = with_(on_postgres, host="somewhere.else.invalid", hostaddr=given)
    with on_postgres.open() as engine, psycopg.connect(url) as connection:
        for _ in range(2):
            engine.enqueue("work", within=connection)
            connection.commit()
        assert len(logs_of(engine)) == 2

    async def main() -> None:
        async with await on_postgres.aopen() as engine, await psycopg.AsyncConnection.connect(url) as connection:
            await engine.enqueue("work", within=connection)

    asyncio.run(main())
    assert traces(on_postgres)["jobs"] == 3


def test_a_transaction_that_others_overtook_is_told_to_roll_back(on_postgres: Place) -> None:
    with on_postgres.open() as engine, psycopg.connect(on_postgres.url) as connection:
        holder = engine.enqueue("work", key="key")
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1")
        engine.signal(holder.job_id, "go")
        with pytest.raises(StoreUnavailableError, match="roll back your transaction and try again"):
            engine.enqueue("work", key="key", on_conflict="replace", within=connection)
        connection.rollback()
        new = engine.enqueue("work", key="key", on_conflict="replace", within=connection)
        connection.commit()
        assert sorted(logs_of(engine)) == sorted([holder.job_id, new.job_id])


@pytest.mark.parametrize("factory", [psycopg.RawCursor, psycopg.ClientCursor])
def test_how_the_caller_likes_its_statements_does_not_matter(on_postgres: Place, factory: Any) -> None:
    with on_postgres.open() as engine, psycopg.connect(on_postgres.url, cursor_factory=factory) as connection:
        job = engine.enqueue("work", key="key", request_id="ask", within=connection)
        assert connection.cursor_factory is factory
        connection.commit()
        assert list(logs_of(engine)) == [job.job_id]

    async def main() -> None:
        async with (
            await on_postgres.aopen() as engine,
            await psycopg.AsyncConnection.connect(on_postgres.url, cursor_factory=psycopg.AsyncRawCursor) as connection,
        ):
            await engine.enqueue("work", within=connection)

    asyncio.run(main())
    assert traces(on_postgres)["jobs"] == 2


def test_a_connection_in_pipeline_mode_is_refused(on_postgres: Place) -> None:
    with on_postgres.open() as engine, psycopg.connect(on_postgres.url) as connection:
        with connection.pipeline(), pytest.raises(ValidationError, match="pipeline mode"):
            engine.enqueue("work", within=connection)
        engine.enqueue("work", within=connection)

    async def main() -> None:
        async with await on_postgres.aopen() as engine:
            connection = await psycopg.AsyncConnection.connect(on_postgres.url)
            async with connection, connection.pipeline():
                with pytest.raises(ValidationError, match="pipeline mode"):
                    await engine.enqueue("work", within=connection)

    asyncio.run(main())
    assert traces(on_postgres)["jobs"] == 1
