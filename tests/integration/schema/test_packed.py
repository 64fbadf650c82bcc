"""Packing of hours beside other transactions; samples_between reads only what it needs of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest

from ops.maintenance import packing
from ops.maintenance.packing import pack_hour
from tests.database import Database, connected
from tests.sample_tables import (
    DAY,
    HOUR_US,
    NEXT_DAY,
    bits,
    blocks_read,
    compress,
    copy,
    planned_before,
    planned_first,
    samples_between,
    samples_in_view,
)
from tests.waiting import until

SECOND = 1_000_000  # µs
_CHANNELS = 100
_HOURS = 4
_EACH = 60  # samples a channel and hour
_FILL = """
INSERT INTO plant.samples_raw (time, value, channel_id, status)
SELECT $1::timestamptz + i * INTERVAL '60 s', round((c + sin(i))::numeric, 2)::float8, c, 0
FROM generate_series(0, $2 - 1) AS i, generate_series(1, $3) AS c
"""
# One statement, one snapshot: what it says of both forms is of one moment.
_LOOK = """
SELECT (SELECT count(*) FROM plant.samples_raw)                                   AS raw,
       count(*)                                                                   AS rows,
       count(DISTINCT (s.channel_id, s.time))                                     AS keys,
       sum(hashtextextended(s.channel_id || ' ' || s.time || ' ' || s.value, 0))  AS digest
