"""Every kind of damage is found by its name, its job is frozen, and everybody else goes on."""

from datetime import timedelta

import pytest
from tests.concurrency.crowd import Crowd
from tests.migration.raw import PostgresRaw
from tests.places import Place
from tests.verify.planting import ON_ENDED, ON_RUNNING, Damage, Shell, damaged, forge, succeeded

from leftfold import Engine, NewJob
from leftfold.core import events as e
from leftfold.core.errors import JobFrozenError
from leftfold.core.lifecycle import Who
from leftfold.store.audit import What
from leftfold.testing.clock import FakeClock
from leftfold.times import to_datetime

ALL = (*ON_ENDED, *ON_RUNNING)


def test_there_is_damage_of_every_kind() -> None:
    assert {damage.what for damage in ALL} == set(What)


@pytest.mark.parametrize("damage", ALL, ids=lambda damage: damage.name)
def test_damage_is_found_and_freezes_its_job_and_no_other(engine: Engine, shell: Shell, damage: Damage) -> None:
    others = [succeeded(engine), engine.enqueue("other").job_id]
    job_id = damaged(damage, engine, shell)
    before = shell.contents()
    looked = engine.verify(freeze=False)
    assert shell.contents() == before, "a look writes nothing"
    verdict = engine.verify(by="ann")
    assert verdict.findings == looked.findings
    assert [finding.what for finding in verdict.findings] == [damage.what], verdict.findings
    (finding,) = verdict.findings
    if damage.what in {What.COUNTS, What.KEY}:
        assert finding.job_id is None
    elif damage.what is not What.NO_ROW or not shell.place.is_file:  # where the id went with the row
        assert finding.job_id == job_id
    assert verdict.frozen == ((job_id,) if damage.freezes else ())
    assert [row[0] for row in shell.ask("SELECT frozen_at IS NOT NULL FROM jobs")].count(True) == len(verdict.frozen)
    assert engine.verify().frozen == ()
    told = [("ann", f"froze {job_id}: {finding.detail}"[:4000])] if damage.freezes else []
    assert shell.maintained() == told, "a freeze stands on record, once"
    for other in others:
        assert engine.verify(job=other).is_clean
    assert engine.claim("worker", kinds=["other"], limit=9) != []


def test_who_may_switch_the_guards_off_is_found_too(on_postgres: Place) -> None:
    with on_postgres.open() as engine, PostgresRaw(on_postgres) as raw:
        job_id = succeeded(engine)
        raw.run("ALTER TABLE events DISABLE TRIGGER ALL")
        raw.run("UPDATE events SET actor = 'mallory' WHERE version = 1")
        raw.run("ALTER TABLE events ENABLE TRIGGER ALL")
        assert [(each.what, each.job_id) for each in engine.verify().findings] == [(What.CHAIN, job_id)]


def test_all_are_found_among_many_and_told_up_to_a_thousand(engine: Engine, shell: Shell) -> None:
    engine.enqueue_many([NewJob("work") for _ in range(1_300)])
    shell.change("UPDATE jobs SET priority = 1")
    verdict = engine.verify()
    assert (verdict.jobs, verdict.total, len(verdict.findings), len(verdict.frozen)) == (1_300, 1_300, 1_000, 1_300)
    assert engine.claim("worker", limit=9) == []


def test_since_and_job_say_what_is_looked_at(engine: Engine, shell: Shell, clock: FakeClock) -> None:
    old = succeeded(engine)
    clock.advance(60)
    new = succeeded(engine)
    shell.edit_row(old, priority=3)
    shell.edit_row(new, priority=3)
    moment = to_datetime(clock.now)
    assert [each.job_id for each in engine.verify(since=moment, freeze=False).findings] == [new]
    assert engine.verify(since=moment + timedelta(seconds=1), freeze=False).jobs == 0
    assert [each.job_id for each in engine.verify(job=old, freeze=False).findings] == [old]
    assert engine.verify(job=old, since=moment, freeze=False).jobs == 0


def test_progress_is_told_page_by_page(engine: Engine) -> None:
    engine.enqueue_many([NewJob("work") for _ in range(1_001)])
    heard: list[int] = []
    engine.verify(progress=heard.append)
    assert heard == [64, 192, 448, 960, 1_001], "few at first, then more"


def test_an_event_of_a_later_version_stops_nobody_but_those_who_cannot_read_it(engine: Engine) -> None:
    (claim,) = engine.claim("worker", job_id=engine.enqueue("work").job_id)
    forge(engine, claim.job_id, e.Custom(name="later"), Who.OPERATOR, stored=2)
    verdict = engine.verify()
    assert ([each.what for each in verdict.findings], verdict.frozen) == ([What.NEWER], ())
    assert not engine.is_frozen(claim.job_id), "somebody else can read it, and goes on"


# --- while others write -----------------------------------------------------------------------------------------------


def test_what_writers_do_meanwhile_is_no_finding(place: Place) -> None:
    writers = 3
    with place.open() as engine, place.open() as checker, Crowd(writers + 1) as crowd:
        ended: list[int] = []

        def take_part(who: int) -> int:
            if who < writers:
                try:
                    for _ in range(25):
                        engine.enqueue_many([NewJob("work", key=f"{who}-{n}") for n in range(3)])
                        for claim in engine.claim(f"worker-{who}", limit=4):
                            engine.heartbeat(claim)
                            engine.start(claim)
                            engine.complete(claim)
                finally:
                    ended.append(who)
                return 0
            checks = 0
            while len(ended) < writers:
                verdict = checker.verify()
                assert verdict.is_clean, verdict.findings
                assert checker.rebuild(reason="there is nothing to mend") == []
                checks += 1
            return checks

        *_, checks = crowd.each(take_part)
        assert isinstance(checks, int), checks
        assert checks > 0
        assert checker.verify().is_clean


def test_a_frozen_job_is_refused_with_its_own_error(engine: Engine, shell: Shell) -> None:
    job_id = engine.enqueue("work").job_id
    shell.edit_row(job_id, failures=3)
    engine.verify()
    with pytest.raises(JobFrozenError, match=f"verify --job {job_id}"):
        engine.cancel(job_id)
