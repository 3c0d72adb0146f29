"""Notes: facts that change no state; who may write them, where, and how many."""

import msgspec
import pytest
from tests.unit.samples import EVENTS
from tests.unit.scene import CLIENT, KEEPER, NOW, OPERATOR, WORKER, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import (
    CorruptLogError,
    IllegalTransitionError,
    JobEndedError,
    LimitExceededError,
    NotPermittedError,
    ValidationError,
)
from leftfold.core.job import fold
from leftfold.core.lifecycle import CLOSED, ENDED, FINAL, LEASED, State
from leftfold.core.limits import EVENTS_PER_JOB_MAX

OWN_COMMANDS = (e.CancelRequested, e.Signalled)
NOTES = [event for event, _ in EVENTS if isinstance(event, e.Note) and not isinstance(event, OWN_COMMANDS)]
OPERATORS = [note for note in NOTES if isinstance(note, e.OperatorsNote)]
SEEN = e.Custom(name="seen")


@pytest.mark.parametrize("state", [state for state in State if state not in ENDED])
def test_a_live_job_takes_a_note_from_anybody_and_stays_as_it_is(state: State) -> None:
    for by in (CLIENT, WORKER, KEEPER, OPERATOR):
        scene = Scene.at(state)
        before = scene.job
        scene.now += 1
        assert scene.do(c.Note(by=by, note=SEEN)) == ["custom"]
        assert (scene.job.version, scene.job.updated_at) == (before.version + 1, scene.now)
        unchanged = [field for field in before.__struct_fields__ if field not in {"version", "updated_at"}]
        assert [getattr(scene.job, field) for field in unchanged] == [getattr(before, field) for field in unchanged]


@pytest.mark.parametrize("note", [note for note in NOTES if note not in OPERATORS], ids=lambda note: note.wire)
@pytest.mark.parametrize("state", sorted(LEASED))
def test_the_owner_writes_every_kind_of_note_but_those_of_operators(state: State, note: e.AnyNote) -> None:
    scene = Scene.at(state)
    assert scene.do(c.Note(by=scene.owner, note=note)) == [note.wire]
    assert scene.log[-1].event == note
    assert scene.job.state is state


@pytest.mark.parametrize("note", OPERATORS, ids=lambda note: note.wire)
def test_what_is_an_operators_to_say_nobody_else_says(note: e.AnyNote) -> None:
    scene = Scene.at(State.RUNNING)
    for by in (CLIENT, WORKER, KEEPER, scene.owner):
        with pytest.raises(NotPermittedError, match=f"is not for a {by.who}, it is for an operator"):
            c.Note(by=by, note=note)


def test_a_log_in_which_somebody_else_says_it_is_corrupt() -> None:
    scene = Scene.at(State.RUNNING)
    scene.do(c.Note(by=OPERATOR, note=e.Remarked(text="seen")))
    *log, said = scene.log
    with pytest.raises(CorruptLogError, match="is an operator's to say, not a keeper's"):
        fold([*log, msgspec.structs.replace(said, who=KEEPER.who)])


@pytest.mark.parametrize("note", [e.Remarked(text=" "), e.Remarked(text=""), e.Resolved(reason="\t\n")], ids=repr)
def test_an_operator_says_something(note: e.AnyNote) -> None:
    with pytest.raises(ValidationError, match="is empty: it stands on the log, so that others know"):
        c.Note(by=OPERATOR, note=note)


@pytest.mark.parametrize("state", [state for state in State if state is not State.DEAD_LETTERED])
def test_only_a_dead_letter_is_resolved(state: State) -> None:
    scene = Scene.at(state)
    error = JobEndedError if state in ENDED else IllegalTransitionError
    scene.refuse(c.Note(by=OPERATOR, note=e.Resolved(reason="known")), error, "there is nothing to resolve")
    if state not in FINAL:
        scene.do(c.Note(by=OPERATOR, note=e.Remarked(text="seen")))
        *log, said = scene.log
        with pytest.raises(CorruptLogError, match="settles a job that is"):
            fold([*log, msgspec.structs.replace(said, event=e.Resolved(reason="known"))])


def test_a_dead_letter_is_resolved_once_and_reopened_as_if_it_never_was() -> None:
    scene = Scene.at(State.DEAD_LETTERED)
    ended_at, incident = scene.job.ended_at, scene.job.incident
    assert incident is not None
    scene.now += 5
    assert scene.do(c.Note(by=OPERATOR, note=e.Resolved(reason="known"))) == ["resolved"]
    assert (scene.job.resolved_at, scene.job.ended_at, scene.job.incident) == (scene.now, ended_at, incident)
    assert scene.do(c.Note(by=OPERATOR, note=e.Resolved(reason="again"))) == []
    since = scene.job.resolved_at
    scene.now += 5
    assert scene.do(c.Note(by=OPERATOR, note=e.Resolved(reason="again"), request_id="r")) == ["resolved"]
    assert scene.job.resolved_at == since
    scene.do(c.Requeue(by=OPERATOR, reason="after all"))
    assert (scene.job.resolved_at, scene.job.ended_at, scene.job.incident) == (None, None, None)


@pytest.mark.parametrize("state", sorted(ENDED))
def test_after_the_end_only_an_operator_writes_and_only_on_a_closed_job(state: State) -> None:
    for by in (CLIENT, WORKER, KEEPER, OPERATOR):
        scene = Scene.at(state)
        if state in CLOSED and by is OPERATOR:
            assert scene.do(c.Note(by=by, note=SEEN)) == ["custom"]
            assert scene.job.state is state
        else:
            scene.refuse(c.Note(by=by, note=SEEN), JobEndedError, f"is {state} takes no note from a {by.who}")


def test_a_job_takes_so_many_events_and_then_no_notes() -> None:
    scene = Scene.at(State.RUNNING)
    scene.pretend(version=EVENTS_PER_JOB_MAX - 1)
    assert scene.do(c.Note(by=scene.owner, note=SEEN)) == ["custom"]
    assert scene.job.version == EVENTS_PER_JOB_MAX == 10_000
    for by in (scene.owner, CLIENT):
        scene.refuse(c.Note(by=by, note=SEEN), LimitExceededError)
    assert scene.do(c.Note(by=OPERATOR, note=SEEN)) == ["custom"]


def test_time_never_falls_within_a_job() -> None:
    scene = Scene.at(State.RUNNING)
    scene.now = NOW - 500  # a clock that was set back
    scene.do(c.Note(by=scene.owner, note=SEEN))
    assert scene.log[-1].at == scene.job.updated_at == NOW
