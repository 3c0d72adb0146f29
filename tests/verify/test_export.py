"""Whole jobs from one store to another: as they were, or refused by name."""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.concurrency.crowd import Crowd, of_kind
from tests.places import Place, file_in, logs_of, schema_on
from tests.verify.planting import ON_ENDED, ON_RUNNING, Damage, Shell, damaged, succeeded

from leftfold import Engine, NewJob
from leftfold.core.errors import ValidationError
from leftfold.core.lifecycle import State
from leftfold.store import export
from leftfold.store.audit import What
from leftfold.store.export import Imported
from leftfold.store.replies import Claim, Receipt
from leftfold.testing.clock import FakeClock
from leftfold.testing.postgres import Server


@pytest.fixture
def target(place: Place, postgres: Server, tmp_path: Path) -> Iterator[Place]:
    """The other kind of store."""
    if not place.is_file:
        yield file_in(tmp_path / "..")._replace(url=f"sqlite:///{tmp_path / 'target.db'}")
        return
    with schema_on(postgres) as other:
        yield other


@pytest.fixture
def other(target: Place, clock: FakeClock) -> Iterator[Engine]:
    with target.open(clock=clock, actor="tester") as engine:
        yield engine


def lives(engine: Engine, clock: FakeClock) -> dict[State, str]:
    """Give a job in every state that a short life leads to, one of them renewed, one of them with a key."""
    made: dict[State, str] = {State.SUCCEEDED: succeeded(engine)}

    def held(**job: Any) -> Claim:
        (claim,) = engine.claim("worker", job_id=engine.enqueue("work", {"text": "Zoë 😀"}, **job).job_id)
        engine.start(claim)
        return claim

    running = held(key="k", correlation_id="c", tenant="t")
    clock.advance(5)
    engine.heartbeat(running, request_id="renew")
    made[State.RUNNING] = running.job_id
    made[State.QUEUED] = engine.enqueue("work", due=3600, request_id="ask").job_id
    made[State.INBOX] = engine.receive("work").job_id
    acts: dict[State, Callable[[Claim], object]] = {
        State.RETRYING: lambda claim: engine.fail(claim, "broken"),
        State.WAITING: lambda claim: engine.suspend(claim, "approved", deadline=60),
        State.PARKED: lambda claim: engine.suspend(claim, "approved"),
        State.STALLED: lambda claim: engine.stall(claim.job_id),
        State.CANCELLED: lambda claim: engine.cancel(claim.job_id, mode="hard"),
        State.DEAD_LETTERED: lambda claim: engine.dead_letter(claim, "broken"),
    }
    for state, act in acts.items():
        claim = held()
        act(claim)
        made[state] = claim.job_id
    return made


def picture(engine: Engine) -> dict[str, object]:
    """Give everything that the engine tells about its jobs."""
    jobs = engine.list(limit=1000).jobs
    counts = sorted((count.queue, count.kind, count.state, count.jobs) for count in engine.counts())
    return {"counts": counts, **{job.id: (job, engine.get(job.id), engine.history(job.id)) for job in jobs}}


def test_jobs_go_from_one_kind_of_store_to_the_other_and_go_on(engine: Engine, other: Engine, clock: FakeClock) -> None:
    made = lives(engine, clock)
    done = other.import_jobs(engine.export_jobs())
    assert done == Imported(imported=len(made), present=0, refused=())
    assert picture(other) == picture(engine)
    assert other.verify().is_clean
    assert list(other.export_jobs())[1:] == list(engine.export_jobs())[1:], "and back again, to the letter"
    clock.advance(3600)
    assert {each.job_id for each in other.reap() if isinstance(each, Receipt)} == {
        made[State.RUNNING], made[State.WAITING],
    }  # fmt: skip
    other.signal(made[State.PARKED], "approved")
    other.requeue(made[State.DEAD_LETTERED], reason="again")
    for claim in other.claim("worker", limit=20):
        other.start(claim)
        other.complete(claim, "done")
    assert [other.get(made[state]).state for state in (State.QUEUED, State.RUNNING, State.PARKED)] == ["succeeded"] * 3
    assert other.verify().is_clean
    logs_of(other)


def test_an_empty_store_comes_to_an_empty_store(engine: Engine, other: Engine) -> None:
    lines = list(engine.export_jobs())
    assert len(lines) == 2
    assert other.import_jobs(lines) == Imported(imported=0, present=0, refused=())


def test_many_jobs_go_over_several_pages(engine: Engine, other: Engine) -> None:
    for _ in range(2):
        engine.enqueue_many([NewJob("work", {"n": n}) for n in range(1_000)])
    heard: list[int] = []
    assert other.import_jobs(engine.export_jobs(), progress=heard.append).imported == 2_000
    assert heard == [500, 1_000, 1_500, 2_000]
    assert other.verify().jobs == 2_000


