"""Values as people type them: spans of time, moments, ids, payloads."""

import json
import os
import re
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from msgspec import Raw

from leftfold.cli.text import span
from leftfold.core import limits
from leftfold.core.errors import JobNotFoundError, LimitExceededError, ValidationError
from leftfold.core.payload import NULL, check_payload
from leftfold.engine import Engine
from leftfold.times import microseconds

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_ID_CHARS: Final = 32  # without the dashes


def span_of(what: str, text: str | None, low: int, high: int) -> int | None:
    """Read a span of time as microseconds: `30`, `30s`, `1.5m`, `2h`, `1d`."""
    if text is None:
        return None
    micros = _microseconds(what, text)
    if micros is None:
        raise ValidationError(f"{what} {text!r} is not a span of time: write seconds (30), or 30s, 5m, 2h, 1d")
    if not low <= micros <= high:
        raise LimitExceededError(f"{what} is {text}, it must lie between {span(low)} and {span(high)}")
    return micros


def _microseconds(what: str, text: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]{1,9})?)([smhd]?)", text)
    return microseconds(what, float(match[1]) * _UNITS[match[2]]) if match else None


def due_of(text: str | None) -> datetime | float | None:
    """Read when a job is due: a span from now, or a moment with its time zone."""
    return None if text is None else _moment_or_span("due", text)


def since_of(text: str | None) -> datetime | None:
    """Read since when: a moment with its time zone, or how long ago."""
    if text is None:
        return None
    since = _moment_or_span("since", text)
    return since if isinstance(since, datetime) else datetime.now(UTC) - timedelta(seconds=since)


def _moment_or_span(what: str, text: str) -> datetime | float:
    if _microseconds(what, text) is not None:
        return (span_of(what, text, 0, limits.DELAY_MAX) or 0) / limits.SECOND
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValidationError(
            f"{what} {text!r} is not a time: write seconds (30), or 30s, 5m, 2h, 1d, or 2026-12-24T18:00:00+01:00"
        ) from None
    if moment.utcoffset() is None:
        raise ValidationError(f"{what} {text!r} has no time zone: put Z or one like +01:00 behind it")
    return moment


def payload_of(argument: str | None) -> Raw:
    """Read a payload: JSON text, `-` for standard input, `@FILE` for a file's content; nothing is null."""
    if argument is None:
        return NULL
    text = _text_of(argument).strip(b" \t\r\n")
    if not text:
        raise ValidationError("payload is empty: leave it out, or write null")
    payload = Raw(text)
    check_payload("payload", payload)
    if b"{" in text:
        json.loads(text, object_pairs_hook=_check_names)
    return payload


def _check_names(pairs: list[tuple[str, object]]) -> None:
    """Refuse an object that says a name twice: some readers take the first, some the last, and no dict has both."""
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise ValidationError(
                f"payload has an object with the name {name!r} in it {times} times: which one counts?"
            )


def _text_of(argument: str) -> bytes:
    most = limits.PAYLOAD_BYTES_MAX + 2  # a byte too many is noticed; a file may end with a line's end
    if argument == "-":
        if sys.stdin is None:
            raise ValidationError("payload - reads standard input, which is closed")
        return sys.stdin.buffer.read(most)
    if not argument.startswith("@"):
        return os.fsencode(argument)
    try:
        with Path(argument[1:]).open("rb") as file:
            return file.read(most)
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise ValidationError(f"payload {argument} cannot be read: {why}") from problem


def beginning_of(job_id: str) -> str:
    """Read the beginning of a job id, with its dashes or without."""
    digits = job_id.replace("-", "").lower()
    if not re.fullmatch(f"[0-9a-f]{{1,{_ID_CHARS}}}", digits):
        raise ValidationError(f"{job_id!r} is not a job id, nor the beginning of one")
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(part for part in parts if part)


def id_of(engine: Engine, job_id: str) -> str:
    """Give the one job that is meant by its id, or by the beginning of it."""
    beginning = beginning_of(job_id)
    return beginning if len(beginning) > _ID_CHARS + 3 else engine.find(beginning)


def kept_id_of(engine: Engine, job_id: str) -> str:
    """Give the one job that is meant; it may be one of which there is nothing but a row, or nothing but a log."""
    found = id_of(engine, job_id)
    if not engine.verify(job=found, freeze=False).jobs:
        raise JobNotFoundError(f"there is no job {found}")
    return found
