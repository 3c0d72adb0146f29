"""An operation happens as a whole or not at all, and nobody comes in between."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from tests.store.between import CrashError, between, check_whole, contents, crash, wait_until_it_waits
from tests.store.sides import PostgresSide, Side, SqliteSide
from tests.store.world import Place

from leftfold.asking import NewJob
from leftfold.core import commands as c
from leftfold.core.errors import StoreError, StoreUnavailableError
from leftfold.core.lifecycle import State, Who
from leftfold.engine import Engine
from leftfold.store.postgres.driver import PostgresStore
from leftfold.store.query import Query
from leftfold.store.replies import Claim
from leftfold.store.sqlite import wire
from leftfold.store.sqlite.driver import SqliteStore
from leftfold.testing.clock import FakeClock

KEEPER = c.Actor(who=Who.KEEPER, name="keeper")


@pytest.fixture(params=["sqlite", "postgres"])
def side(request: pytest.FixtureRequest, place: Place, clock: FakeClock) -> Iterator[Side]:
    """One store."""
    opened: Side
    if request.param == "sqlite":
        opened = SqliteSide(place.folder / "jobs.db", clock)
    else:
        opened = PostgresSide(place.url, place.schema, clock)
    yield opened
    opened.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Jobs:
    """Jobs in many states, for commands to be said of."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        self.engine = engine
        self.queued = engine.enqueue("queued", key="k", queue="queued").job_id
        self.received = engine.receive("received").job_id
        self.ended = engine.enqueue("ended").job_id
        self.waiting = engine.enqueue("waiting", after=[self.ended]).job_id
        engine.cancel(self.ended)
        self.claimed, self.running, self.lost = (self._claim(kind) for kind in ("claimed", "running", "lost"))
        engine.start(self.running)
        engine.start(self.lost)
        clock.advance(120)
        engine.heartbeat_many([self.claimed, self.running])

    def _claim(self, kind: str) -> Claim:
        (claim,) = self.engine.claim("worker", job_id=self.engine.enqueue(kind).job_id)
        return claim


#: Calls of every kind, each with an effect.
CALLS: Mapping[str, Callable[[Jobs], object]] = {
    "enqueue": lambda jobs: jobs.engine.enqueue("new"),
    "enqueue with a key": lambda jobs: jobs.engine.enqueue("queued", key="other"),
    "enqueue under a request": lambda jobs: jobs.engine.enqueue("new", request_id="r"),
    "enqueue after another": lambda jobs: jobs.engine.enqueue("new", after=[jobs.queued]),
    "enqueue in place of another": lambda jobs: jobs.engine.enqueue("queued", key="k", on_conflict="replace"),
    "receive": lambda jobs: jobs.engine.receive("new"),
    "admit": lambda jobs: jobs.engine.admit(jobs.received, job=NewJob("admitted")),
    "claim": lambda jobs: jobs.engine.claim("worker"),
    "claim under a request": lambda jobs: jobs.engine.claim("worker", request_id="r"),
    "claim by id": lambda jobs: jobs.engine.claim("worker", job_id=jobs.queued),
    "start": lambda jobs: jobs.engine.start(jobs.claimed),
    "start under a request": lambda jobs: jobs.engine.start(jobs.claimed, request_id="r"),
    "heartbeat": lambda jobs: jobs.engine.heartbeat(jobs.claimed),
    "complete": lambda jobs: jobs.engine.complete(jobs.running, 1),
    "complete under a request": lambda jobs: jobs.engine.complete(jobs.running, 1, request_id="r"),
    "fail": lambda jobs: jobs.engine.fail(jobs.running, "no"),
    "suspend": lambda jobs: jobs.engine.suspend(jobs.running, "others", jobs=[jobs.queued]),
    "resume": lambda jobs: jobs.engine.resume(jobs.waiting),
    "stall": lambda jobs: jobs.engine.stall(jobs.lost.job_id, by=KEEPER),
    "signal": lambda jobs: jobs.engine.signal(jobs.running.job_id, "go"),
    "cancel": lambda jobs: jobs.engine.cancel(jobs.queued),
}


#: What is one statement that commits by itself: a crash right behind it leaves it done.
ALONE = {("postgres", call) for call in ("enqueue", "claim", "start", "heartbeat", "complete")}


def crashes(engine: Engine, place: int, call: Callable[[], object]) -> bool:
    """Tell whether the call came as far as this statement, where it died."""
    with between(engine, place, crash):
        try:
            call()
        except CrashError:
            return True
    return False


