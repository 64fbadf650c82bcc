"""series() against the samples themselves: nothing is lost, nothing is made up, whatever is dirty or packed."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from core.timestamps import EPOCH, POSTGRES_EPOCH_US, microseconds, timestamp
from ops.maintenance.packing import compress_before, pack_days
from tests.integration.schema.test_rollups import SECOND, WrittenSamples, random_samples, refresh, registered_channels
from tests.sample_tables import DAY, DAY_US, HOUR_US, NEXT_DAY

__all__ = ["registered_channels"]  # a fixture
_QUERY = "SELECT * FROM plant.series($1, $2, $3, $4)"


async def compare(
    connection: asyncpg.Connection[Any],
    plant: WrittenSamples,
    channel: int,
    begin: int,
    end: int,
    points: int,
    whole: int = 0,
) -> str:
    """Compare one chart with its samples; returns what it was read from.

    ``whole``: of the first day, only buckets of this width are stored, so the bounds are whole ones.
    """
    rows = await connection.fetch(_QUERY, channel, timestamp(begin), timestamp(end), points)
    width = microseconds(
        EPOCH
        + await connection.fetchval("SELECT plant.series_width($1, $2)", timedelta(microseconds=end - begin), points)
    )
    sources = {row["source"] for row in rows}
    if whole and sources != {"raw"}:
        first_day_ends = microseconds(NEXT_DAY)
        begin -= begin % whole if begin < first_day_ends else 0
        end += -end % whole if end < first_day_ends else 0
    samples = {at: sample for at, sample in plant.samples.get(channel, {}).items() if begin <= at < end}
    width = max(width, HOUR_US if "1h" in sources else 60 * SECOND if "1m" in sources else 0)
    buckets: dict[int, list[tuple[int, float, int]]] = defaultdict(list)
    for at in sorted(samples):
        buckets[at - (at - POSTGRES_EPOCH_US) % width].append((at, *samples[at]))
    assert [microseconds(row["time"]) for row in rows] == sorted(buckets)  # aligned, and gaps are gaps
    assert len(rows) <= points + 1
    for row in rows:
        inside = buckets[microseconds(row["time"])]
        good = [value for _, value, status in inside if not status & 1 << 31 and not math.isnan(value)]
        assert (row["n"], row["n_good"]) == (len(inside), len(good))
        assert (row["min"], row["max"]) == (min(good, default=None), max(good, default=None))
        assert (row["first"], row["last"]) == ((good[0], good[-1]) if good else (None, None))
        if good and max(map(abs, good)) <= 1e280:
            mean = math.fsum(good) / len(good)
            assert row["avg"] == pytest.approx(mean, rel=1e-9, abs=1e-9 * max(map(abs, good)) + 1e-6)
        else:
            assert row["avg"] is None
    return "+".join(sorted({row["source"] for row in rows}))


@pytest.mark.slow
async def test_charts_equal_the_samples(owner: asyncpg.Connection[Any]) -> None:
    some = random.Random(100)
    plant = WrittenSamples()
    hours = 80
    sources = set()
    for step in range(4):
        await plant.write(owner, random_samples(some, (1, 2, 3), hours, 1500))
        if step != 3:  # what is written last is dirty
            await refresh(owner)
        if step == 1:
            await compress_before(owner, DAY + timedelta(hours=40))
        for _ in range(15):
            begin = DAY_US + some.randrange(-HOUR_US, hours * HOUR_US)
            end = begin + some.choice((1, SECOND, 333_333, HOUR_US, 5 * HOUR_US + 1, 24 * HOUR_US, 100 * HOUR_US))
            if some.random() < 0.3:
                begin, end = begin - begin % HOUR_US, end + HOUR_US - end % HOUR_US
            points = some.choice((1, 2, 7, 50, 300, 1000, 5000))
            sources.add(await compare(owner, plant, some.choice((1, 2, 3)), begin, end, points))
    assert {"raw", "1m", "1h"} <= {source for several in sources for source in several.split("+")}


@pytest.mark.slow
async def test_a_spike_is_never_lost(owner: asyncpg.Connection[Any]) -> None:
    """One sample among ten days of them, seen in a chart of ten points, before and after it is rolled up."""
    plant = WrittenSamples()
    await plant.write(owner, [(1, DAY_US + i * 10 * 60 * SECOND, 1.0, 0) for i in range(10 * 144)])
    await refresh(owner)
    all_days = (1, DAY, DAY + timedelta(days=10), 10)
    assert {row["max"] for row in await owner.fetch(_QUERY, *all_days)} == {1.0}
    await plant.write(owner, [(1, DAY_US + 6 * 24 * HOUR_US + 123_457, 99.0, 0)])
    for _ in range(2):
        assert max(row["max"] for row in await owner.fetch(_QUERY, *all_days)) == 99.0
        await compare(owner, plant, 1, DAY_US, DAY_US + 10 * 24 * HOUR_US, 10)
        await refresh(owner)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
async def test_charts_of_dropped_samples_come_from_minutes_or_hours(
    owner: asyncpg.Connection[Any], packed: bool
) -> None:
    """Of which channels retention dropped them is seen by what is there, whatever their class is by now."""
    some = random.Random(101)
    plant = WrittenSamples()
    await plant.write(owner, random_samples(some, (1, 2), 26, 600))
    await refresh(owner)
    if packed:
        await pack_days(owner, NEXT_DAY)
    spans = (1, SECOND, 333_333, 600 * SECOND, HOUR_US, 5 * HOUR_US + 1, 26 * HOUR_US)
    begins = [DAY_US + some.randrange(24 * HOUR_US) for _ in range(12)]
    charts = [(begin, begin + some.choice(spans), some.choice((1, 7, 300, 5000))) for begin in begins]
    whole_day = (DAY_US, DAY_US + 24 * HOUR_US, 1440)
    charts.append(whole_day)
    await owner.execute("INSERT INTO plant.retention_class (name) VALUES ('fast')")
    await owner.execute("UPDATE plant.channel SET retention = 'fast' WHERE id = 1")

    await drop(owner, "raw")
    await owner.execute("UPDATE plant.channel SET retention = 'default' WHERE id = 1")
    for dirty in (False, True):
        if dirty:  # because samples came late: nobody can compute these minutes any more
            await owner.execute("INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", DAY, NEXT_DAY)
        for begin, end, points in charts:
            found = await compare(owner, plant, 1, begin, end, points, 60 * SECOND)
            assert "raw" not in found or end > microseconds(NEXT_DAY)
            await compare(owner, plant, 2, begin, end, points)
    assert await compare(owner, plant, 1, *whole_day, 60 * SECOND) == "1m"
    await owner.execute("DELETE FROM plant.rollup_dirty")

    await owner.execute("UPDATE plant.channel SET retention = 'fast' WHERE id = 1")
    await drop(owner, "1m")
    for begin, end, points in charts:
        found = await compare(owner, plant, 1, begin, end, points, HOUR_US)
        assert "1m" not in found or end > microseconds(NEXT_DAY)
        await compare(owner, plant, 2, begin, end, points)
    assert await compare(owner, plant, 1, *whole_day, HOUR_US) == "1h"


async def test_chart_steps_hold_values_that_were_dropped(owner: asyncpg.Connection[Any]) -> None:
    """A value holds in the steps after it, and what is Bad ends it, as if the samples were there."""
    plant = WrittenSamples()
    at = DAY_US + 4 * HOUR_US
    rows = [(-3 * 3600, 7.0, 0), (600, 8.0, 0), (900, 9.0, 0x80000000)]
    await plant.write(owner, [(1, at + second * SECOND, value, status) for second, value, status in rows])
    await refresh(owner)

    async def chart(first: int, last: int, points: int) -> list[tuple[float | None, int]]:
        query = "SELECT low, mean, high, n FROM plant.chart_steps(1, $1, $2, $3)"
        rows = await owner.fetch(query, timestamp(at + first * SECOND), timestamp(at + last * SECOND), points)
        assert all(row["low"] == row["mean"] == row["high"] for row in rows)
        return [(row["low"], row["n"]) for row in rows]

    minutes = [*[(7.0, 0)] * 10, (8.0, 1), *[(8.0, 0)] * 4, (None, 1), *[(None, 0)] * 4]
    assert await chart(0, 1200, 20) == minutes
    await owner.execute("INSERT INTO plant.retention_class (name) VALUES ('fast')")
    await owner.execute("UPDATE plant.channel SET retention = 'fast' WHERE id = 1")
    await drop(owner, "raw")
    for points in (20, 1200):  # no steps of a second, most of which would show nothing
        assert await chart(0, 1200, points) == minutes
    for first, value in ((0, 7.0), (660, 8.0), (1200, None)):
        assert set(await chart(first, first + 60, 20)) == {(value, 0)}
    await drop(owner, "1m")
    assert await chart(0, 1200, 20) == [(8.0, 2)]
    assert set(await chart(-3600, 0, 20)) == {(7.0, 0)}


async def drop(owner: asyncpg.Connection[Any], what: str) -> None:
    """The first day of the class fast, as retention does it."""
    dropped = await owner.fetch("SELECT * FROM plant.drop_before($1, $2, 'fast', false)", NEXT_DAY, what)
    assert dropped and {row["action"] for row in dropped} <= {"chunk", "rows"}


async def test_fast_channels_are_not_read_sample_by_sample(owner: asyncpg.Connection[Any]) -> None:
    """100 samples a second for an hour: a chart of it comes from minutes."""
    await owner.execute(
        "INSERT INTO plant.samples_raw (time, value, channel_id, status)"
        " SELECT $1::timestamptz + i * INTERVAL '10 ms', i % 1000, 1, 0 FROM generate_series(0, 359999) AS i;",
        DAY,
    )
    await owner.execute(
        "INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", DAY, DAY + timedelta(hours=1)
    )
    await refresh(owner)
    rows = await owner.fetch(_QUERY, 1, DAY, DAY + timedelta(hours=1), 1000)
    assert [(row["source"], row["n"], row["min"], row["max"]) for row in rows] == [("1m", 6000, 0, 999)] * 60
    rows = await owner.fetch(_QUERY, 1, DAY, DAY + timedelta(minutes=10), 1000)
    assert len(rows) == 600
    assert {(row["source"], row["n"]) for row in rows} == {("raw", 100)}


async def test_invalid_series_queries_are_refused(owner: asyncpg.Connection[Any]) -> None:
    assert await owner.fetch(_QUERY, 1, DAY, DAY, 100) == []
    assert await owner.fetch(_QUERY, 12345, DAY, DAY + timedelta(days=400), 100) == []
    for points, end in ((0, DAY), (100, None)):
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await owner.fetch(_QUERY, 1, DAY, end, points)