def test_an_import_that_is_done_again_changes_nothing(
    engine: Engine, target: Place, other: Engine, clock: FakeClock
) -> None:
    made = lives(engine, clock)
    lines = list(engine.export_jobs())
    other.import_jobs(lines)
    with Shell(target) as shell:
        before = shell.contents()
        assert other.import_jobs(lines) == Imported(imported=0, present=len(made), refused=())
        assert shell.contents() == before


def test_two_who_import_one_file_at_once_import_it_once(engine: Engine, target: Place, clock: FakeClock) -> None:
    engine.enqueue_many([NewJob("work") for _ in range(800)])
    lines = list(engine.export_jobs())
    with target.open(clock=clock) as one, target.open(clock=clock) as two, Crowd(2) as crowd:
        outcomes = crowd.each(lambda who: (one, two)[who].import_jobs(lines))
        done = of_kind(outcomes, Imported)
        assert len(done) == 2, outcomes
        assert sorted([sum(each.imported for each in done), sum(each.present for each in done)]) == [800, 800]
        assert [each for one_ in done for each in one_.refused] == []
        assert one.verify().is_clean


def test_a_job_whose_key_is_held_or_that_went_on_is_refused_and_the_others_come(engine: Engine, other: Engine) -> None:
    held, gone_on, free = (engine.enqueue("work", key=key).job_id for key in ("held", "gone-on", "free"))
    lines = list(engine.export_jobs())
    other.import_jobs(engine.export_jobs(jobs=[gone_on]))
    other.cancel(gone_on)
    other.enqueue("work", key="held")
    done = other.import_jobs(lines)
    assert (done.imported, done.present) == (1, 0)
    assert {(each.what, each.job_id) for each in done.refused} == {(What.KEY, held), (What.ROW, gone_on)}
    assert other.get(free).state is State.QUEUED
    assert other.get(gone_on).state is State.CANCELLED
    assert other.verify().is_clean


# --- files that are not what they were --------------------------------------------------------------------------------


def spelled(line: dict[str, Any]) -> str:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n"


def resealed(lines: list[str]) -> list[str]:
    """Give an export with a last line that fits the others: by somebody who knows how that is done."""
    last = json.loads(lines[-1])
    jobs = [json.loads(line) for line in lines[1:-1]]
    last.update(jobs=len(jobs), events=sum(len(job["log"] or ()) for job in jobs))
    last["sha256"] = sha256("".join(lines[:-1]).encode()).hexdigest()
    return [*lines[:-1], spelled(last)]


def with_job(lines: list[str], **changes: Any) -> list[str]:
    """Change the first job's line."""
    return [lines[0], spelled({**json.loads(lines[1]), **changes}), *lines[2:]]


def with_event(lines: list[str], **changes: Any) -> list[str]:
    """Change the first event of the first job."""
    first, *rest = json.loads(lines[1])["log"]
    return with_job(lines, log=[{**first, **changes}, *rest])


Edit = Callable[[list[str]], list[str]]

#: What is done to an export, and what is said to it. None of it may come in, but for the jobs before that place.
BROKEN: dict[str, tuple[Edit, str]] = {
    "no last line": (lambda lines: lines[:-1], "cut short"),
    "half a line": (lambda lines: [*lines[:-2], lines[-2][:80]], "no line of an export"),
    "no first line": (lambda lines: lines[1:], "not what should stand there"),
    "a line less": (lambda lines: lines[:2] + lines[3:], "was changed"),
    "two lines in the other order": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "not what should stand"),
    "a line twice": (lambda lines: [*lines[:2], *lines[1:]], "not what should stand there"),
    "a line behind the last": (lambda lines: [*lines, lines[-1]], "not what should stand there"),
    "two exports in one": (lambda lines: lines + lines, "not what should stand there"),
    "another time in the first line": (lambda lines: [lines[0].replace('"at":1', '"at":2'), *lines[1:]], "was changed"),
    "a later format": (lambda lines: [lines[0].replace('"format":1', '"format":2'), *lines[1:]], "upgrade"),
    "a text for a number": (lambda lines: resealed(with_event(lines, at="5")), "no line of an export"),
    "a number for a text": (lambda lines: resealed(with_event(lines, data=5)), "no line of an export"),
    "no time": (lambda lines: resealed(with_event(lines, at=None)), "no line of an export"),
    "a seal that is none": (lambda lines: resealed(with_event(lines, seal="xyz")), "without a seal"),
    "an id that is none": (lambda lines: resealed(with_job(lines, id="x")), "not what should stand there"),
    "an id in capitals": (lambda lines: resealed(with_job(lines, id=json.loads(lines[1])["id"].upper())), "not what"),
    "renewals that are none": (lambda lines: resealed(with_job(lines, beside={"renewals": "7"})), "no line of an"),
    "no log": (lambda lines: resealed(with_job(lines, log=None)), "no line of an export"),
}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """An export of four jobs, in the order of ids, the first of which was renewed."""
    with file_in(tmp_path_factory.mktemp("source")).open(clock=FakeClock()) as engine:
        (claim,) = engine.claim("worker", job_id=engine.enqueue("work").job_id)
        engine.heartbeat(claim)
        for _ in range(3):
            engine.enqueue("work")
        return list(engine.export_jobs())


