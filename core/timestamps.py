"""Conversion between µs since 1970 and datetime, exact: a float of seconds would lose microseconds."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
POSTGRES_EPOCH_US = 946_684_800_000_000  # PostgreSQL counts from 2000-01-01
_US = timedelta(microseconds=1)
MINUTE_US, HOUR_US, DAY_US = 60_000_000, 3_600_000_000, 86_400_000_000

# Plausible times of a plant's clock. Samples outside go to the quarantine: a chunk for the year 2106 helps nobody.
EARLIEST_US = 0  # 1970-01-01
LATEST_US = 7_258_118_400_000_000  # 2200-01-01


def now_us() -> int:
    """Now by this machine's clock, in microseconds since 1970-01-01 UTC."""
    return time.time_ns() // 1000


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970-01-01 UTC."""
    return (moment - EPOCH) // _US


def utc(us: int) -> datetime:
    """The datetime of microseconds since 1970-01-01 UTC. Raises OverflowError outside the years 1 to 9999."""
    return EPOCH + us * _US


def timestamp(us: int) -> datetime:
    """Convert as :func:`utc` does, but clamped to EARLIEST_US and LATEST_US, so that it can be stored."""
    return utc(min(max(us, EARLIEST_US), LATEST_US))


def begin(day: date, hour: int = 0) -> datetime:
    """The first moment of a day (UTC), or of an hour of it; hour 24 is the day's end."""
    return datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=hour)


def touched(days: Iterable[date], since: datetime, until: datetime) -> list[date]:
    """The days (UTC), of some, that an interval touches."""
    return [day for day in days if begin(day) < until and begin(day, 24) > since]


def hours_begun(day: date, hours: range) -> int:
    """Number of hours of a day that have begun, at least 1: others have hardly any samples, of clocks that are fast."""
    now = datetime.now(UTC)
    return sum(begin(day, hour) <= now for hour in hours) or 1


def days_between(since: datetime, until: datetime) -> list[date]:
    """Days (UTC) that an interval touches."""
    first, last = since.astimezone(UTC).date(), (until - _US).astimezone(UTC).date()
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def hours_between(since: datetime, until: datetime, day: date) -> range:
    """Hours of a day (UTC) that an interval touches."""
    first, last = max(since, begin(day)) - begin(day), begin(day) - min(until, begin(day, 24))
    return range(first // timedelta(hours=1), -(last // timedelta(hours=1)))


def iso(us: int) -> str:
    """ISO 8601; outside the years 1 to 9999, the number of µs."""
    try:
        return utc(us).isoformat()
    except OverflowError:
        return str(us)
