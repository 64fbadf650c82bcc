"""series() against the samples themselves: nothing is lost, nothing is made up, whatever is dirty or packed."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from ingest.timestamps import EPOCH, POSTGRES_EPOCH_US, microseconds, timestamp
from tests.integration.test_rollups import SECOND, WrittenSamples, owner, random_samples, refresh
from tests.sample_tables import DAY, DAY_US, HOUR_US

__all__ = ["owner"]  # a fixture
_QUERY = "SELECT * FROM plant.series($1, $2, $3, $4)"


async def compare(
    connection: asyncpg.Connection[Any], plant: WrittenSamples, channel: int, begin: int, end: int, points: int
) -> str:
    """Compare one chart with its samples; returns what it was read from."""
    rows = await connection.fetch(_QUERY, channel, timestamp(begin), timestamp(end), points)
    width = microseconds(
        EPOCH
        + await connection.fetchval("SELECT plant.series_width($1, $2)", timedelta(microseconds=end - begin), points)
    )
    samples = {at: sample for at, sample in plant.samples.get(channel, {}).items() if begin <= at < end}
    if width < 60 * SECOND and any(row["source"] != "raw" for row in rows):
        width = 60 * SECOND
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
            await owner.execute("CALL plant.compress_before($1)", DAY + timedelta(hours=40))
        for _ in range(15):
            begin = DAY_US + some.randrange(-HOUR_US, hours * HOUR_US)
            end = begin + some.choice((1, SECOND, 333_333, HOUR_US, 5 * HOUR_US + 1, 24 * HOUR_US, 100 * HOUR_US))
            if some.random() < 0.3:
                begin, end = begin - begin % HOUR_US, end + HOUR_US - end % HOUR_US
            points = some.choice((1, 2, 7, 50, 300, 1000, 5000))
            sources.add(await compare(owner, plant, some.choice((1, 2, 3)), begin, end, points))
    assert {"raw", "1m", "1h"} <= {one for several in sources for one in several.split("+")}


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
