"""No statement reads all jobs or all events of a file: whatever its statistics say. See the tests on PostgreSQL."""

from collections.abc import Iterator

import pytest
from tests.plans.loading import STATISTICS
from tests.plans.sqlite import Tables

#: A list that asks for what has no index walks back from the newest job.
_WALK = "SCAN leftfold_jobs USING INDEX sqlite_autoindex_leftfold_jobs_1"
#: Lists that have an index; owner and running only once SQLite has statistics: before, it prefers the order of ids.
_SERVED = {"list, correlation id", "list, waiting", "list, dead-lettered"}


@pytest.fixture(scope="module", params=STATISTICS)
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    opened = Tables(tmp_path_factory.mktemp("plans") / "jobs.db", STATISTICS[request.param])
    yield opened
    opened.close()


@pytest.mark.timeout(1800)
def test_no_statement_reads_all_jobs_or_all_events_of_a_file(tables: Tables) -> None:
    wrong = {}
    for asked in tables.asked:
        plan = tables.plan(asked.query)
        walks = asked.query.name in {"list", "audit"} and asked.name not in _SERVED
        if [step for step in plan.whole if not (walks and step == _WALK)]:
            wrong[asked.name] = plan.whole
        if any(step.startswith("MATERIALIZE leftfold_") for step in plan.steps):
            wrong[asked.name] = plan.steps
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("claim", "leftfold_jobs_claimable"),
        ("holders", "leftfold_jobs_key"),
        ("load", "sqlite_autoindex_leftfold_events_1"),
        ("list, correlation id", "leftfold_jobs_correlation"),
        ("list, waiting", "leftfold_jobs_wait"),
        ("list, dead-lettered", "leftfold_jobs_error"),
        ("list, of an incident", "leftfold_jobs_incident"),
        ("incidents", "leftfold_jobs_incident"),
    ],
)
def test_an_index_serves(name: str, index: str, tables: Tables) -> None:
    plans = [tables.plan(asked.query) for asked in tables.asked if name in {asked.name, asked.query.name}]
    assert plans
    assert all(any(f"INDEX {index}" in step for step in plan.steps) for plan in plans)
