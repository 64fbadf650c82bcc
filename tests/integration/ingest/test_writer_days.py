"""Pushes that reach over years: each day is a chunk, and the server's table of locks is shared by all."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import asyncpg
import numpy as np
import pytest

from core.batch import SampleBatch
from core.config.model import WriterOptions
from core.samples import Samples
from core.timestamps import now_us
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from tests.database import Database, add_channels, add_sources
from tests.integration.ingest.test_database_failures import failures
from tests.spooling import Spooled
from tests.waiting import PATIENCE, until

MIB = 1024**2
DAY_US = 86_400_000_000
YEARS = 3_649  # days: as far back as the writer takes by default
OLD, LIVE = (1, 2), 3  # channels


@pytest.mark.slow
async def test_ten_years_of_backfill_do_not_delay_live_data(
    database: Database, reader: asyncpg.Connection, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """Two pushes of one line a day. What is live lands before they are done, and everything is there once."""
    await add_sources(owner, "a")
    await add_channels(owner, range(1, 4))
    before = failures("OutOfMemoryError")
    pushed, live = (Spool(tmp_path / f"{name}.sqlite", 512 * MIB) for name in ("push", "opcua"))
    for channel in OLD:
        await pushed.append(_daily(channel))
    writer = Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=2, days_per_hour=YEARS))
    running = asyncio.create_task(writer.run())
    sent = overtaken = 0
    async with asyncio.timeout(3 * PATIENCE):
        while await _batches(owner, YEARS) < len(OLD):
            await live.append(_now(LIVE))
            sent += 1
            await until(partial(_live_written, owner, sent))
            overtaken += await _batches(owner, YEARS) < len(OLD)
        writer.drain()
        await running
    assert overtaken > 5, "live data went on while the years were written"
    assert failures("OutOfMemoryError") == before
    # The key is unique: as many as came means each once.
    assert await reader.fetchval("SELECT count(*) FROM samples") == len(OLD) * YEARS + sent
    assert await owner.fetchval("SELECT count(*) FROM plant.event") == 0
    for spool in (pushed, live):
        await spool.close()
    for name in ("push", "opcua"):
        assert Spooled(tmp_path / f"{name}.sqlite").depth() == (0, 0)


async def _batches(owner: asyncpg.Connection, rows: int) -> int:
    """Number of batches of so many rows that are written."""
    return int(await owner.fetchval("SELECT count(*) FROM plant.ingest_batch WHERE rows = $1", rows))


async def _live_written(owner: asyncpg.Connection, sent: int) -> bool:
    return await _batches(owner, 1) >= sent


def _daily(channel: int) -> SampleBatch:
    now = now_us()
    time = now - DAY_US * np.arange(YEARS, dtype=np.int64)
    return SampleBatch(
        1,
        now,
        Samples(
            np.full(YEARS, channel, np.int32), time, np.arange(YEARS, dtype=np.float64), np.zeros(YEARS, np.uint32)
        ),
    )


def _now(channel: int) -> SampleBatch:
    now = now_us()
    return SampleBatch(
        1,
        now,
        Samples(np.array([channel], np.int32), np.array([now], np.int64), np.array([0.0]), np.array([0], np.uint32)),
    )
