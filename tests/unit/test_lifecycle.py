"""Every cell of (state × event), asked of the table, of the fold and of the commands; and the shapes."""

from typing import Final

import pytest
from tests.unit.samples import EVENTS, fitting
from tests.unit.scene import CLIENT, JOB, KEEPER, SPEC, TIMER, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core import lifecycle
from leftfold.core.errors import CorruptLogError, RefusedError
from leftfold.core.job import Job, evolve
from leftfold.core.letters import Reason
from leftfold.core.lifecycle import SHAPE, Edge, Shape, State, Who, rule_for
from leftfold.core.limits import DAY
from leftfold.core.record import Record, encode
from leftfold.core.retry import Policy
from leftfold.core.values import CancelMode, Failure, Spec, Wait, WaitFor

# The design's table a second time, by hand. c: client, w: worker, o: owner, k: keeper, p: operator; a dot: illegal.
# fmt: off
DESIGN: Final = """
event         (new) inbox queued retrying claimed running waiting parked stalled succeeded failed cancelled dead_lettered leads_to
received      c     .     .      .        .       .       .       .      .       .         .      .         .             inbox
enqueued      c     c     .      .        .       .       .       .      .       .         .      .         .             queued
claimed       .     .     w      w        .       .       .       .      w       .         .      .         .             claimed
started       .     .     .      .        o       .       .       .      .       .         .      .         .             running
suspended     .     .     c      .        .       o       .       .      .       .         .      .         .             waiting
parked        .     .     .      .        .       o       .       .      .       .         .      .         .             parked
resumed       .     .     .      .        .       .       ck      c      .       .         .      .         .             queued
succeeded     .     .     .      .        .       o       .       .      .       .         .      .         .             succeeded
retried       .     .     .      .        o       o       .       .      .       .         .      .         .             retrying
released      .     .     .      .        o       o       .       .      .       .         .      .         .             queued
stalled       .     .     .      .        kp      kp      .       .      .       .         .      .         .             stalled
requeued      .     .     kp     kp       .       .       .       .      kp      .         p      .         p             queued
failed        .     .     .      .        o       o       .       .      k       .         .      .         .             failed
dead_lettered .     ckp   kp     kp       op      op      kp      kp     kp      .         .      .         .             dead_lettered
cancelled     .     ckp   ckp    ckp      cop     cop     ckp     ckp    ckp     .         .      .         .             cancelled
"""  # noqa: E501 - a row of the table is a line
# fmt: on
SHAPES: Final = """
inbox          -
queued         due
retrying       due error
claimed        lease
running        lease
waiting        wait
parked         wait
stalled        -
succeeded      result
failed         error
cancelled      -
dead_lettered  error
"""
INITIALS: Final = {"c": Who.CLIENT, "w": Who.WORKER, "o": Who.OWNER, "k": Who.KEEPER, "p": Who.OPERATOR}
SAMPLE: Final = {event.wire: event for event, _ in EVENTS}
#: A policy under which a failure that is the last one fails the job, and a keeper's stall only stalls it.
PLAIN: Final = Policy(on_exhausted="fail", hold_stalled=True)

Cell = tuple[State | None, type[e.AnyTransition], frozenset[Who], State]


def _cells() -> list[Cell]:
    head, *rows = [line.split() for line in DESIGN.split("\n") if line]
    sources = [None if name == "(new)" else State(name) for name in head[1:-1]]
    by_wire = {event.wire: event for event in e.TRANSITIONS}
    return [
        (source, by_wire[wire], frozenset(INITIALS[letter] for letter in cell.strip(".")), State(target))
        for wire, *cells, target in rows
        for source, cell in zip(sources, cells, strict=True)
    ]


CELLS: Final = _cells()
each_cell = pytest.mark.parametrize(
    ("source", "event", "who", "target"), CELLS, ids=[f"{cell[0] or 'new'}-{cell[1].wire}" for cell in CELLS]
)


def test_the_design_names_every_cell_once() -> None:
    assert len(CELLS) == len({cell[:2] for cell in CELLS}) == 13 * 15
    assert {cell[0] for cell in CELLS} == {None, *State}


@each_cell
def test_the_table_has_exactly_the_moves_of_the_design(
    source: State | None, event: type[e.AnyTransition], who: frozenset[Who], target: State
) -> None:
    rule = rule_for(source, event)
    assert (rule is not None) == bool(who)
    if rule is not None:
        assert (frozenset(rule.who), rule.target) == (who, target)
    assert (Edge(source, event, target) in lifecycle.EDGES) == bool(who)


@each_cell
def test_the_fold_takes_a_legal_event_from_the_right_hand_and_nothing_else(
    source: State | None, event: type[e.AnyTransition], who: frozenset[Who], target: State
) -> None:
    job = None if source is None else Scene.at(source).job
    said = fitting(SAMPLE[event.wire], job)
    for speaker in Who:
        record = Record(
            job_id=JOB,
            version=job.version + 1 if job else 1,
            at=job.updated_at if job else 0,
            who=speaker,
            actor="somebody",
            event=said,
            data=encode(said),
        )
        if speaker in who:
            assert evolve(job, record).state is target
        else:
            with pytest.raises(CorruptLogError):
                evolve(job, record)


