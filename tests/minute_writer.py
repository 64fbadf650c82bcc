"""A writer that closes minutes, the spool that feeds it, and what must be made of its samples."""

from __future__ import annotations

import asyncio
import math
import random
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest

from core.batch import Batch, SampleBatch
from core.config.model import WriterOptions
from core.samples import Samples
from core.timestamps import timestamp
from history.rollups import verify
from ingest.spool.append import Spool
from ingest.writer.minutes import closer
from ingest.writer.writer import Writer
from tests.database import Database, add_channels, add_sources
from tests.sample_tables import DAY_US
from tests.waiting import PATIENCE, until

MINUTE_US = 60_000_000
SECOND = 1_000_000
CHANNELS = 12  # even ones are discrete
_LEFT = """
SELECT count(*) FROM plant.rollup_dirty
WHERE open_since IS NULL AND NOT hours AND to_time <= coalesce(plant.first_open_minute(), now())
"""


class Clock:
    """Our clock, as writers see it; the database has its own."""

    def __init__(self) -> None:
        self.now = DAY_US

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("writer", "minutes.closer"):
        monkeypatch.setattr(f"ingest.writer.{module}.now_us", clock)
    monkeypatch.setattr("ingest.writer.minutes.closer._POLL_SECONDS", 0.02)
    return clock


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "a")
    await add_channels(owner, range(1, CHANNELS + 1), discrete=True)
    await owner.execute("INSERT INTO plant.setting VALUES ('lateness', '1e9')")  # days are not packed


@pytest.fixture
async def other_dsn(database: Database, owner: asyncpg.Connection[Any]) -> str:
    """The DSN of another installation's writer."""
    login = "plantlog_ingest_other"
    if not await owner.fetchval("SELECT to_regrole($1) IS NOT NULL", login):  # it is the server's
        await owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD 'other' IN ROLE plant_ingest")
    return f"postgresql://{login}:other@{database.ingest_dsn.rpartition('@')[2]}"


class Running:
    """A writer at work, and the spool that feeds it."""

    def __init__(self, folder: Path, database: Database, clock: Clock, dsn: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self.spool = Spool(folder / "push.sqlite", 2**29)
        self.writer = Writer(folder, dsn or database.ingest_dsn, WriterOptions(connections=3, max_rows=1000))
        self._clock = clock
        self._random = random.Random(1)
        self._task = asyncio.create_task(self.writer.run())

    async def send(self, *batches: Batch) -> None:
        """Send batches; the database has them."""
        for batch in batches:
            await self.spool.append(batch)
        await until(self._empty)

    def minute(self, minute: int) -> list[SampleBatch]:
        """Samples of ``minute`` (since the day began), at its end."""
        self._clock.now = DAY_US + minute * MINUTE_US + 59 * SECOND
        return minute_of(minute, self._random)

    async def send_minute(self, minute: int) -> None:
        """Send the samples of ``minute``; the database has them."""
        await self.send(*self.minute(minute))

    async def _empty(self) -> bool:
        backlog = await self.writer.backlog()  # of its files
        return (self._folder / "push.sqlite") in self.writer._backlog._files and backlog[0] == 0

    async def close(self, owner: asyncpg.Connection[Any], minute: int, login: str | None = None) -> None:
        """Let all writers, or those with ``login``, close ``minute`` (since the day began)."""
        begin = DAY_US + minute * MINUTE_US
        self._clock.now = begin + MINUTE_US + 50 * SECOND

        async def closed() -> bool:
            open_rows = (
                "SELECT count(*) FROM plant.rollup_dirty"
                " WHERE open_since IS NOT NULL AND from_time <= $1 AND coalesce(held_by = $2, true)"
            )
            return not await owner.fetchval(open_rows, timestamp(begin), login)

        await until(closed)

    async def stop(self) -> None:
        self.writer.drain()
        await asyncio.wait_for(self._task, PATIENCE)
        await self.spool.close()

    async def kill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """End the writer, which does not release its minutes."""

        async def nothing(_: object) -> None:
            return

        with monkeypatch.context() as patch:
            patch.setattr(closer.MinuteCloser, "_release", nothing)
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self.spool.close()


@pytest.fixture
async def running(database: Database, owner: asyncpg.Connection[Any], tmp_path: Path, clock: Clock) -> Running:
    assert owner, "the plant is there"
    return Running(tmp_path / "1", database, clock)


def batch(samples: list[tuple[int, int, float, int]]) -> SampleBatch:
    """(channel, µs since the day began, value, status) each."""
    channel, time, value, status = zip(*samples, strict=True)
    times = np.array(time, np.int64) + DAY_US
    columns = np.array(channel, np.int32), times, np.array(value, np.float64), np.array(status, np.uint32)
    return SampleBatch(1, int(times.max()), Samples(*columns))


def minute_of(minute: int, some: random.Random) -> list[SampleBatch]:
    """A minute at 1 Hz of all channels, in batches, in order."""
    batches: list[SampleBatch] = []
    at = 0
    while at < 60:
        seconds = range(at, min(60, at + some.randrange(1, 9)))
        at = seconds.stop
        samples = [
            (c, minute * MINUTE_US + s * SECOND + 1000 * c, *_value(c, some)) for c in range(1, 13) for s in seconds
        ]
        batches.append(batch(samples))
    return batches


def _value(channel: int, some: random.Random) -> tuple[float, int]:
    if some.random() < 0.03:
        return some.choice((math.nan, math.inf, -0.0, 1e300)), some.choice((0, 0x80050000))
    return (float(some.randrange(3)) if channel % 2 == 0 else round(some.gauss(50, 20), 2)), 0


async def refreshed(owner: asyncpg.Connection[Any]) -> None:
    """Refresh all rollups that nobody holds open."""

    async def done() -> bool:
        await owner.execute("CALL plant.refresh_rollups()")
        return not await owner.fetchval(_LEFT)

    await until(done)


async def assert_exact(owner: asyncpg.Connection[Any]) -> None:
    """Assert that nothing is dirty, and that rollups are as they would be made from scratch."""
    await refreshed(owner)
    assert await owner.fetch("SELECT * FROM plant.rollup_dirty") == []
    verified = await verify(owner)
    assert (verified.channels, verified.differences) == (CHANNELS, [])
    assert await owner.fetchval("SELECT sum(n) FROM plant.samples_1m") == await owner.fetchval(
        "SELECT count(*) FROM plant.samples"
    )


async def minutes_made(owner: asyncpg.Connection[Any], minute: int) -> int:
    """Rows of a minute."""
    query = "SELECT count(*) FROM plant.rollup_1m WHERE bucket = $1"
    return int(await owner.fetchval(query, timestamp(DAY_US + minute * MINUTE_US)))


async def dirty_channels(owner: asyncpg.Connection[Any], minute: int) -> list[int]:
    """Channels of which a minute is to be refreshed."""
    query = """
        SELECT DISTINCT c FROM plant.rollup_dirty CROSS JOIN unnest(coalesce(channels, '{0}')) AS c
        WHERE NOT hours AND from_time <= $1 AND to_time > $1 ORDER BY c"""
    return [row["c"] for row in await owner.fetch(query, timestamp(DAY_US + minute * MINUTE_US))]


def without(one: SampleBatch, channel: int) -> SampleBatch:
    """The samples of all other channels."""
    return one.part(one.samples.channel != channel)
