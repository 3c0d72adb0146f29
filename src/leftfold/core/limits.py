"""Every bound, in one place. What passes one is refused with `LimitExceededError` before anything is written."""

import re
from collections.abc import Sized
from functools import lru_cache
from typing import Final

from leftfold.core.errors import LimitExceededError, ValidationError

KIB: Final = 1024
SECOND: Final = 1_000_000  # times are whole microseconds, UTC, since 1970
MINUTE: Final = 60 * SECOND
DAY: Final = 24 * 60 * MINUTE

NAME_CHARS_MAX: Final = 200  # kinds, queues, tenants, job ids, wait and signal keys, error codes
KEY_CHARS_MAX: Final = 500  # uniqueness keys, request and correlation ids, causes, actors, tokens, names in notes
TEXT_CHARS_MAX: Final = 64 * KIB  # messages, reasons, tracebacks
PAYLOAD_BYTES_MAX: Final = 256 * KIB  # a payload, result, signal or note, as stored text
PAYLOAD_DEPTH_MAX: Final = 100  # lists and objects inside each other
EVENTS_PER_JOB_MAX: Final = 10_000  # past it nobody but an operator keeps a job going
SIGNALS_PER_JOB_MAX: Final = 100
WAIT_JOBS_MAX: Final = 1_000  # jobs that one job may wait for
PRIORITY_MAX: Final = 32_767  # and its negative
FAILURES_MAX: Final = 1_000_000
LEASE_MIN: Final = SECOND // 10
LEASE_MAX: Final = DAY
TIME_MAX: Final = 253_402_300_799 * SECOND  # the end of the year 9999
DELAY_MAX: Final = 3_650 * DAY

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]*")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def name(what: str, value: str, *, empty: bool = False) -> None:
    """Refuse a name that is too long, or that a shell, a URL or a log line would misread."""
    textual(what, value)
    if _is_name(value) or (empty and not value):
        return
    most(what, value, NAME_CHARS_MAX)
    raise ValidationError(
        f"{what} {value!r} is not a name: begin with a letter, digit or underscore, go on with those and . : / @ + -"
    )


@lru_cache(maxsize=1024)  # the same few come again and again
def _is_name(value: str) -> bool:
    return len(value) <= NAME_CHARS_MAX and _NAME.fullmatch(value) is not None


def key(what: str, value: str | None) -> None:
    """Refuse an identifier that is empty, too long, or holds control characters."""
    if value is None:
        return
    textual(what, value)
    if not value or _UNPRINTABLE.search(value):
        raise ValidationError(f"{what} {value!r} must be a non-empty text without control characters")
    most(what, value, KEY_CHARS_MAX)


def text(what: str, value: str | None) -> None:
    """Refuse free text that no store could keep as it is."""
    if value is None:
        return
    textual(what, value)
    most(what, value, TEXT_CHARS_MAX)
    storable(what, value)


def words(what: str, value: str) -> None:
    """Refuse a text that says nothing, or that no store could keep."""
    text(what, value)
    if not value.strip():
        raise ValidationError(f"{what} is empty: it stands on the log, so that others know")


def storable(what: str, value: str) -> None:
    """Refuse a NUL, which PostgreSQL cannot keep, and half of a surrogate pair, which UTF-8 cannot write."""
    if "\x00" in value or (not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value)):
        raise ValidationError(f"{what} holds a NUL or half of a surrogate pair: make it printable first")


def most(what: str, value: Sized, maximum: int) -> None:
    """Refuse what is longer than `maximum`."""
    if len(value) > maximum:
        raise LimitExceededError(f"{what} has a length of {len(value)}, at most {maximum} is allowed")


def textual(what: str, value: object) -> None:
    """Refuse what is no text, whatever the caller's types may say."""
    if not isinstance(value, str):
        raise ValidationError(f"{what} must be a text, not {value!r}")


def whole(what: str, value: object) -> None:
    """Refuse what is no whole number, whatever the caller's types may say."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValidationError(f"{what} must be a whole number, not {value!r}")


def span(what: str, micros: int, low: int, high: int) -> None:
    """Refuse a span of time, in microseconds, that is too short or too long; it is told in seconds."""
    whole(what, micros)
    if not low <= micros <= high:
        given, least, most_ = (f"{each / SECOND:g} s" for each in (micros, low, high))
        raise LimitExceededError(f"{what} is {given}, it must lie between {least} and {most_}")


def between(what: str, value: int, low: int, high: int) -> None:
    """Refuse a number outside of `low`..`high`."""
    whole(what, value)
    if not low <= value <= high:
        raise LimitExceededError(f"{what} is {value}, it must lie between {low} and {high}")
