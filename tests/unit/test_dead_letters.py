"""Dead letters carry everything an incident needs, whichever way the job came to be one."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import pytest
from tests.unit.scene import BROKEN, CLIENT, FLAKY, KEEPER, NOW, OPERATOR, WORKER, Scene

from leftfold.core import commands as c
from leftfold.core import events as e
from leftfold.core.errors import CorruptLogError, JobEndedError, NotPermittedError
from leftfold.core.job import fold
from leftfold.core.letters import BY_ERROR_CODE, REQUIRED, Reason, Stage, reason_for
from leftfold.core.lifecycle import ENDED, State
from leftfold.core.limits import MINUTE, SECOND
from leftfold.core.retry import NEVER_RETRIED, Policy
from leftfold.core.values import Failure, Spec

LOST: Final = Failure(code="lease_expired", message="worker-1 is no longer trusted")
ONCE: Final = Policy(max_failures=1)


def _letter(by: c.Actor) -> c.DeadLetter:
    return c.DeadLetter(by=by, error=BROKEN, reason_code=Reason.INFRASTRUCTURE_FAILURE, stage=Stage.COMMIT)


def _spent_by_failing() -> Scene:
    scene = Scene.at(State.RUNNING, ONCE)
    scene.do(c.Fail(by=scene.owner, error=FLAKY, stage=Stage.OUTPUT))
    return scene


def _permanent() -> Scene:
    scene = Scene.at(State.CLAIMED)
    scene.do(c.Fail(by=scene.owner, error=Failure(code="parse_error"), permanent=True, stage=Stage.INPUT))
    return scene


def _named_reason() -> Scene:
    scene = Scene.at(State.RUNNING, ONCE)
    scene.do(c.Fail(by=scene.owner, error=FLAKY, reason_code=Reason.COMPENSATION_FAILED))
    return scene


def _spent_by_stalling() -> Scene:
    scene = Scene.at(State.RUNNING, ONCE)
    scene.now += 10 * SECOND
    scene.do(c.Heartbeat(by=scene.owner))
    scene.now += 2 * MINUTE
    scene.do(c.Stall(by=KEEPER))
    return scene


def _spent_and_held() -> Scene:
    scene = Scene.at(State.STALLED, ONCE)
    scene.do(c.Requeue(by=KEEPER))
    return scene


def _set_aside(state: State, by: c.Actor) -> Callable[[], Scene]:
    def path() -> Scene:
        scene = Scene.at(state)
        scene.do(_letter(by))
        return scene

    return path


def _by_the_owner() -> Scene:
    scene = Scene.at(State.RUNNING)
    scene.do(_letter(scene.owner))
    return scene


INFRA, SPENT, UNDONE = Reason.INFRASTRUCTURE_FAILURE, Reason.EXHAUSTED_RETRIES, Reason.COMPENSATION_FAILED
PARSE: Final = Failure(code="parse_error")
END: Final = NOW + MINUTE  # of the only lease
HELD: Final = ("worker-1", END)
RENEWED: Final = ("worker-1", END + 10 * SECOND)
NEVER: Final = (None, None)
# fmt: off
#: Each way, and: error, reason, stage, last error, attempts, last owner and the end of its lease, failures.
PATHS: Final[Mapping[str, tuple[Callable[[], Scene], tuple[object, ...]]]] = {
    "spent by failing":  (_spent_by_failing,    (FLAKY, SPENT,  Stage.OUTPUT, FLAKY, 1, *HELD,    1)),
    "permanent":         (_permanent,           (PARSE, Reason.PARSE_ERROR, Stage.INPUT, PARSE, 1, *HELD, 1)),
    "a named reason":    (_named_reason,        (FLAKY, UNDONE, Stage.EXEC,   FLAKY, 1, *HELD,    1)),
    "spent by stalling": (_spent_by_stalling,   (LOST,  SPENT,  Stage.EXEC,   LOST,  1, *RENEWED, 1)),
    "spent and held":    (_spent_and_held,      (LOST,  SPENT,  Stage.EXEC,   LOST,  1, *HELD,    1)),
    "by the owner":      (_by_the_owner,                        (BROKEN, INFRA, Stage.COMMIT, BROKEN, 1, *HELD, 1)),
    "from the inbox":    (_set_aside(State.INBOX, CLIENT),      (BROKEN, INFRA, Stage.COMMIT, None,  0, *NEVER, 0)),
    "never claimed":     (_set_aside(State.QUEUED, KEEPER),     (BROKEN, INFRA, Stage.COMMIT, None,  0, *NEVER, 0)),
    "while retrying":    (_set_aside(State.RETRYING, OPERATOR), (BROKEN, INFRA, Stage.COMMIT, FLAKY, 1, *HELD,  1)),
    "while waiting":     (_set_aside(State.WAITING, KEEPER),    (BROKEN, INFRA, Stage.COMMIT, None,  1, *HELD,  0)),
    "while parked":      (_set_aside(State.PARKED, OPERATOR),   (BROKEN, INFRA, Stage.COMMIT, None,  1, *HELD,  0)),
    "while stalled":     (_set_aside(State.STALLED, KEEPER),    (BROKEN, INFRA, Stage.COMMIT, LOST,  1, *HELD,  1)),
    "from its owner":    (_set_aside(State.RUNNING, OPERATOR),  (BROKEN, INFRA, Stage.COMMIT, None,  1, *HELD,  0)),
}
# fmt: on


@pytest.mark.parametrize(("path", "expected"), PATHS.values(), ids=PATHS)
def test_a_dead_letter_says_everything(path: Callable[[], Scene], expected: tuple[object, ...]) -> None:
    scene = path()
    letter, job = scene.log[-1].event, scene.job
    assert isinstance(letter, e.DeadLettered)
    assert job.state is State.DEAD_LETTERED
    said = (letter.error, letter.reason_code, letter.stage, letter.last_error, letter.attempts, letter.last_owner)
    assert (*said, letter.last_lease_expires_at, job.failures) == expected
    assert letter.correlation_id == "order-7"
    assert (job.error, job.last_error) == (letter.error, letter.last_error)


def test_every_required_field_is_in_the_stored_text_even_if_null() -> None:
    scene = Scene(spec=Spec(kind="bare"))
    scene.do(_letter(OPERATOR))
    assert REQUIRED == (
        "reason_code", "last_error", "attempts", "last_owner", "last_lease_expires_at", "correlation_id",
    )  # fmt: skip
    for field in (*REQUIRED, "error", "stage"):
        assert f'"{field}":' in scene.log[-1].data
    assert '"correlation_id":null' in scene.log[-1].data


@pytest.mark.parametrize("state", [state for state in State if state not in ENDED])
def test_who_may_set_a_job_aside_depends_on_where_it_is(state: State) -> None:
    allowed = {State.INBOX: {CLIENT, KEEPER, OPERATOR}}.get(state, {KEEPER, OPERATOR})
    if state in {State.CLAIMED, State.RUNNING}:
        allowed = {OPERATOR}  # and the owner
    for by in (CLIENT, WORKER, KEEPER, OPERATOR):
        if by in allowed:
            assert Scene.at(state).do(_letter(by)) == ["dead_lettered"]
        else:
            Scene.at(state).refuse(_letter(by), NotPermittedError)


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_job_is_not_set_aside(state: State) -> None:
    Scene.at(state).refuse(_letter(OPERATOR), JobEndedError)


REASONS: Final = {
    "parse_error": Reason.PARSE_ERROR,
    "validation_failed": Reason.VALIDATION_FAILED,
    "limit_exceeded": Reason.VALIDATION_FAILED,
    "dependency": Reason.DEPENDENCY_UNAVAILABLE,
    "timeout": Reason.TIMEOUT,
    "wait_expired": Reason.TIMEOUT,
    "infrastructure": Reason.INFRASTRUCTURE_FAILURE,
    "compensation": Reason.COMPENSATION_FAILED,
    "permanent": Reason.POLICY_VIOLATION,
    "anything_else": Reason.POLICY_VIOLATION,
}


@pytest.mark.parametrize(("code", "reason"), REASONS.items())
def test_a_permanent_failure_gives_the_reason_of_its_code_and_a_spent_budget_its_own(code: str, reason: Reason) -> None:
    permanent = Scene.at(State.RUNNING)
    permanent.do(c.Fail(by=permanent.owner, error=Failure(code=code), permanent=True))
    letter = permanent.log[-1].event
    assert isinstance(letter, e.DeadLettered)
    assert letter.reason_code is reason_for(code) is reason
    spent = Scene.at(State.RUNNING, ONCE)
    spent.do(c.Fail(by=spent.owner, error=Failure(code=code)))
    letter = spent.log[-1].event
    assert isinstance(letter, e.DeadLettered)
    assert letter.reason_code is (reason if code in NEVER_RETRIED else SPENT)


def test_every_code_with_a_reason_is_spelled_out_here() -> None:
    assert set(BY_ERROR_CODE) <= set(REASONS)


def test_reasons_and_stages_are_those_of_seed_002() -> None:
    assert [str(reason) for reason in Reason] == [
        "parse_error",
        "validation_failed",
        "dependency_unavailable",
        "timeout",
        "exhausted_retries",
        "policy_violation",
        "infrastructure_failure",
        "compensation_failed",
    ]
    assert [str(stage) for stage in Stage] == ["input", "fetch", "exec", "output", "commit"]


@pytest.mark.parametrize("name", ["", "0123", "0123456789AB", "0123456789abc", "\x1b]0;EVIL\x07"])
def test_a_letter_that_names_what_is_no_incident_is_corrupt(name: str) -> None:
    scene = Scene.at(State.DEAD_LETTERED)
    *log, said = scene.log
    letter = msgspec.structs.replace(said.event, incident=name)
    with pytest.raises(CorruptLogError, match="names what is no incident"):
        fold([*log, msgspec.structs.replace(said, event=letter)])


def test_a_letter_of_the_first_versions_has_its_incident_all_the_same() -> None:
    scene = Scene.at(State.DEAD_LETTERED)
    *log, said = scene.log
    older = msgspec.structs.replace(said.event, incident=None)
    folded = fold([*log, msgspec.structs.replace(said, event=older)])
    assert folded is not None
    assert folded.incident == scene.job.incident is not None
