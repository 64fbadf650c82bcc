"""What the examples of the standard do not say: units, storage forms, rollups, the present, and bad input."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.database import Database, add_channels, add_sources, connected
from tests.sample_tables import DAY, HOUR_US, NEXT_DAY, Sample, bits, compress, copy

SECOND = 1_000_000
_HOUR = timedelta(hours=1)
_GAP = "INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason) VALUES (1, 1, $1, $2, 'stopped')"
_CHANNEL = """
INSERT INTO plant.channel (id, name, source_id, address, kind, unit) OVERRIDING SYSTEM VALUE
VALUES ({}, '{}', 1, '', '{}', '{}')
"""
_FUNCTIONS = (
    "time_average(1, $1, $2, '10 minutes')",
    "time_average(1, $1, $2, '7 seconds', simple_bounds => true, stepped => true)",
    "total(1, $1, $2, '1 hour')",
    "interpolated(1, $1, $2, '90 seconds')",
    "at_time(1, ARRAY[$1, $2::timestamptz])",
    "count_transitions(1, $1, $2, '10 minutes')",
    "duration_in_state(1, $1, $2, 1, '10 minutes')",
    "percentile(1, $1, $2, 0.9, '10 minutes')",
    "value_before(1, least($1::timestamptz, $2))",
    "value_after(1, greatest($1::timestamptz, $2))",
)
_BAD_CALLS = (  # what is asked, and what the message and the hint say
    ("time_average(1, '2026-03-09', '2026-03-09')", "no time from", "from is earlier than to"),
    ("time_average(1, '-infinity', '2026-03-09')", "no time from", "finite"),
    ("time_average(1, '2026-03-09', '2026-03-10', '1 month')", "step 1 mon", "no months"),
    ("total(1, '2026-03-09', '2026-03-10', '0 s')", "step 00:00:00", "longer than 0"),
    ("total(1, '2026-03-09', '2026-03-10', per => '-1 h')", "per -01:00:00", "1 hour for t/h"),
    ("interpolated(1, '2026-03-09', '2026-03-10', '1 ms')", "86400000 intervals", "At most 1000000"),
    ("percentile(7, '2026-03-09', '2026-03-10', 0.5)", "channel 7: does not exist", "lists the channels"),
    ("value_before(7, '2026-03-09')", "channel 7: does not exist", "lists the channels"),
    ("value_after(3, '2026-03-09')", "channel 3: its values are texts", "are events"),
    ("at_time(3, '{2026-03-09}')", "channel 3: its values are texts", "are events"),
    (
        "count_transitions(1, '2026-03-09', '2026-03-10', percent_data_bad => 30, percent_data_good => 60)",
        "percent_data_bad 30, percent_data_good 60",
        "at least 100 - percent_data_bad",
    ),
    ("interpolated(1, '2026-03-09', '2026-03-10', simple_bounds => NULL)", "simple_bounds <NULL>", "true or false"),
    ("duration_in_state(1, '2026-03-09', '2026-03-10', NULL)", "state <NULL>", "such as 1"),
    ("percentile(1, '2026-03-09', '2026-03-10', 95)", "fraction 95", "from 0 to 1"),
    ("percentile(1, '2026-03-09', '2026-03-10', NULL)", "fraction <NULL>", "from 0 to 1"),
    ("value_before(1, '2026-03-09', 'fine')", "worst fine", "good, uncertain or bad"),
    ("value_after(1, '2026-03-09', within => '0')", "within 00:00:00", "longer than 0"),
)


@pytest.fixture
async def owner(owner: asyncpg.Connection[Any]) -> asyncpg.Connection[Any]:
    """Channel 1 is analog, channel 2 discrete."""
    await add_sources(owner, "a")
    await add_channels(owner, (1, 2), discrete=True)
    return owner


def some_samples(hours: int) -> list[Sample]:
    """Irregular, some of them Uncertain or Bad."""
    some = random.Random(13)
    times = sorted(some.sample(range(0, hours * HOUR_US, SECOND // 4), 400 * hours))
    statuses = (0,) * 8 + (0x40000000, 0x80000000)
    return [(time, bits(float(some.randrange(5))), some.choice(statuses)) for time in times]


async def test_storage_form_makes_no_difference(database: Database, owner: asyncpg.Connection[Any]) -> None:
    await copy(owner, 1, some_samples(4))
    await owner.execute(_GAP, DAY + _HOUR, DAY + _HOUR + timedelta(minutes=5))
    window = (DAY + timedelta(minutes=30), DAY + timedelta(hours=3, minutes=30))
    async with connected(database.reader_dsn) as reader:
        rows = [await reader.fetch(f"SELECT * FROM plant.{function}", *window) for function in _FUNCTIONS]
        assert all(rows)
        await compress(owner, NEXT_DAY)
        assert await owner.fetchval("SELECT count(*) FROM plant.samples_packed") == 4
        assert [await reader.fetch(f"SELECT * FROM plant.{function}", *window) for function in _FUNCTIONS] == rows


async def test_samples_that_retention_dropped_are_an_error(database: Database, owner: asyncpg.Connection[Any]) -> None:
    """What is computed without them would look like an answer."""
    await copy(owner, 1, some_samples(26))
    await owner.execute(
        "INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", DAY, NEXT_DAY + timedelta(hours=2)
    )
    await owner.execute("CALL plant.refresh_rollups()")
    await owner.execute("INSERT INTO plant.retention_class (name) VALUES ('fast')")
    await owner.execute("UPDATE plant.channel SET retention = 'fast' WHERE id = 1")
    assert await owner.fetch("SELECT * FROM plant.drop_before($1, 'raw', 'fast', false)", NEXT_DAY)
    async with connected(database.reader_dsn) as reader:
        for function in _FUNCTIONS:
            query = f"SELECT * FROM plant.{function}"
            with pytest.raises(asyncpg.NoDataFoundError, match=r"channel 1: samples .* not in the database") as e:
                await reader.fetch(query, DAY + _HOUR, DAY + 2 * _HOUR)
            assert "plantlog sql" in (e.value.hint or "")
            assert await reader.fetch(query, NEXT_DAY + _HOUR / 2, NEXT_DAY + _HOUR)
        assert await reader.fetch("SELECT * FROM plant.time_average(1, $1, $2)", NEXT_DAY, NEXT_DAY + _HOUR)


async def test_stepped_average_equals_the_rollups(owner: asyncpg.Connection[Any]) -> None:
    await copy(owner, 1, some_samples(3))
    await owner.execute(_GAP, DAY + _HOUR, DAY + _HOUR + timedelta(seconds=200))
    await owner.execute(
        "INSERT INTO plant.rollup_dirty (from_time, to_time, hours) VALUES ($1, $2, false)", DAY, DAY + 3 * _HOUR
    )
    await owner.execute("CALL plant.refresh_rollups()")
    minutes = await owner.fetch("SELECT bucket, twa, seconds FROM plant.samples_1m WHERE seconds > 0.001 AND n > 0")
    assert len(minutes) > 170
    rows = await owner.fetch(
        "SELECT * FROM plant.time_average(1, $1, $2, '1 minute', true, true, treat_uncertain_as_bad => false)",
        DAY,
        DAY + 3 * _HOUR,
    )
    average = {row["time"]: row["value"] for row in rows}
    for minute in minutes:
        assert average[minute["bucket"]] == pytest.approx(minute["twa"], rel=1e-6, abs=1e-6), minute["bucket"]


async def test_unit_of_a_total(owner: asyncpg.Connection[Any]) -> None:
    for unit, per, total in (
        ("t/h", timedelta(hours=1), "t"),
        ("m³ / min", timedelta(minutes=1), "m³"),
        ("kWh/d", timedelta(hours=24), "kWh"),
        ("m/s", timedelta(seconds=1), "m"),
        ("kg/m³/s", timedelta(seconds=1), "kg/m³"),
        ("bar", timedelta(seconds=1), "bar·s"),
        ("kg/m³", timedelta(seconds=1), "kg/m³·s"),
        ("/h", timedelta(seconds=1), "/h·s"),
        ("", timedelta(seconds=1), "s"),
    ):
        row = await owner.fetchrow("SELECT * FROM plant.rate_unit($1)", unit)
        assert row is not None and tuple(row) == (per, total), unit


async def test_total_is_in_the_unit_of_its_rate(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_CHANNEL.format(4, "flow", "analog", "t/h"))
    await copy(owner, 4, [(i * 60 * SECOND, bits(12.0), 0) for i in range(121)])
    window = (4, DAY, DAY + timedelta(hours=2))
    rows = await owner.fetch("SELECT value, unit, status FROM plant.total($1, $2, $3, '30 minutes')", *window)
    assert [tuple(row) for row in rows] == [(pytest.approx(6.0), "t", 0x401)] * 4
    row = await owner.fetchrow("SELECT value, unit FROM plant.total($1, $2, $3, per => '1 minute')", *window)
    assert row is not None and tuple(row) == (pytest.approx(1440.0), "t/h·00:01:00")
    now = datetime.now(UTC)
    await owner.execute("UPDATE plant.channel SET unit = 'kg/s' WHERE id = 4")
    with pytest.raises(asyncpg.DataError, match="unit changed from t/h to kg/s"):
        await owner.fetch("SELECT * FROM plant.total(4, $1, $2)", now - _HOUR, now + _HOUR)


async def test_value_holds_until_now_at_most(owner: asyncpg.Connection[Any]) -> None:
    """A channel that reports changes only: its last value holds, but not beyond now, or its retirement."""
    begin = datetime.now(UTC)
    insert = "INSERT INTO plant.samples_raw (channel_id, time, value, status) VALUES (2, $1, 1, 0)"
    await owner.execute(insert, begin - 2 * _HOUR)
    query = "SELECT seconds, known, status FROM plant.duration_in_state(2, $1, $2, 1, '1 hour')"
    past, present, future = await owner.fetch(query, begin - _HOUR, begin + 2 * _HOUR)
    assert tuple(past) == (3600.0, 3600.0, 0x401)
    assert 0 < present["known"] <= (datetime.now(UTC) - begin).total_seconds()
    assert tuple(future) == (None, 0.0, 0x809B0000 - 2**32)
    await owner.execute("UPDATE plant.channel SET retired_at = $1 WHERE id = 2", begin - 1.5 * _HOUR)
    (until_retired,) = await owner.fetch(query, begin - 2 * _HOUR, begin - _HOUR)
    assert tuple(until_retired) == (1800.0, 1800.0, 0x405)


async def test_uncertain_states_count_unless_they_are_treated_as_bad(owner: asyncpg.Connection[Any]) -> None:
    samples = [(0, 0), (1200, 0x40000000), (3000, 0), (3600, 0x80000000)]  # s, status
    await copy(owner, 2, [(at * SECOND, bits(float(at < 3000)), status) for at, status in samples])
    query = "SELECT seconds, known, status FROM plant.duration_in_state(2, $1, $2, 1, treat_uncertain_as_bad => $3)"
    (as_bad,) = await owner.fetch(query, DAY, DAY + _HOUR, True)
    (as_good,) = await owner.fetch(query, DAY, DAY + _HOUR, False)
    assert tuple(as_bad) == (1200, 1800, 0x40A40401)
    assert tuple(as_good) == (3000, 3600, 0x401)


async def test_counters_increase_across_resets_and_wraps(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_CHANNEL.format(3, "pulses", "counter", ""))
    await owner.execute(_CHANNEL.format(4, "energy", "counter", "kWh"))
    await owner.execute("UPDATE plant.channel SET attributes = '{\"wraps_at\": 65536}' WHERE id = 3")
    pulses = [65000, 65500, 100, 400, 30]  # 500, a wrap: 136, 300, a reset: 30
    energy = [70.0, 71.5, 0.5, 2.0]  # 1.5, a reset: 0.5, 1.5
    for channel, values in ((3, pulses), (4, energy)):
        await copy(owner, channel, [(i * 600 * SECOND, bits(float(v)), 0) for i, v in enumerate(values)])
    gap = _GAP.replace("(1, 1, ", "(1, 3, ")
    await owner.execute(gap, DAY + timedelta(seconds=601), DAY + timedelta(seconds=1100))  # it counts on in a gap
    query = "SELECT value, status FROM plant.{}({}, $1, $2, {})"
    window = DAY + timedelta(seconds=600), DAY + timedelta(seconds=3000)

    async def rows(function: str, channel: int, step: str = "NULL") -> list[tuple[float, int]]:
        return [tuple(row) for row in await owner.fetch(query.format(function, channel, step), *window)]

    assert [value for value, _ in await rows("increase", 3)] == [500 + 136 + 300 + 30]
    assert [value for value, _ in await rows("increase", 3, "'10 min'")] == [500, 136, 300, 30]
    assert [value for value, _ in await rows("rate", 3, "'10 min'")] == [500 / 600, 136 / 600, 0.5, 0.05]
    assert [value for value, _ in await rows("increase", 4, "'20 min'")] == [2.0, 1.5]
    (first,) = await owner.fetch(query.format("rate", 4, "NULL"), DAY - _HOUR, DAY + timedelta(seconds=601))
    assert tuple(first) == (1.5 / 601, 0x405)  # partial: the data begins in it
    with pytest.raises(asyncpg.InvalidParameterValueError, match="channel 1 is analog, no counter"):
        await rows("increase", 1)


async def test_values_that_cannot_be_summed(owner: asyncpg.Connection[Any]) -> None:
    """NaN, infinities and huge values are Bad; tiny ones are 0; none is an error."""
    values = (1e-320, 1e279, math.inf, -1e279, 1e300, math.nan, -math.inf, -1e279, 5e-324, 1.0)
    await copy(owner, 1, [(i * SECOND, bits(value), 0) for i, value in enumerate(values)])
    for function in _FUNCTIONS:
        for window in ((DAY, DAY + timedelta(seconds=10)), (DAY + timedelta(seconds=8), DAY + timedelta(hours=20))):
            await owner.fetch(f"SELECT * FROM plant.{function}", *window)
    row = await owner.fetchrow("SELECT * FROM plant.count_transitions(1, $1, $2)", DAY, DAY + timedelta(seconds=10))
    assert row is not None and row["transitions"] == 5  # 0, 1e279, -1e279, 0, 1


async def test_bad_input_is_named(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_CHANNEL.format(3, "mode", "text", ""))
    for call, message, hint in _BAD_CALLS:
        with pytest.raises(asyncpg.PostgresError, match=message) as raised:
            await owner.fetch(f"SELECT * FROM plant.{call}")
        assert hint in str(raised.value.as_dict().get("hint")), call
