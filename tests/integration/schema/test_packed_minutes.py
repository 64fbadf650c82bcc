"""Packed minutes: what is packed comes back to the bit, and no minute is in two forms or in none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import numpy as np
import pytest
from numpy.typing import NDArray

from core.errors import DatabaseError
from ops.maintenance.packing import pack_minutes
from tests.database import Database, connected
from tests.integration.schema.test_rollups import registered_channels
from tests.sample_tables import DAY, NEXT_DAY

__all__ = ["registered_channels"]  # a fixture
_SPECIAL = np.array(
    [0x8000000000000000, 1, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0], np.uint64
).view(np.float64)  # -0, the least denormal, the greatest double, infinities, 0
_ALL = "SELECT m::text FROM plant.{} AS m ORDER BY m.channel_id, m.bucket"
_ROW = """
INSERT INTO plant.rollup_1m (channel_id, n, bucket, sum, area, known, n_good, holds)
VALUES (1, 1, $1, 0, 0, 0, 0, false)
"""
_CHANNELS = 60  # more than a transaction packs

Floats = NDArray[np.float64]


def _values(rng: np.random.Generator, kind: int, n: int) -> Floats:
    """Values of one kind as channels have them, now and then with others among them."""
    scale = 10.0 ** int(rng.integers(0, 9))
    kinds: tuple[Callable[[], Floats], ...] = (
        lambda: np.full(n, float(rng.integers(-5000, 5000)) / scale),
        lambda: rng.integers(-(10 ** int(rng.integers(1, 15))), 10 ** int(rng.integers(2, 15)), n) / scale,
        lambda: rng.normal(0, 10, n),
        lambda: rng.normal(0, 10, n).astype(np.float32).astype(np.float64),
        lambda: (rng.integers(-30_000, 30_000, n) / 100).astype(np.float32).astype(np.float64),
        lambda: rng.choice(_SPECIAL, n),
        lambda: rng.integers(-10, 10, n).cumsum() / 100,
    )
    values: Floats = kinds[kind % len(kinds)]()
    return np.where(rng.random(n) < 0.05, rng.choice(_SPECIAL, n), values) if rng.random() < 0.3 else values


def _day(rng: np.random.Generator, channel: int) -> list[tuple[Any, ...]]:
    """Rows of rollup_1m of some minutes of a channel: some columns constant, some minutes without Good samples."""
    n = (1, 2, 60, 200, 1440)[channel % 5]
    minute = np.sort(rng.choice(1440, n, replace=False))
    good = rng.random(n) < (1.0, 0.95, 0.0)[channel % 3]
    values = [_values(rng, channel + i, n) for i in range(4)]
    sums = [np.where(np.isfinite(column), column, 0.0) for column in (_values(rng, channel + i, n) for i in (4, 5))]
    count = np.full(n, 60) if channel % 2 else rng.integers(1, 100, n)
    known = np.full(n, 60_000_000) if channel % 4 else rng.integers(0, 60_000_001, n)
    first, last = (np.full(n, 59_000_000) if rng.random() < 0.4 else rng.integers(0, 60_000_000, n) for _ in range(2))

    def row(i: int) -> tuple[Any, ...]:
        bucket = DAY + timedelta(minutes=int(minute[i]))
        low, high, opening, closing = (float(column[i]) if good[i] else None for column in values)
        times = (bucket + timedelta(microseconds=int(at[i])) if good[i] else None for at in (first, last))
        return (
            *(channel, int(count[i]), bucket, low, high, float(sums[0][i]), float(sums[1][i]), opening, closing),
            *(int(known[i]), *times, int(count[i]) if good[i] else 0, bool(i % 3) or channel % 3 == 0),
        )

    return [row(i) for i in range(n)]


async def _minutes(owner: asyncpg.Connection[Any], relation: str = "rollup_minutes") -> list[str]:
    return [row[0] for row in await owner.fetch(_ALL.format(relation))]


@pytest.mark.parametrize("seed", range(3))
async def test_minutes_come_back_to_the_bit(owner: asyncpg.Connection[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    records = [row for channel in range(1, _CHANNELS + 1) for row in _day(rng, channel)]
    await owner.copy_records_to_table("rollup_1m", schema_name="plant", records=records)
    before = await _minutes(owner)
    assert len(before) == len(records)
    await pack_minutes(owner, NEXT_DAY, portions=1)
    assert 0 < await owner.fetchval("SELECT count(*) FROM plant.rollup_1m_packed") < _CHANNELS
    assert await _minutes(owner) == before
    await pack_minutes(owner, NEXT_DAY)
    assert await _minutes(owner, "rollup_1m") == []
    assert await _minutes(owner) == before


async def test_day_that_is_not_over_is_left(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_ROW, DAY)
    await pack_minutes(owner, NEXT_DAY - timedelta(minutes=1))
    assert len(await _minutes(owner, "rollup_1m")) == 1


async def test_closed_days_are_packed(owner: asyncpg.Connection[Any]) -> None:
    for time in (DAY, datetime.now(UTC).replace(second=0, microsecond=0)):
        await owner.execute(_ROW, time)
    await pack_minutes(owner)
    assert await owner.fetch("SELECT p.day FROM plant.rollup_1m_packed AS p") == [(DAY,)]
    assert len(await _minutes(owner)) == 2


async def test_minute_that_comes_while_its_day_is_packed(database: Database, owner: asyncpg.Connection[Any]) -> None:
    """A writer that catches up looked before the day was packed, and writes after that: both are packed as one."""
    await owner.execute(_ROW, DAY)
    async with connected(database.owner_dsn) as writer, writer.transaction():
        await writer.execute(_ROW, DAY + timedelta(minutes=1))
        await pack_minutes(owner, NEXT_DAY, portions=1)
    assert len(await _minutes(owner, "rollup_1m")) == 1
    both = await _minutes(owner)
    assert len(both) == 2
    await pack_minutes(owner, NEXT_DAY)
    assert await _minutes(owner) == both
    assert await _minutes(owner, "rollup_1m") == []


async def test_one_session_works_on_rollups(database: Database, owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_ROW, DAY)
    async with connected(database.owner_dsn) as other, other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock(7361023400154)")
        await pack_minutes(owner, NEXT_DAY)
        assert len(await _minutes(owner, "rollup_1m")) == 1


async def test_minutes_that_the_form_does_not_hold_stay_rows(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_ROW, DAY)
    await owner.execute("UPDATE plant.rollup_1m SET n_good = 1")  # of which there are no values
    before = await _minutes(owner)
    with pytest.raises(DatabaseError, match="a row has values without a Good sample"):
        await pack_minutes(owner, NEXT_DAY)
    assert await _minutes(owner, "rollup_1m") == before
