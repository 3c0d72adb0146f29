"""The connection to PostgreSQL breaks in the middle of an operation: before, between and behind its statements.

Where the commit may have been on its way, the caller hears that nobody knows, and asks again. Everywhere else the
engine runs the operation anew by itself.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.concurrency.crowd import outcome
from tests.crash.grounds import SchemaGround
from tests.crash.picture import gist, happened, picture_of
from tests.crash.rows import READS, ROWS, Repeated, Row
from tests.crash.scenes import ACTOR, NOW, Held
from tests.crash.test_every_statement import Run, settle, undisturbed
from tests.places import Place
from tests.proxy import Cut, Proxy, proxy_to

from leftfold import Engine
from leftfold.core.errors import LeftfoldError, OutcomeUnknownError, StoreUnavailableError
from leftfold.testing.postgres import Server


@pytest.fixture(scope="module")
def proxy(postgres: Server) -> Iterator[Proxy]:
    with proxy_to(postgres.url()) as opened:
        yield opened


@pytest.fixture(scope="module")
def through(proxy: Proxy, on_postgres: SchemaGround) -> Place:
    """The place of the ground, seen through the proxy."""
    return Place(proxy.url, on_postgres.place.schema)


def commits(requests: list[str]) -> list[bool]:
    """Tell of each request whether it may commit something: one with a COMMIT, and what writes in no transaction."""
    found, inside = [], False
    for sql in requests:
        ends = re.match("COMMIT|ROLLBACK", sql) is not None
        inside = inside or sql.startswith("BEGIN")
        writes = re.search(r"\b(INSERT|UPDATE|DELETE)\b", sql) is not None
        found.append(sql.endswith("COMMIT") or (writes and not inside))
        inside = inside and not ends
    return found


def call(row: Row, engine: Engine, held: Held) -> object:
    engine._writes = -1 if row.folds else 0
    return outcome(row.act, engine, held)


async def acall(row: Row, place: Place, held: Held, before: Callable[[], None]) -> object:
    async with await place.aopen(clock=lambda: NOW, actor=ACTOR) as engine:
        engine._writes = -1 if row.folds else 0
        before()
        try:
            return await row.act(engine, held)
        except LeftfoldError as refusal:
            return refusal


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_connection_that_breaks_anywhere_leaves_no_doubt_that_asking_again_does_not_settle(
    row: Row, proxy: Proxy, through: Place, on_postgres: SchemaGround
) -> None:
    run = undisturbed(row, on_postgres)
    with through.open(clock=lambda: NOW, actor=ACTOR) as engine:
        held = on_postgres.set_up(row)
        proxy.listen()
        call(row, engine, held)
        may_commit = commits(proxy.heard)
        for number, unknown in enumerate(may_commit, start=1):
            for cut in (Cut.AFTER, Cut.BEFORE) if unknown else (Cut.AFTER,):
                held = on_postgres.set_up(row)
                engine.queues()  # which connects anew behind the last cut: what that takes is not counted
                proxy.cut(number, cut)
                heard = call(row, engine, held)
                silent = (row.folds or row.leaves) and number == len(may_commit)
                judge(row, on_postgres.engine(), held, run, heard, cut, unknown=unknown and not silent)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_async_engine_knows_as_well_what_nobody_knows(
    row: Row, proxy: Proxy, through: Place, on_postgres: SchemaGround
) -> None:
    run = undisturbed(row, on_postgres)
    held = on_postgres.set_up(row)
    asyncio.run(acall(row, through, held, proxy.listen))
    may_commit = commits(proxy.heard)
    number = 1 if row.folds or row.leaves else len(may_commit)
    held = on_postgres.set_up(row)
    heard = asyncio.run(acall(row, through, held, lambda: proxy.cut(number, Cut.AFTER)))
    judge(row, on_postgres.engine(), held, run, heard, Cut.AFTER, unknown=may_commit[number - 1])


def judge(row: Row, engine: Engine, held: Held, run: Run, heard: object, cut: Cut, *, unknown: bool) -> None:
    """Hold what is there to what the caller heard, and then to what it hears when it asks again."""
    found = happened(picture_of(engine, row), run.before, run.after, whole=row.whole)
    if unknown:
        told = heard if isinstance(heard, list) and not row.whole else [heard]
        assert any(isinstance(each, OutcomeUnknownError) for each in told), "it may have happened, and nobody says so"
        # Of many jobs some may be done by a short statement of their own, and the others in a transaction behind it.
        assert not row.whole or found is (cut is Cut.AFTER or run.before == run.after)
    elif not row.skips:
        assert gist(heard) == gist(run.answer), "nothing was committed: the engine runs it anew"
        assert found is True
    if row.repeated is not Repeated.ANEW:
        settle(row, engine, held, run)


#: One of each kind of reading. An answer is whole, or it is none.
READINGS: dict[str, Callable[[Any, str], Any]] = {
    "get": lambda on, job: on.get(job),
    "history": lambda on, job: on.history(job),
    "histories": lambda on, job: on.histories([job]),
    "find": lambda on, job: on.find(job[:-2]),
    "is_frozen": lambda on, job: on.is_frozen(job),
    "list": lambda on, _: on.list(),
    "counts": lambda on, _: on.counts(),
    "queues": lambda on, _: on.queues(),
    "consumers": lambda on, _: on.consumers(),
    "incidents": lambda on, _: on.incidents(),
}


def test_what_is_read_over_a_connection_that_breaks_is_read_anew(
    proxy: Proxy, through: Place, on_postgres: SchemaGround
) -> None:
    # What workers read is empty here, or new each time; it is read in the same way as all the rest. One incident is
    # read as all of them are.
    others = {"close", "export_jobs", "clock", "look_many", "next_due", "workers", "incident"}
    assert set(READINGS) == READS - others
    row = ROWS["acknowledge more"]
    on_postgres.set_up(row)
    (job,) = on_postgres.engine().list().jobs
    on_postgres.engine().dead_letter(job.id, "beyond hope")
    with through.open(clock=lambda: NOW, actor=ACTOR) as engine:
        for name, read in READINGS.items():
            expected = read(on_postgres.engine(), job.id)
            assert expected != [], name
            proxy.cut(1, Cut.AFTER)
            assert read(engine, job.id) == expected
            assert asyncio.run(aread(read, through, job.id, lambda: proxy.cut(1, Cut.AFTER))) == expected
        for number in range(1, 4):
            proxy.cut(number, Cut.AFTER)
            assert list(engine.export_jobs()) == list(on_postgres.engine().export_jobs())


async def aread(read: Callable[[Any, str], Any], place: Place, job_id: str, before: Callable[[], None]) -> object:
    async with await place.aopen(clock=lambda: NOW, actor=ACTOR) as engine:
        before()
        return await read(engine, job_id)


def test_a_connection_that_always_breaks_before_the_commit_is_reported_and_nothing_happened(
    proxy: Proxy, through: Place, on_postgres: SchemaGround
) -> None:
    row = ROWS["cancel"]
    run = undisturbed(row, on_postgres)
    with through.open(clock=lambda: NOW, actor=ACTOR) as engine:
        for number in range(1, 5):
            held = on_postgres.set_up(row)
            proxy.cut(number, Cut.AFTER, times=100)
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                row.act(engine, held)
            assert picture_of(on_postgres.engine(), row) == run.before
            proxy.listen()
            assert gist(row.act(engine, held)) == gist(run.answer), "it goes on as soon as the connection holds"
