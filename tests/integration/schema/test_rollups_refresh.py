"""Refreshing: what stays dirty, two at once, many channels of packed days, what is left of packed days, who may."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from core.timestamps import now_us, timestamp
from ops.maintenance.packing import pack_minutes
from tests.database import Database, add_channels, connected
from tests.integration.schema.test_rollups import (
    SECOND,
    WrittenSamples,
    assert_exact_after_refresh,
    refresh,
    registered_channels,
)
from tests.sample_tables import DAY, DAY_US, HOUR_US, NEXT_DAY, blocks_read, planned_before, planned_first
from tests.waiting import until

__all__ = ["registered_channels"]  # a fixture
_CHUNKS = "SELECT count(*) FROM public.show_chunks('plant.rollup_1m')"

_MINUTES = """
INSERT INTO plant.rollup_1m (channel_id, n, bucket, sum, area, known, n_good, holds)
SELECT c, 0, $1::timestamptz + INTERVAL '1 minute' * m, 0, 0, 0, 0, false
FROM generate_series(1, $2::int) AS c CROSS JOIN generate_series(0, $3::int - 1) AS m
"""


async def dirty(connection: asyncpg.Connection[Any]) -> int:
    return int(await connection.fetchval("SELECT count(*) FROM plant.rollup_dirty"))


async def test_open_minute_stays_dirty_and_is_charted(owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    now = now_us()
    await plant.write(owner, [(1, now - 300 * SECOND, 1.0, 0), (1, now + 60 * SECOND, 2.0, 0)])
    await refresh(owner)
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_1m WHERE n > 0") == 1
    (left,) = await owner.fetch("SELECT from_time, channels FROM plant.rollup_dirty WHERE NOT hours")
    # The minute that was open then, whatever it is by now: it is open for some seconds after its end.
    assert left["from_time"] > timestamp(now - 70 * SECOND)
    query = "SELECT max(max), sum(n) FROM plant.series(1, $1, $2, 10)"
    row = await owner.fetchrow(query, timestamp(now - 600 * SECOND), timestamp(now + 600 * SECOND))
    assert row is not None and tuple(row) == (2.0, 2)


async def test_second_concurrent_refresh_ends_at_once(database: Database, owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    await plant.write(owner, [(1, DAY_US, 1.0, 0)])
    async with connected(database.owner_dsn) as first:
        async with first.transaction(isolation="repeatable_read"):
            assert await first.fetchval("SELECT plant.refresh_portion(now())") is True
            await refresh(owner)
            assert await dirty(owner) == 1
        # Its snapshot is older than what the other did meanwhile: it ends too, and breaks nothing.
        await plant.write(owner, [(1, DAY_US + SECOND, 2.0, 0)])
        async with first.transaction(isolation="repeatable_read"):
            await first.fetchval("SELECT 1 FROM plant.rollup_dirty LIMIT 1")
            await refresh(owner)
            assert await first.fetchval("SELECT plant.refresh_portion(now())") is None
    await assert_exact_after_refresh(owner, plant)


async def test_deleted_sample_is_no_longer_held(owner: asyncpg.Connection[Any]) -> None:
    """Though the next minute was made with it before its own was, of which nothing is left."""
    plant = WrittenSamples()
    midnight = DAY_US + 24 * HOUR_US
    doomed = midnight - 30 * SECOND
    await plant.write(owner, [(1, midnight - HOUR_US, 1.0, 0)])
    await refresh(owner)
    await plant.write(owner, [(1, doomed, 5.0, 0), (1, midnight + 10 * SECOND, 6.0, 0)])
    async with owner.transaction(isolation="repeatable_read"):
        assert await owner.fetchval("SELECT plant.refresh_portion(now())") is True
    assert await owner.fetchval("SELECT array_agg(bucket) FROM plant.rollup_1m") == [timestamp(midnight)]
    query = "SELECT plant.delete_samples('{1}', $1, $2, 'test')"
    assert await owner.fetchval(query, timestamp(doomed), timestamp(doomed + 1)) == 1
    del plant.samples[1][doomed]
    await assert_exact_after_refresh(owner, plant)


async def test_packed_days_have_minutes(owner: asyncpg.Connection[Any]) -> None:
    await WrittenSamples().write(owner, [(1, DAY_US + HOUR_US, 1.0, 0)])
    while not await owner.fetchval("SELECT count(*) FROM plant.rollup_1m_packed"):
        await refresh(owner)
    for hours, there in ((0, [1]), (5, [1]), (24, [])):
        query = "SELECT plant.channels_with_minutes('{1,3}', $1)"
        assert await owner.fetchval(query, timestamp(DAY_US + hours * HOUR_US)) == there


@pytest.mark.slow
async def test_all_channels_of_a_packed_day(owner: asyncpg.Connection[Any]) -> None:
    """Late data of more channels than are named: a portion of them at a time becomes rows, and is packed again."""
    await add_channels(owner, range(9, 240 + 1), discrete=True)
    plant = WrittenSamples()
    channels = range(9, 241)
    await plant.write(owner, [(c, DAY_US + i * HOUR_US, float(i), 0) for c in channels for i in range(4)])
    assert await owner.fetchval("SELECT bool_and(channels IS NULL) FROM plant.rollup_dirty")
    packed = "SELECT count(*) FROM plant.rollup_1m_packed"
    for late in (30 * SECOND, 61 * SECOND, 2 * HOUR_US + 5):
        while await owner.fetchval(packed) < len(channels):
            await refresh(owner)
        await plant.write(owner, [(c, DAY_US + late, 7.5, 0) for c in channels])
        await assert_exact_after_refresh(owner, plant)


async def test_query_that_is_being_planned_misses_nothing(database: Database, owner: asyncpg.Connection[Any]) -> None:
    """Nor does the next one with its plan."""
    await owner.execute(_MINUTES, DAY, 2, 30)
    query = planned_first("SELECT count(*) AS rows FROM plant.samples_1m")
    async with connected(database.owner_dsn) as packer, connected(database.owner_dsn) as reader:
        async with planned_before(reader, owner, query) as looked:
            packing = asyncio.create_task(pack_minutes(packer, NEXT_DAY))
            await until(lambda: owner.fetchval("SELECT count(*) FROM public.show_chunks('plant.rollup_1m_packed')"))
        await packing
        looks = [*await looked, *await reader.fetch(query)]
    assert [look["rows"] for look in looks] == [60, 60]
    assert await owner.fetchval("SELECT count(*) FROM plant.rollup_1m_packed") == 2


async def test_packing_a_day_reads_no_other(owner: asyncpg.Connection[Any]) -> None:
    channels = 50
    for day, minutes in ((DAY, 5), (NEXT_DAY, 1440)):
        await owner.execute(_MINUTES, day, channels, minutes)
    read = await blocks_read(owner, "rollup_1m", NEXT_DAY)
    await pack_minutes(owner, NEXT_DAY)
    assert await owner.fetchval("SELECT count(*) FROM plant.rollup_1m_packed") == channels
    assert await blocks_read(owner, "rollup_1m", NEXT_DAY) - read < 20 * channels


async def test_chunks_of_packed_rollup_days_are_dropped(owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    await plant.write(owner, [(1, DAY_US + i * HOUR_US, 1.0, 0) for i in range(60)])
    assert await owner.fetchval(_CHUNKS) == 0
    await refresh(owner)
    assert await owner.fetchval(_CHUNKS) > 0
    while await owner.fetchval(_CHUNKS) > 0:
        await assert_exact_after_refresh(owner, plant)
    assert await owner.fetchval("SELECT count(*) FROM plant.rollup_chunk") == 0
    between = await owner.fetch("SELECT * FROM plant.minutes_between('{1}', $1, $2)", DAY, DAY + timedelta(hours=30))
    assert len(between) == 30


async def test_samples_from_before_rollups_are_rolled_up(owner: asyncpg.Connection[Any]) -> None:
    """A dirty row of days, as the migration makes it of chunks that are there."""
    plant = WrittenSamples()
    await plant.write(owner, [(c, DAY_US + i * 7 * HOUR_US, 1.0, 0) for c in (1, 2) for i in range(9)])
    await owner.execute("DELETE FROM plant.rollup_dirty")
    await owner.execute(
        "INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", DAY, DAY + timedelta(days=3)
    )
    await assert_exact_after_refresh(owner, plant)


async def test_roles_read_rollups(
    database: Database, ingest: asyncpg.Connection, owner: asyncpg.Connection[Any]
) -> None:
    plant = WrittenSamples()
    await plant.write(owner, [(2, DAY_US, 1.0, 0)])
    await refresh(owner)
    for dsn in (database.reader_dsn, database.ingest_dsn):
        async with connected(dsn) as connection:
            for relation in ("samples_1m", "samples_1h", "states_1m", "states_1h"):
                assert await connection.fetchval(f"SELECT count(*) FROM plant.{relation} WHERE n > 0") == 1
            points = await connection.fetch("SELECT * FROM plant.series(2, $1, $2)", DAY, DAY + timedelta(days=1))
            assert len(points) == 1
    await plant.write(ingest, [(2, DAY_US + SECOND, 1.0, 0)])
    assert await dirty(owner) == 1
