"""Many dead letters once more: nothing twice, nothing forgotten, whoever stops it and whenever."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from tests.e2e.homes import Home

from leftfold import Policy, redrive
from leftfold.core import events as e
from leftfold.core.errors import (
    IllegalTransitionError,
    JobEndedError,
    JobNotFoundError,
    LeaseConflictError,
)
from leftfold.core.lifecycle import State
from leftfold.engine import Engine
from leftfold.redrive import KIND, QUEUE, Phase, Step, Wish
from leftfold.testing.clock import FakeClock

WISH = Wish(reason="the bank is back")


@pytest.fixture
def engine(home: Home) -> Iterator[Engine]:
    with home.open() as opened:
        yield opened


def set_aside(engine: Engine, count: int = 1, kind: str = "pay", **job: Any) -> list[str]:
    """Make dead letters, and give their ids."""
    ids = [engine.enqueue(kind, policy=Policy(max_failures=1), **job).job_id for _ in range(count)]
    for job_id in ids:
        (claim,) = engine.claim("worker-a", job_id=job_id)
        engine.start(claim)
        engine.fail(claim, "declined")
    return ids


def work(engine: Engine, *, well: bool = True) -> None:
    """Run what is due, as a worker would, well or not."""
    for claim in engine.claim("worker-a", kinds=["pay"], limit=100, start=True):
        engine.complete(claim) if well else engine.fail(claim, "declined")


def states(engine: Engine, ids: list[str]) -> list[State]:
    return [engine.get(job_id).state for job_id in ids]


def run(engine: Engine, wish: Wish, pause: Callable[[float], None] = lambda _: None) -> Step:
    *_, last = redrive.go_on(engine, redrive.begin(engine, wish), pause=pause)
    return last


def test_all_letters_are_tried_again_and_each_log_says_who_and_why(engine: Engine) -> None:
    ids = set_aside(engine, 3)
    last = run(engine, WISH)
    assert (last.phase, last.letters, last.redriven, last.refused) == (Phase.DONE, 3, 3, 0)
    for job_id in ids:
        record = engine.history(job_id)[-1]
        assert isinstance(record.event, e.Requeued)
        assert (record.event.reason, record.actor) == (WISH.reason, engine.actor)
        assert record.request_id == f"redrive {last.job_id}"
    job = engine.get(last.job_id)
    assert (job.state, job.spec.kind, job.spec.queue) == (State.SUCCEEDED, KIND, QUEUE)
    assert job.output == {"letters": 3, "redriven": 3, "refused": 0, "refusals": []}
    assert engine.history(last.job_id)[0].actor == engine.actor
    assert engine.verify().is_clean


@pytest.mark.parametrize(
    ("chosen", "again"),
    [({"kind": "pay"}, {0, 2, 3}), ({"queue": "slow"}, {2}), ({"tenant": "acme"}, {3}), ({"kind": "mail"}, {1}),
     ({"kind": "pay", "queue": "default", "tenant": ""}, {0}), ({}, {0, 1, 2, 3}), ({"kind": "none"}, set())],
    ids=str,
)  # fmt: skip
def test_the_letters_are_chosen(engine: Engine, chosen: dict[str, Any], again: set[int]) -> None:
    ids = [
        *set_aside(engine), *set_aside(engine, kind="mail"), *set_aside(engine, queue="slow"),
        *set_aside(engine, tenant="acme"),
    ]  # fmt: skip
    wish = Wish(reason="x", **chosen)
    assert sum(incident.open for incident in redrive.look(engine, wish)) == len(again)
    assert State.QUEUED not in states(engine, ids)
    assert run(engine, wish).redriven == len(again)
    assert {place for place, state in enumerate(states(engine, ids)) if state is State.QUEUED} == again


def test_those_of_an_incident_are(engine: Engine) -> None:
    pay, mail = set_aside(engine, 2), set_aside(engine, kind="mail")
    incident = engine.get(pay[0]).incident
    assert incident is not None
    assert run(engine, Wish(reason="x", incident=incident[:6])).redriven == 2
    assert states(engine, [*pay, *mail]) == [State.QUEUED, State.QUEUED, State.DEAD_LETTERED]
    for act in (redrive.begin, redrive.look):
        with pytest.raises(JobNotFoundError):
            act(engine, Wish(reason="x", incident=incident))


def test_what_is_resolved_or_frozen_is_left_alone(home: Home, engine: Engine) -> None:
    resolved, frozen, other = set_aside(engine, 3)
    engine.resolve_many([resolved], reason="paid by hand")
    home.tamper("UPDATE {schema}.jobs SET failures = 9 WHERE id = " + _literal(home, frozen))  # noqa: S608 - an id of ours
    assert engine.verify().frozen == (frozen,)
    last = run(engine, WISH)
    assert (last.letters, last.redriven, last.refused) == (1, 1, 0)
    assert states(engine, [resolved, frozen, other]) == [State.DEAD_LETTERED, State.DEAD_LETTERED, State.QUEUED]


def _literal(home: Home, job_id: str) -> str:
    return f"x'{job_id.replace('-', '')}'" if home.is_file else f"'{job_id}'"


def test_the_canaries_go_first_and_the_others_if_they_succeed(engine: Engine) -> None:
    ids = set_aside(engine, 6)
    steps = redrive.go_on(engine, redrive.begin(engine, Wish(reason="x", canaries=2)), pause=lambda _: work(engine))
    first = next(steps)
    assert (first.phase, first.canaries, first.succeeded) == (Phase.CANARIES, 2, 0)
    assert states(engine, ids).count(State.QUEUED) == 2
    second = next(steps)
    assert (second.phase, second.succeeded) == (Phase.CANARIES, 2)
    assert states(engine, ids).count(State.DEAD_LETTERED) == 4
    *_, last = steps
    assert (last.phase, last.redriven) == (Phase.DONE, 6)
    assert sorted(states(engine, ids)) == [State.QUEUED] * 4 + [State.SUCCEEDED] * 2


@pytest.mark.parametrize("how", ["fails", "cancelled"])
def test_a_canary_that_does_not_succeed_stops_it(engine: Engine, how: str) -> None:
    ids = set_aside(engine, 5)

    def meanwhile(_: float) -> None:
        if how == "fails":
            work(engine, well=False)
        else:
            for job in engine.list(states=State.QUEUED, kind="pay").jobs:
                engine.cancel(job.id)

    last = run(engine, Wish(reason="x", canaries=2), meanwhile)
    assert (last.phase, last.redriven, last.succeeded) == (Phase.STOPPED, 2, 0)
    assert last.problem is not None
    assert last.problem.startswith("2 of 2 canaries did not succeed")
    job = engine.get(last.job_id)
    assert job.state is State.FAILED
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("canary_failed", last.problem)
    untouched = [job_id for job_id in ids if len(engine.history(job_id)) == 4]
    assert len(untouched) == 3
    with pytest.raises(JobEndedError, match="begin another one"):
        next(redrive.go_on(engine, last.job_id))


def test_whoever_goes_on_takes_the_same_canaries_and_nothing_twice(home: Home, engine: Engine) -> None:
    ids = set_aside(engine, 250)
    job_id = redrive.begin(engine, Wish(reason="x", canaries=3))
    steps = redrive.go_on(engine, job_id)
    next(steps)
    steps.close()
    assert engine.get(job_id).state is State.QUEUED
    work(engine)
    steps = redrive.go_on(engine, job_id)
    for step in steps:
        if step.phase is Phase.REST:
            break
    assert step.redriven == 103
    steps.close()
    work(engine, well=False)  # those that were tried again die again, and are not taken once more
    with home.open(actor="bob") as other:
        *_, last = redrive.go_on(other, job_id, reason="ann went home")
    assert (last.phase, last.letters, last.redriven, last.refused) == (Phase.DONE, 250, 250, 0)
    assert {record.actor for record in engine.history(ids[0])} == {engine.actor, "worker-a"}
    log = engine.history(job_id)
    assert [(record.actor, record.event.text) for record in log if isinstance(record.event, e.Remarked)] == [
        (engine.actor, "resumed"), ("bob", "ann went home"),
    ]  # fmt: skip
    again = [sum(isinstance(record.event, e.Requeued) for record in engine.history(each)) for each in ids]
    assert again == [1] * 250
    assert states(engine, ids).count(State.SUCCEEDED) == 3
    plans = [record for record in engine.history(job_id) if isinstance(record.event, e.PlanGenerated)]
    assert len(plans) == 1
    assert engine.verify().is_clean


def test_two_at_once_try_each_letter_once(home: Home, engine: Engine) -> None:
    ids = set_aside(engine, 250)
    with home.open() as other:
        one, two = (redrive.go_on(each, redrive.begin(each, WISH)) for each in (engine, other))
        for _ in itertools.zip_longest(one, two):
            pass
    again = [sum(isinstance(record.event, e.Requeued) for record in engine.history(each)) for each in ids]
    assert again == [1] * 250


def test_one_that_is_under_way_is_nobody_elses(engine: Engine) -> None:
    set_aside(engine, 2)
    job_id = redrive.begin(engine, Wish(reason="x", canaries=1))
    steps = redrive.go_on(engine, job_id)
    next(steps)
    with pytest.raises(IllegalTransitionError, match=r"is under way: redrive .* has it for 1\d s more"):
        next(redrive.go_on(engine, job_id))
    steps.close()


def test_one_whose_process_died_goes_on_behind_its_lease(engine: Engine) -> None:
    set_aside(engine, 2)
    job_id = redrive.begin(engine, WISH)
    (claim,) = engine.claim("redrive on another host", job_id=job_id, lease=0.1)
    engine.start(claim)
    while engine.clock() * 1_000_000 <= claim.until:
        pass
    *_, last = redrive.go_on(engine, job_id)
    assert (last.phase, last.redriven) == (Phase.DONE, 2)
    assert [record.event.wire for record in engine.history(job_id)][3:5] == ["stalled", "requeued"]


def test_somebody_stops_it(engine: Engine) -> None:
    ids = set_aside(engine, 250)
    job_id = redrive.begin(engine, WISH)
    steps = redrive.go_on(engine, job_id)
    next(steps)
    engine.cancel(job_id, reason="wrong letters")
    *_, last = steps
    assert (last.phase, last.redriven) == (Phase.CANCELLED, 100)
    assert engine.get(job_id).state is State.CANCELLED
    assert states(engine, ids).count(State.DEAD_LETTERED) == 150


def test_somebody_stops_it_while_it_waits_for_its_canaries(engine: Engine) -> None:
    set_aside(engine, 2)
    job_id = redrive.begin(engine, Wish(reason="x", canaries=1))

    def meanwhile(_: float) -> None:
        engine.cancel(job_id)

    *_, last = redrive.go_on(engine, job_id, pause=meanwhile)
    assert last.phase is Phase.CANCELLED


def test_one_that_lost_its_lease_sends_nothing_more(engine: Engine) -> None:
    ids = set_aside(engine, 150)
    job_id = redrive.begin(engine, WISH)
    steps = redrive.go_on(engine, job_id)
    next(steps)
    engine.stall(job_id, reason="it hangs")
    with pytest.raises(LeaseConflictError):
        list(steps)
    assert states(engine, ids).count(State.DEAD_LETTERED) == 50


def test_it_is_never_faster_than_its_rate(engine: Engine) -> None:
    set_aside(engine, 20)
    job_id = redrive.begin(engine, Wish(reason="x", rate=20))
    now = 100.0
    sent_at: list[tuple[float, int]] = []

    def clock() -> float:
        return now

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    for step in redrive.go_on(engine, job_id, pause=pause, clock=clock):
        if step.phase is Phase.REST:
            sent_at.append((round(now, 6), step.redriven))
            now += 0.1  # to send them takes a while, which is a part of the wait
            if step.redriven == 10:
                now += 0.5  # whoever asks for steps takes his time: it does not catch up
    assert sent_at == [(100.0, 5), (100.25, 10), (100.85, 15), (101.1, 20)]
    assert round(now, 6) == 101.2, "none is waited for behind the last one"


def test_its_lease_is_kept_while_it_waits(engine: Engine) -> None:
    set_aside(engine, 2)
    job_id = redrive.begin(engine, Wish(reason="x", rate=0.1))
    revs = []
    list(redrive.go_on(engine, job_id, pause=lambda _: revs.append(engine.get(job_id).renewals)))
    assert len(revs) == 5  # ten seconds, two at a time
    assert revs == sorted(set(revs))


def test_it_says_on_its_log_how_far_it_is(engine: Engine) -> None:
    set_aside(engine, 250)
    last = run(engine, WISH)
    told = [record.event for record in engine.history(last.job_id) if isinstance(record.event, e.Progress)]
    assert [(each.fraction, each.message) for each in told] == [
        (0.4, "100 of 250"), (0.8, "200 of 250"), (1.0, "250 of 250"),
    ]  # fmt: skip


def test_a_letter_that_was_noted_on_meanwhile_is_not_forgotten(engine: Engine) -> None:
    ids = set_aside(engine, 30)

    def meanwhile(_: float) -> None:
        if len(engine.history(ids[0])) == 4:
            engine.remark_many(ids, "look here")

    last = run(engine, Wish(reason="x", rate=20), meanwhile)
    assert (last.phase, last.redriven, last.refused) == (Phase.DONE, 30, 0)
    assert set(states(engine, ids)) == {State.QUEUED}


def keyed(engine: Engine) -> str:
    """Make a dead letter whose key a live job holds by now: it cannot be tried again."""
    (taken,) = set_aside(engine, key="k")
    engine.enqueue("pay", key="k")
    return taken


def test_a_letter_that_cannot_be_tried_again_is_told(engine: Engine) -> None:
    ids = [*set_aside(engine), keyed(engine), *set_aside(engine)]
    last = run(engine, WISH)
    assert (last.phase, last.letters, last.redriven, last.refused) == (Phase.DONE, 3, 2, 1)
    (refusal,) = last.refusals
    assert (refusal.job_id, refusal.code) == (ids[1], "key_taken")
    assert engine.get(last.job_id).output["refusals"] == [msgspec.to_builtins(refusal)]


def test_a_canary_that_cannot_be_tried_again_is_replaced(engine: Engine) -> None:
    other, taken = *set_aside(engine), keyed(engine)
    last = run(engine, Wish(reason="x", canaries=1), lambda _: work(engine))
    assert (last.phase, last.canaries, last.succeeded, last.refused) == (Phase.DONE, 1, 1, 1)
    assert states(engine, [other, taken]) == [State.SUCCEEDED, State.DEAD_LETTERED]


def test_where_no_canary_can_be_tried_again_that_is_said(engine: Engine) -> None:
    taken = keyed(engine)
    last = run(engine, Wish(reason="x", canaries=1))
    assert last.phase is Phase.STOPPED
    assert last.problem is not None
    assert last.problem.startswith(f"no canary can be tried again: job {taken}: ")


def test_canaries_that_somebody_settled_are_left_to_him(engine: Engine) -> None:
    ids = set_aside(engine, 3)
    job_id = redrive.begin(engine, Wish(reason="x", canaries=1))
    (claim,) = engine.claim("redrive on another host", job_id=job_id)
    engine.start(claim)
    engine.note(claim, e.PlanGenerated(plan=Raw(msgspec.json.encode({"letters": 3, "before": _now(engine)}))))
    engine.note(claim, e.NodeStarted(node="canaries", data=Raw(msgspec.json.encode([ids[2]]))))
    engine.release(claim)  # before it was sent
    engine.resolve_many([ids[2]], reason="paid by hand")
    *_, last = redrive.go_on(engine, job_id, pause=lambda _: work(engine))
    assert (last.phase, last.redriven) == (Phase.DONE, 2)
    assert states(engine, ids) == [State.QUEUED, State.SUCCEEDED, State.DEAD_LETTERED]


def _now(engine: Engine) -> int:
    return int(engine.clock() * 1_000_000)


def test_a_canary_that_is_frozen_is_no_success(home: Home, engine: Engine) -> None:
    set_aside(engine, 3)

    def meanwhile(_: float) -> None:
        (job,) = engine.list(states=State.QUEUED, kind="pay").jobs
        home.tamper("UPDATE {schema}.jobs SET failures = 9 WHERE id = " + _literal(home, job.id))  # noqa: S608 - an id of ours
        engine.verify()

    last = run(engine, Wish(reason="x", canaries=1), meanwhile)
    assert last.phase is Phase.STOPPED
    assert last.problem is not None
    assert "which is frozen" in last.problem


def test_more_letters_than_a_page_and_more_incidents_than_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive, "PAGE_MAX", 2)
    for kind in ("a", "b", "c", "d", "e"):
        set_aside(engine, kind=kind)
    last = run(engine, WISH)
    assert (last.letters, last.redriven) == (5, 5)


def test_letters_that_are_dated_later_than_now_are_taken(file_home: Home) -> None:
    clock = FakeClock()
    with file_home.migrated().open(clock=clock) as engine:
        set_aside(engine, 3)
        clock.now -= 3_600_000_000
        last = run(engine, WISH)
    assert (last.letters, last.redriven) == (3, 3)
