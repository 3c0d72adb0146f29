"""PostgreSQL with somebody else at work: times are read behind the lock, and a claim waits for nobody."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self
from urllib.parse import quote

import pytest
from tests.store.between import check_whole, contents, wait_until_it_waits
from tests.store.sides import PostgresSide
from tests.store.world import CLIENT, Place

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.limits import MINUTE
from leftfold.engine import Engine
from leftfold.store.ops import Ask, carry_out
from leftfold.store.postgres.driver import PostgresStore
from leftfold.store.query import Operation
from leftfold.store.replies import Claim, Receipt
from leftfold.testing.clock import FakeClock


@pytest.fixture
def side(place: Place) -> Iterator[PostgresSide]:
    opened = PostgresSide(place.url, place.schema, FakeClock())
    yield opened
    opened.close()


@pytest.fixture
def store(side: PostgresSide) -> PostgresStore:
    url = with_settings(side.store.url, {"lock_timeout": "5s"})
    return PostgresStore(url, schema=side.store.schema).open()


@pytest.fixture
def engine(store: PostgresStore) -> Iterator[Engine]:
    """An engine on the server's own clock, which waits five seconds for a lock and no longer."""
    with Engine(store) as opened:
        yield opened


def with_settings(url: str, settings: Mapping[str, str]) -> str:
    """Give the URL for sessions with these settings."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return f"{url}?options={quote(options)}"


class Lock:
    """A transaction of somebody else, which holds the row of a job; it ends with the block at the latest."""

    def __init__(self, side: PostgresSide, job_id: str) -> None:
        self.schema = side.store.schema
        self.connection = side.store.connect()
        self.connection.execute("BEGIN")
        self._ask(f'SELECT id FROM "{self.schema}".jobs WHERE id = %s FOR UPDATE', job_id)  # noqa: S608

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def _ask(self, sql: str, *values: object) -> object:
        row = self.connection.execute(sql.encode(), values).fetchone()
        assert row is not None
        return row[0]

    def release(self) -> int:
        """Let go, and give a moment that lies before that."""
        now = self._ask(f'SELECT "{self.schema}".clock()')
        assert isinstance(now, int)
        self.connection.execute("COMMIT")
        return now


def _last(engine: Engine, receipt: Receipt) -> int:
    """Give when the last thing happened."""
    return engine.history(receipt.job_id)[-1].at


def _deadline(engine: Engine, receipt: Receipt) -> int:
    wait = engine.get(receipt.job_id).wait
    assert wait is not None
    return (wait.deadline or 0) - MINUTE


#: What is said, and which time it leaves.
SAID: Mapping[str, Callable[[Engine, Claim], int]] = {
    "signal": lambda engine, claim: _last(engine, engine.signal(claim.job_id, "go")),
    "suspend": lambda engine, claim: _deadline(engine, engine.suspend(claim, "nap", until="timer", deadline=60)),
    "heartbeat": lambda engine, claim: (engine.heartbeat(claim, lease=60).until or 0) - MINUTE,
    "heartbeat under a request": lambda engine, claim: (
        (engine.heartbeat(claim, lease=60, request_id="r").until or 0) - MINUTE
    ),
}


#: What an owner says without a lock before it: of when it was asked, and no older than what it waited for.
WORDS: Mapping[str, Callable[[Engine, Claim], Receipt]] = {
    "start": lambda engine, claim: engine.start(claim),
    "note": lambda engine, claim: engine.note(claim, e.Progress(fraction=0.5)),
    "complete": lambda engine, claim: engine.complete(claim),
}


@pytest.mark.parametrize("word", WORDS)
def test_what_an_owner_says_is_no_older_than_what_it_waited_for(
    word: str, side: PostgresSide, engine: Engine, store: PostgresStore
) -> None:
    engine.enqueue("work")
    (claim,) = engine.claim("worker", start=word == "complete")
    remark = e.Custom(name="first")
    ask = Ask(claim.job_id, c.Note(by=CLIENT, note=remark))
    with ThreadPoolExecutor(1) as thread, Lock(side, claim.job_id) as lock:
        waiting: Future[Receipt] = thread.submit(WORDS[word], engine, claim)
        wait_until_it_waits(lock.connection, waiting)
        store.run_within(lock.connection, Operation(lambda: carry_out([ask], frozenset())))
        lock.release()
        assert waiting.result().changed
    *_, first, last = engine.history(claim.job_id)
    assert (first.event, last.actor) == (remark, "worker")
    assert last.at >= first.at
    assert engine.verify().is_clean


@pytest.mark.parametrize("said", SAID)
def test_the_time_of_an_event_is_read_behind_the_lock(said: str, side: PostgresSide, engine: Engine) -> None:
    (claim,) = engine.claim("worker", job_id=engine.enqueue("work").job_id, lease=1)
    if said == "suspend":
        engine.start(claim)
    with ThreadPoolExecutor(1) as thread, Lock(side, claim.job_id) as lock:
        waiting: Future[object] = thread.submit(SAID[said], engine, claim)
        wait_until_it_waits(lock.connection, waiting)
        before = lock.release()
        told = waiting.result()
    assert isinstance(told, int)
    assert told >= before


def test_the_time_of_a_batch_is_read_behind_the_last_of_its_locks(side: PostgresSide, engine: Engine) -> None:
    ids = sorted(engine.enqueue("work").job_id for _ in range(2))
    claims = engine.claim("worker", limit=2)
    with ThreadPoolExecutor(1) as thread, Lock(side, ids[-1]) as lock:
        waiting = thread.submit(engine.release_many, claims, due=60)
        wait_until_it_waits(lock.connection, waiting)  # it has locked the first one by then
        before = lock.release()
        assert all(isinstance(outcome, Receipt) for outcome in waiting.result())
    dues = [engine.get(job_id).due for job_id in ids]
    assert all(due is not None and due - MINUTE >= before for due in dues)


def test_a_claim_passes_over_a_job_that_somebody_else_has_locked(side: PostgresSide, engine: Engine) -> None:
    first, second = engine.enqueue("work").job_id, engine.enqueue("work").job_id
    with Lock(side, first) as lock:
        assert [claim.job_id for claim in engine.claim("worker", limit=2)] == [second]
        lock.release()  # to hang up would let go as well, a moment later
    assert [claim.job_id for claim in engine.claim("worker", limit=2)] == [first]


#: Ways to lead the planner astray: what a statement does must not depend on its plan.
_JOINS = ("enable_hashjoin", "enable_mergejoin", "enable_nestloop")
_NODES = ("enable_material", "enable_memoize", "enable_hashagg", "enable_sort")
_SCANS = ("enable_seqscan", "enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan", "enable_tidscan")
PLANS: Mapping[str, tuple[str, ...]] = {
    "as usual": (),
    "nested loops, nothing kept": (*_JOINS[:2], *_NODES),
    "nested loops over whole tables": (*_JOINS[:2], *_NODES, *_SCANS[1:]),
    "hash joins": _JOINS[1:],
    "merge joins": (_JOINS[0], _JOINS[2]),
    "by index": _SCANS[:1],
    "by whole tables": _SCANS[1:],
}


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("plan", PLANS)
def test_a_claim_takes_no_more_than_its_limit_whatever_the_plan(plan: str, limit: int, side: PostgresSide) -> None:
    url = with_settings(side.store.url, dict.fromkeys((*PLANS[plan], "jit"), "off"))
    with Engine(PostgresStore(url, schema=side.store.schema, clock=FakeClock()).open()) as engine:
        ids = [engine.enqueue("work", priority=-n % 3).job_id for n in range(9)]
        taken = []
        while claims := engine.claim("worker", limit=limit):
            assert len(claims) <= limit
            taken += [claim.job_id for claim in claims]
            engine.heartbeat_many(claims)
            engine.start_many(claims)
        assert sorted(taken) == sorted(ids)
    check_whole(contents(side))
