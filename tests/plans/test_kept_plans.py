"""A plan that was made when there were hardly any jobs is kept, and is still good when there are many."""

import asyncio
from collections.abc import Iterator
from typing import Final

import psycopg
import pytest
from tests.places import schema_on
from tests.plans.asked import Asked, everything_asked
from tests.plans.postgres import MODES, Tables, detours

from leftfold import Engine, NewJob
from leftfold.store.postgres.driver import AsyncPostgresStore, PostgresStore
from leftfold.testing.postgres import Server

#: What runs again and again on one connection, in a worker and in whoever enqueues.
FREQUENT: Final = frozenset({
    "enqueue", "enqueue_keyed", "holders", "claim", "claim_on", "next_due", "own", "renew", "look",
    "lock", "load", "append", "insert", "project",
})  # fmt: skip


@pytest.fixture(scope="module")
def asked(postgres: Server) -> list[Asked]:
    with schema_on(postgres) as place:
        store = PostgresStore(place.url, schema=place.schema).open()
        with Engine(store):
            return [each for each in everything_asked(store) if each.query.name in FREQUENT]


@pytest.fixture(params=[0, 1, 40, 4_000])
def small(request: pytest.FixtureRequest, postgres: Server) -> Iterator[Tables]:
    """Tables with so many jobs, of which nobody holds one, and the server knows that these are all."""
    with schema_on(postgres) as place:
        store = PostgresStore(place.url, schema=place.schema).open()
        with Engine(store) as engine:
            engine.enqueue_many([NewJob("work") for _ in range(request.param)])
            with store.connect() as connection:
                connection.prepare_threshold = None
                for table in ("jobs", "events"):
                    connection.execute(f"VACUUM ANALYZE {place.schema}.{table}".encode())
                yield Tables.over(store, connection)


def test_no_plan_from_a_small_table_reads_all_of_it(small: Tables, asked: list[Asked]) -> None:
    assert {each.query.name for each in asked} == FREQUENT
    plans = {each.name: small.plan(each.query, "force_generic_plan") for each in asked}
    assert {name: plan.whole() for name, plan in plans.items() if plan.whole()} == {}


@pytest.mark.parametrize("mode", MODES)
def test_no_plan_from_when_nobody_held_a_job_goes_by_those_that_are_held(
    mode: str, small: Tables, asked: list[Asked]
) -> None:
    plans = {each.name: (each.query, small.plan(each.query, mode)) for each in asked}
    assert {name: detours(*plan) for name, plan in plans.items() if detours(*plan)} == {}


@pytest.mark.parametrize("small", [0, 1, 40], indirect=True)
def test_whoever_lets_the_server_choose_gets_such_plans(small: Tables, asked: list[Asked]) -> None:
    small.connection.execute("SET enable_seqscan = on")
    assert [each.name for each in asked if small.plan(each.query, "force_generic_plan").whole()]


SETTINGS: Final = "SELECT current_setting('enable_seqscan'), current_setting('jit')"


@pytest.mark.parametrize(("prepare", "settings"), [(True, ("off", "off")), (False, ("on", "on"))])
def test_connections_that_keep_plans_are_told(postgres: Server, *, prepare: bool, settings: tuple[str, str]) -> None:
    url = f"{postgres.url()}?options=-c%20jit%3Don"
    with PostgresStore(url, prepare=prepare).connect() as connection:
        assert connection.execute(SETTINGS).fetchone() == settings

    async def told() -> object:
        async with await AsyncPostgresStore(url, prepare=prepare).connect() as connection:
            return await (await connection.execute(SETTINGS)).fetchone()

    assert asyncio.run(told()) == settings


def test_a_session_that_a_pooler_lends_is_left_as_it_is(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1_000_000_000)  # as a pooler makes one up
    with PostgresStore(postgres.url()).connect() as connection:
        assert connection.execute("SHOW enable_seqscan").fetchone() == ("on",)