@each_cell
def test_a_command_leads_along_a_legal_cell_and_is_refused_in_every_other(
    source: State | None, event: type[e.AnyTransition], who: frozenset[Who], target: State
) -> None:
    for speaker in Who:
        if (source, event) == (State.QUEUED, e.Suspended) and speaker is Who.CLIENT:
            continue  # written together with the enqueuing only: see test_creation
        scene = Scene.at(source, PLAIN)
        scene.now += DAY  # every lease and wait has run out, everything is due
        if (source, event, speaker) == (State.STALLED, e.Failed, Who.KEEPER):
            scene.pretend(failures=5)
        command = _command(event, source, scene.by(speaker))
        if (source, event, speaker) == (State.RUNNING, e.Started, Who.OWNER):
            assert scene.do(command) == []
        elif speaker in who:
            assert scene.do(command) == [event.wire]
            assert scene.job.state is target
            assert scene.log[-1].who is speaker
        else:
            with pytest.raises(RefusedError):
                scene.do(command)


def _command(event: type[e.AnyTransition], source: State | None, by: c.Actor) -> c.AnyCommand:
    """Give the command that asks for this event, in words that no earlier command of the scene used."""
    if event is e.Enqueued and source is None:
        return c.Enqueue(by=by, job_id=JOB, spec=SPEC)
    if event is e.Resumed and source in lifecycle.BLOCKED:
        return c.Signal(by=by, key="approved")
    if event is e.Failed and source is State.STALLED and by is KEEPER:
        return c.Requeue(by=by)
    commands: dict[type[e.AnyTransition], c.AnyCommand] = {
        e.Received: c.Receive(by=by, job_id=JOB, spec=Spec(kind="other")),
        e.Enqueued: c.Admit(by=by),
        e.Claimed: c.Claim(by=by, token=f"another-{source}", direct=True),
        e.Started: c.Start(by=by),
        e.Suspended: c.Suspend(by=by, wait=TIMER),
        e.Parked: c.Suspend(by=by, wait=Wait(until=WaitFor.SIGNAL, key="other")),
        e.Resumed: c.Expire(by=by),
        e.Succeeded: c.Complete(by=by),
        e.Retried: c.Fail(by=by, error=Failure(code="new")),
        e.Released: c.Release(by=by),
        e.Stalled: c.Stall(by=by),
        e.Requeued: c.Requeue(by=by, reason="again"),
        e.Failed: c.Fail(by=by, error=Failure(code="new"), permanent=True),
        e.DeadLettered: c.DeadLetter(by=by, error=Failure(code="new"), reason_code=Reason.TIMEOUT),
        e.Cancelled: c.Cancel(by=by, mode=CancelMode.HARD),
    }
    return commands[event]


@pytest.mark.parametrize("line", SHAPES.split("\n")[1:-1], ids=lambda line: line.split()[0])
def test_a_state_has_the_shape_of_the_design(line: str) -> None:
    name, *fields = line.replace("-", "").split()
    expected = [field in fields for field in ("due", "lease", "wait", "result", "error")]
    assert list(SHAPE[State(name)]) == expected
    job = Scene.at(State(name)).job
    assert [getattr(job, field) is not None for field in Shape._fields] == expected


def test_the_shapes_cover_every_state_and_name_fields_of_a_job() -> None:
    assert set(SHAPE) == set(State) == {State(line.split()[0]) for line in SHAPES.split("\n")[1:-1]}
    assert set(Shape._fields) <= set(Job.__struct_fields__)


def test_states_fall_into_the_groups_of_the_design() -> None:
    assert {State.SUCCEEDED, State.CANCELLED} == lifecycle.FINAL
    assert {State.FAILED, State.DEAD_LETTERED} == lifecycle.CLOSED
    assert {State.SUCCEEDED, State.CANCELLED, State.FAILED, State.DEAD_LETTERED} == lifecycle.ENDED
    assert {State.CLAIMED, State.RUNNING} == lifecycle.LEASED
    assert {State.WAITING, State.PARKED} == lifecycle.BLOCKED
    assert {State.QUEUED, State.RETRYING} == lifecycle.CLAIMABLE
    assert set(lifecycle.MEANING) == set(State)


def test_within_an_attempt_the_phase_only_rises() -> None:
    for source, event, who, target in CELLS:
        if source in lifecycle.LEASED and who:
            assert lifecycle.PHASE[target] > lifecycle.PHASE[source], (source, event.wire)


def test_an_edge_reads_as_a_sentence() -> None:
    assert str(Edge(None, e.Received, State.INBOX)) == "(new) -received-> inbox"
    assert str(Edge(State.CLAIMED, e.Started, State.RUNNING)) == "claimed -started-> running"


def test_a_job_that_is_not_there_is_created_by_a_client_only() -> None:
    assert Scene.empty().do(c.Receive(by=CLIENT, job_id=JOB, spec=SPEC)) == ["received"]
    with pytest.raises(RefusedError, match="it is for client"):
        Scene.empty().do(c.Receive(by=KEEPER, job_id=JOB, spec=SPEC))
