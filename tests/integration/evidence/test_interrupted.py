"""Sealing that is killed goes on from where it was; what comes meanwhile is in the seal."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from ops.evidence.reading import begin
from ops.evidence.seal import seal_closed
from ops.paths import CHECKOUT
from tests.integration.evidence.plant import BEFORE, DAY, HOUR_US, Plant, bits
from tests.patience import PATIENCE

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plantlog seal' AND wait_event_type = 'Lock'"
SEALING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plantlog seal'"
ONE_DAY = BEFORE - timedelta(days=2)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not await true():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def held_at_hour(plant: Plant, hour: int) -> AsyncIterator[None]:
    """Whoever wants to keep the digests of that hour waits until the block's end."""
    other: asyncpg.Connection[Any] = await asyncpg.connect(plant.database.owner_dsn)
    hold = other.transaction()
    await hold.start()
    await other.execute(
        "INSERT INTO plant.seal_work (day, channel_id, hour, n, digest) VALUES ($1, $2, $3, 0, '')",
        DAY,
        plant.ids["unit/flow"],
        hour,
    )
    try:
        yield
    finally:
        await hold.rollback()
        await other.close()


@pytest.fixture
async def long_day(plant: Plant) -> Plant:
    """The first day has samples in each hour."""
    for hour in range(24):
        if hour not in (5, 6):
            await plant.samples("unit/flow", [(hour * HOUR_US + i, bits(float(i)), 0) for i in range(100)])
    return plant


async def test_killed_while_sealing(long_day: Plant) -> None:
    plant = long_day

    async def count(query: str) -> int:
        return int(await plant.owner.fetchval(query))

    async with held_at_hour(plant, 12):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ops", "seal", "--before", ONE_DAY.isoformat()),
            env={**os.environ, "PLANTLOG_STATE": str(plant.state.root)},
            cwd=CHECKOUT,
        )
        await until(lambda: _is(count, WAITING, 1))
        process.kill()
        await process.wait()
    await until(lambda: _is(count, SEALING, 0))
    kept = await plant.owner.fetchval("SELECT sum(n) FROM plant.seal_work")
    assert kept == 10 * 100 + 480
    said: list[str] = []
    [done] = await plant.seal(ONE_DAY, say=said.append)
    assert said == [f"2026-03-09: sealed, {22 * 100 + 480:,} samples of 2 channels, {12 * 100:,} read now"]
    assert done.seal.samples == 22 * 100 + 480
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.seal_work") == 0
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.seal_progress") == 0
    report = await plant.verify()
    assert report.ok
    assert not report.days[0].findings


async def _is(count: Callable[[str], Awaitable[int]], query: str, n: int) -> bool:
    return await count(query) == n


@pytest.mark.parametrize("packed", [False, True])
async def test_data_that_come_while_sealing_are_sealed(long_day: Plant, packed: bool) -> None:
    plant = long_day
    if packed:
        await plant.pack()

    async def count(query: str) -> int:
        return int(await plant.owner.fetchval(query))

    async with held_at_hour(plant, 12):
        sealing = asyncio.create_task(seal_closed(plant.database.owner_dsn, plant.state, ONE_DAY))
        await until(lambda: _is(count, WAITING, 1))
        await plant.late("unit/flow", [(3 * HOUR_US + 500, bits(1.5), 0), (23 * HOUR_US + 500, bits(1.5), 0)])
        await plant.event(begin(DAY, 2), "text", "late")
    assert await sealing == [DAY]
    report = await plant.verify()
    assert report.ok
    assert not report.days[0].findings
    sealed = await plant.owner.fetchrow("SELECT samples, events, revision FROM plant.day_seal")
    assert sealed is not None
    assert tuple(sealed) == (22 * 100 + 480 + 2, 2, 0)
    assert await seal_closed(plant.database.owner_dsn, plant.state, ONE_DAY) == []


async def test_killed_while_amending(plant: Plant) -> None:
    """What an interrupted amendment left behind is no part of the next."""
    await plant.seal()
    await plant.owner.execute(
        "INSERT INTO plant.seal_work (day, channel_id, hour, n, digest) VALUES ($1, $2, 5, 3, $3)",
        DAY,
        plant.ids["unit/flow"],
        bytes(32),
    )
    await plant.late("unit/flow", [(6 * HOUR_US + 500, bits(1.5), 0)])
    [done] = await plant.seal()
    assert [one["hour"] for one in json.loads(done.differs)["channels"]] == [6]
    assert (await plant.verify()).ok
