"""Times as people give them: seconds, timedeltas, aware datetimes."""

import math
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftfold.core.errors import ValidationError
from leftfold.core.limits import DELAY_MAX, SECOND, TIME_MAX
from leftfold.times import microseconds, since_1970, split, to_datetime


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (0, 0),
        (1, SECOND),
        (1.5, 1_500_000),
        (0.1, 100_000),
        (1e-6, 1),
        (0.0000004, 0),
        (-2, -2 * SECOND),
        (timedelta(0), 0),
        (timedelta(microseconds=7), 7),
        (timedelta(days=-1), -86_400 * SECOND),
        (timedelta.max, timedelta.max // timedelta(microseconds=1)),
        (3_650 * 86_400, DELAY_MAX),
    ],
)
def test_a_span_is_whole_microseconds(span: float | timedelta, expected: int) -> None:
    counted = microseconds("lease", span)
    assert (counted, type(counted)) == (expected, int)


@pytest.mark.parametrize(
    "wrong",
    [True, False, "1", b"1", None, math.nan, math.inf, -math.inf, [], 1j, Decimal(1), Fraction(1, 2), date.today],
)
def test_what_is_no_span_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="lease must be seconds or a timedelta"):
        microseconds("lease", wrong)


@pytest.mark.parametrize("huge", [10**400, -(10**400), 1e308], ids=["whole", "negative", "float"])
def test_a_number_that_no_clock_can_count_to_is_refused_by_name(huge: float) -> None:
    with pytest.raises(ValidationError, match="lease"):
        microseconds("lease", huge)


@settings(deadline=None)
@given(st.timedeltas())
def test_a_timedelta_keeps_each_of_its_microseconds(span: timedelta) -> None:
    assert timedelta(microseconds=microseconds("lease", span)) == span


@settings(deadline=None)
@given(st.datetimes(timezones=st.timezones()))
def test_a_moment_is_the_same_in_every_zone(moment: datetime) -> None:
    expected = (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert since_1970("due", moment) == expected


@settings(deadline=None)
@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_comes_back_as_it_went(moment: datetime) -> None:
    there = since_1970("due", moment)
    assert to_datetime(there) == moment
    assert to_datetime(there).tzinfo is UTC


def test_a_moment_counts_by_its_zone() -> None:
    summer = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert since_1970("due", summer) == since_1970("due", datetime(2024, 7, 1, 10, tzinfo=UTC))
    east = datetime(1970, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert since_1970("due", east) == 0
    assert since_1970("due", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)) == TIME_MAX


def test_the_hour_that_comes_twice_is_told_apart() -> None:
    first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert since_1970("due", first.replace(fold=1)) - since_1970("due", first) == 3_600 * SECOND


class Nowhere(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None

    dst = utcoffset

    def tzname(self, _: datetime | None) -> str | None:
        return None


@pytest.mark.parametrize("zone", [None, Nowhere()])
def test_a_moment_without_a_zone_is_refused_and_told_what_to_do(zone: tzinfo | None) -> None:
    with pytest.raises(ValidationError, match=r"due .* has no time zone: say which, for example datetime\.now\(UTC\)"):
        since_1970("due", datetime(2024, 1, 1, tzinfo=zone))


def test_a_moment_is_absolute_and_a_span_counts_from_now() -> None:
    assert split("due", None) == (None, None)
    assert split("due", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == (SECOND, None)
    assert split("due", 1.5) == (None, 1_500_000)
    assert split("due", 0) == (None, 0)
    assert split("due", timedelta(minutes=1)) == (None, 60 * SECOND)


@pytest.mark.parametrize("wrong", ["tomorrow", date(2024, 1, 1), True, math.nan])
def test_what_is_neither_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="due must be seconds or a timedelta"):
        split("due", wrong)


def test_the_engines_times_are_shown_in_utc() -> None:
    assert to_datetime(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert to_datetime(1_700_000_000_123_456).isoformat() == "2023-11-14T22:13:20.123456+00:00"
    assert to_datetime(-1).isoformat() == "1969-12-31T23:59:59.999999+00:00"
    assert to_datetime(TIME_MAX).year == 9999
