"""A frozen job is left alone by everybody; what was wrong with its row can be mended, and nothing else."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.concurrency.crowd import outcome
from tests.places import Place
from tests.store.between import Between, wait_until_it_waits
from tests.verify.planting import ON_ENDED, ON_RUNNING, Damage, Shell, damaged, log_of, succeeded

from leftfold import Engine
from leftfold.core import events as e
from leftfold.core.commands import Actor, Complete
from leftfold.core.errors import CorruptLogError, JobFrozenError
from leftfold.core.lifecycle import State, Who
from leftfold.store.audit import DRIFT, Finding, What
from leftfold.store.ops import Ask
from leftfold.store.query import Query
from leftfold.store.replies import Claim, Receipt
from leftfold.testing.clock import FakeClock

KEEPER = Actor(who=Who.KEEPER, name="keeper")

#: What can be said about a job, by its owner and by others; what owners say most often has a statement of its own.
SAYINGS: dict[str, Callable[[Engine, Claim], Any]] = {
    "start": lambda engine, claim: engine.start(claim),
    "start under a request": lambda engine, claim: engine.start(claim, request_id="r"),
    "heartbeat": lambda engine, claim: engine.heartbeat(claim),
    "heartbeat under a request": lambda engine, claim: engine.heartbeat(claim, request_id="r"),
    "note": lambda engine, claim: engine.note(claim, e.Progress(fraction=0.5)),
    "complete": lambda engine, claim: engine.complete(claim),
    "complete under a request": lambda engine, claim: engine.complete(claim, request_id="r"),
    "fail": lambda engine, claim: engine.fail(claim, "broken"),
    "release": lambda engine, claim: engine.release(claim),
    "suspend": lambda engine, claim: engine.suspend(claim, "approved"),
    "cancel_claim": lambda engine, claim: engine.cancel_claim(claim),
    "dead_letter": lambda engine, claim: engine.dead_letter(claim, "broken"),
    "dead_letter by id": lambda engine, claim: engine.dead_letter(claim.job_id, "broken"),
    "cancel": lambda engine, claim: engine.cancel(claim.job_id),
    "cancel hard": lambda engine, claim: engine.cancel(claim.job_id, mode="hard"),
    "signal": lambda engine, claim: engine.signal(claim.job_id, "approved"),
    "stall": lambda engine, claim: engine.stall(claim.job_id),
    "stall by a keeper": lambda engine, claim: engine.stall(claim.job_id, by=KEEPER),
    "requeue": lambda engine, claim: engine.requeue(claim.job_id, reason="again"),
    "expire": lambda engine, claim: engine.expire(claim.job_id),
    "resume": lambda engine, claim: engine.resume(claim.job_id),
    "note by a client": lambda engine, claim: engine.note(claim.job_id, e.Custom(name="seen")),
    "admit": lambda engine, claim: engine.admit(claim.job_id),
    "claim by id": lambda engine, claim: engine.claim("other", job_id=claim.job_id),
}


@pytest.fixture
def frozen(engine: Engine, shell: Shell) -> Claim:
    """A job that somebody works on, and whose row says something that its log does not."""
    (claim,) = engine.claim("worker", job_id=engine.enqueue("work", key="k").job_id)
    engine.start(claim)
    shell.edit_row(claim.job_id, failures=3)
    assert engine.verify().frozen == (claim.job_id,)
    return claim


def test_nobody_can_say_anything_about_it(engine: Engine, shell: Shell, frozen: Claim) -> None:
    before = shell.contents()
    answers = {what: outcome(say, engine, frozen) for what, say in SAYINGS.items()}
    assert {what: answer for what, answer in answers.items() if not isinstance(answer, JobFrozenError)} == {}
    assert shell.contents() == before


@pytest.mark.parametrize("quietly", [False, True], ids=["with receipts", "quietly"])
def test_one_that_lost_its_last_event_gets_no_other_in_its_place(engine: Engine, shell: Shell, quietly: bool) -> None:
    for _ in range(2):
        engine.enqueue("work")
    broken, sound = engine.claim("worker", limit=2, start=True)
    shell.remove(broken.job_id, "version = 3")
    assert engine.verify().frozen == (broken.job_id,)
    left = log_lengths(shell, broken, sound)
    asks = [Ask(claim.job_id, Complete(by=claim.actor)) for claim in (broken, sound)]
    refused, done = engine.settle_quietly(asks) if quietly else engine.settle_many(asks)
    assert isinstance(refused, CorruptLogError | JobFrozenError)
    assert done is None or isinstance(done, Receipt)
    assert engine.get(sound.job_id).state is State.SUCCEEDED
    assert log_lengths(shell, broken, sound) == [left[0], left[1] + 1]


def log_lengths(shell: Shell, *claims: Claim) -> list[int]:
    asked = "SELECT count(*) FROM events WHERE "
    return [shell.ask(asked + shell.events_of(claim.job_id))[0][0] for claim in claims]


def test_one_whose_row_was_set_right_by_hand_is_told_as_frozen_still(
    engine: Engine, shell: Shell, frozen: Claim
) -> None:
    assert engine.verify().still_frozen == (), "that it is frozen is no wonder"
    shell.edit_row(frozen.job_id, failures=0)
    verdict = engine.verify()
    assert (verdict.total, verdict.frozen, verdict.still_frozen) == (0, (), (frozen.job_id,))
    engine.rebuild(frozen.job_id, reason="set right")
    assert engine.verify().still_frozen == ()


def test_no_other_comes_in_its_place(engine: Engine, shell: Shell) -> None:
    job_id = engine.enqueue("work", key="k").job_id
    shell.edit_row(job_id, failures=3)
    engine.verify()
    before = shell.contents()
    with pytest.raises(JobFrozenError):
        engine.enqueue("work", key="k", on_conflict="replace")
    assert shell.contents() == before


def test_in_a_batch_only_the_frozen_one_is_refused(engine: Engine, frozen: Claim) -> None:
    engine.enqueue("work")
    (other,) = engine.claim("worker")
    started = engine.start_many([frozen, other])
    ended = engine.complete_many([(frozen, 1), (other, 2)])
    for bad, good in (started, ended):
        assert isinstance(bad, JobFrozenError)
        assert isinstance(good, Receipt)
    assert engine.get(other.job_id).state is State.SUCCEEDED


def test_a_claim_passes_over_it(engine: Engine, shell: Shell) -> None:
    first, second = (engine.enqueue("work", priority="P0").job_id for _ in range(2))
    third = engine.enqueue("work").job_id
    shell.edit_row(first, failures=3)
    engine.verify()
    assert [claim.job_id for claim in engine.claim("worker", limit=9)] == [second, third]
    assert engine.claim("worker", limit=9) == []
    engine.rebuild(reason="an edit by hand")
    assert [claim.job_id for claim in engine.claim("worker", limit=9)] == [first]


def test_it_can_be_read(engine: Engine, frozen: Claim) -> None:
    assert engine.get(frozen.job_id).state is State.RUNNING
    assert len(engine.history(frozen.job_id)) == 3
    assert [job.id for job in engine.list().jobs] == [frozen.job_id]
    assert len(engine.feed("consumer").records) == 3


def test_a_keeper_leaves_it_alone_until_it_is_mended(engine: Engine, frozen: Claim, clock: FakeClock) -> None:
    clock.advance(3600)
    assert engine.reap() == []
    engine.rebuild(frozen.job_id, reason="an edit by hand")
    assert [each.job_id for each in engine.reap() if isinstance(each, Receipt)] == [frozen.job_id]


# --- rebuild ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [*ON_ENDED, *ON_RUNNING], ids=lambda damage: damage.name)
def test_what_drifted_is_mended_and_a_corrupt_log_is_left_as_it_is(
    engine: Engine, shell: Shell, damage: Damage
) -> None:
    job_id = damaged(damage, engine, shell)
    found = engine.verify(freeze=False).findings
    events = shell.ask("SELECT * FROM events ORDER BY version")
    is_lost = damage.what is What.NO_ROW and shell.place.is_file  # its id is gone
    mends = damage.what in DRIFT and not is_lost
    mended = engine.rebuild(reason="an edit by hand", by="ann")
    # To bring a lost row back changes what there is to count.
    assert [each for each in mended if each.what is not What.COUNTS or damage.what is What.COUNTS] == [
        each for each in found if mends
    ]
    assert shell.maintained() == [("ann", f"re{what}: an edit by hand") for what in _acts(mended)]
    assert engine.verify(freeze=False).findings == (() if mends else found)
    assert shell.ask("SELECT * FROM events ORDER BY version") == events, "a log is never repaired"
    if not mends and damage.freezes:
        with pytest.raises(CorruptLogError):
            engine.rebuild(job_id, reason="hope")


def _acts(mended: list[Finding]) -> list[str]:
    rows = ["build"] if any(each.what is not What.COUNTS for each in mended) else []
    return rows + (["count"] if any(each.what is What.COUNTS for each in mended) else [])


def test_a_lost_row_is_made_anew_from_its_log(on_postgres: Place) -> None:
    with on_postgres.open() as engine, Shell(on_postgres) as shell:
        job_id = succeeded(engine)
        before = shell.contents()[1]
        shell.remove_row(job_id)
        assert [each.what for each in engine.verify(job=job_id).findings] == [What.NO_ROW]
        engine.rebuild(job_id, reason="lost")
        assert shell.contents()[1] == before
        assert engine.verify().is_clean


def test_a_job_whose_row_is_lost_is_not_taken_in_from_an_export(on_postgres: Place) -> None:
    with on_postgres.open() as engine, Shell(on_postgres) as shell:
        job_id = succeeded(engine)
        lines = list(engine.export_jobs())
        shell.remove_row(job_id)
        done = engine.import_jobs(lines)
        assert (done.imported, done.present) == (0, 0)
        (refusal,) = done.refused
        assert (refusal.what, refusal.job_id) == (What.NO_ROW, job_id)
        engine.rebuild(reason="lost")
        assert engine.import_jobs(lines).present == 1
        assert engine.verify().is_clean


def test_renewals_and_where_they_led_outlive_a_rebuild(engine: Engine, shell: Shell, clock: FakeClock) -> None:
    (claim,) = engine.claim("worker", job_id=engine.enqueue("work").job_id)
    engine.start(claim)
    for _ in range(3):
        clock.advance(10)
        renewed = engine.heartbeat(claim, request_id=f"r-{clock.now}")
    before = log_of(engine, claim.job_id).job
    shell.edit_row(claim.job_id, failures=3, priority=2)
    engine.rebuild(reason="an edit by hand")
    assert log_of(engine, claim.job_id).job == before
    assert (before.rev, before.lease and before.lease.until) == (renewed.rev, renewed.until)
    shell.edit_row(claim.job_id, until=5)
    engine.rebuild(reason="a lease never ends before the log says")
    after = engine.get(claim.job_id)
    assert (after.rev, after.lease and after.lease.until) == (before.rev, claim.until), "a rev never falls"
    assert engine.complete(claim).state is State.SUCCEEDED


# --- others meanwhile -------------------------------------------------------------------------------------------------


class Before(Between):
    """A store that does something of ours before the first statement of a name."""

    def __init__(self, engine: Engine, name: str, act: Callable[[], None]) -> None:
        super().__init__(engine.store, -1, lambda _: None)
        self.name = name
        self.meanwhile = act

    def _come_to(self, query: Query | None) -> Query | None:
        if query is not None and query.name == self.name and self.name not in self.seen:
            self.seen.append(query.name)
            self.meanwhile()
        return None


def test_what_was_mended_since_the_first_look_is_not_frozen(on_postgres: Place) -> None:
    with on_postgres.open() as engine, on_postgres.open() as other, Shell(on_postgres) as shell:
        job_id = succeeded(engine)
        shell.edit_row(job_id, priority=3)
        engine.store = Before(engine, "lock", lambda: assert_mended(other))
        verdict = engine.verify()
        assert ([each.job_id for each in verdict.findings], verdict.frozen) == ([job_id], ())
        assert shell.ask("SELECT count(*) FROM jobs WHERE frozen_at IS NOT NULL") == [(0,)]


def assert_mended(engine: Engine) -> None:
    assert len(engine.rebuild(reason="an edit by hand")) == 1


def test_two_who_count_anew_at_once_count_once(on_postgres: Place) -> None:
    with (
        on_postgres.open() as engine,
        on_postgres.open() as other,
        Shell(on_postgres) as shell,
        psycopg.connect(on_postgres.url, autocommit=True) as watcher,
        ThreadPoolExecutor(1) as thread,
    ):
        succeeded(engine)
        shell.ask("INSERT INTO counts SELECT queue, kind, state, 5 FROM jobs")
        second: list[Future[object]] = []

        def meanwhile() -> None:
            second.append(thread.submit(other.rebuild, reason="me too"))
            wait_until_it_waits(watcher, second[0])

        engine.store = Before(engine, "end_maintenance", meanwhile)
        assert [each.what for each in engine.rebuild(reason="counters off")] == [What.COUNTS]
        second[0].result(60)
        assert other.verify().is_clean
        assert [count.jobs for count in other.counts()] == [1]