@pytest.mark.parametrize("call", CALLS)
def test_a_crash_before_any_statement_leaves_nothing_or_everything(call: str, side: Side, clock: FakeClock) -> None:
    jobs = Jobs(side.engine, clock)
    before = contents(side)
    check_whole(before)
    for place in count():
        if not crashes(side.engine, place, partial(CALLS[call], jobs)):
            break
        found = contents(side)
        check_whole(found)
        if found != before:  # one statement was all there was to it, and it stands
            assert (side.name, call) in ALONE
            break
    done = contents(side)
    check_whole(done)
    assert done != before
    assert place


@pytest.mark.parametrize("held", [False, True])
def test_a_batch_of_equal_keys_takes_no_more_statements_than_a_few_of_them(side: Side, held: bool) -> None:
    def statements(number: int) -> list[str]:
        key = f"key-{number}"
        if held:
            side.engine.enqueue("work", key=key)
        with between(side.engine, -1, crash) as interrupted:
            receipts = side.engine.enqueue_many([NewJob("work", key=key)] * number, on_conflict="replace")
        assert [each and each.state for each in receipts] == [*["cancelled"] * (number - 1), "queued"]
        return interrupted.seen

    assert statements(3) == statements(300)
    check_whole(contents(side))


def test_whether_jobs_are_there_to_wait_for_is_asked_once_for_a_whole_batch(side: Side) -> None:
    engine = side.engine
    others = [engine.enqueue("other", queue="others").job_id for _ in range(5)]
    with between(engine, -1, crash) as interrupted:
        engine.enqueue_many([NewJob("work", after=[other, others[0]]) for other in others])
        assert interrupted.seen.count("states") == 1
    engine.enqueue_many([NewJob("work")] * 5)
    claims = engine.claim("worker", queues=["default"], limit=5)
    engine.start_many(claims)
    with between(engine, -1, crash) as interrupted:
        outcomes = engine.suspend_many(claims, "others", jobs=others)
        assert interrupted.seen.count("states") == 1
    assert [getattr(outcome, "state", outcome) for outcome in outcomes] == [State.WAITING] * 5


REFUSALS = {
    "sqlite": (
        "CREATE TEMP TRIGGER broken BEFORE INSERT ON main.leftfold_events BEGIN SELECT raise(ABORT, 'broken'); END",
        "DROP TRIGGER broken",
    ),
    "postgres": (
        """CREATE FUNCTION {schema}.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$;
        CREATE TRIGGER broken BEFORE INSERT ON {schema}.events FOR EACH ROW EXECUTE FUNCTION {schema}.broken()""",
        "DROP TRIGGER broken ON {schema}.events; DROP FUNCTION {schema}.broken()",
    ),
}


@pytest.mark.parametrize("call", [call for call in CALLS if call != "heartbeat"])
def test_a_row_does_not_move_without_its_event(call: str, side: Side, clock: FakeClock) -> None:
    jobs = Jobs(side.engine, clock)
    before = contents(side)
    forbid, allow = REFUSALS[side.name]
    side.sql(forbid)
    with pytest.raises(StoreError, match="broken"):
        CALLS[call](jobs)
    side.sql(allow)
    assert contents(side) == before
    CALLS[call](jobs)
    assert contents(side) != before