FROM {} AS s
WHERE s.channel_id < 1000
"""


async def filled(owner: asyncpg.Connection[Any]) -> tuple[int, int, int]:
    """Four hours of 100 channels; what every look at them must show."""
    await owner.execute(_FILL, DAY, _HOURS * _EACH, _CHANNELS)
    look = await owner.fetchrow(_LOOK.format("plant.samples"))
    assert look is not None and look["rows"] == _HOURS * _EACH * _CHANNELS
    return look["rows"], look["keys"], look["digest"]


async def raw_rows(owner: asyncpg.Connection[Any]) -> int:
    return int(await owner.fetchval("SELECT count(*) FROM plant.samples_raw"))


@pytest.mark.parametrize("relation", ["plant.samples", f"plant.samples_between('{DAY}', '{NEXT_DAY}')"])
async def test_query_that_is_being_planned_misses_nothing(
    relation: str, database: Database, owner: asyncpg.Connection[Any]
) -> None:
    """Nor does the next one with its plan."""
    whole, query = await filled(owner), planned_first(_LOOK.format(relation))
    async with connected(database.owner_dsn) as packer, connected(database.owner_dsn) as reader:
        async with planned_before(reader, owner, query) as looked:
            packing = asyncio.create_task(compress(packer, DAY + timedelta(hours=1)))
            await until(lambda: owner.fetchval("SELECT count(*) FROM public.show_chunks('plant.samples_packed')"))
        await packing
        looks = [*await looked, *await reader.fetch(query)]
        assert await raw_rows(owner) == whole[0] * 3 // 4  # the chunk stays, so that the plan is not made anew for it
        await compress(packer)
        looks += await reader.fetch(query)
    assert [tuple(look)[1:] for look in looks] == [whole] * 3
    assert await raw_rows(owner) == 0


async def test_packing_blocks_nobody(
    database: Database, ingest: asyncpg.Connection, owner: asyncpg.Connection[Any]
) -> None:
    """A chunk that somebody is at stays until the next time; a pack that is under way holds up no writer."""
    await filled(owner)
    packer = await asyncpg.connect(database.owner_dsn)
    await ingest.execute("SET lock_timeout = '1ms'")
    async with packer.transaction():
        assert await pack_hour(packer, DAY, [1, 2, 3]) == 3 * _EACH
        await copy(ingest, 1, [(7, bits(1.0), 0)])
        assert await pack_hour(packer, DAY, [1]) == 1
        assert await pack_hour(owner, DAY, [1]) is None  # one at a time
        await copy(ingest, 1, [(8, bits(1.0), 0)])
    async with ingest.transaction():
        await copy(ingest, 2000, [(1, bits(1.0), 0)])
        await compress(packer)
        assert await owner.fetchval("SELECT count(*) FROM public.show_chunks('plant.samples_raw')") == 1
    assert await samples_in_view(owner, 2000) == [(1, bits(1.0), 0)]
    await compress(packer)
    assert await samples_in_view(owner, 2000) == [(1, bits(1.0), 0)]
    assert await raw_rows(owner) == 0
    await packer.close()


async def test_locked_chunk_is_left_for_later(database: Database, owner: asyncpg.Connection[Any]) -> None:
    """As while autovacuum gives its empty pages back."""
    await filled(owner)
    async with connected(database.owner_dsn) as other:
        async with other.transaction(isolation="repeatable_read"):
            await other.fetchval("SELECT 1 FROM plant.channel LIMIT 1")
            await compress(owner)  # the chunk stays, for the older view
        chunk = await owner.fetchval("SELECT c::text FROM public.show_chunks('plant.samples_raw') AS c")
        dropped = "SELECT plant.drop_packed_chunk($1, $2, $3)"
        async with other.transaction():
            await other.execute(f"LOCK TABLE {chunk} IN ACCESS EXCLUSIVE MODE")
            assert await owner.fetchval(dropped, chunk, DAY, NEXT_DAY) is False
    await until(partial(owner.fetchval, dropped, chunk, DAY, NEXT_DAY))  # autovacuum may be at it
    assert await owner.fetchval("SELECT count(*) FROM public.show_chunks('plant.samples_raw')") == 0


@pytest.mark.slow
async def test_only_the_hours_within_the_bounds_are_read(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_FILL.replace("60 s", "600 s"), DAY - timedelta(days=30), 40 * 24 * 6, 1)
    while await owner.fetchval("SELECT min(time) FROM plant.samples_raw") < DAY or await owner.fetchval(
        "SELECT count(*) FROM public.show_chunks('plant.samples_raw', older_than => $1::timestamptz)", DAY
    ):
        await compress(owner, DAY)  # a chunk that autovacuum is at goes by another call
    plan = await owner.fetch(
        "EXPLAIN (ANALYZE, COSTS off, TIMING off) SELECT * FROM plant.samples_between('{1}', $1, $2)",
        DAY - timedelta(hours=40, minutes=10),
        DAY - timedelta(hours=39, minutes=10),
    )
    lines = [row[0] for row in plan]
    assert await owner.fetchval("SELECT count(*) FROM public.show_chunks('plant.samples_packed')") > 4
    assert sum(" on _hyper_" in line for line in lines) == 1, lines  # one chunk of these, and none of samples_raw
    (scan,) = [line for line in lines if " on _hyper_" in line]
    assert "rows=2 " in scan, lines  # the two hours that the bounds cut
    condition = next(line for line in lines if "Index Cond" in line)
    assert "channel_id" in condition and condition.count("hour") >= 2, lines


async def test_samples_between_reads_packed_and_raw_rows(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_FILL, DAY, 240, 3)
    await compress(owner, DAY + timedelta(hours=2, minutes=30))
    assert await raw_rows(owner) == 3 * 120  # an hour that is not whole yet stays
    middle = await samples_between(owner, 2, HOUR_US, 3 * HOUR_US)
    assert [time for time, _, _ in middle] == list(range(HOUR_US, 3 * HOUR_US, 60 * SECOND))
    assert middle == [s for s in await samples_in_view(owner, 2) if HOUR_US <= s[0] < 3 * HOUR_US]
    assert await samples_between(owner, 4, 0, 3 * HOUR_US) == []
    plan = [
        r[0] for r in await owner.fetch("EXPLAIN SELECT * FROM plant.samples_between('{2}', $1, $2)", DAY, NEXT_DAY)
    ]
    assert any("samples_raw_pkey" in line for line in plan), plan


async def test_hour_with_many_samples_is_packed(owner: asyncpg.Connection[Any]) -> None:
    """100 samples a second with breaks, values over the whole range of their whole numbers."""
    samples = [
        (i * 10_000 + i // 40_000 * 700_000 + i % 3, bits((i * 7919 % 4_000_000_000) / 1000), 0) for i in range(120_000)
    ]
    await copy(owner, 5, samples)
    await compress(owner)
    assert await raw_rows(owner) == 0
    assert await samples_in_view(owner, 5) == samples
    assert await samples_between(owner, 5, samples[1000][0], samples[100_000][0]) == samples[1000:100_000]


async def test_session_time_zone_changes_nothing(owner: asyncpg.Connection[Any]) -> None:
    """Half an hour beside UTC, and its clocks go forward or back within the samples."""
    await owner.execute("SET timezone = 'Australia/Lord_Howe'")
    for channel, night in enumerate((datetime(2026, 4, 4, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC)), 1):
        since = (night - DAY) // timedelta(microseconds=1)
        samples = [(since + i * 30 * SECOND + i % 7 * (channel - 1), bits(i / 4), 0) for i in range(2880)]
        await copy(owner, channel, samples)
        await compress(owner, night + timedelta(days=1))
        assert await raw_rows(owner) == 0
        assert await samples_in_view(owner, channel) == samples
        rows = await owner.fetch("SELECT FROM plant.samples_between(ARRAY[$1::int], '-infinity', 'infinity')", channel)
        assert len(rows) == len(samples)


_PACKED = """
SELECT sum(p.n)::int FROM plant.samples_packed AS p WHERE p.hour = $1 AND p.channel_id = ANY ($2::int[])
"""
_SAMPLES = """
INSERT INTO plant.samples_raw (time, value, channel_id, status)
SELECT $1::timestamptz + INTERVAL '1 second' * s, s, c, 0
FROM generate_series(1, $2::int) AS c CROSS JOIN generate_series(0, $3::int - 1) AS s
"""


Portion = tuple[int, int, int]  # hours since the day began, how many channels, and samples that their hours have then


@pytest.fixture
def portions(monkeypatch: pytest.MonkeyPatch) -> list[Portion]:
    """Portions that are packed in one transaction each, from now on."""
    packed: list[Portion] = []

    async def recorded(connection: asyncpg.Connection[Any], hour: datetime, channels: list[int]) -> int | None:
        moved = await pack_hour(connection, hour, channels)
        samples = await connection.fetchval(_PACKED, hour, channels)
        packed.append(((hour - DAY) // timedelta(hours=1), len(channels), samples))
        return moved

    monkeypatch.setattr(packing, "pack_hour", recorded)
    return packed


async def test_packing_visits_only_hours_and_channels_with_rows(
    owner: asyncpg.Connection[Any], portions: list[Portion]
) -> None:
    for hour in range(10):
        await owner.execute(_SAMPLES, DAY + timedelta(hours=hour), 3, 5)
    await compress(owner, DAY + timedelta(hours=10))
    assert portions == [(hour, 3, 15) for hour in range(10)]
    portions.clear()
    await compress(owner, DAY + timedelta(hours=11))
    assert portions == []
    await owner.execute(_SAMPLES, DAY + timedelta(hours=10), 2, 5)
    await owner.execute(_SAMPLES, DAY + timedelta(hours=2, minutes=30), 1, 1)  # late
    await owner.execute(_SAMPLES, DAY + timedelta(hours=11), 3, 1)  # not a whole hour yet
    await compress(owner, DAY + timedelta(hours=11, minutes=59))
    assert portions == [(2, 1, 6), (10, 2, 10)]


async def test_packing_portion_is_bounded_by_its_rows(owner: asyncpg.Connection[Any], portions: list[Portion]) -> None:
    """Hours in which little came, or little came late, make the next portions no larger."""
    channels, samples = 72, 3000
    await owner.execute(_SAMPLES, DAY + timedelta(hours=1), channels, 1)
    await owner.execute(_SAMPLES, DAY + timedelta(hours=2), channels, samples)
    await owner.execute(_SAMPLES, DAY + timedelta(hours=3), channels, samples)
    await compress(owner)
    assert sum(n for _, n, _ in portions) == 3 * channels
    assert max(n for _, _, n in portions) <= 200_000, portions
    portions.clear()
    await owner.execute(_SAMPLES, DAY + timedelta(hours=3, minutes=59), channels, 1)
    await compress(owner)
    assert sum(n for _, n, _ in portions) == channels
    assert max(n for _, _, n in portions) <= 200_000, portions


async def test_packing_a_day_reads_no_other(owner: asyncpg.Connection[Any]) -> None:
    channels, samples = 50, 4000
    await owner.execute(_SAMPLES, DAY, channels, 5)
    await owner.execute(_SAMPLES, NEXT_DAY, channels, samples)
    read = await blocks_read(owner, "samples_raw", NEXT_DAY)
    await compress(owner)
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_packed") == channels
    assert await blocks_read(owner, "samples_raw", NEXT_DAY) - read < 20 * channels
