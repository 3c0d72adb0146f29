"""From what callers say to commands: defaults and units are filled in, and nonsense is refused by name."""

import math
import unicodedata
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftfold import asking
from leftfold.asking import NewJob
from leftfold.core import commands as c
from leftfold.core.errors import (
    LimitExceededError,
    PermanentError,
    TransientError,
    ValidationError,
)
from leftfold.core.letters import Reason, Stage
from leftfold.core.lifecycle import State, Who
from leftfold.core.limits import SECOND, TEXT_CHARS_MAX
from leftfold.core.retry import Policy
from leftfold.core.values import CancelMode, Failure, Spec, WaitFor
from leftfold.store.replies import Claim

JOB = "0190163d-8694-7000-8000-000000000001"
CLIENT = c.Actor(who=Who.CLIENT, name="ann")


def test_a_job_needs_no_more_than_its_kind() -> None:
    command = asking.enqueue(NewJob("work"), JOB, CLIENT, None)
    assert command == c.Enqueue(by=CLIENT, job_id=JOB, spec=Spec(kind="work"))


def test_everything_that_is_said_of_a_job_is_asked() -> None:
    moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    policy = Policy(max_failures=2)
    job = NewJob(
        "work", {"a": [1, None]}, "queue", "P1", moment, "key", "corr", "cause", "tenant", [JOB.upper()], policy
    )
    command = asking.enqueue(job, JOB, CLIENT, "ask")
    spec = command.spec
    assert (spec.kind, bytes(spec.payload), spec.queue, spec.priority) == ("work", b'{"a":[1,null]}', "queue", 20)
    assert (spec.key, spec.correlation_id, spec.cause, spec.tenant) == ("key", "corr", "cause", "tenant")
    assert (command.due, command.delay, command.after, command.policy) == (SECOND, None, (JOB,), policy)
    assert command.request_id == "ask"
    assert asking.enqueue(NewJob("work", due=1.5), JOB, CLIENT, None).delay == 1_500_000


@pytest.mark.parametrize(
    "job",
    [
        NewJob(""),
        NewJob("no name"),
        NewJob(7),  # type: ignore[arg-type]
        NewJob("work", object()),
        NewJob("work", math.nan),
        NewJob("work", queue=""),
        NewJob("work", queue=None),  # type: ignore[arg-type]
        NewJob("work", priority="P9"),
        NewJob("work", priority=40_000),
        NewJob("work", due="soon"),  # type: ignore[arg-type]
        NewJob("work", due=datetime(2024, 1, 1)),  # noqa: DTZ001 - that is the point
        NewJob("work", key=""),
        NewJob("work", key=7),  # type: ignore[arg-type]
        NewJob("work", key="a\nb"),
        NewJob("work", tenant=None),  # type: ignore[arg-type]
        NewJob("work", correlation_id="x" * 501),
        NewJob("work", cause="\x00"),
        NewJob("work", after=["not an id"]),
        NewJob("work", after=JOB),
        NewJob("work", policy=None),  # type: ignore[arg-type]
        NewJob("work", policy=Policy(max_failures=0)),
    ],
)
def test_a_job_that_cannot_be_meant_is_refused_before_any_store_hears_of_it(job: NewJob) -> None:
    with pytest.raises(ValidationError):
        asking.enqueue(job, JOB, CLIENT, None)


@pytest.mark.parametrize(
    ("given_", "number"),
    [("P0", 30), ("P1", 20), ("P2", 10), ("P3", 0), (5, 5), (-5, -5), ("5", 5), ("-17", -17), (0, 0)],
)
def test_a_priority_has_a_name_or_is_a_number(given_: int | str, number: int) -> None:
    assert asking.priority_of(given_) == number


@pytest.mark.parametrize("wrong", ["", "p1", "P4", "1.5", "+1", " 1", "1\n", "9" * 10, 1.5, True, None, [1]])
def test_what_is_no_priority_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="must be P0, P1, P2, P3 or a whole number"):
        asking.priority_of(wrong)


@pytest.mark.parametrize("spelled", [JOB, JOB.upper(), JOB.replace("-", ""), f"{{{JOB}}}", UUID(JOB)])
def test_an_id_is_known_however_it_is_spelled(spelled: object) -> None:
    assert asking.id_of(spelled) == JOB


