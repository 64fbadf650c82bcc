"""Increases of counters in rollups are those of the aggregate ``increase``, whatever came when."""

from __future__ import annotations

import math
import random
from typing import Any

import asyncpg
import pytest

from core.batch import Gap
from core.timestamps import microseconds, timestamp
from history.rollups import RollupDifference, verify
from history.sql.kernels.courses import Configuration
from ops.maintenance.packing import compress_before
from tests.database import Database
from tests.integration.schema.test_rollups import (
    COUNTERS,
    MINUTE_US,
    SECOND,
    WrittenSamples,
    assert_exact_after_refresh,
    random_samples,
    refresh,
    registered_channels,
)
from tests.sample_tables import DAY_US, HOUR_US
from tests.unit.history.aggregates_of import Channel, aggregates

__all__ = ["registered_channels"]  # a fixture
_DAY = 24 * HOUR_US


async def _increases(connection: asyncpg.Connection[Any], width: str, channel: int) -> list[tuple[int, float, float]]:
    """Bucket (minutes since the day began), increase and seconds."""
    rows = await connection.fetch(
        f"SELECT bucket, increase, seconds FROM plant.increases_{width} WHERE channel_id = $1 ORDER BY bucket", channel
    )
    return [((microseconds(row[0]) - DAY_US) // MINUTE_US, row[1], row[2]) for row in rows]


async def test_increase_across_a_boundary_belongs_to_the_later_bucket(owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    samples = [(50, 10), (110, 15), (115, 3), (118, 4), (3500, 9), (3650, 2), (86390, 7), (86410, 8)]  # s, value
    await plant.write(owner, [(5, DAY_US + s * SECOND, value, 0) for s, value in samples])
    await assert_exact_after_refresh(owner, plant)
    # 5 to the minute after it, where it was reset to 3 and rose by 1; 5 until the next one; a reset between two hours
    assert await _increases(owner, "1m", 5) == [
        (0, 0, 0),
        (1, 9, 68),
        (58, 5, 3382),
        (60, 2, 150),
        (1439, 5, 82_740),
        (1440, 1, 20),
    ]
    assert await _increases(owner, "1h", 5) == [(0, 14, 3450), (60, 2, 150), (1380, 5, 82_740), (1440, 1, 20)]
    stored = [tuple(row) for row in await owner.fetch("SELECT * FROM plant.rollup_increases_1m")]
    assert stored == [(5, timestamp(DAY_US + MINUTE_US), 4)], "only what does not follow from the other rollups"


async def test_late_deleted_and_missing_readings(owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    await plant.write(owner, [(7, DAY_US + _DAY + i * 20 * MINUTE_US, float(i * 30 % 100), 0) for i in range(-9, 9)])
    await assert_exact_after_refresh(owner, plant)
    assert sum(increase for _, increase, _ in await _increases(owner, "1m", 7)) == 17 * 30
    await compress_before(owner, timestamp(DAY_US + _DAY))
    late = [(-25, 50.0), (-25, 60.0), (3, 99.0), (3, 1.0)]  # minute: a reset that was not seen, on the packed day, too
    for i, (minute, value) in enumerate(late):
        await plant.write(owner, [(7, DAY_US + _DAY + minute * MINUTE_US + i * SECOND, value, 0)])
        await assert_exact_after_refresh(owner, plant)
    await plant.say(owner, Gap(DAY_US + _DAY + 7, DAY_US + _DAY + HOUR_US, "stale", (7,)))
    await plant.write(owner, [(7, DAY_US + _DAY + 50 * MINUTE_US, 9.0, 0x80050000)])
    await assert_exact_after_refresh(owner, plant)
    begin, end = DAY_US + _DAY, DAY_US + _DAY + 5 * MINUTE_US
    for at in [at for at in plant.samples[7] if begin <= at < end]:
        del plant.samples[7][at]
    assert await owner.fetchval("SELECT plant.delete_samples('{7}', $1, $2, 'test')", timestamp(begin), timestamp(end))
    await assert_exact_after_refresh(owner, plant)


async def test_sum_over_any_time_is_the_increase_of_the_engine(owner: asyncpg.Connection[Any]) -> None:
    some = random.Random(4)
    plant = WrittenSamples()
    await plant.write(owner, random_samples(some, [*COUNTERS], 30, 1500))
    pause = [(c, at + 3 * _DAY, value, status) for c, at, value, status in random_samples(some, [*COUNTERS], 2, 100)]
    await plant.write(owner, pause)
    await assert_exact_after_refresh(owner, plant)
    for width, word in ((MINUTE_US, "minute"), (HOUR_US, "hour")):
        for _ in range(25):
            begin, end = sorted(DAY_US + some.randrange(5 * _DAY) // width * width for _ in range(2))
            if begin == end:
                continue
            rows = await owner.fetch(
                """SELECT channel_id, sum(increase), sum(seconds)
                   FROM plant.increases_between($1::text::interval, $2, $3) GROUP BY 1""",
                f"1 {word}",
                timestamp(begin),
                timestamp(end),
            )
            sums = {channel: (increase, seconds) for channel, increase, seconds in rows}
            for channel, wraps_at in COUNTERS.items():
                samples = [(at, *sample) for at, sample in sorted(plant.samples[channel].items())]
                counter = Channel(samples, kind="counter", wraps_at=wraps_at)
                configuration = Configuration(treat_uncertain_as_bad=False)
                [[(increase, *_)]] = aggregates([counter], (begin, end), end - begin, configuration, ["increase"])
                found, seconds = sums.get(channel, (0.0, 0.0))
                assert found == pytest.approx(0.0 if math.isnan(increase) else increase, rel=1e-12, abs=1e-9)
                assert seconds <= (end - begin) / 1e6 + 86_400


async def test_readings_too_large_to_be_summed_have_no_increase(owner: asyncpg.Connection[Any]) -> None:
    samples = [(0, 5.0), (30, 7.0), (90, math.inf), (100, 8.0), (150, 9.0)]  # s, value
    await WrittenSamples().write(owner, [(5, DAY_US + s * SECOND, value, 0) for s, value in samples])
    await refresh(owner)
    assert await _increases(owner, "1m", 5) == [(0, 2, 30), (2, 2, 120)]
    assert (await verify(owner)).differences == []


async def test_what_becomes_a_counter_has_its_increases(database: Database, owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    values = [(0, 60_000.0), (10, 100.0), (70, 50.0), (3700, 0.0), (3800, 20.0)]  # s
    rows = [(1, DAY_US + s * SECOND, value, 0) for s, value in values]
    await plant.write(owner, [*rows, *((3, at, value, 0) for _, at, value, _ in rows)])
    await refresh(owner)
    await compress_before(owner, timestamp(DAY_US + _DAY))
    assert await _increases(owner, "1m", 1) == []
    counter = "UPDATE plant.channel SET kind = 'counter' WHERE id = 1"
    await owner.execute(counter)
    await refresh(owner)
    increases = [(0, 100, 10), (1, 50, 60), (61, 0, 3630), (63, 20, 100)]
    assert await _increases(owner, "1m", 1) == increases
    assert [row[:2] for row in await _increases(owner, "1h", 1)] == [(0, 150), (60, 20)]
    await owner.execute("UPDATE plant.channel SET attributes = '{\"wraps_at\": 65536}' WHERE id = 1")
    await refresh(owner)
    assert await _increases(owner, "1m", 1) == [(0, 5636, 10), *increases[1:]]
    assert [row[:2] for row in await _increases(owner, "1h", 1)] == [(0, 5686), (60, 20)]
    await owner.execute("UPDATE plant.channel SET kind = 'discrete' WHERE id = 3")
    await refresh(owner)
    assert await owner.fetchval("SELECT sum(n) FROM plant.states_1h WHERE channel_id = 3") == 5
    assert (await verify(owner)).differences == []


async def test_verify_finds_another_increase(owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    await plant.write(owner, [(5, DAY_US + i * 10 * SECOND, float(i % 5), 0) for i in range(1000)])
    await refresh(owner)
    assert (await verify(owner)).differences == []
    at = timestamp(DAY_US + 10 * MINUTE_US)
    await owner.execute("UPDATE plant.rollup_increases_1m SET increase = 0.5 WHERE bucket = $1", at)
    await owner.execute("DELETE FROM plant.rollup_increases_1h WHERE bucket = $1", timestamp(DAY_US + HOUR_US))
    found = (await verify(owner)).differences
    assert {difference.relation for difference in found} == {"increases_1m", "increases_1h"}
    assert RollupDifference("increases_1m", "c5", at, None, "increase", 0.5, 4) in found
