"""Notes: facts that change no state."""

from typing import Any, Final

import pytest
from msgspec import Raw

from leftfold import Receipt
from leftfold.core import events as e
from leftfold.core.errors import (
    JobNotFoundError,
    LeaseConflictError,
    LimitExceededError,
    NotPermittedError,
    ValidationError,
)
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import EVENTS_PER_JOB_MAX
from leftfold.testing.conformance.scene import NOBODY, Scene, forged, shown

DATA: Final = Raw(b'{"a":[1,"Zo\xc3\xab \\"quoted\\""]}')
NOTES: Final[list[e.AnyNote]] = [
    e.CancelDelivered(),
    e.Starved(attempt=1, length=90_000_000),
    e.Progress(fraction=0.25, message="a quarter, or ¼"),
    e.PlanGenerated(plan=DATA),
    e.NodeStarted(node="fetch", data=DATA),
    e.NodeFinished(node="fetch", data=DATA),
    e.StepStarted(step="pay", data=DATA),
    e.StepFinished(step="pay", result=DATA),
    e.ToolInvocationStarted(tool="browser", invocation="1", data=DATA),
    e.ToolInvocationFinished(tool="browser", invocation="1", data=DATA),
    e.EvidenceAdded(name="report.json", data=DATA),
    e.Compensated(step="pay", data=DATA),
    e.Custom(name="my own", data=DATA),
]
BAD_NOTES: Final[list[tuple[e.AnyNote, type[Exception]]]] = [
    (e.Custom(name=""), ValidationError),
    (e.Custom(name="tab\t"), ValidationError),
    (e.Custom(name="x" * 501), LimitExceededError),
    (e.Custom(name="x", data=Raw(b"{")), ValidationError),
    (e.Custom(name="x", data=Raw(b" 1")), ValidationError),
    (e.Custom(name="x", data=Raw(b'"\\u0000"')), ValidationError),
    (e.Custom(name="x", data=Raw(b'"' + b"x" * 262_143 + b'"')), LimitExceededError),
    (e.Progress(fraction=1.5), ValidationError),
    (e.Progress(fraction=2), ValidationError),
    (e.Progress(fraction=float("nan")), ValidationError),
    (e.Progress(fraction=0.5, message="\x00"), ValidationError),
    (e.Progress(fraction=0.5, message="x" * 65_537), LimitExceededError),
    (e.CancelRequested(), ValidationError),
    (e.Signalled(key="approved"), ValidationError),
]


class TestNote:
    """One note."""

    @pytest.mark.parametrize("note", NOTES, ids=lambda note: note.wire)
    def test_an_owner_writes_every_sort_of_note(self, scene: Scene, note: e.AnyNote) -> None:
        claim = scene.started()
        receipt = scene.engine.note(claim, note)
        assert (receipt.state, receipt.version, receipt.rev) == (State.RUNNING, 4, 4)
        record = scene.last(claim.job_id)
        assert (record.event, record.who, record.actor) == (note, Who.OWNER, "worker-1")

    @pytest.mark.parametrize("note", NOTES, ids=lambda note: note.wire)
    def test_what_only_the_handler_knows_is_the_owners_to_say(self, scene: Scene, note: e.AnyNote) -> None:
        job_id = scene.reach(State.RUNNING).job_id
        if isinstance(note, e.OwnersNote):
            with scene.refuses(NotPermittedError):
                scene.engine.note(job_id, note)
        else:
            assert scene.engine.note(job_id, note, by="ann").state is State.RUNNING
            assert (scene.last(job_id).who, scene.last(job_id).actor) == (Who.CLIENT, "ann")

    @pytest.mark.parametrize(("note", "error"), BAD_NOTES, ids=shown)
    def test_what_cannot_be_meant_is_refused(self, scene: Scene, note: e.AnyNote, error: type[Exception]) -> None:
        claim = scene.started()
        with scene.refuses(error):
            scene.engine.note(claim, note)

    @pytest.mark.parametrize("fraction", [0.0, 1.0, 1, 0])
    def test_progress_goes_from_nought_to_one(self, scene: Scene, fraction: Any) -> None:
        claim = scene.started()
        scene.engine.note(claim, e.Progress(fraction=fraction))
        assert scene.last(claim.job_id).event == e.Progress(fraction=float(fraction))

    def test_an_owner_is_held_to_its_claim_and_not_to_a_rev(self, scene: Scene) -> None:
        claim = scene.started()
        with scene.refuses(ValidationError):
            scene.engine.note(claim, NOTES[0], expected_rev=3)

    def test_a_job_that_is_not_there_is_refused(self, scene: Scene) -> None:
        for job in (NOBODY, forged(NOBODY)):
            with scene.refuses(JobNotFoundError):
                scene.engine.note(job, e.Custom(name="seen"))


class TestNoteMany:
    """Notes on many logs, or many on one."""

    def test_each_stands_on_its_log(self, scene: Scene) -> None:
        claims = [scene.started() for _ in range(3)]
        scene.engine.note_many((claim, e.Custom(name=f"n{place}")) for place, claim in enumerate(claims))
        assert [scene.last(claim.job_id).event for claim in claims] == [e.Custom(name=f"n{n}") for n in range(3)]

    def test_many_on_one_stand_in_the_order_given(self, scene: Scene) -> None:
        claim, other = scene.started(), scene.started()
        notes = [e.Custom(name=f"n{number}") for number in range(5)]
        pairs = [(claim, note) for note in notes]
        pairs.insert(2, (other, e.Custom(name="other")))
        outcomes = scene.engine.note_many(pairs)
        versions = [outcome.version for outcome in outcomes if isinstance(outcome, Receipt)]
        assert versions == [4, 5, 4, 6, 7, 8]
        assert [record.event for record in scene.engine.history(claim.job_id)[3:]] == notes

    def test_one_refusal_does_not_stop_the_others(self, scene: Scene) -> None:
        claim = scene.started()
        note = e.Custom(name="seen")
        outcomes = scene.engine.note_many([(forged(claim.job_id), note), (forged(NOBODY), note), (claim, note)])
        assert [type(outcome) for outcome in outcomes] == [LeaseConflictError, JobNotFoundError, Receipt]

    def test_none_are_none(self, scene: Scene) -> None:
        assert scene.engine.note_many([]) == []


class TestTheLongestLog:
    """Past the limit of events, an owner may only end its job."""

    def test_it_takes_no_more_notes_and_can_still_be_completed(self, scene: Scene) -> None:
        claim = scene.started()
        missing = EVENTS_PER_JOB_MAX - 3
        outcomes = scene.engine.note_many([(claim, e.Custom(name="n"))] * missing)
        assert scene.job(claim.job_id).version == EVENTS_PER_JOB_MAX
        assert all(isinstance(outcome, Receipt) for outcome in outcomes)
        with scene.refuses(LimitExceededError):
            scene.engine.note(claim, e.Custom(name="n"))
        with pytest.raises(LimitExceededError):
            scene.engine.release(claim)
        assert scene.engine.heartbeat(claim).rev == EVENTS_PER_JOB_MAX + 1
        assert scene.engine.complete(claim).version == EVENTS_PER_JOB_MAX + 1
