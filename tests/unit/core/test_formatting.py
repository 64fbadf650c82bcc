"""Durations and thresholds as text."""

from __future__ import annotations

import pytest

from core.formatting import duration, threshold_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (0.1, "0.1 s"),
        (57.6, "57.6 s"),
        (60, "1 min"),
        (2215.2, "36 min 55 s"),
        (8 * 3600, "8 h"),
        (11647, "3 h 14 min"),
        (86400 + 5, "1 d 5 s"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("limit", "threshold", "text"),
    [("high", 7.5, "7.5 bar"), ("rate", 2.0, "2 bar/s"), ("stale", 30.0, "30 s"), ("bad", 1.0, ""), ("low", None, "")],
)
def test_a_threshold_has_its_unit(limit: str, threshold: float | None, text: str) -> None:
    assert threshold_text(limit, threshold, "bar") == text
