"""No statement reads all jobs or all events on PostgreSQL: whatever its statistics say, and whenever it plans.

LEFTFOLD_PLANS_ROWS=1000000 asks the same of a million jobs.
"""

from collections.abc import Iterator
from typing import Final

import pytest
from tests.places import schema_on
from tests.plans.loading import ROWS, STATISTICS
from tests.plans.postgres import MODES, Tables, detours

from leftfold.store.postgres.wire import queries
from leftfold.testing.postgres import Server

#: The indexes that must serve a query. A list that asks for what has no index walks back from the newest job.
INDEXES: Final = {
    "holders": {"jobs_key"},
    "claim": {"jobs_claimable", "events_pkey"},
    "claim_on": {"jobs_claimable", "events_pkey"},
    "own": {"jobs_pkey"},
    "renew": {"jobs_pkey"},
    "look": {"jobs_pkey"},
    "lock": {"jobs_pkey"},
    "load": {"jobs_pkey", "events_pkey"},
    "project": {"jobs_pkey"},
    "states": {"jobs_pkey"},
    "find": {"jobs_pkey"},
    "feed_page": {"events_when"},
    "feed_stretch": {"events_when"},
    "feeds": {"events_when"},
    "next_due": {"jobs_claimable"},
    "audit": {"jobs_pkey", "events_pkey"},
    "overdue": {"jobs_leased", "jobs_deadline"},
    "recall": {"requests_pkey"},
    "list, everything": {"jobs_pkey"},
    "list, a page later": {"jobs_pkey"},
    "list, correlation id": {"jobs_correlation"},
    "list, waiting": {"jobs_wait"},
    "list, dead-lettered": {"jobs_error"},
    "incidents": {"jobs_incident", "events_pkey"},
}
#: What has no index: how far a list then reads is the planner's guess, a good one if its statistics are.
GUESSED: Final = frozenset(
    f"list, {name}" for name in ("queue", "kind", "tenant", "queue and kind", "queued", "succeeded")
)
#: No index holds the keys of jobs that have ended, and a list shows them too: it reads all jobs.
UNSERVED: Final = frozenset({"list, key"})
#: Behind a limit, to read from one end of the table looks cheap, though all that was seen is passed over again. In the
#: sessions of the driver, no plan does that.
AS_OURS: Final = frozenset({"feed_stretch, far behind"})
#: Without any statistics the planner thinks little of an index that only knows ranges, and of one of few jobs.
NEED_STATISTICS: Final = (
    "overdue",
    "feed_stretch",
    "feed_page",
    "feeds",
    "list, correlation id",
    "list, owner",
    "list, running",
    "list, waiting",
    "list, dead",
    "list, of an incident",
    "incidents",
)

STALE: Final = "taken when there was one queue"


@pytest.fixture(scope="module", params=STATISTICS)
def tables(request: pytest.FixtureRequest, postgres: Server) -> Iterator[tuple[str, Tables]]:
    with schema_on(postgres) as place:
        opened = Tables(place.url, place.schema, STATISTICS[request.param])
        yield request.param, opened
        opened.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_no_statement_reads_all_jobs_or_all_events(mode: str, tables: tuple[str, Tables]) -> None:
    statistics, opened = tables
    wrong = {}
    for asked in opened.asked:
        guessed = asked.name in GUESSED and statistics != "up to date"
        unknown = asked.name.startswith(NEED_STATISTICS) and statistics == "never taken"
        plan = opened.plan(asked.query, mode, as_ours=asked.name in AS_OURS)
        if plan.whole() and not guessed and not unknown and asked.name not in UNSERVED:
            wrong[asked.name] = plan.whole()
        if detours(asked.query, plan):
            wrong[asked.name] = detours(asked.query, plan)
        missing = INDEXES.get(asked.name, INDEXES.get(asked.query.name, set())) - plan.indexes
        if missing and not unknown:
            wrong[asked.name] = [f"{index} is not used" for index in missing]
    assert wrong == {}


def test_every_query_of_the_store_was_asked(tables: tuple[str, Tables]) -> None:
    asked = {asked.query.name for asked in tables[1].asked}
    # `clock` reads no table, `fold_counts` and `counts` only the counters, and the last ones are the verifier's.
    assert {name for name in queries("leftfold") if name in INDEXES} <= asked
    assert {"enqueue", "insert", "append", "claims", "paused", "feed_page", "feeds", "counts"} <= asked


#: Bugs that were there once: in a query, this text instead of that, and the statistics and the mode that show it.
PLANTED: Final = (
    ("list", "ORDER BY jobs.id DESC", "ORDER BY id DESC", "up to date", "auto"),
    ("claim", " AND s.now = s.now + 0", "", STALE, "force_generic_plan"),
    ("claim", " OFFSET 0))", "))", "up to date", "force_generic_plan"),
    ("holders", " OFFSET 0) j", ") j", "taken when all had finished", "auto"),
    ("load", " OFFSET 0) e", ") e", "never taken", "force_generic_plan"),
)


@pytest.mark.skipif(ROWS != 30_000, reason="with other tables, other statistics show them")
def test_a_statement_that_leaves_the_planner_a_choice_is_caught(tables: tuple[str, Tables]) -> None:
    statistics, opened = tables
    for query, good, bad, shown_by, mode in PLANTED:
        if shown_by == statistics:
            with pytest.MonkeyPatch.context() as patch:
                text = opened.store.queries[query]
                assert text.count(good) == 1, f"{query} no longer has this once: {good}"
                patch.setitem(opened.store.queries, query, text.replace(good, bad))
                plans = [opened.plan(asked.query, mode) for asked in opened.asked if asked.query.name == query]
            assert any(plan.whole() for plan in plans), f"{query} without {good!r}"
