"""The vocabulary: complete, its names fixed, its values frozen, its arguments checked when they are made."""

import inspect
from collections.abc import Callable
from typing import Final, get_args

import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.unit.samples import EVENTS, json_text
from tests.unit.scene import APPROVAL, BROKEN, CLIENT, SPEC, TIMER, WORKER, owner_of

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import LimitExceededError, ValidationError
from leftfold.core.letters import Reason
from leftfold.core.lifecycle import Who
from leftfold.core.limits import DAY, DELAY_MAX, TIME_MAX
from leftfold.core.retry import Policy
from leftfold.core.values import Answer, Failure, Spec, Wait, WaitFor

TRANSITIONS: Final = [
    "received",
    "enqueued",
    "claimed",
    "started",
    "suspended",
    "parked",
    "resumed",
    "succeeded",
    "retried",
    "released",
    "stalled",
    "requeued",
    "failed",
    "dead_lettered",
    "cancelled",
]
NOTES: Final = [
    "cancel_requested",
    "cancel_delivered",
    "starved",
    "signalled",
    "progress",
    "plan_generated",
    "node_started",
    "node_finished",
    "step_started",
    "step_finished",
    "tool_invocation_started",
    "tool_invocation_finished",
    "evidence_added",
    "compensated",
    "custom",
    "remarked",
    "resolved",
]
COMMANDS: Final = [
    "receive",
    "enqueue",
    "admit",
    "claim",
    "start",
    "heartbeat",
    "complete",
    "fail",
    "release",
    "suspend",
    "note",
    "signal",
    "expire",
    "resume",
    "stall",
    "requeue",
    "cancel",
    "dead_letter",
]


def test_the_names_on_the_wire_never_change() -> None:
    assert [event.wire for event in e.TRANSITIONS] == TRANSITIONS
    assert [note.wire for note in e.NOTES] == NOTES
    assert list(e.BY_WIRE) == TRANSITIONS + NOTES
    assert [command.wire for command in get_args(c.AnyCommand)] == COMMANDS


def test_a_name_stands_for_one_event() -> None:
    assert len(e.BY_WIRE) == len(e.TRANSITIONS) + len(e.NOTES) == 32
    assert all(event.wire == wire for wire, event in e.BY_WIRE.items())


def test_the_unions_hold_every_event_and_every_command() -> None:
    assert set(e.TRANSITIONS) == set(e.Transition.__subclasses__())
    assert set(e.NOTES) == {
        *e.Note.__subclasses__(), *e.OwnersNote.__subclasses__(), *e.OperatorsNote.__subclasses__(),
    } - {e.OwnersNote, e.OperatorsNote}  # fmt: skip
    assert set(e.Event.__subclasses__()) == {e.Transition, e.Note}
    concrete = {
        value
        for value in vars(c).values()
        if inspect.isclass(value) and issubclass(value, c.Command) and "wire" in vars(value)
    }
    assert set(get_args(c.AnyCommand)) == concrete


@pytest.mark.parametrize("event", [event for event, _ in EVENTS], ids=lambda event: event.wire)
def test_an_event_is_frozen(event: e.AnyEvent) -> None:
    for field in (*event.__struct_fields__, "wire"):
        with pytest.raises(AttributeError):
            setattr(event, field, None)


def test_a_command_is_frozen_and_built_by_keyword() -> None:
    with pytest.raises(AttributeError):
        c.Start(by=CLIENT).by = WORKER  # type: ignore[misc]  # that is what is tested
    with pytest.raises(TypeError):
        c.Start(CLIENT)  # type: ignore[call-arg]  # that is what is tested


def test_a_renewal_is_no_event() -> None:
    assert not issubclass(e.Renewed, e.Event)
    assert "renewed" not in e.BY_WIRE


def test_the_answer_of_a_wait_for_jobs_is_how_they_ended() -> None:
    ended = e.Resumed(key="after", payload=Raw(b"1"), outcomes={"b": "failed", "a": "succeeded"})
    jobs = Wait(until=WaitFor.JOBS, key="after", jobs=("a", "b"))
    assert ended.answer(jobs) == Answer(payload=Raw(b'{"b":"failed","a":"succeeded"}'), until=WaitFor.JOBS)
    signal = Wait(until=WaitFor.SIGNAL, key="k")
    assert e.Resumed(key="k", payload=Raw(b"1")).answer(signal) == Answer(payload=Raw(b"1"))


