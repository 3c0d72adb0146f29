"""Times as people give them, and as the engine keeps them: whole microseconds since 1970, UTC."""

from datetime import UTC, datetime, timedelta
from typing import Final

from leftfold.core.errors import ValidationError
from leftfold.core.limits import SECOND

#: A span of time: seconds, or a timedelta.
Span = float | timedelta
#: A moment: an aware datetime, or a span from now on the store's clock.
Moment = datetime | Span

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MAX: Final = 10**15
_MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(what: str, span: Span) -> int:
    """Give a span as whole microseconds."""
    if isinstance(span, timedelta):
        return span // _MICROSECOND
    number: object = span  # whatever the caller's types may say
    if not isinstance(number, int | float) or isinstance(number, bool) or number != number:  # noqa: PLR0124 - NaN, and an int too large for math.isnan
        raise ValidationError(f"{what} must be seconds or a timedelta, not {span!r}")
    if not -_SECONDS_MAX < number < _SECONDS_MAX:
        raise ValidationError(f"{what} must be seconds or a timedelta, not thirty million years")
    return round(number * SECOND)


def since_1970(what: str, moment: datetime) -> int:
    """Give a moment as microseconds since 1970. A naive datetime could mean any of a day's hours: it is refused."""
    given: object = moment  # whatever the caller's types may say
    if not isinstance(given, datetime):
        raise ValidationError(f"{what} must be a datetime with a time zone, not {given!r}")
    if moment.utcoffset() is None:
        raise ValidationError(f"{what} {moment} has no time zone: say which, for example datetime.now(UTC)")
    return (moment - _EPOCH) // _MICROSECOND


def split(what: str, moment: Moment | None) -> tuple[int | None, int | None]:
    """Give a moment as (microseconds since 1970, None), or a span as (None, microseconds from now)."""
    if moment is None:
        return None, None
    if isinstance(moment, datetime):
        return since_1970(what, moment), None
    return None, microseconds(what, moment)


def to_datetime(micros: int) -> datetime:
    """Give one of the engine's times as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=micros)
