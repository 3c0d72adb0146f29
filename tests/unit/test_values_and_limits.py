"""Values refuse what no store and no screen could carry, at the bound and not before it."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec import Raw
from tests.unit.samples import json_text
from tests.unit.scene import CLIENT, owner_of

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core import limits
from leftfold.core.decide import apply
from leftfold.core.errors import LimitExceededError, ValidationError
from leftfold.core.payload import NULL
from leftfold.core.values import Answer, CancelMode, Failure, Spec, Wait, WaitFor

NAME_MAX, KEY_MAX, TEXT_MAX, BYTES_MAX = "n" * 200, "k" * 500, "t" * 65_536, json_text(262_144)
TOO_BIG: Final = json_text(262_145)
LIMIT, INVALID = LimitExceededError, ValidationError


def refused(error: type[ValidationError], value: Spec | Failure | Wait) -> None:
    with pytest.raises(error) as caught:
        value.check()
    assert type(caught.value) is error


def test_the_bounds_are_those_that_the_docs_name() -> None:
    bounds = {name: value for name, value in vars(limits).items() if name.endswith(("_MAX", "_MIN"))}
    second = 1_000_000
    assert bounds == {
        "NAME_CHARS_MAX": 200,
        "KEY_CHARS_MAX": 500,
        "TEXT_CHARS_MAX": 65_536,
        "PAYLOAD_BYTES_MAX": 262_144,
        "PAYLOAD_DEPTH_MAX": 100,
        "EVENTS_PER_JOB_MAX": 10_000,
        "SIGNALS_PER_JOB_MAX": 100,
        "WAIT_JOBS_MAX": 1_000,
        "PRIORITY_MAX": 32_767,
        "FAILURES_MAX": 1_000_000,
        "LEASE_MIN": 100_000,
        "LEASE_MAX": 86_400 * second,
        "TIME_MAX": 253_402_300_799 * second,
        "DELAY_MAX": 3_650 * 86_400 * second,
    }


@pytest.mark.parametrize("value", ["a", "_", "9", "A-1", "a.b:c/d@e+f-g", "018f-uuid", NAME_MAX])
def test_a_name_that_is_fine(value: str) -> None:
    limits.name("kind", value)
    limits.name("kind", value, empty=True)


@pytest.mark.parametrize("value", ["-a", ".a", "/a", "a b", "a\n", "\n", "ä", "a;b", "a\x00", "a?b", "%41"])
def test_a_name_that_something_would_misread(value: str) -> None:
    for empty in (False, True):
        with pytest.raises(ValidationError, match="is not a name"):
            limits.name("kind", value, empty=empty)


def test_what_no_cache_can_hold_is_no_name_either() -> None:
    wrong: Any = ["k"]
    with pytest.raises(ValidationError, match="kind must be a text, not \\['k'\\]"):
        Spec(kind=wrong).check()


def test_an_empty_name_is_one_only_where_it_may_be() -> None:
    limits.name("tenant", "", empty=True)
    with pytest.raises(ValidationError, match="kind '' is not a name"):
        limits.name("kind", "")
    with pytest.raises(LimitExceededError, match="kind has a length of 201, at most 200"):
        limits.name("kind", NAME_MAX + "n")


@pytest.mark.parametrize("value", [None, "a", "ä b", "💡", KEY_MAX])
def test_a_key_that_is_fine(value: str | None) -> None:
    limits.key("key", value)


@pytest.mark.parametrize("value", ["", "a\nb", "\x00", "\x1f", "\x7f", "\ud800", "a\udfff"])
def test_a_key_that_is_no_text(value: str) -> None:
    with pytest.raises(ValidationError, match="non-empty text without control characters"):
        limits.key("key", value)


def test_a_key_that_is_too_long() -> None:
    with pytest.raises(LimitExceededError, match="length of 501"):
        limits.key("key", KEY_MAX + "k")


@pytest.mark.parametrize("value", [None, "", "two\nlines\tand a tab", "💡ä", TEXT_MAX])
def test_a_text_that_is_fine(value: str | None) -> None:
    limits.text("reason", value)


@pytest.mark.parametrize("value", ["a\x00", "ä\x00", "\ud800", "ä\udfff"])
def test_a_text_that_no_store_keeps(value: str) -> None:
    with pytest.raises(ValidationError, match="a NUL or half of a surrogate pair"):
        limits.text("reason", value)


def test_a_text_that_is_too_long() -> None:
    with pytest.raises(LimitExceededError):
        limits.text("reason", TEXT_MAX + "t")


@pytest.mark.parametrize(("value", "fine"), [(0, False), (1, True), (2, True), (3, True), (4, False)])
def test_a_number_lies_between_its_bounds(value: int, *, fine: bool) -> None:
    if fine:
        limits.between("n", value, 1, 3)
    else:
        with pytest.raises(LimitExceededError, match=f"n is {value}, it must lie between 1 and 3"):
            limits.between("n", value, 1, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: c.Note(by=CLIENT, note=e.Custom(name="\ud800")),
        lambda: c.Note(by=CLIENT, note=e.Custom(name="")),
        lambda: c.Note(by=owner_of(1), note=e.Progress(fraction=0.1, message="\x00")),
        lambda: c.Note(by=owner_of(1), note=e.Progress(fraction=1.5)),
        lambda: c.Enqueue(by=CLIENT, job_id="j", spec=Spec(kind="k"), after=("\ud800",)),
        lambda: c.Resume(by=CLIENT, outcomes={"j": "running"}),
        lambda: c.Resume(by=CLIENT, outcomes={"": "failed"}),
        lambda: c.Suspend(by=owner_of(1), wait=Wait(until=WaitFor.SIGNAL, key="k", not_before=10**30)),
    ],
)
def test_what_no_store_could_keep_is_refused_when_it_is_said(make: Callable[[], c.AnyCommand]) -> None:
    with pytest.raises(ValidationError):
        make()


def test_a_job_cannot_wait_for_itself() -> None:
    with pytest.raises(ValidationError, match="itself"):
        apply(None, c.Enqueue(by=CLIENT, job_id="j", spec=Spec(kind="k"), after=("i", "j")), 0)


def test_values_at_their_bounds_are_fine() -> None:
    Spec(
        kind=NAME_MAX,
        payload=BYTES_MAX,
        queue=NAME_MAX,
        priority=-32_767,
        key=KEY_MAX,
        tenant=NAME_MAX,
        correlation_id=KEY_MAX,
        cause=KEY_MAX,
    ).check()
    Spec(kind="k", priority=32_767, tenant="").check()
    Failure(code=NAME_MAX, message=TEXT_MAX, type=TEXT_MAX, traceback=TEXT_MAX, details=BYTES_MAX).check()
    Wait(until=WaitFor.JOBS, key=NAME_MAX, deadline=limits.TIME_MAX, jobs=("j",) * 1_000).check()
    Wait(until=WaitFor.SIGNAL, key="k", deadline=0).check()


@pytest.mark.parametrize(
    ("error", "spec"),
    [
        (INVALID, Spec(kind="")),
        (INVALID, Spec(kind="k", queue="")),
        (INVALID, Spec(kind="k", tenant="no tenant")),
        (INVALID, Spec(kind="k", key="")),
        (INVALID, Spec(kind="k", correlation_id="")),
        (INVALID, Spec(kind="k", cause="a\nb")),
        (LIMIT, Spec(kind="k", priority=32_768)),
        (LIMIT, Spec(kind="k", priority=-32_768)),
        (LIMIT, Spec(kind="k", payload=TOO_BIG)),
    ],
)
def test_a_spec_that_could_not_be_carried(error: type[ValidationError], spec: Spec) -> None:
    refused(error, spec)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (INVALID, Failure(code="no code")),
        (INVALID, Failure(code="c", message="\x00")),
        (INVALID, Failure(code="c", type="\x00")),
        (INVALID, Failure(code="c", traceback="\ud800")),
        (LIMIT, Failure(code="c", message=TEXT_MAX + "t")),
        (LIMIT, Failure(code="c", details=TOO_BIG)),
    ],
)
def test_a_failure_that_could_not_be_kept(error: type[ValidationError], failure: Failure) -> None:
    refused(error, failure)


@pytest.mark.parametrize(
    ("error", "wait"),
    [
        (INVALID, Wait(until=WaitFor.SIGNAL, key="")),
        (INVALID, Wait(until=WaitFor.JOBS, key="k")),
        (INVALID, Wait(until=WaitFor.SIGNAL, key="k", jobs=("j",))),
        (INVALID, Wait(until=WaitFor.TIMER, key="k", deadline=1, jobs=("j",))),
        (LIMIT, Wait(until=WaitFor.JOBS, key="k", jobs=("j",) * 1_001)),
        (LIMIT, Wait(until=WaitFor.TIMER, key="k", deadline=-1)),
        (LIMIT, Wait(until=WaitFor.TIMER, key="k", deadline=limits.TIME_MAX + 1)),
    ],
)
def test_a_wait_that_nothing_could_end_or_that_says_two_things(error: type[ValidationError], wait: Wait) -> None:
    refused(error, wait)


def test_the_names_of_values_never_change() -> None:
    assert [str(until) for until in WaitFor] == ["signal", "timer", "jobs"]
    assert [str(mode) for mode in CancelMode] == ["soft", "hard"]
    assert Raw(b"null") == NULL
    assert Answer() == Answer(payload=NULL, expired=False)
    assert Spec(kind="k") == Spec(
        kind="k", payload=NULL, queue="default", priority=0, key=None, tenant="", correlation_id=None, cause=None
    )