def test_a_row_that_somebody_changed_past_the_engine_is_not_written_over(
    side: Side, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(side.engine, clock)
    before = contents(side)
    if isinstance(side, PostgresSide):
        meddled = f'UPDATE "{side.store.schema}".jobs SET version = version + 1 WHERE id = %(name)s'  # noqa: S608
        monkeypatch.setitem(side.store.queries, "meddle", meddled)
    else:
        meddled = "UPDATE leftfold_jobs SET version = version + 1 WHERE id = leftfold_id(:name)"
        monkeypatch.setitem(wire.QUERIES, "meddle", [wire.Statement.of(meddled)])
    with between(side.engine, 3, lambda _: Query("meddle", {"name": jobs.queued})) as interrupted:
        with pytest.raises(StoreError, match="somebody writes past the engine"):
            side.engine.signal(jobs.queued, "go")
        assert interrupted.seen == ["lock", "load", "append", "project"]
    assert contents(side) == before


# --- SQLite -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    """Two connections to one file; the second one waits for nobody."""
    clock = FakeClock()
    first = SqliteStore(str(tmp_path / "jobs.db"), clock=clock)
    second = SqliteStore(str(tmp_path / "jobs.db"), clock=clock, busy=0.0)
    yield Engine(first), Engine(second)
    first.close()
    second.close()


@pytest.mark.parametrize("place", range(4))
def test_nobody_writes_to_a_file_while_an_operation_is_under_way(place: int, pair: tuple[Engine, Engine]) -> None:
    first, second = pair
    job_id = first.enqueue("work").job_id

    def overtake(_: Query | None) -> None:
        with pytest.raises(StoreUnavailableError):
            second.signal(job_id, "second")

    with between(first, place, overtake) as interrupted:
        first.signal(job_id, "first")
    assert len(interrupted.seen) == 5
    assert list(first.get(job_id).answers) == ["first"]
    second.signal(job_id, "second")


def test_a_file_tells_the_time_to_nobody_who_does_not_hold_it(tmp_path: Path) -> None:
    held: list[bool] = []

    def clock() -> int:
        held.append(any(each.in_transaction for store in opened for each in (store._connection, store._reader)))
        return 1_700_000_000_000_000

    opened: list[SqliteStore] = []
    opened.append(SqliteStore(str(tmp_path / "jobs.db"), clock=clock))
    held.clear()
    with Engine(opened[0]) as engine:
        engine.enqueue("work", key="k")
        (claim,) = engine.claim("worker")
        engine.start(claim)
        engine.heartbeat(claim)
        engine.signal(claim.job_id, "go")
        engine.complete(claim)
        assert engine.get(claim.job_id).state is State.SUCCEEDED
    assert len(held) >= 6
    assert all(held)


def test_a_file_stays_the_same_one_wherever_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with Engine(SqliteStore("jobs.db")) as engine:
        monkeypatch.chdir(tmp_path / "there")
        job = engine.enqueue("work")
        assert engine.get(job.job_id).state is State.QUEUED
        (tmp_path / "here" / "jobs.db").rename(tmp_path / "here" / "other.db")
        with pytest.raises(StoreError, match=r"^jobs\.db was replaced or deleted"):
            engine.counts()
    assert not list((tmp_path / "there").iterdir())


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture
def schema(place: Place, clock: FakeClock) -> Iterator[PostgresSide]:
    """A schema with three jobs that are due."""
    opened = PostgresSide(place.url, place.schema, clock)
    for _ in range(3):
        opened.engine.enqueue("due")
    yield opened
    opened.close()


ASKED: Mapping[str, Callable[[Engine], object]] = {
    "enqueue": lambda engine: engine.enqueue("work", request_id="once"),
    "claim": lambda engine: engine.claim("worker", request_id="once"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_an_equal_request_waits_for_the_first_one_and_hears_its_answer(asked: str, schema: PostgresSide) -> None:
    second = Engine(PostgresStore(schema.store.url, schema=schema.store.schema, clock=FakeClock()).open())
    with second, ThreadPoolExecutor(1) as thread:
        later: list[Future[object]] = []

        def overtake(_: Query | None) -> None:
            later.append(thread.submit(ASKED[asked], second))
            wait_until_it_waits(schema.connection, later[0])

        with between(schema.engine, 2, overtake) as interrupted:
            heard = ASKED[asked](schema.engine)
        assert interrupted.seen == ["await_request", "recall", asked, "remember", "the end"]
        assert later[0].result() == heard
    found = contents(schema)
    check_whole(found)
    assert len(found.rows) + sum(row.attempt for row in found.rows.values()) == 4


@pytest.mark.parametrize("asked", ASKED)
def test_an_answer_that_somebody_remembered_meanwhile_is_the_answer(asked: str, schema: PostgresSide) -> None:
    first = ASKED[asked](schema.engine)
    ((request_hash, response),) = schema.sql("DELETE FROM {schema}.requests RETURNING request_hash, response")
    before = contents(schema)

    def remember(_: Query | None) -> None:
        row = ("", "once", request_hash, 0, response)
        schema.sql("INSERT INTO {schema}.requests VALUES (?, ?, ?, ?, ?)", *row)

    with between(schema.engine, 3, remember) as interrupted:
        assert ASKED[asked](schema.engine) == first
        assert interrupted.seen[2:4] == [asked, "remember"]
    after = contents(schema)
    assert (after.rows, after.events) == (before.rows, before.events)
