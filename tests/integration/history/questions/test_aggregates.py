"""aggregates and interpolated, over database and packed hours: units, states, counters, times, and bad input.

The numbers themselves are tested in tests/unit/history/test_sql_aggregates.py, the archive in test_over_archive.py.
"""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import numpy as np
import pytest

from core.errors import OperationError
from history.notebook import ask
from tests.command import run as plantlog
from tests.integration.history.questions.recording import BAD, Recording, at
from tests.sample_tables import NEXT_DAY, compress

HOUR = timedelta(hours=1)
_EVERY = "time_average, total,duration_in_state,count_transitions,increase,rate,percentile,minimum,maximum"
_NOT_SUPPORTED, _INVALID_INPUTS = 0x80D50000 - 2**32, 0x80D60000 - 2**32
_NO_DATA = 0x809B0000 - 2**32


async def irregular(recorded: Recording) -> None:
    """Four hours of a channel of each kind, some of whose samples are Uncertain or Bad, with a gap."""
    some = random.Random(13)
    for kind in ("analog", "discrete", "counter"):
        name = f"unit/{kind}"
        await recorded.channel(name, kind, unit="t/h", wraps_at=5 if kind == "counter" else None)
        times = np.array(sorted(some.sample(range(0, 4 * 3600 * 4), 1600))) / 4
        status = np.array([some.choice((0,) * 8 + (0x40000000, BAD)) for _ in times])
        values = np.array([some.randrange(5) for _ in times])
        for code in np.unique(status).tolist():
            await recorded.samples(name, times[status == code], values[status == code], code)
        await recorded.gap(name, 3600, 3900)


async def test_storage_form_makes_no_difference(recorded: Recording, owner: asyncpg.Connection[Any]) -> None:
    await irregular(recorded)
    questions: list[tuple[str, dict[str, Any]]] = [
        ("aggregates", {"aggregate": _EVERY, "step": "10 min"}),
        ("aggregates", {"step": "7 s", "simple_bounds": True, "stepped": True}),
        ("interpolated", {"step": "90 s", "use_sloped_extrapolation": True}),
    ]
    window = at(1800), at(3.5 * 3600)
    rows = [await recorded.ask(name, *window, **options) for name, options in questions]
    assert [len(one) for one in rows] == [3 * 9 * 18, 3 * 1543, 3 * 120]
    assert all(any(row["value"] is not None for row in one) for one in rows)
    await compress(owner, NEXT_DAY)
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_packed") > 0
    assert [await recorded.ask(name, *window, **options) for name, options in questions] == rows


async def test_stepped_average_equals_the_rollups(recorded: Recording, owner: asyncpg.Connection[Any]) -> None:
    await irregular(recorded)
    dirty = "INSERT INTO plant.rollup_dirty (from_time, to_time, hours) VALUES ($1, $2, false)"
    await owner.execute(dirty, at(0), at(3 * 3600))
    await owner.execute("CALL plant.refresh_rollups()")
    minutes = await owner.fetch(
        "SELECT bucket, twa FROM plant.samples_1m WHERE channel_id = $1 AND seconds > 0.001 AND n > 0",
        recorded.ids["unit/analog"],
    )
    assert len(minutes) > 170
    options = {"stepped": True, "simple_bounds": True, "treat_uncertain_as_bad": False, "step": "1 min"}
    rows = await recorded.ask("aggregates", at(0), at(3 * 3600), channels=["unit/analog"], **options)
    average = {row["time"]: row["value"] for row in rows}
    for minute in minutes:
        assert average[minute["bucket"]] == pytest.approx(minute["twa"], rel=1e-6, abs=1e-6), minute["bucket"]


@pytest.mark.parametrize(
    ("unit", "seconds", "total"),
    [
        ("t/h", 3600, "t"),
        ("m³ / min", 60, "m³"),
        ("kWh/d", 86400, "kWh"),
        ("m/s", 1, "m"),
        ("kg/m³/s", 1, "kg/m³"),
        ("bar", 1, "bar·s"),
        ("kg/m³", 1, "kg/m³·s"),
        ("/h", 1, "/h·s"),
        ("", 1, "s"),
    ],
)
async def test_total_is_in_the_unit_of_its_rate(recorded: Recording, unit: str, seconds: int, total: str) -> None:
    await recorded.channel("unit/flow", unit=unit)
    await recorded.samples("unit/flow", np.arange(0.0, 7201.0, 60.0), np.full(121, 12.0))
    rows = await recorded.ask("aggregates", at(0), at(7200), aggregate="total", step="30 min")
    assert [(row["value"], row["unit"], row["status"]) for row in rows] == [
        (pytest.approx(12.0 * 1800 / seconds), total, 0x401)
    ] * 4
    [row] = await recorded.ask("aggregates", at(0), at(7200), aggregate="total", per="2 min")
    assert (row["value"], row["unit"]) == (pytest.approx(720.0), f"{unit}·00:02:00")


