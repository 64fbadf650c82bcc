"""Aggregates and interpolated values against the examples of OPC 10000-13."""

from __future__ import annotations

import math
import re

import pytest

from history.sql.kernels.courses import Configuration
from tests.unit.history.aggregates_of import Channel, aggregates, values
from tests.unit.history.aggregates_published import DIFFERENT, END_OF_DATA, HISTORIANS, LENGTH, RESULTS, Historian

SECOND = 1_000_000
NOON = 1_773_057_600 * SECOND
_STATUS = {0: "", 0x40A40000: "u", 0x40000000: "U", 0x80000000: "B"}
_NAMES = {
    "TimeAverage": "time_average",
    "TimeAverage2": "time_average",
    "Total": "total",
    "Total2": "total",
    "NumberOfTransitions": "count_transitions",
    "DurationInStateZero": "duration_in_state",
    "DurationInStateNonZero": "duration_in_state",
}


def letters(status: int) -> str:
    """StatusCode as aggregates_published.py writes it."""
    code = status & 0xFFFFFFFF
    if code == 0x809B0000:
        return "-"
    return _STATUS[code & 0xFFFF0000] + {0: "", 1: "c", 2: "i"}[code & 3] + ("p" if code & 4 else "")


def rows_of(name: str, historian: Historian) -> list[tuple[float, int]]:
    """Value and status by interval. Of what ends the data, there is a gap that is still open."""
    samples = [
        (NOON + round(time * SECOND), math.nan if value is None else value, status)
        for time, value, status in historian.samples
    ]
    channel = Channel(samples, [NOON + round(END_OF_DATA * SECOND)])
    configuration = Configuration(
        historian.stepped and name != "TimeAverage",  # always sloped, says 5.4.3.6
        name.endswith("2"),
        historian.treat_uncertain_as_bad,
        historian.percent,
        historian.percent,
        historian.use_sloped_extrapolation,
    )
    window = NOON, NOON + round(LENGTH * SECOND)
    if name == "Interpolative":
        return [row[1:3] for row in values([channel], range(*window, 5 * SECOND), configuration)[0]]
    step = 16 * SECOND if name.startswith(("Number", "Duration")) else 5 * SECOND
    rows = aggregates([channel], window, step, configuration, [_NAMES[name]], state=0)[0]
    if name == "DurationInStateZero":
        return [(value * 1000, status) for value, _, status in rows]
    if name == "DurationInStateNonZero":
        return [((seconds - value) * 1000, status) for value, seconds, status in rows]
    return [(value, status) for value, _, status in rows]


@pytest.mark.parametrize(("name", "number"), [(name, number) for name, tables in RESULTS.items() for number in tables])
def test_published_examples(name: str, number: int) -> None:
    expected = RESULTS[name][number].split()
    rows = rows_of(name, HISTORIANS[number])
    for place, (other, _) in DIFFERENT.get((name, number), {}).items():
        assert expected[place] != other
        expected[place] = other
    assert len(rows) == len(expected)
    for place, ((value, status), result) in enumerate(zip(rows, expected, strict=True)):
        match = re.fullmatch(r"(-?\d[\d.]*)?(.*)", result)
        assert match is not None and letters(status) == match[2], (place, result, value)
        if match[1] is None:
            assert math.isnan(value), place
        else:
            # Published with three decimals, and durations in whole ms: see _RESOLUTION.
            tolerance = 1.0 if name.startswith("Duration") else 5.1e-4 if float(match[1]) >= 1e-3 else 1e-12
            assert value == pytest.approx(float(match[1]), rel=0, abs=tolerance), place