@pytest.mark.parametrize("wrong", ["", "x", JOB[:-1], JOB + "0", None, 7, b"x", "g" * 36])
def test_what_is_no_id_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError, match="is not a job id"):
        asking.id_of(wrong)


def test_a_worker_takes_anything_unless_it_says_what() -> None:
    assert asking.wanted(None, None, 1) == (None, None, 1)
    assert asking.wanted(("a", "b"), iter(["k"]), 10_000) == (["a", "b"], ["k"], 10_000)
    assert asking.wanted([], [], 1) == ([], [], 1), "nothing is not anything"


@pytest.mark.parametrize(
    ("queues", "kinds", "limit"),
    [
        ("mail", None, 1),
        (None, "send", 1),
        ([""], None, 1),
        ([7], None, 1),
        (None, ["a b"], 1),
        (None, None, 0),
        (None, None, 10_001),
        (None, None, 1.5),
        (None, None, True),
    ],
)
def test_a_wish_that_cannot_be_meant_is_refused(queues: Any, kinds: Any, limit: Any) -> None:
    with pytest.raises(ValidationError):
        asking.wanted(queues, kinds, limit)


def test_one_name_where_names_are_asked_is_told_how_to_be_written() -> None:
    with pytest.raises(ValidationError, match=r"queues are a list: \['mail'\]"):
        asking.wanted("mail", None, 1)


def test_a_batch_has_an_end() -> None:
    asking.check_batch([0] * 10_000)
    with pytest.raises(LimitExceededError, match="at most 10000"):
        asking.check_batch([0] * 10_001)


def test_what_to_do_about_a_taken_key_is_one_of_four_things() -> None:
    for known in ("return", "raise", "skip", "replace"):
        asking.check_conflict(known)
    with pytest.raises(ValidationError, match="is none of return, raise, skip, replace"):
        asking.check_conflict("ignore")


def test_a_span_that_is_not_given_is_none() -> None:
    assert asking.span("lease", None) is None
    assert asking.span("lease", 2) == 2 * SECOND
    assert asking.span("lease", 0) == 0


def raised(error: BaseException) -> BaseException:
    try:
        raise error  # noqa: TRY301 - to have a traceback
    except BaseException as caught:  # noqa: BLE001 - whatever it is
        return caught


def test_an_error_is_kept_with_its_class_its_words_and_its_traceback() -> None:
    failure = asking.failure_of(raised(KeyError("x")))
    assert (failure.code, failure.message, failure.type) == ("error", "'x'", "KeyError")
    assert failure.traceback is not None
    assert failure.traceback.endswith("KeyError: 'x'\n")
    assert "in raised" in failure.traceback
    assert asking.failure_of(ValueError("v")).traceback is None
    assert asking.failure_of("broken") == Failure(code="error", message="broken")
    ready = Failure(code="mine", message="as it is")
    assert asking.failure_of(ready) is ready


