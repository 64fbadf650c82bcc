"""Batches whose samples are known, and what a database must have of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from core.batch import SampleBatch
from core.samples import Samples
from core.timestamps import now_us
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from tests.database import connected
from tests.waiting import PATIENCE, until

CHANNELS = 100
ROUNDS = 20  # samples of each channel in a batch
SUM = (
    "SELECT count(*), sum(hashint8(channel_id)::int8 * 31 + hashint8((extract(epoch FROM time) * 1e6)::int8))"
    " FROM plant.samples"
)


class Plant:
    """A collector's samples: batches into a spool, in order, each another value."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._time = now_us() - 3_600_000_000
        self.samples = 0

    async def append(self) -> None:
        """Append one batch."""
        first, self._time = self._time, self._time + ROUNDS * 1000
        times = np.repeat(np.arange(first, self._time, 1000, dtype=np.int64), CHANNELS)
        channels = np.tile(np.arange(CHANNELS, dtype=np.int32), ROUNDS)
        values = (times % 86_400_000_000 + channels).astype(np.float64)
        status = np.zeros(len(times), np.uint32)
        await self._spool.append(SampleBatch(1, now_us(), Samples(channels, times, values, status)))
        self.samples += len(times)

    @asynccontextmanager
    async def feeding(self, samples_per_second: float) -> AsyncIterator[None]:
        """Batches inside the block, behind which the spool has all of them."""
        stopping = asyncio.Event()
        task = asyncio.create_task(self._feed(samples_per_second, stopping))
        try:
            yield
        finally:
            stopping.set()
            await task

    async def _feed(self, samples_per_second: float, stopping: asyncio.Event) -> None:
        begin, before = time.monotonic(), self.samples
        while not stopping.is_set():
            await self.append()
            due = begin + (self.samples - before) / samples_per_second
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def content(dsn: str) -> tuple[int, int]:
    """Number and checksum of the samples."""
    async with connected(dsn) as owner:
        [row] = await owner.fetch(SUM)
        return row[0], row[1]


async def restored(dsn: str) -> list[dict[str, Any]]:
    async with connected(dsn) as owner:
        query = "SELECT detail FROM plant.event WHERE type = 'database_restored' ORDER BY time"
        return [json.loads(row[0]) for row in await owner.fetch(query)]


@asynccontextmanager
async def running_plant(folder: Path) -> AsyncIterator[Plant]:
    """A plant whose spool is closed behind the block."""
    spool = Spool(folder / "opcua.sqlite", 512 * 1024**2)
    try:
        yield Plant(spool)
    finally:
        await spool.close()


@asynccontextmanager
async def writing(writer: Writer) -> AsyncIterator[None]:
    """A writer that runs inside the block, after which the spool is empty."""
    task = asyncio.create_task(writer.run())
    try:
        yield
        writer.drain()
        await asyncio.wait_for(asyncio.shield(task), PATIENCE)
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def expect_truth(dsn: str, plant: Plant) -> None:
    """Every sample once, and what the journal gave back, too."""
    await until(lambda: has(dsn, plant.samples))
    async with connected(dsn) as owner:
        [counts] = await owner.fetch(
            "SELECT count(*) AS n, count(DISTINCT (channel_id, time)) AS keys,"
            " count(*) FILTER (WHERE value <> (extract(epoch FROM time) * 1e6)::int8 % 86400000000 + channel_id)"
            " AS altered FROM plant.samples"
        )
        assert tuple(counts) == (plant.samples, plant.samples, 0)
        assert await owner.fetchval("SELECT count(*) FROM plant.gap") == 0


async def has(dsn: str, samples: int) -> bool:
    try:
        return (await content(dsn))[0] >= samples
    except (OSError, asyncpg.PostgresError):
        return False
