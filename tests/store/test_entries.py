"""A claim that starts its jobs is one entry of two events: whoever reads gets both, and whoever edits it is found."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.places import Place, file_in, schema_on

import leftfold
from leftfold.core import commands as c
from leftfold.core.lifecycle import State
from leftfold.store.audit import What
from leftfold.store.ops import Ask
from leftfold.store.postgres.bell import Ringer
from leftfold.store.replies import Receipt
from leftfold.store.rows import TOGETHER
from leftfold.store.sqlite.library import sqlite


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield file_in(tmp_path)
    else:
        with schema_on(request.getfixturevalue("postgres")) as made:
            yield made


@pytest.fixture
def engine(place: Place) -> Iterator[leftfold.Engine]:
    leftfold.migrate(place.url, schema=place.schema)
    with leftfold.open(place.url, schema=place.schema) as opened:
        yield opened


EVENTS = ["enqueued", "claimed", "started", "succeeded"]


def ran(engine: leftfold.Engine, jobs: int) -> list[str]:
    """Give jobs that were claimed and started at once, and done."""
    engine.enqueue_many([leftfold.NewJob("work", {"number": number}) for number in range(jobs)])
    claims = engine.claim("worker", limit=jobs, start=True)
    engine.complete_many([(claim, None) for claim in claims])
    return sorted(claim.job_id for claim in claims)


def test_readers_get_two_events_with_versions_of_their_own(engine: leftfold.Engine) -> None:
    (job_id,) = ran(engine, 1)
    history = engine.history(job_id)
    assert [(record.version, record.event.wire) for record in history] == list(enumerate(EVENTS, start=1))
    assert [record.who.value for record in history] == ["client", "worker", "owner", "owner"]
    assert history[1].at == history[2].at
    assert history[1].actor == history[2].actor == "worker"


def test_what_is_asked_under_a_request_stands_on_the_claim_alone(engine: leftfold.Engine) -> None:
    job_id = engine.enqueue("work").job_id
    first = engine.claim("worker", start=True, request_id="r")
    assert engine.claim("worker", start=True, request_id="r") == first
    assert [record.request_id for record in engine.history(job_id)] == [None, "r", None]
    assert engine.verify().is_clean


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_a_page_of_the_feed_may_end_between_the_two(engine: leftfold.Engine, limit: int) -> None:
    jobs = ran(engine, 3)
    seen: dict[str, list[tuple[int, str]]] = {}
    left = 4 * len(jobs)
    while (page := engine.feed("reader", limit=limit)).records:
        assert len(page.records) <= limit
        for record in page.records:
            seen.setdefault(record.job_id, []).append((record.version, record.event.wire))
        engine.acknowledge(page)
        left -= len(page.records)
        (consumer,) = engine.consumers()
        assert consumer.behind == left
    assert seen == {job_id: list(enumerate(EVENTS, start=1)) for job_id in jobs}


def test_events_are_counted_and_not_entries(engine: leftfold.Engine) -> None:
    jobs = ran(engine, 2)
    lines = list(engine.export_jobs())
    assert engine.verify().events == 4 * len(jobs)
    assert f'"events":{4 * len(jobs)},' in lines[-1]
    assert sum(TOGETHER in line for line in lines) == len(jobs)


def test_an_export_brings_the_entry_as_it_was(engine: leftfold.Engine, tmp_path: Path) -> None:
    jobs = ran(engine, 2)
    (tmp_path / "other").mkdir()
    with leftfold.open(file_in(tmp_path / "other").url) as other:
        assert other.import_jobs(list(engine.export_jobs())).imported == len(jobs)
        assert other.verify().is_clean
        assert list(other.export_jobs())[1:-1] == list(engine.export_jobs())[1:-1]
        assert [other.history(job_id) for job_id in jobs] == [engine.history(job_id) for job_id in jobs]


EDITS = {
    "data": ("data", "data || ' '"), "at": ("at", "at + 1"), "who": ("who", "'operator'"), "format": ("format", "2"),
    "version": ("version", "version + 5"), "seal": ("seal", "x'0000000000000000'"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_entry_is_found_and_its_job_frozen(tmp_path: Path, edit: str) -> None:
    place = file_in(tmp_path)
    with leftfold.open(place.url) as engine:
        edited, _ = ran(engine, 2)
        column, value = EDITS[edit]
        connection = sqlite.connect(place.url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("INSERT INTO leftfold_maintenance (at, actor, reason, open) VALUES (1, 'test', 'test', 1)")
        connection.execute(
            f"UPDATE leftfold_events SET {column} = {value} WHERE event = "  # noqa: S608 - our own
            "(SELECT n FROM leftfold_names WHERE name = ?) AND job = 1", (TOGETHER,),
        )  # fmt: skip
        connection.execute("UPDATE leftfold_maintenance SET open = 0")
        connection.close()
        verdict = engine.verify()
        assert verdict.frozen == (edited,)
        assert {finding.what for finding in verdict.findings} <= {What.CHAIN, What.GAP, What.UNREADABLE}
        records = engine.feed("reader", limit=100).records
        assert len([record for record in records if record.job_id != edited]) == len(EVENTS)


def test_a_claim_of_more_than_one_text_may_hold_gives_them_in_order(engine: leftfold.Engine) -> None:
    engine.enqueue_many([leftfold.NewJob("work", number) for number in range(5)])
    assert [claim.payload for claim in engine.claim("worker", limit=5000, start=True)] == list(range(5))


def done(claim: leftfold.Claim, job_id: str) -> Ask:
    return Ask(job_id, c.Complete(by=claim.actor))


def test_of_a_job_that_is_spelled_in_two_ways_one_word_counts_and_the_others_are_written(
    engine: leftfold.Engine,
) -> None:
    engine.enqueue_many([leftfold.NewJob("work")] * 2)
    first, second = engine.claim("worker", limit=2, start=True)
    outcomes = engine.settle_many(
        [done(first, first.job_id), done(first, first.job_id.upper()), done(second, second.job_id)]
    )
    assert isinstance(outcomes[2], Receipt)
    assert {engine.get(claim.job_id).state for claim in (first, second)} == {State.SUCCEEDED}
    assert engine.verify().is_clean


def test_what_is_no_id_names_no_job(tmp_path: Path) -> None:
    with leftfold.open(file_in(tmp_path).url) as engine:
        engine.enqueue("work")
        (claim,) = engine.claim("worker", start=True)
        for odd in ((claim.job_id[:-2], "ab" + claim.job_id), ("zz", claim.job_id[:-1]), ("", claim.job_id + "ab")):
            outcomes = engine.settle_many([done(claim, each) for each in odd])
            assert not [each for each in outcomes if isinstance(each, Receipt)]
        assert engine.get(claim.job_id).state is State.RUNNING


def test_a_job_that_takes_the_place_of_another_is_told_of(on_postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []
    monkeypatch.setattr(Ringer, "ring", lambda _: told.append(True))
    with leftfold.open(on_postgres.url, schema=on_postgres.schema, wake=True) as engine:
        engine.enqueue("work", key="key")
        turns = iter([engine.store._ringer.turn(), None])  # type: ignore[attr-defined]  # the first finds the key taken
        monkeypatch.setattr(Ringer, "turn", lambda _: next(turns))
        told.clear()
        engine.enqueue("work", key="key", on_conflict="replace")
    assert told == [True]