@pytest.mark.parametrize(("error", "code"), [(TransientError("t"), "transient"), (PermanentError("p"), "permanent")])
def test_a_handlers_verdict_is_the_class_of_its_error(error: BaseException, code: str) -> None:
    failure = asking.failure_of(error)
    assert (failure.code, failure.type) == (code, f"leftfold.core.errors.{type(error).__name__}")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class WordlessError(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307 - that is the point


@pytest.mark.parametrize(
    "error",
    [
        UnprintableError(),
        WordlessError(),
        ValueError("\x00 and \ud800"),
        ValueError("x" * 10_000_000),
        ExceptionGroup("many", [ValueError(1), KeyError(2)]),
        SystemExit(3),
        KeyboardInterrupt(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"),
        RecursionError("deep"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_error_can_be_kept(error: BaseException) -> None:
    failure = asking.failure_of(raised(error))
    failure.check()
    assert c.Fail(by=c.Actor(who=Who.OWNER, name="w", attempt=1, token="t"), error=failure).error == failure


def test_an_error_that_cannot_be_printed_says_so() -> None:
    assert asking.failure_of(UnprintableError()).message == "(the error could not be printed: RuntimeError)"


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec=None)))
def test_any_text_can_be_made_printable(text: str) -> None:
    clean = asking.printable(text)
    assert not any(unicodedata.category(char) in {"Cc", "Cs"} and char not in "\n\t" for char in clean)
    clean.encode()
    assert asking.printable(clean) == clean


def test_what_a_terminal_would_obey_is_shown() -> None:
    assert asking.printable("\x1b[31mred\rover\x9b\x7f\r\nnext\tcell") == "␛[31mred␍over\\x9b␡\nnext\tcell"


def test_of_a_long_text_the_end_stays() -> None:
    kept = asking.printable("a" * TEXT_CHARS_MAX + "the end")
    assert len(kept) == TEXT_CHARS_MAX
    assert kept.startswith("[…]\n")
    assert kept.endswith("the end")
    assert asking.printable("a" * TEXT_CHARS_MAX) == "a" * TEXT_CHARS_MAX


def test_a_wait_is_for_a_signal_a_timer_or_jobs() -> None:
    wait, timeout = asking.wait_of("key", "signal", None, ())
    assert (wait.until, wait.key, wait.deadline, wait.jobs, timeout) == (WaitFor.SIGNAL, "key", None, (), None)
    wait, timeout = asking.wait_of("key", WaitFor.TIMER, 5, ())
    assert (wait.until, wait.deadline, timeout) == (WaitFor.TIMER, None, 5 * SECOND)
    wait, timeout = asking.wait_of("key", "signal", datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC), ())
    assert (wait.deadline, timeout) == (9 * SECOND, None)
    wait, _ = asking.wait_of("key", "signal", None, [JOB.upper()])
    assert (wait.until, wait.jobs) == (WaitFor.JOBS, (JOB,)), "whoever names jobs waits for jobs"
    with pytest.raises(ValidationError, match="wait 'noon' is none of signal, timer, jobs"):
        asking.wait_of("key", "noon", None, ())


def test_a_name_speaks_in_the_usual_role_and_an_actor_in_its_own() -> None:
    assert asking.actor_of(Who.CLIENT, None, "default") == c.Actor(who=Who.CLIENT, name="default")
    assert asking.actor_of(Who.OPERATOR, "ann", "default") == c.Actor(who=Who.OPERATOR, name="ann")
    keeper = c.Actor(who=Who.KEEPER, name="k")
    assert asking.actor_of(Who.CLIENT, keeper, "default") is keeper
    with pytest.raises(ValidationError):
        asking.actor_of(Who.CLIENT, "a\nb", "default")


def test_of_a_claim_its_owner_speaks_and_of_a_job_a_client() -> None:
    claim = Claim(
        job_id=JOB, attempt=2, token="t", owner="w", until=0, failures=0, spec=Spec(kind="work"), policy=Policy()
    )
    assert asking.speaker(claim, None, "default") == (JOB, c.Actor(who=Who.OWNER, name="w", attempt=2, token="t"))
    assert asking.speaker(JOB.upper(), None, "default") == (JOB, c.Actor(who=Who.CLIENT, name="default"))


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (None, None),
        ("queued", [State.QUEUED]),
        (State.QUEUED, [State.QUEUED]),
        (["queued", State.FAILED], [State.QUEUED, State.FAILED]),
        ([], []),
    ],
)
def test_states_are_listed_by_one_name_or_many(states: Any, expected: list[State] | None) -> None:
    assert asking.filter_of(states, queue="q").states == expected
    assert asking.filter_of(states, queue="q").queue == "q"


def test_what_is_none_of_the_choices_is_told_them() -> None:
    with pytest.raises(ValidationError, match=r"state 'done' is none of inbox, queued, .*dead_lettered"):
        asking.filter_of(["done"])
    with pytest.raises(ValidationError, match="mode 'maybe' is none of soft, hard"):
        asking.mode_of("maybe")
    with pytest.raises(ValidationError, match="stage 'later' is none of"):
        asking.stage_of("later")
    with pytest.raises(ValidationError, match="reason_code 'because' is none of"):
        asking.reason_of("because")
    assert asking.mode_of("hard") is CancelMode.HARD
    assert asking.stage_of(Stage.EXEC) is Stage.EXEC
    assert asking.reason_of(Reason.TIMEOUT.value) is Reason.TIMEOUT
