"""On PostgreSQL everything lives in one schema, whatever its name, and needs nothing outside of it."""

from typing import Any

import psycopg
import pytest
from tests.migration.raw import short_life
from tests.places import Place, database_on, schema_on

import leftfold
from leftfold.core.errors import JobNotFoundError, StoreError, StoreNotReadyError, ValidationError
from leftfold.testing.postgres import Server

LIFE = ["enqueued", "claimed", "started", "succeeded"]

THINGS = """
    SELECT 'relation', nspname, relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
    UNION ALL SELECT 'function', nspname, proname FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace
    WHERE nspname NOT IN ('pg_catalog', 'information_schema')
    UNION ALL SELECT 'type', nspname, typname FROM pg_type JOIN pg_namespace n ON n.oid = typnamespace
    WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
    UNION ALL SELECT 'extension', '', extname FROM pg_extension WHERE extname <> 'plpgsql'
    UNION ALL SELECT 'event trigger', '', evtname FROM pg_event_trigger
    UNION ALL SELECT 'setting', '', setconfig::text FROM pg_db_role_setting
"""


@pytest.mark.parametrize(
    "name",
    ["jobs", "select", "Mixed_Case", "_", "UPPER", "x" * 63, "state", "public"],
    ids=lambda name: name[:12],
)
def test_a_schema_of_any_lawful_name_works(postgres: Server, name: str) -> None:
    with database_on(postgres) as url:
        assert leftfold.migrate(url, schema=name) == ["0001_begin"]
        with leftfold.open(url, schema=name) as engine:
            assert short_life(engine) == LIFE


@pytest.mark.parametrize("name", ["", "1a", "a-b", 'a"b', "a b", "a.b", "ä", "x" * 64, "a;b", "a\n", "a$b", "a$$b"])
def test_a_name_that_is_none_is_refused_before_anything_happens(postgres: Server, name: str) -> None:
    with pytest.raises(ValidationError, match="is not a schema name"):
        leftfold.migrate(postgres.url(), schema=name)
    with pytest.raises(ValidationError, match="is not a schema name"):
        leftfold.open(postgres.url(), schema=name)


def test_a_name_that_the_server_keeps_for_itself_is_refused(postgres: Server) -> None:
    with pytest.raises(StoreError):
        leftfold.migrate(postgres.url(), schema="pg_leftfold")


def test_nothing_is_made_outside_of_the_schema(postgres: Server) -> None:
    with database_on(postgres) as url, psycopg.connect(url, autocommit=True) as connection:
        before = set(connection.execute(THINGS).fetchall())
        leftfold.migrate(url, schema="ours")
        with leftfold.open(url, schema="ours") as engine:
            short_life(engine)
        made = set(connection.execute(THINGS).fetchall()) - before
        assert {schema for _, schema, _ in made} == {"ours"}
        connection.execute("SET client_min_messages = warning")
        connection.execute("DROP SCHEMA ours CASCADE")
        assert set(connection.execute(THINGS).fetchall()) == before


def test_a_schema_that_is_there_with_tables_of_others_takes_ours_as_well(postgres: Server) -> None:
    with database_on(postgres) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA app CREATE TABLE orders (id int)")
        leftfold.migrate(url, schema="app")
        with leftfold.open(url, schema="app") as engine:
            assert short_life(engine) == LIFE


def test_the_search_path_of_the_session_does_not_matter(postgres: Server) -> None:
    """Tables of the same names in front of ours, as a hostile or careless neighbour would put them."""
    with database_on(postgres) as url, psycopg.connect(url, autocommit=True) as connection:
        for table in ("jobs", "events", "counts", "requests", "queues", "maintenance", "migrations"):
            connection.execute(f"CREATE TABLE public.{table} (nothing int)".encode())
        connection.execute("CREATE TYPE public.state AS ENUM ('nowhere')")
        connection.execute("CREATE FUNCTION public.clock() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'")
        for path in ("public", "pg_catalog", '"$user"'):
            connection.execute(f"ALTER ROLE CURRENT_USER SET search_path = {path}".encode())
            try:
                schema = f"ours_{len(path)}"
                leftfold.migrate(url, schema=schema)
                with leftfold.open(url, schema=schema) as engine:
                    assert short_life(engine) == LIFE
                    with pytest.raises(JobNotFoundError):
                        engine.get("00000000-0000-7000-8000-000000000000")
            finally:
                connection.execute("ALTER ROLE CURRENT_USER RESET search_path")


def test_two_schemas_side_by_side_do_not_see_each_other(postgres: Server) -> None:
    with schema_on(postgres) as one, schema_on(postgres) as other, one.open() as mine, other.open() as theirs:
        job = mine.enqueue("work", key="key", request_id="ask")
        assert theirs.list().jobs == ()
        assert theirs.claim("worker") == []
        assert theirs.counts() == []
        same = theirs.enqueue("work", key="key", request_id="ask")
        assert same.changed
        assert same.job_id != job.job_id
        theirs.pause("default")
        assert theirs.claim("worker") == []
        assert [claim.job_id for claim in mine.claim("worker")] == [job.job_id]
        with pytest.raises(JobNotFoundError):
            theirs.get(job.job_id)


def test_a_schema_that_lacks_our_tables_is_not_mistaken_for_one_that_has_them(postgres: Server) -> None:
    with schema_on(postgres) as ours, pytest.raises(StoreNotReadyError, match="leftfold migrate"):
        Place(ours.url, "another").open()


def test_who_may_not_make_a_schema_is_told_so(postgres: Server) -> None:
    with database_on(postgres) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE nobody_much LOGIN")
        try:
            with pytest.raises(StoreError, match="permission denied") as refusal:
                leftfold.migrate(url.replace("leftfold@", "nobody_much@"))
            assert refusal.value.code == "store_denied"
        finally:
            connection.execute("DROP ROLE nobody_much")


def test_a_role_without_a_right_on_the_tables_is_denied_and_one_with_them_can_work(postgres: Server) -> None:
    with database_on(postgres) as url, psycopg.connect(url, autocommit=True) as connection:
        leftfold.migrate(url)
        connection.execute("CREATE ROLE worker LOGIN")
        theirs = url.replace("leftfold@", "worker@")
        try:
            with pytest.raises(StoreError, match="permission denied"):
                leftfold.open(theirs)
            grant(connection)
            with leftfold.open(theirs) as engine:
                assert short_life(engine) == LIFE
            with psycopg.connect(theirs) as thief, pytest.raises(psycopg.Error, match=r"permission denied|is refused"):
                thief.execute("DELETE FROM leftfold.events")
        finally:
            connection.execute("DROP OWNED BY worker")
            connection.execute("DROP ROLE worker")


def grant(connection: psycopg.Connection[Any]) -> None:
    """Give what a worker needs: nothing that changes what is on the log."""
    connection.execute("GRANT USAGE ON SCHEMA leftfold TO worker")
    connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA leftfold TO worker")
    connection.execute("GRANT INSERT ON leftfold.events TO worker")
    connection.execute("GRANT INSERT, UPDATE ON leftfold.jobs, leftfold.queues TO worker")
    connection.execute("GRANT INSERT, DELETE, UPDATE ON leftfold.counts, leftfold.requests TO worker")
