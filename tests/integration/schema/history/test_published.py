"""The functions of docs/sql.md against the examples of OPC 10000-13."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.database import add_channels, add_sources
from tests.integration.schema.history.published import DIFFERENT, END_OF_DATA, HISTORIANS, LENGTH, RESULTS

NOON = datetime(2026, 3, 9, 12, tzinfo=UTC)
_STATUS = {0: "", 0x40A40000: "u", 0x40000000: "U", 0x80000000: "B"}
_CONFIGURATION = "treat_uncertain_as_bad => $5, percent_data_bad => $6, percent_data_good => $6"
_SLOPES = "stepped => $7, use_sloped_extrapolation => $8"

_QUERIES = {
    "Interpolative": "SELECT value, status FROM plant.interpolated($1, $2, $3, $4, "
    "treat_uncertain_as_bad => $5, stepped => $6, use_sloped_extrapolation => $7)",
    # always sloped, says 5.4.3.6
    "TimeAverage": f"SELECT value, status FROM plant.time_average($1, $2, $3, $4, {_CONFIGURATION}, {_SLOPES})",
    "TimeAverage2": "SELECT value, status FROM plant.time_average($1, $2, $3, $4, simple_bounds => true, "
    f"{_CONFIGURATION}, {_SLOPES})",
    # stepped in the example of Historian 3, although 5.4.3.8 says what 5.4.3.6 does
    "Total": f"SELECT value, status FROM plant.total($1, $2, $3, $4, {_CONFIGURATION}, {_SLOPES})",
    "Total2": "SELECT value, status FROM plant.total($1, $2, $3, $4, simple_bounds => true, "
    f"{_CONFIGURATION}, {_SLOPES})",
    "NumberOfTransitions": f"SELECT transitions, status FROM plant.count_transitions($1, $2, $3, $4, {_CONFIGURATION})",
    "DurationInStateZero": "SELECT seconds * 1000, status "
    f"FROM plant.duration_in_state($1, $2, $3, 0, $4, {_CONFIGURATION})",
    "DurationInStateNonZero": "SELECT (known - seconds) * 1000, status "
    f"FROM plant.duration_in_state($1, $2, $3, 0, $4, {_CONFIGURATION})",
}


@pytest.fixture
async def owner(owner: asyncpg.Connection[Any]) -> asyncpg.Connection[Any]:
    """With the data sets as channels 1 to 5. What ends the data is a gap that is still open."""
    await add_sources(owner, "historian")
    await add_channels(owner, HISTORIANS)
    for number, historian in HISTORIANS.items():
        await owner.executemany(
            "INSERT INTO plant.samples_raw (channel_id, time, value, status) VALUES ($1, $2, $3, $4)",
            [(number, after(time), math.nan if value is None else value, s) for time, value, s in historian.samples],
        )
    await owner.execute(
        "INSERT INTO plant.gap (source_id, from_time, reason) VALUES (1, $1, 'stopped')", after(END_OF_DATA)
    )
    return owner


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def letters(status: int) -> str:
    """As published.py writes a StatusCode."""
    code = status & 0xFFFFFFFF
    if code == 0x809B0000:
        return "-"
    return _STATUS[code & 0xFFFF0000] + {0: "", 1: "c", 2: "i"}[code & 3] + ("p" if code & 4 else "")


async def test_published_examples(owner: asyncpg.Connection[Any]) -> None:
    for name, tables in RESULTS.items():
        for number, table in tables.items():
            await compare(owner, name, number, table.split())


async def compare(owner: asyncpg.Connection[Any], name: str, number: int, expected: list[str]) -> None:
    """One table of an aggregate and a historian."""
    historian = HISTORIANS[number]
    counting = name.startswith(("Number", "Duration"))
    percent = () if name == "Interpolative" else (historian.percent,)
    slopes = (historian.stepped and name != "TimeAverage", historian.use_sloped_extrapolation)
    step = timedelta(seconds=16 if counting else 5)
    rows = await owner.fetch(
        _QUERIES[name],
        *(number, NOON, after(LENGTH), step, historian.treat_uncertain_as_bad, *percent),
        *(() if counting else slopes),
    )
    for place, (other, _) in DIFFERENT.get((name, number), {}).items():
        assert expected[place] != other
        expected[place] = other
    assert len(rows) == len(expected)
    for place, ((value, status), result) in enumerate(zip(rows, expected, strict=True)):
        where = (name, number, place)
        match = re.fullmatch(r"(-?\d[\d.]*)?(.*)", result)
        assert match is not None and letters(status) == match[2], (where, result, value)
        if match[1] is None:
            assert value is None, where
        else:
            # Published with three decimals, and durations in whole ms: see _RESOLUTION.
            tolerance = 1.0 if name.startswith("Duration") else 5.1e-4 if float(match[1]) >= 1e-3 else 1e-12
            assert value == pytest.approx(float(match[1]), rel=0, abs=tolerance), where