async def test_interval_with_two_units_has_no_total(recorded: Recording) -> None:
    await recorded.channel("unit/flow", unit="t/h")
    await recorded.samples("unit/flow", np.arange(0.0, 7201.0, 60.0), np.full(121, 12.0))
    await recorded.new_unit("unit/flow", "kg/s", 5400)
    rows = await recorded.ask("aggregates", at(0), at(7200), aggregate="total,time_average", step="30 min")
    found = [(row["aggregate"], row["value"], row["unit"]) for row in rows]
    assert found == [
        *[("time_average", 12.0, unit) for unit in ("t/h", "t/h", "t/h", "kg/s")],
        *[("total", 6.0, "t")] * 3,
        ("total", 21600.0, "kg"),
    ]
    first, second = await recorded.ask("aggregates", at(0), at(7200), aggregate="total", step="1 hour")
    assert (first["value"], first["status"], first["quality"]) == (12.0, 0x401, "good")
    assert (second["value"], second["status"], second["quality"]) == (None, _INVALID_INPUTS, "bad")


async def test_value_holds_until_now_at_most(recorded: Recording, owner: asyncpg.Connection[Any]) -> None:
    """A channel that reports changes only: its last value holds, but not beyond now, or its retirement."""
    await recorded.channel("unit/state", "discrete")
    number = recorded.ids["unit/state"]
    begin = datetime.now(UTC)
    insert = "INSERT INTO plant.samples_raw (channel_id, time, value, status) VALUES ($1, $2, 1, 0)"
    await owner.execute(insert, number, begin - 2 * HOUR)
    options = {"aggregate": "duration_in_state", "step": "1 hour"}
    past, present, future = await recorded.ask("aggregates", begin - HOUR, begin + 2 * HOUR, **options)
    assert (past["value"], past["seconds"], past["status"]) == (3600.0, 3600.0, 0x401)
    assert 0 < present["seconds"] <= (datetime.now(UTC) - begin).total_seconds()
    assert (future["value"], future["seconds"], future["status"]) == (None, 0.0, _NO_DATA)
    await owner.execute("UPDATE plant.channel SET retired_at = $1 WHERE id = $2", begin - 1.5 * HOUR, number)
    [row] = await recorded.ask("aggregates", begin - 2 * HOUR, begin - HOUR, **options)
    assert (row["value"], row["seconds"], row["status"]) == (1800.0, 1800.0, 0x405)


async def test_channels_without_samples_in_the_interval_have_rows(recorded: Recording) -> None:
    """A value from hours before holds; where there is none, nothing is known; texts have no aggregates."""
    await recorded.samples("unit/held", [0.0], [7.0])
    await recorded.samples("unit/later", [90_000.0], [1.0])
    await recorded.channel("unit/empty")
    await recorded.channel("unit/mode", "text")
    rows = await recorded.ask("aggregates", at(36_000), at(39_600), aggregate="time_average")
    assert {row["channel"]: (row["value"], row["quality"]) for row in rows} == {
        "unit/held": (7.0, "uncertain"),
        "unit/later": (None, "bad"),
        "unit/empty": (None, "bad"),
    }
    rows = await recorded.ask("interpolated", at(36_000), at(39_600), step="30 min", channels=["unit/held"])
    assert [(row["time"], row["value"], row["before_time"], row["after_time"]) for row in rows] == [
        (at(36_000), 7.0, at(0), None),
        (at(37_800), 7.0, at(0), None),
    ]


