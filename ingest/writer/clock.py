"""µs since 1970 ↔ datetime, exactly (a float of seconds would lose microseconds)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)

# What a plant's clock can mean. Samples outside are kept out of the table (a chunk in year 2106 helps nobody).
EARLIEST_US = 0  # 1970-01-01
LATEST_US = 7_258_118_400_000_000  # 2200-01-01


def timestamp(us: int) -> datetime:
    """The datetime of ``us`` microseconds since 1970-01-01 UTC, held between EARLIEST_US and LATEST_US."""
    return _EPOCH + min(max(us, EARLIEST_US), LATEST_US) * _US


def microseconds(time: datetime) -> int:
    """The inverse of :func:`timestamp` within its limits."""
    return (time - _EPOCH) // _US
