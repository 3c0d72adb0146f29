"""An event that somebody damaged stops no consumer; one that a later version wrote does."""

import pytest
from msgspec.structs import replace
from tests.migration.raw import PostgresRaw, Raw, SqliteRaw
from tests.places import Place

from leftfold import Engine
from leftfold.core.errors import CorruptLogError, FeedConflictError, StoreError
from leftfold.store.audit import Finding, What


def damage(place: Place, change: str) -> None:
    raw: Raw = SqliteRaw(place) if place.is_file else PostgresRaw(place)
    with raw:
        raw.maintain()
        raw.run(f"UPDATE events SET {change} WHERE version = 2")  # noqa: S608 - our own
        raw.commit()


def claimed(engine: Engine) -> list[str]:
    """Make three jobs, and claim the second one."""
    ids = [engine.enqueue("work").job_id for _ in range(3)]
    engine.claim("worker", job_id=ids[1])
    return ids


def no_text(place: Place) -> str:
    """Give bytes that are no text, where a database takes them as one; else what is no JSON."""
    return "data = CAST(x'7bff7d' AS TEXT)" if place.is_file else "data = '{'"


@pytest.mark.parametrize("limit", [1, 2, 10])
@pytest.mark.parametrize("bytes_of_no_text", [False, True])
def test_a_damaged_event_is_named_and_passed(place: Place, limit: int, bytes_of_no_text: bool) -> None:
    with place.open() as engine:
        ids = claimed(engine)
        damage(place, no_text(place) if bytes_of_no_text else "data = '{'")
        named: list[Finding] = []
        seen: list[tuple[str, int]] = []
        while True:
            page = engine.feed("audit", limit=limit)
            named += page.unreadable
            seen += [(record.job_id, record.version) for record in page.records]
            assert len(page.records) + len(page.unreadable) <= limit
            engine.acknowledge(page)
            if page.caught_up:
                break
        assert seen == [(job_id, 1) for job_id in ids]
        assert [(finding.what, finding.job_id) for finding in named] == [(What.UNREADABLE, ids[1])]
        assert engine.consumers()[0].behind == 0


def test_who_follows_is_warned_once(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with place.open() as engine:
        ids = claimed(engine)
        assert [record.version for record in engine.follow("audit")] == [1, 1, 1, 2]
        engine.claim("worker", job_id=ids[2])
        damage(place, "data = '{'")
        for _ in range(2):
            assert list(engine.follow("audit")) == [], "the one that is new is damaged"
    (warning,) = caplog.messages
    assert warning.startswith(f"job {ids[2]}: event 2: ")
    assert caplog.records[0].name == "leftfold.feed"


def test_an_event_of_a_later_version_is_waited_for(place: Place) -> None:
    with place.open() as engine:
        claimed(engine)
        damage(place, "format = 99")
        page = engine.feed("audit")
        assert (len(page.records), page.caught_up) == (3, False), "what stands before it is given"
        engine.acknowledge(page)
        with pytest.raises(CorruptLogError, match=r"event 2 of job .*newer version"):
            engine.feed("audit")


def test_what_only_looks_like_an_event_of_a_later_version_is_passed_once_it_is_known(place: Place) -> None:
    with place.open() as engine:
        ids = claimed(engine)
        damage(place, "format = 99")
        assert engine.verify().frozen == (ids[1],), "its seal does not fit"
        assert [record.version for record in engine.follow("audit")] == [1, 1, 1]
        assert engine.consumers()[0].behind == 0


@pytest.mark.parametrize("seen", ["", "1:2", "1:x:", "::"])
def test_a_place_that_somebody_damaged_is_told_so(on_sqlite: Place, seen: str) -> None:
    with on_sqlite.open() as engine:
        engine.enqueue("work")
        list(engine.follow("audit"))
        with SqliteRaw(on_sqlite) as raw:
            raw.run(f"UPDATE feeds SET seen = '{seen}'")  # noqa: S608 - our own
        with pytest.raises(StoreError, match="no place in the feed"):
            list(engine.follow("audit"))


@pytest.mark.parametrize("change", ["data = '{'", "no text", "gone"])
def test_a_job_whose_order_nobody_can_read_stops_no_other(place: Place, change: str) -> None:
    with place.open() as engine:
        ids = [engine.enqueue("work").job_id for _ in range(3)]
        raw: Raw = SqliteRaw(place) if place.is_file else PostgresRaw(place)
        with raw:
            raw.maintain()
            first = "seq = 1" if place.is_file else f"job_id = '{ids[0]}'"
            told = no_text(place) if change == "no text" else change
            act = "DELETE FROM events" if change == "gone" else f"UPDATE events SET {told}"  # noqa: S608 - our own
            raw.run(f"{act} WHERE {first}")
            raw.commit()
        assert [claim.job_id for claim in engine.claim("worker", limit=10)] == ids[1:]
        assert [engine.is_frozen(job_id) for job_id in ids] == [True, False, False]
        assert {finding.job_id for finding in engine.verify().findings} == {ids[0]}


def test_a_page_of_a_server_that_knew_more_is_not_acknowledged(place: Place) -> None:
    """Its numbers are given again, to other transactions: whoever took them for seen would miss those."""
    if place.is_file:
        return  # a file does not fail over
    with place.open() as engine:
        engine.enqueue("work")
        page = engine.feed("audit")
        low, high, still_open = page.target.split(":")
        ahead = replace(page, target=f"{low}:{int(high) + 6}:{still_open}")
        with pytest.raises(FeedConflictError):
            engine.acknowledge(ahead)
        engine.acknowledge(page)
