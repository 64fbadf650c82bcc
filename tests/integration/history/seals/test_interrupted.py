"""Sealing that is killed goes on from where it was; what comes meanwhile is in the seal."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest

from core.paths import CHECKOUT
from core.timestamps import begin
from history.seals.seal import seal_closed
from tests.integration.history.sealed_plant import BEFORE, DAY, SealedPlant
from tests.sample_tables import HOUR_US, bits
from tests.waiting import until

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plantlog seal' AND wait_event_type = 'Lock'"
ENDED = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'plantlog seal'"
ONE_DAY = BEFORE - timedelta(days=2)


@asynccontextmanager
async def held_at_hour(plant: SealedPlant, hour: int) -> AsyncIterator[None]:
    """Whoever wants to keep the digests of that hour waits until the block's end."""
    other: asyncpg.Connection[Any] = await asyncpg.connect(plant.database.owner_dsn)
    hold = other.transaction()
    await hold.start()
    await other.execute(
        "INSERT INTO plant.seal_work (chain, day, channel_id, hour, n, digest) VALUES (1, $1, $2, $3, 0, '')",
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
async def long_day(plant: SealedPlant) -> SealedPlant:
    """The first day has samples in each hour."""
    for hour in range(24):
        if hour not in (5, 6):
            await plant.samples("unit/flow", [(hour * HOUR_US + i, bits(float(i)), 0) for i in range(100)])
    return plant


async def test_killed_sealing_continues(long_day: SealedPlant) -> None:
    plant = long_day
    async with held_at_hour(plant, 12):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ops", "evidence", "seal", "--before", ONE_DAY.isoformat()),
            env={**os.environ, "PLANTLOG_STATE": str(plant.state.root)},
            cwd=CHECKOUT,
        )
        await until(partial(plant.owner.fetchval, WAITING))
        process.kill()
        await process.wait()
    await until(partial(plant.owner.fetchval, ENDED))
    kept = await plant.owner.fetchval("SELECT sum(n) FROM plant.seal_work")
    assert kept == 10 * 100 + 480
    lines: list[str] = []
    [done] = await plant.seal(ONE_DAY, progress=lines.append)
    assert lines == [f"2026-03-09: sealed {22 * 100 + 480:,} samples of 2 channels, {12 * 100:,} read now"]
    assert done.seal.samples == 22 * 100 + 480
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.seal_work") == 0
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.seal_progress") == 0
    report = await plant.verify()
    assert report.ok
    assert not report.days[0].findings


@pytest.mark.parametrize("packed", [False, True])
async def test_data_arriving_while_sealing_are_sealed(long_day: SealedPlant, packed: bool) -> None:
    plant = long_day
    if packed:
        await plant.pack()
    async with held_at_hour(plant, 12):
        sealing = asyncio.create_task(seal_closed(plant.database.owner_dsn, plant.state, ONE_DAY))
        await until(partial(plant.owner.fetchval, WAITING))
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


async def test_killed_amendment_leaves_nothing_behind(plant: SealedPlant) -> None:
    """Work of an interrupted amendment is no part of the next one."""
    await plant.seal()
    await plant.owner.execute(
        "INSERT INTO plant.seal_work (chain, day, channel_id, hour, n, digest) VALUES (1, $1, $2, 5, 3, $3)",
        DAY,
        plant.ids["unit/flow"],
        bytes(32),
    )
    await plant.late("unit/flow", [(6 * HOUR_US + 500, bits(1.5), 0)])
    [done] = await plant.seal()
    assert [channel["hour"] for channel in json.loads(done.differs)["channels"]] == [6]
    assert (await plant.verify()).ok
