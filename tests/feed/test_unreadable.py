"""An event that somebody damaged stops no consumer; one that a later version wrote does."""

import pytest
from tests.migration.raw import PostgresRaw, Raw, SqliteRaw
from tests.places import Place

from leftfold import Engine
from leftfold.core.errors import CorruptLogError
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


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_a_damaged_event_is_named_and_passed(place: Place, limit: int) -> None:
    with place.open() as engine:
        ids = claimed(engine)
        damage(place, "data = '{'")
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


def test_an_event_of_a_later_version_is_waited_for(place: Place) -> None:
    with place.open() as engine:
        claimed(engine)
        damage(place, "format = 99")
        page = engine.feed("audit")
        assert (len(page.records), page.caught_up) == (3, False), "what stands before it is given"
        engine.acknowledge(page)
        with pytest.raises(CorruptLogError, match="newer version"):
            engine.feed("audit")
