"""Every error has a code of its own that never changes, and its place in the tree."""

import inspect
import re
from typing import Final

from leftfold.core import errors
from leftfold.core.errors import LeftfoldError
from leftfold.core.values import Failure

CODES: Final = {
    "LeftfoldError": "error",
    "DesignError": "design",
    "JobError": "job_error",
    "ValidationError": "validation_failed",
    "LimitExceededError": "limit_exceeded",
    "TransientError": "transient",
    "PermanentError": "permanent",
    "Retry": "retry",
    "WaitExpired": "wait_expired",
    "OutcomeError": "outcome",
    "JobFailed": "job_failed",
    "JobCancelled": "job_cancelled",
    "ResultTimeoutError": "result_timeout",
    "NoCurrentJobError": "no_current_job",
    "RefusedError": "refused",
    "JobNotFoundError": "job_not_found",
    "JobExistsError": "job_exists",
    "KeyTakenError": "key_taken",
    "QueuePausedError": "queue_paused",
    "FeedConflictError": "feed_conflict",
    "JobFrozenError": "job_frozen",
    "IllegalTransitionError": "illegal_transition",
    "JobEndedError": "job_ended",
    "NotPermittedError": "not_permitted",
    "DialectRefusedError": "dialect_refused",
    "NotDueError": "not_due",
    "LeaseConflictError": "lease_conflict",
    "RevisionConflictError": "revision_conflict",
    "RequestReusedError": "request_reused",
    "SignalConflictError": "signal_conflict",
    "CorruptLogError": "corrupt_log",
    "BrokenChainError": "broken_chain",
    "StoreError": "store",
    "StoreUnavailableError": "store_unavailable",
    "StoreDeniedError": "store_denied",
    "StoreNotReadyError": "store_not_ready",
    "OutcomeUnknownError": "outcome_unknown",
    "MissingExtraError": "missing_extra",
}
CLASSES: Final = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, LeftfoldError)
}  # fmt: skip


def test_the_codes_never_change() -> None:
    assert {name: error.code for name, error in CLASSES.items()} == CODES


def test_a_code_stands_for_one_error_and_is_its_own() -> None:
    assert len(set(CODES.values())) == len(CODES)
    assert all("code" in vars(error) for error in CLASSES.values())


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    line_of_parents: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        node = re.match(r"([│├└─ ]*)(\w+Error\b(?! serves)|Retry|WaitExpired|JobFailed|JobCancelled)", line)
        if node:
            depth = len(node[1]) // 4
            drawn[node[2]] = line_of_parents[depth - 1] if depth else "Exception"
            line_of_parents[depth:] = [node[2]]
    assert drawn == {name: error.__bases__[0].__name__ for name, error in CLASSES.items()}


def test_every_error_says_what_it_is() -> None:
    assert all((error.__doc__ or "").rstrip().endswith(".") for error in CLASSES.values())


def test_what_a_handler_asks_for_is_kept_with_it() -> None:
    assert (errors.Retry(after=5).after, str(errors.Retry("busy", after=1))) == (5, "busy")
    assert (errors.Snooze(7).seconds, errors.Snooze(7).reason, str(errors.Snooze(7, "later"))) == (7, None, "later")


def test_a_job_that_failed_says_how_and_why() -> None:
    failed = errors.JobFailed("j1", "failed", Failure(code="network", message="no route", type="OSError"))
    assert (str(failed), failed.job_id, failed.state) == ("job j1 is failed: OSError: no route", "j1", "failed")
    assert str(errors.JobFailed("j1", "dead_lettered", None)) == "job j1 is dead_lettered"