@pytest.mark.parametrize(("edit", "said"), BROKEN.values(), ids=BROKEN)
def test_an_export_that_was_changed_is_refused(lines: list[str], edit: Edit, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        for _ in export.read(edit(lines)):
            pass


def test_a_file_that_was_cut_short_says_so_and_what_came_before_is_in(engine: Engine, other: Engine) -> None:
    engine.enqueue_many([NewJob("work") for _ in range(700)])
    lines = list(engine.export_jobs())
    with pytest.raises(ValidationError, match="cut short"):
        other.import_jobs(lines[:651])
    assert other.verify().is_clean
    assert other.import_jobs(lines) == Imported(imported=200, present=500, refused=())


#: What is done to a job by somebody who can make the file fit again: the job is refused, and no other.
FORGED: dict[str, tuple[Edit, What]] = {
    "another time": (lambda lines: with_event(lines, at=5), What.CHAIN),
    "another actor": (lambda lines: with_event(lines, actor="mallory"), What.CHAIN),
    "no actor": (lambda lines: with_event(lines, actor=None), What.CHAIN),
    "no name": (lambda lines: with_event(lines, event=None), What.UNREADABLE),
    "no last event": (lambda lines: with_job(lines, log=json.loads(lines[1])["log"][:-1]), What.HEAD),
    "no first event": (lambda lines: with_job(lines, log=json.loads(lines[1])["log"][1:]), What.GAP),
    "no events": (lambda lines: with_job(lines, log=[]), What.NO_LOG),
    "no row": (lambda lines: with_job(lines, head=None), What.NO_ROW),
    "another head": (lambda lines: with_job(lines, head="00" * 32), What.HEAD),
    "another's log": (lambda lines: with_job(lines, log=json.loads(lines[2])["log"]), What.CHAIN),
    "a later event": (lambda lines: with_event(lines, format=2), What.CHAIN),
    "a lease that nobody could keep": (lambda lines: with_job(lines, beside={"renewals": 1, "until": 2**70}), What.ROW),
    "too many renewals": (lambda lines: with_job(lines, beside={"renewals": 2**40, "until": 2**50}), What.ROW),
    "a request with a NUL": (
        lambda lines: with_job(lines, beside={"renewals": 1, "until": 2**50, "renewed_by": "a\0b"}),
        What.ROW,
    ),
    "a lease without end": (lambda lines: with_job(lines, beside={"until": 2**60}), What.ROW),
    "a lease that was shortened": (lambda lines: with_job(lines, beside={"renewals": 1, "until": 5}), What.ROW),
}


@pytest.mark.parametrize(("edit", "what"), FORGED.values(), ids=FORGED)
def test_a_job_that_cannot_be_as_it_says_is_refused_and_the_others_come(
    lines: list[str], tmp_path: Path, edit: Edit, what: What
) -> None:
    with file_in(tmp_path).open(clock=FakeClock()) as engine:
        done = engine.import_jobs(resealed(edit(lines)))
        assert (done.imported, [(each.what, each.job_id) for each in done.refused]) == (
            3, [(what, json.loads(lines[1])["id"])],
        )  # fmt: skip
        assert engine.verify().is_clean


@pytest.mark.parametrize(
    "damage",
    [each for each in (*ON_ENDED, *ON_RUNNING) if each.what not in {What.ROW, What.KEY, What.COUNTS, What.NO_ROW}],
    ids=lambda damage: damage.name,
)
def test_an_export_shows_offline_what_verify_found(
    engine: Engine, shell: Shell, damage: Damage, tmp_path: Path
) -> None:
    """What is wrong with a row is left behind: the row is made anew from its log."""
    good = succeeded(engine)
    damaged(damage, engine, shell)
    found = engine.verify().findings
    lines = list(engine.export_jobs())
    looked = [finding for batch in export.batches(lines, 10) for each in batch for finding in each.findings]
    assert [(each.what, each.job_id) for each in looked] == [(each.what, each.job_id) for each in found]
    with file_in(tmp_path / "..")._replace(url=f"sqlite:///{tmp_path / 'x.db'}").open() as other:
        done = other.import_jobs(lines)
        assert (done.imported, done.refused) == (1, tuple(looked))
        assert [job.id for job in other.list().jobs] == [good]


def test_a_frozen_job_whose_row_drifted_comes_in_mended(engine: Engine, shell: Shell, other: Engine) -> None:
    job_id = engine.enqueue("work").job_id
    shell.edit_row(job_id, failures=3)
    engine.verify()
    assert other.import_jobs(engine.export_jobs()).imported == 1
    assert other.verify().is_clean
    assert [claim.job_id for claim in other.claim("worker")] == [job_id]
