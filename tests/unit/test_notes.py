"""Notes: facts that change no state; who may write them, where, and how many."""

import pytest
from tests.unit.samples import EVENTS
from tests.unit.scene import CLIENT, KEEPER, NOW, OPERATOR, WORKER, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import JobEndedError, LimitExceededError
from leftfold.core.lifecycle import CLOSED, ENDED, LEASED, State
from leftfold.core.limits import EVENTS_PER_JOB_MAX

OWN_COMMANDS = (e.CancelRequested, e.Signalled)
NOTES = [event for event, _ in EVENTS if isinstance(event, e.Note) and not isinstance(event, OWN_COMMANDS)]
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


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.wire)
@pytest.mark.parametrize("state", sorted(LEASED))
def test_the_owner_writes_every_kind_of_note(state: State, note: e.AnyNote) -> None:
    scene = Scene.at(state)
    assert scene.do(c.Note(by=scene.owner, note=note)) == [note.wire]
    assert scene.log[-1].event == note
    assert scene.job.state is state


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
