"""What nobody says when a store is opened, the environment may."""

import asyncio
from typing import Any

import pytest
from tests.places import schema_on

import leftfold
from leftfold.core.errors import ValidationError
from leftfold.engine.running import one
from leftfold.store.query import Operation
from leftfold.testing.postgres import Server


def test_the_schema_is_the_one_that_the_environment_names(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with schema_on(postgres, "by_environment") as there, schema_on(postgres, "by_name") as named:
        monkeypatch.setenv("LEFTFOLD_DATABASE_URL", there.url)
        monkeypatch.setenv("LEFTFOLD_SCHEMA", there.schema)
        assert leftfold.migrate() == []
        with leftfold.open() as engine:
            job = engine.enqueue("work")
        with there.open() as engine:
            assert engine.get(job.job_id).version == 1
        with leftfold.open(schema=named.schema) as engine:
            assert engine.list().jobs == (), "who names one means that one"

        async def main() -> None:
            async with await leftfold.aopen() as engine:
                assert (await engine.get(job.job_id)).version == 1

        asyncio.run(main())


#: How a store is opened, what the environment says, and whether PostgreSQL then keeps statements in the session.
WAYS: dict[str, tuple[dict[str, Any], str | None, bool]] = {
    "as it comes": ({}, None, True),
    "not by the caller": ({"prepare": False}, None, False),
    "not by the environment": ({}, "0", False),
    "by the environment": ({}, "1", True),
    "by the caller, against the environment": ({"prepare": True}, "0", True),
}


@pytest.mark.parametrize("way", WAYS)
def test_statements_are_prepared_unless_that_is_switched_off(
    way: str, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, environment, prepared = WAYS[way]
    if environment is not None:
        monkeypatch.setenv("LEFTFOLD_PREPARE", environment)
    asked = Operation(lambda: one("prepared", {}))
    with schema_on(postgres) as place:
        with place.open(pool_size=1, **given) as engine:
            store: Any = engine.store
            store.queries["prepared"] = "SELECT count(*) FROM pg_prepared_statements"
            for _ in range(12):
                engine.get(engine.enqueue("work", key="key", request_id="ask").job_id)
            ((count,),) = store.run(asked)
            assert (count > 0) is prepared

        async def main() -> None:
            async with await place.aopen(pool_size=1, **given) as engine:
                store: Any = engine.store
                store.queries["prepared"] = "SELECT count(*) FROM pg_prepared_statements"
                for _ in range(12):
                    await engine.get((await engine.enqueue("work", key="key")).job_id)
                ((count,),) = await store.run(asked)
                assert (count > 0) is prepared

        asyncio.run(main())


def test_a_word_that_means_neither_is_refused(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEFTFOLD_PREPARE", "no")
    with pytest.raises(ValidationError, match="LEFTFOLD_PREPARE is 'no': it can be 0 or 1"):
        leftfold.open(postgres.url())
