"""Dead letters: why a job was set aside, where in its work it happened, and which of them are one incident.

Reason and stage are two questions. Seed 002 asks for both: eight reason codes, five stages.
"""

import re
from enum import StrEnum
from hashlib import sha256
from typing import Final

import msgspec

from leftfold.core import errors
from leftfold.core.values import Failure

LEASE_EXPIRED: Final = "lease_expired"  # the class of error that a lost owner counts as


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


_INCIDENT_CHARS: Final = 12
_FRAME: Final = re.compile(r'^[ |]*File "(?:[^"\n]*[/\\])?([^"\n]*)", line \d+, in (.+)(?:\n[ |]*(.+))?', re.MULTILINE)
#: What differs between two messages about the same: what is quoted, and every word with a number in it.
_PARTICULAR: Final = re.compile(r"""'[^'\n]*'|"[^"\n]*"|`[^`\n]*`|\S*\d\S*""")


def incident_of(kind: str, reason: Reason, stage: Stage, error: Failure) -> str:
    """Give the name that all letters share which the same thing went wrong with.

    A traceback tells by the place that raised: file, function and the words of the line, which stay what they are when
    the lines above them move. Without one the message tells, but for its particulars.
    """
    what = _place(error.traceback or "") or _gist(error)
    told = msgspec.json.encode([kind, reason, stage, error.code, error.type, what])
    return sha256(told).hexdigest()[:_INCIDENT_CHARS]


def _place(traceback: str) -> list[str]:
    frames = _FRAME.findall(traceback)
    return [part.strip() for part in frames[-1]] if frames else []


def _gist(error: Failure) -> str:
    # Of a lost owner the message tells the name, which no two share.
    return "" if error.code == LEASE_EXPIRED else _PARTICULAR.sub("#", error.message.partition("\n")[0])
