"""Dead letters: why a job was set aside, and where in its work it happened.

Reason and stage are two questions. Seed 002 asks for both: eight reason codes, five stages.
"""

from enum import StrEnum
from typing import Final

from leftfold.core import errors


class Reason(StrEnum):
    """Why the job was set aside."""

    PARSE_ERROR = "parse_error"
    VALIDATION_FAILED = "validation_failed"
    DEPENDENCY_UNAVAILABLE = "dependency_unavailable"
    TIMEOUT = "timeout"
    EXHAUSTED_RETRIES = "exhausted_retries"
    POLICY_VIOLATION = "policy_violation"
    INFRASTRUCTURE_FAILURE = "infrastructure_failure"
    COMPENSATION_FAILED = "compensation_failed"


class Stage(StrEnum):
    """Where in its work the job was, in the order in which work goes."""

    INPUT = "input"
    FETCH = "fetch"
    EXEC = "exec"
    OUTPUT = "output"
    COMMIT = "commit"


#: The fields that every dead letter carries beside its `error` and `stage`; null where there never was one.
REQUIRED: Final = (
    "reason_code",
    "last_error",
    "attempts",
    "last_owner",
    "last_lease_expires_at",
    "correlation_id",
)

#: What an error that is never retried says about the job, by the error's code.
BY_ERROR_CODE: Final = {
    "parse_error":                        Reason.PARSE_ERROR,
    errors.ValidationError.code:          Reason.VALIDATION_FAILED,
    errors.LimitExceededError.code:       Reason.VALIDATION_FAILED,
    "dependency":                         Reason.DEPENDENCY_UNAVAILABLE,
    "timeout":                            Reason.TIMEOUT,
    errors.WaitExpired.code:              Reason.TIMEOUT,
    "infrastructure":                     Reason.INFRASTRUCTURE_FAILURE,
    "compensation":                       Reason.COMPENSATION_FAILED,
}  # fmt: skip


def reason_for(error_code: str) -> Reason:
    """Give the reason for a failure that its own nature, not the budget, made the last one."""
    return BY_ERROR_CODE.get(error_code, Reason.POLICY_VIOLATION)
