"""How the arguments of commands are checked, each by its name: an argument means the same in every command."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Raw

from leftfold.core import events as e
from leftfold.core import limits
from leftfold.core.errors import ValidationError
from leftfold.core.lifecycle import ENDED
from leftfold.core.payload import check_payload
from leftfold.core.retry import Policy
from leftfold.core.values import AFTER, Failure, Outcomes, Spec, Wait, WaitFor


def _check_note(note: e.AnyNote) -> None:
    if isinstance(note, e.CancelRequested | e.Signalled):
        raise ValidationError(f"{note.wire!r} is written by a command of its own")
    for field in note.__struct_fields__:
        match getattr(note, field):
            case Raw() as payload:
                check_payload(field, payload)
            case str() as words if isinstance(note, e.OperatorsNote):
                limits.words(field, words)
            case str() as text:
                limits.text(field, text) if field == "message" else limits.key(field, text)
            case float() | int() as fraction if isinstance(note, e.Progress) and not 0.0 <= fraction <= 1.0:
                raise ValidationError(f"progress is a fraction from 0 to 1, not {fraction}")
            case _:
                pass


def _check_id(job_id: str) -> None:
    """Pass what looks like an id of ours: no two are alike, so it is not worth to remember them as other names are."""
    limits.textual("job id", job_id)
    if not _ID.fullmatch(job_id):
        limits.name("job id", job_id)


def _check_outcomes(outcomes: Outcomes) -> None:
    limits.most("outcomes", outcomes, limits.WAIT_JOBS_MAX)
    for job_id, state in outcomes.items():
        limits.name("job id", job_id)
        if state not in ENDED:
            raise ValidationError(f"job {job_id} has not ended: it is {state}")


_ID: Final = re.compile(r"[0-9a-f][0-9a-f-]{35}")

CHECKS: Final[Mapping[str, Callable[[Any], None]]] = {
    "request_id": lambda value: limits.key("request_id", value),
    "job_id":     _check_id,
    "spec":       Spec.check,
    "policy":     Policy.check,
    "due":        lambda value: limits.between("due", value, 0, limits.TIME_MAX),
    "after":      lambda value: Wait.check(Wait(until=WaitFor.JOBS, key=AFTER, jobs=value)) if value else None,
    "token":      lambda value: limits.key("token", value),
    "lease":      lambda value: limits.span("lease", value, limits.LEASE_MIN, limits.LEASE_MAX),
    "result":     lambda value: check_payload("result", value),
    "error":      Failure.check,
    "delay":      lambda value: limits.span("delay", value, 0, limits.DELAY_MAX),
    "wait":       Wait.check,
    "timeout":    lambda value: limits.span("timeout", value, 0, limits.DELAY_MAX),
    "note":       _check_note,
    "outcomes":   _check_outcomes,
    "key":        lambda value: limits.name("signal key", value),
    "payload":    lambda value: check_payload("signal", value),
    "reason":     lambda value: limits.text("reason", value),
}  # fmt: skip
