"""Query results as columns for JSON."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime

import pytest

from dashboards.viewer.frames import frame


def test_times_without_a_zone_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the zone of the server's process is."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        row = (datetime(2026, 3, 9, 10, tzinfo=UTC), datetime(2026, 3, 9, 10), date(2026, 3, 9))
        columns = frame(["aware", "naive", "day"], ["timestamptz", "timestamp", "date"], [row]).columns
    finally:
        monkeypatch.undo()
        time.tzset()
    midnight = 1_773_014_400_000
    assert columns == [[midnight + 36_000_000], [midnight + 36_000_000], [midnight]]