def test_a_stall_is_an_error_of_its_own_class() -> None:
    assert e.LEASE_EXPIRED == "lease_expired"
    silent, explained = e.Stalled(owner="w", lease_until=1), e.Stalled(owner="w", lease_until=1, reason="late")
    assert silent.error == Failure(code="lease_expired", message="w is no longer trusted")
    assert explained.error == Failure(code="lease_expired", message="late")


@pytest.mark.parametrize("who", Who)
def test_an_owner_shows_attempt_and_token_and_nobody_else_does(who: Who) -> None:
    shown = {(attempt, mark) for attempt in (0, 1) for mark in ("", "secret") if _makes(who, attempt, mark)}
    if who is Who.OWNER:
        assert shown == {(1, "secret")}
    else:
        assert (0, "") in shown
        assert (1, "secret") not in shown


def _makes(who: Who, attempt: int, mark: str) -> bool:
    try:
        c.Actor(who=who, name="somebody", attempt=attempt, token=mark)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", ["", "a\nb", "\ud800", "n" * 501])
def test_an_actor_has_a_printable_name(name: str) -> None:
    with pytest.raises(ValidationError):
        c.Actor(who=Who.CLIENT, name=name)


OWNER: Final = owner_of(1)
LIMIT, INVALID = LimitExceededError, ValidationError
BIG: Final = json_text(262_145)
BIG_NAME: Final = "s" * 262_144

#: A command, an argument of it and values that cannot be meant.
BAD: Final[list[tuple[Callable[..., c.AnyCommand], str, type[ValidationError], list[object]]]] = [
    (lambda **a: c.Start(by=OWNER, **a), "request_id", INVALID, ["", "a\x00"]),
    (lambda **a: c.Start(by=OWNER, **a), "request_id", LIMIT, ["r" * 501]),
    (lambda **a: c.Receive(by=CLIENT, spec=SPEC, **a), "job_id", INVALID, ["", "a b", "-a"]),
    (lambda **a: c.Enqueue(by=CLIENT, spec=SPEC, **a), "job_id", LIMIT, ["j" * 201]),
    (lambda **a: c.Receive(by=CLIENT, job_id="j", **a), "spec", INVALID, [Spec(kind="")]),
    (lambda **a: c.Enqueue(by=CLIENT, job_id="j", **a), "spec", LIMIT, [Spec(kind="k", payload=BIG)]),
    (lambda **a: c.Enqueue(by=CLIENT, job_id="j", spec=SPEC, **a), "policy", LIMIT, [Policy(max_failures=0)]),
    (lambda **a: c.Enqueue(by=CLIENT, job_id="j", spec=SPEC, **a), "due", LIMIT, [-1, TIME_MAX + 1]),
    (lambda **a: c.Enqueue(by=CLIENT, job_id="j", spec=SPEC, **a), "delay", LIMIT, [-1, DELAY_MAX + 1]),
    (lambda **a: c.Enqueue(by=CLIENT, job_id="j", spec=SPEC, due=0, **a), "delay", INVALID, [0, 1]),
    (lambda **a: c.Enqueue(by=CLIENT, job_id="j", spec=SPEC, **a), "after", LIMIT, [("a",) * 1_001]),
    (lambda **a: c.Admit(by=CLIENT, **a), "policy", LIMIT, [Policy(lease=0)]),
    (lambda **a: c.Admit(by=CLIENT, **a), "due", LIMIT, [-1]),
    (lambda **a: c.Admit(by=CLIENT, **a), "delay", LIMIT, [-1, DELAY_MAX + 1]),
    (lambda **a: c.Admit(by=CLIENT, due=1, **a), "delay", INVALID, [0, 1]),
    (lambda **a: c.Admit(by=CLIENT, **a), "spec", INVALID, [Spec(kind="")]),
    (lambda **a: c.Claim(by=WORKER, **a), "token", INVALID, ["", "a\nb"]),
    (lambda **a: c.Claim(by=WORKER, token="t", **a), "lease", LIMIT, [0, 99_999, DAY + 1]),
    (lambda **a: c.Heartbeat(by=OWNER, **a), "lease", LIMIT, [0, DAY + 1]),
    (lambda **a: c.Complete(by=OWNER, **a), "result", LIMIT, [BIG]),
    (lambda **a: c.Fail(by=OWNER, **a), "error", INVALID, [Failure(code="")]),
    (lambda **a: c.Fail(by=OWNER, error=BROKEN, **a), "delay", LIMIT, [-1, DELAY_MAX + 1]),
    (lambda **a: c.Release(by=OWNER, **a), "due", LIMIT, [-1]),
    (lambda **a: c.Release(by=OWNER, **a), "delay", LIMIT, [-1, DELAY_MAX + 1]),
    (lambda **a: c.Release(by=OWNER, due=1, **a), "delay", INVALID, [0, 1]),
    (lambda **a: c.Release(by=OWNER, **a), "reason", INVALID, ["\x00"]),
    (lambda **a: c.Suspend(by=OWNER, **a), "wait", INVALID, [Wait(until=WaitFor.TIMER, key="k")]),
    (lambda **a: c.Suspend(by=OWNER, wait=APPROVAL, **a), "timeout", LIMIT, [-1, DELAY_MAX + 1]),
    (lambda **a: c.Suspend(by=OWNER, wait=TIMER, **a), "timeout", INVALID, [0, 1]),
    (lambda **a: c.Signal(by=CLIENT, **a), "key", INVALID, ["", "a b"]),
    (lambda **a: c.Signal(by=CLIENT, key="k", **a), "payload", LIMIT, [BIG]),
    (lambda **a: c.Stall(by=WORKER, **a), "reason", LIMIT, ["r" * 65_537]),
    (lambda **a: c.Requeue(by=CLIENT, **a), "due", LIMIT, [TIME_MAX + 1]),
    (lambda **a: c.Requeue(by=CLIENT, **a), "delay", LIMIT, [-1, DELAY_MAX + 1]),
    (lambda **a: c.Requeue(by=CLIENT, due=1, **a), "delay", INVALID, [0, 1]),
    (lambda **a: c.Requeue(by=CLIENT, **a), "reason", INVALID, ["\ud800"]),
    (lambda **a: c.Cancel(by=CLIENT, **a), "reason", INVALID, ["\x00"]),
    (
        lambda **a: c.DeadLetter(by=CLIENT, reason_code=Reason.TIMEOUT, **a),
        "error",
        INVALID,
        [Failure(code="a b")],
    ),
    (lambda **a: c.Note(by=CLIENT, **a), "note", INVALID, [e.CancelRequested(), e.Signalled(key="k")]),
    (lambda **a: c.Note(by=CLIENT, **a), "note", LIMIT, [e.Custom(name="n", data=BIG), e.StepStarted(step=BIG_NAME)]),
    (
        lambda **a: c.Note(by=CLIENT, **a),
        "note",
        INVALID,
        [e.Progress(fraction=-0.01), e.Progress(fraction=1.01), e.Progress(fraction=float("nan"))],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "argument", "error", "values"), BAD, ids=[f"{row[1]}-{n}" for n, row in enumerate(BAD)]
)
def test_an_argument_that_cannot_be_meant_is_refused_when_the_command_is_made(
    make: Callable[..., c.AnyCommand], argument: str, error: type[ValidationError], values: list[object]
) -> None:
    for value in values:
        with pytest.raises(error) as caught:
            make(**{argument: value})
        assert type(caught.value) is error


