"""What PostgreSQL says in its five letters, and what we make of it: each entry of the table, said by a real server."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psycopg
import pytest
from tests.ground.load import Writer, check_told
from tests.places import Place, logs_of

from leftfold import Engine
from leftfold.core.errors import (
    OutcomeUnknownError,
    StoreDeniedError,
    StoreError,
    StoreNotReadyError,
    StoreUnavailableError,
)
from leftfold.store.postgres import wire

#: What a server can say in the middle of a statement, and what the caller then hears.
MEANINGS: dict[str, tuple[type[StoreError], str]] = {
    "40001": (StoreUnavailableError, "gave way to others too often: try again"),
    "40P01": (StoreUnavailableError, "gave way to others too often: try again"),
    "55P03": (StoreUnavailableError, "a lock was not to be had in time: try again"),
    "57014": (StoreUnavailableError, "took too long .*: try again"),
    "53100": (StoreUnavailableError, "its disk is full: make room"),
    "53200": (StoreUnavailableError, "it is out of memory: try again"),
    "53300": (StoreUnavailableError, "too many connections: .* smaller pool_size"),
    "58030": (StoreUnavailableError, "its disk fails: look at the disk"),
    "25006": (StoreUnavailableError, "it is read-only: connect to the primary"),
    "57P03": (StoreUnavailableError, "it is starting up or shutting down: try again"),
    "28000": (StoreDeniedError, "does not let us in"),
    "28P01": (StoreDeniedError, "does not let us in"),
    "42501": (StoreDeniedError, "does not allow it"),
    "3D000": (StoreNotReadyError, "PostgreSQL: "),
    "42P01": (StoreNotReadyError, "run `leftfold migrate` first"),
    "42883": (StoreNotReadyError, "run `leftfold migrate` first"),
    "42704": (StoreNotReadyError, "run `leftfold migrate` first"),
    "3F000": (StoreNotReadyError, "run `leftfold migrate` first"),
    "23505": (StoreError, "PostgreSQL: "),
    "XX001": (StoreError, "PostgreSQL: "),
    "P0001": (StoreError, "PostgreSQL: "),
}


def test_every_entry_of_the_table_is_here() -> None:
    assert set(wire._BUSY) | wire._GIVE_WAY | wire._NOT_READY <= set(MEANINGS)


class Saboteur(NamedTuple):
    """A trigger that acts when a job is made: each time from now on, until it has acted that often."""

    connection: psycopg.Connection[tuple[Any, ...]]

    def act(self, what: str, times: int = 1_000, *, at_commit: bool = False) -> None:
        self.stop()
        made = "CREATE CONSTRAINT TRIGGER" if at_commit else "CREATE TRIGGER"
        when = "AFTER INSERT" if at_commit else "BEFORE INSERT"
        deferred = "DEFERRABLE INITIALLY DEFERRED" if at_commit else ""
        self.connection.execute(
            f"""
            CREATE SEQUENCE public.acts;
            CREATE FUNCTION public.act() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF nextval('public.acts') <= {times} THEN {what}; END IF;
                RETURN NEW;
            END $$;
            {made} act {when} ON leftfold.jobs {deferred} FOR EACH ROW EXECUTE FUNCTION public.act();
            """.encode()
        )

    def say(self, state: str, times: int = 1_000, constraint: str = "jobs", *, at_commit: bool = False) -> None:
        said = f"MESSAGE = 'so it is', ERRCODE = '{state}', CONSTRAINT = '{constraint}'"
        self.act(f"RAISE EXCEPTION USING {said}", times, at_commit=at_commit)

    def stop(self) -> None:
        self.connection.execute("DROP FUNCTION IF EXISTS public.act CASCADE; DROP SEQUENCE IF EXISTS public.acts")

    def acts(self) -> int:
        ((count,),) = self.connection.execute("SELECT last_value FROM public.acts").fetchall()
        return int(count)


@pytest.fixture
def saboteur(on_postgres: Place) -> Iterator[Saboteur]:
    with psycopg.connect(on_postgres.url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        yield Saboteur(connection)


@pytest.fixture
def engine(on_postgres: Place) -> Iterator[Engine]:
    with on_postgres.open() as opened:
        yield opened


Make = Callable[[Engine], object]

#: A statement that commits by itself, a transaction, and a transaction of another shape.
MAKERS: dict[str, Make] = {
    "alone": lambda engine: engine.enqueue("work"),
    "by request": lambda engine: engine.enqueue("work", request_id="ask-1"),
    "by decision": lambda engine: engine.receive("work", request_id="ask-2"),
}


@pytest.mark.parametrize("at_commit", [False, True], ids=["at once", "at the commit"])
def test_every_sqlstate_is_heard_as_the_error_that_it_means(
    engine: Engine, saboteur: Saboteur, at_commit: bool
) -> None:
    """What a living server refuses did not happen, not even at the commit."""
    for state, (error, told) in MEANINGS.items():
        saboteur.say(state, at_commit=at_commit)
        for make in MAKERS.values():
            with pytest.raises(error, match=told) as caught:
                make(engine)
            assert not isinstance(caught.value, OutcomeUnknownError)
            assert type(caught.value) is error
    saboteur.stop()
    assert logs_of(engine) == {}
    for make in MAKERS.values():
        assert make(engine)


@pytest.mark.parametrize("state", ["08000", "08006", "08P01"])
def test_what_speaks_of_a_broken_connection_is_believed(engine: Engine, saboteur: Saboteur, state: str) -> None:
    """Something between us and the server may say so, and the server go on: behind a commit nobody knows."""
    saboteur.say(state)
    with pytest.raises(OutcomeUnknownError):
        engine.enqueue("work")
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        engine.enqueue("work", request_id="ask-1")
    saboteur.say(state, times=2)
    assert engine.enqueue("work", request_id="ask-1").changed
    assert len(logs_of(engine)) == 1


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(("state", "constraint"), [("40001", ""), ("40P01", ""), ("23505", "jobs_key")])
def test_who_gave_way_is_run_anew(engine: Engine, saboteur: Saboteur, state: str, constraint: str, maker: str) -> None:
    saboteur.say(state, times=5, constraint=constraint)
    MAKERS[maker](engine)
    assert saboteur.acts() == 6
    assert [len(events) for events in logs_of(engine).values()] == [1]


def test_a_session_that_is_terminated_in_a_transaction_is_run_anew(engine: Engine, saboteur: Saboteur) -> None:
    saboteur.act("PERFORM pg_terminate_backend(pg_backend_pid())", times=1)
    assert engine.enqueue("work", request_id="ask-1").changed
    assert len(logs_of(engine)) == 1


def test_a_session_that_is_terminated_in_a_statement_that_commits_by_itself_leaves_a_doubt(
    engine: Engine, saboteur: Saboteur
) -> None:
    saboteur.act("PERFORM pg_terminate_backend(pg_backend_pid())", times=1)
    with pytest.raises(OutcomeUnknownError, match="ask again with the same request_id"):
        engine.enqueue("work")
    assert logs_of(engine) == {}


@pytest.mark.parametrize("times", [1, 1000])
def test_a_session_that_is_terminated_at_the_commit_leaves_a_doubt_that_asking_again_settles(
    engine: Engine, saboteur: Saboteur, times: int
) -> None:
    saboteur.act("PERFORM pg_terminate_backend(pg_backend_pid())", times=times, at_commit=True)
    writer = Writer(engine)
    with pytest.raises(OutcomeUnknownError, match="ask again with the same request_id"):
        writer.write()
    saboteur.stop()
    writer.write()
    check_told(engine, writer)


def test_a_session_that_is_terminated_again_and_again_is_reported(engine: Engine, saboteur: Saboteur) -> None:
    saboteur.act("PERFORM pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(StoreUnavailableError, match="cannot be reached: terminating connection"):
        engine.enqueue("work", request_id="ask-1")
    saboteur.stop()
    assert engine.enqueue("work", request_id="ask-1").changed


def test_who_is_not_let_in_is_told_so(own_database: Place) -> None:
    with pytest.raises(StoreDeniedError, match="does not let us in"):
        own_database._replace(url=own_database.url.replace("leftfold@", "nobody_at_all@", 1)).open()
