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
_INCIDENT: Final = re.compile(rf"[0-9a-f]{{{_INCIDENT_CHARS}}}")
#: A place in a traceback, and the words of the line below it, which stand further in.
_FRAME: Final = re.compile(r'^([ |]{0,200})File "([^"\n]*)", line \d+, in (.+)(?:\n\1  (.+))?', re.MULTILINE)
#: What is quoted; an apostrophe within a word is no quotation mark.
_QUOTED: Final = re.compile(r"""(?<!\w)'[^'\n]*'(?!\w)|"[^"\n]*"|`[^`\n]*`""")
_GIST_CHARS: Final = 500  # of a message: what comes behind does not tell what it is about


def incident_of(kind: str, reason: Reason, stage: Stage, error: Failure) -> str:
    """Give the name that all letters share which the same thing went wrong with.

    A traceback tells by the place that raised: file, function and the words of the line, which stay what they are when
    the lines above them move. Without one the message tells, but for what is quoted and numbered in it.
    """
    what = _place(error.traceback or "") or _gist(error)
    told = msgspec.json.encode([kind, reason, stage, error.code, error.type, what])
    return sha256(told).hexdigest()[:_INCIDENT_CHARS]


def is_incident(name: str) -> bool:
    """Tell whether this is the name of an incident."""
    return _INCIDENT.fullmatch(name) is not None


def _place(traceback: str) -> list[str]:
    """Give file, function and line of the last frame."""
    last = None
    for last in _FRAME.finditer(traceback):  # noqa: B007 - the last one is wanted
        pass
    if last is None:
        return []
    _, file, function, line = last.groups()
    return [file.replace("\\", "/").rpartition("/")[2], function, (line or "").strip()]


def _gist(error: Failure) -> str:
    # Of a lost owner the message tells the name, which no two share.
    if error.code == LEASE_EXPIRED:
        return ""
    told = _QUOTED.sub("#", error.message[:_GIST_CHARS].partition("\n")[0])
    return " ".join("#" if any(map(str.isdigit, word)) else word for word in told.split())