async def test_increase_is_that_of_counters(recorded: Recording) -> None:
    await recorded.channel("unit/energy", "counter", unit="kWh")
    await recorded.samples("unit/energy", [0.0, 600.0, 1200.0, 1800.0], [70.0, 71.5, 0.5, 2.0])
    await recorded.samples("unit/level", [0.0, 1800.0], [1.0, 2.0])
    rows = await recorded.ask("aggregates", at(600), at(2400), aggregate="increase,rate", step="15 min")
    assert [(row["channel"], row["aggregate"], row["value"], row["unit"]) for row in rows[:4]] == [
        ("unit/energy", "increase", 2.0, "kWh"),
        ("unit/energy", "increase", 1.5, "kWh"),
        ("unit/energy", "rate", 2.0 / 900, "kWh/s"),
        ("unit/energy", "rate", 1.5 / 900, "kWh/s"),
    ]
    assert [(row["channel"], row["value"], row["status"]) for row in rows[4:]] == [
        ("unit/level", None, _NOT_SUPPORTED)
    ] * 4


async def test_values_at_times(recorded: Recording) -> None:
    """They may be far apart, and in any order."""
    await recorded.samples("unit/x", [0.0, 10.0, 400_000.0], [1.0, 2.0, 3.0])
    await recorded.samples("unit/x", [20.0], [9.0], BAD)
    times = [at(400_000), at(5), at(10)]
    table = await asyncio.to_thread(ask, "interpolated", times=times, state=recorded.state)
    rows = [(row["time"], row["value"], row["status"], row["before_time"]) for row in table.to_pylist()]
    assert rows == [(at(5), 1.5, 0x402, at(0)), (at(10), 2.0, 0, at(0)), (at(400_000), 3.0, 0, None)]
    words = ("ask", "interpolated", "--times", "2026-03-09T10:00:05, 2026-03-09T10:00:25Z", "--simple-bounds", "true")
    done = await asyncio.to_thread(plantlog, recorded.state.root, *words, "--json")
    found = [(row["value"], row["quality"], row["before_value"]) for row in json.loads(done.out)]
    assert found == [(1.5, "good", 1.0), (None, "bad", 9.0)]
    done = await asyncio.to_thread(plantlog, recorded.state.root, *words, "--from", "10m")
    assert done.code == 1
    assert "--times cannot be combined with --from, --to and --at" in done.err


async def test_samples_before_1970_are_beside_times(recorded: Recording) -> None:
    old = datetime(1950, 1, 1, tzinfo=UTC)
    await recorded.samples("unit/x", [(old - at(0)).total_seconds() + seconds for seconds in (0.0, 120.0)], [1.0, 3.0])
    times = [old + timedelta(seconds=seconds) for seconds in (0, 60, 180)]
    table = await asyncio.to_thread(ask, "interpolated", times=times, state=recorded.state)
    assert [(row["value"], row["before_time"], row["after_time"]) for row in table.to_pylist()] == [
        (1.0, None, times[0] + timedelta(seconds=120)),
        (2.0, times[0], times[0] + timedelta(seconds=120)),
        (3.0, times[0] + timedelta(seconds=120), None),
    ]


async def test_days_are_24_hours_of_utc(recorded: Recording) -> None:
    await recorded.samples("unit/x", np.arange(0.0, 3 * 86_400.0, 3600.0), np.repeat([1.0, 2.0, 3.0], 24))
    rows = await recorded.ask("aggregates", at(0), at(3 * 86_400), step="1 day", aggregate="maximum")
    assert [(row["time"], row["value"]) for row in rows] == [(at(day * 86_400), day + 1.0) for day in range(3)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregate": "average"}, "--aggregate: found average; legal: time_average"),
        ({"step": "0 s"}, "--step: found '0 s'; legal: a duration from a 1000000th of what is read"),
        ({"step": "1 ms"}, "--step: found '1 ms'; legal: a duration from a 1000000th of what is read"),
        ({"percent_data_good": -1}, "--percent-data-good: found '-1'; legal: a whole number from 0 to 100"),
        (
            {"percent_data_good": 30, "percent_data_bad": 60},
            "--percent-data-bad: found 60, --percent-data-good: found 30",
        ),
        ({"simple_bounds": "perhaps"}, "perhaps"),
    ],
)
async def test_bad_input_is_named(recorded: Recording, options: dict[str, Any], message: str) -> None:
    await recorded.samples("unit/x", [0.0], [1.0])
    with pytest.raises(OperationError, match=message):
        await recorded.ask("aggregates", at(0), at(3600), **options)
