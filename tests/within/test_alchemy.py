"""What others make of SQLAlchemy's sessions is taken as well; what belongs to asyncio is not, by the sync engine."""

import asyncio
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session, scoped_session, sessionmaker
from tests.places import Place, logs_of
from tests.within.hands import NO_TRACE, alchemy_engine, alchemy_url, traces

from leftfold.core.errors import ValidationError
from leftfold.store.sqlite.library import sqlite


class OwnSession(Session):
    """As SQLModel and Flask-SQLAlchemy have them."""


class OwnAsyncSession(AsyncSession):
    """The same for asyncio."""


class Base(DeclarativeBase):
    """What an application's tables are."""


@pytest.mark.parametrize("scoped", [False, True])
@pytest.mark.parametrize("where", ["postgres", "sqlite"])
def test_a_session_of_a_class_of_ones_own_is_taken(where: str, scoped: bool, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(f"on_{where}")
    alchemy = alchemy_engine(place)
    session: Any = scoped_session(sessionmaker(alchemy, class_=OwnSession)) if scoped else OwnSession(alchemy)
    with place.open() as engine:
        engine.enqueue("work", within=session)
        session.rollback()
        assert traces(place) == NO_TRACE
        job = engine.enqueue("work", within=session)
        session.commit()
        assert list(logs_of(engine)) == [job.job_id]
    session.close()
    alchemy.dispose()


@pytest.mark.parametrize("scoped", [False, True])
def test_an_async_session_of_a_class_of_ones_own_is_taken(scoped: bool, on_postgres: Place) -> None:
    async def main() -> str:
        alchemy = create_async_engine(alchemy_url(on_postgres))
        made = async_sessionmaker(alchemy, class_=OwnAsyncSession)
        session: Any = async_scoped_session(made, asyncio.current_task) if scoped else made()
        async with await on_postgres.aopen() as engine:
            await engine.enqueue("work", within=session)
            await session.rollback()
            assert traces(on_postgres) == NO_TRACE
            job = await engine.enqueue("work", within=session)
            await session.commit()
        await session.close()
        await alchemy.dispose()
        return job.job_id

    job_id = asyncio.run(main())
    with on_postgres.open() as engine:
        assert list(logs_of(engine)) == [job_id]


def test_what_belongs_to_asyncio_is_refused_by_the_sync_engine(on_postgres: Place, on_sqlite: Place) -> None:
    async def main() -> None:
        alchemy = create_async_engine(alchemy_url(on_postgres))
        session = OwnAsyncSession(alchemy)
        async with alchemy.connect() as connection:
            with on_postgres.open() as server, on_sqlite.open() as file:
                for engine in (server, file):
                    for within in (session, connection):
                        with pytest.raises(ValidationError, match="no async session or connection"):
                            engine.enqueue("work", within=within)
            async with await on_sqlite.aopen() as later:
                with pytest.raises(ValidationError, match="no async session or connection"):
                    await later.enqueue("work", within=session)
        await session.close()
        await alchemy.dispose()

    asyncio.run(main())
    assert traces(on_postgres) == traces(on_sqlite) == NO_TRACE


def test_what_belongs_to_sqlalchemy_but_connects_nowhere_is_refused(on_sqlite: Place) -> None:
    with on_sqlite.open() as engine:
        for within in (Base, sqlalchemy.MetaData(), sqlalchemy.create_mock_engine("sqlite://", print), sqlite):
            with pytest.raises(ValidationError, match=r"within takes|has no connection"):
                engine.enqueue("work", within=within)