def test_arguments_at_their_bounds_are_fine() -> None:
    made: list[c.AnyCommand] = [
        c.Enqueue(by=CLIENT, job_id="j" * 200, spec=SPEC, due=TIME_MAX, after=("a",) * 1_000, request_id="r" * 500),
        c.Enqueue(by=CLIENT, job_id="j", spec=SPEC, due=0, after=()),
        c.Claim(by=WORKER, token="t" * 500, lease=100_000),
        c.Claim(by=WORKER, token="t", lease=DAY),
        c.Fail(by=OWNER, error=BROKEN, delay=DELAY_MAX),
        c.Note(by=OWNER, note=e.Progress(fraction=0.0)),
        c.Note(by=OWNER, note=e.Progress(fraction=1.0)),
        c.Suspend(by=OWNER, wait=APPROVAL),
        c.Suspend(by=OWNER, wait=APPROVAL, timeout=0),
        c.Suspend(by=OWNER, wait=replace(TIMER, deadline=None), timeout=DELAY_MAX),
        c.Requeue(by=CLIENT, delay=0),
        c.Requeue(by=CLIENT, delay=DELAY_MAX),
    ]
    assert [command.wire for command in made] == [
        "enqueue", "enqueue", "claim", "claim", "fail", "note", "note", "suspend", "suspend", "suspend",
        "requeue", "requeue",
    ]  # fmt: skip


def test_only_others_than_the_owner_compare_revisions() -> None:
    for command in get_args(c.AnyCommand):
        shared = issubclass(command, c.SharedCommand)
        assert ("expected_rev" in command.__struct_fields__) == shared
        assert issubclass(command, c.OwnerCommand | c.Creation) or shared or command is c.Claim
