"""An outage of an OPC UA server, from the collector to the database: no value is known while it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import asyncpg
import pytest

from ingest.batch import Batch, Gap, GapBatch, SampleBatch
from ingest.config.model import WriterOptions
from ingest.config.sources import OpcuaTag
from ingest.timestamps import timestamp
from ingest.writer.writer import Writer
from tests.database import Database, add_channels, add_sources
from tests.integration.test_opcua_collector import collecting
from tests.integration.test_opcua_recovery import OPTIONS, OURS, Server, more, serving
from tests.memory_appender import MemoryAppender
from tests.spooling import drained, spooled
from tests.waiting import running, until

_MINUTE = 60_000_000
_EARLIER = 60 * _MINUTE  # minutes are rolled up once they are over


@dataclass(frozen=True, slots=True)
class Stored:
    """What the database has of a channel."""

    seconds: float  # of all minutes
    times: list[int]  # µs, of its samples
    end: int  # µs, of its last minute


async def outage(
    server: Server, tags: Sequence[OpcuaTag], folder: Path, kept: MemoryAppender, seconds: float
) -> list[Gap]:
    """What is recorded of a server that is away, then without subscriptions and history. Values change all the time."""
    async with (
        running(server.write(1_000_000)),
        collecting(server.address, list(tags), folder / "pki", kept=kept, **OPTIONS) as (_, status),
    ):
        await until(lambda: status.state == "connected")
        await more(kept)
        await server.server.refuse(True)
        await until(lambda: status.state == "disconnected")
        await asyncio.sleep(seconds)
        await server.server.forget()
        await until(lambda: status.state == "connected")
        await more(kept)
    return sorted((gap for gap in kept.gaps() if gap.reason == "disconnected"), key=attrgetter("from_time"))


def earlier(batches: Sequence[Batch]) -> list[Batch]:
    """Samples and gaps, an hour before."""
    moved: list[Batch] = []
    for batch in batches:
        if isinstance(batch, SampleBatch):
            moved.append(replace(batch, time=batch.time - _EARLIER))
        elif isinstance(batch, GapBatch):
            gaps = [
                replace(gap, from_time=gap.from_time - _EARLIER, to_time=gap.to_time and gap.to_time - _EARLIER)
                for gap in batch.gaps
            ]
            moved.append(replace(batch, gaps=gaps))
    return moved


async def stored(owner: asyncpg.Connection, channel: int) -> Stored:
    minutes = await owner.fetch("SELECT bucket, seconds FROM plant.samples_1m WHERE channel_id = $1", channel)
    rows = await owner.fetch(
        "SELECT (extract(epoch FROM time) * 1000000)::int8 FROM plant.samples WHERE channel_id = $1 ORDER BY 1", channel
    )
    end = max(row["bucket"] for row in minutes).timestamp() * 1e6 + _MINUTE
    return Stored(sum(row["seconds"] for row in minutes), [row[0] for row in rows], round(end))


@pytest.mark.parametrize("interval", [0.1, 2.0])
async def test_no_value_is_known_during_an_outage(
    interval: float, database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """With channels of one publishing interval, or of several."""
    tags = [OURS[0], replace(OURS[1], interval=interval)]
    await add_sources(owner, "ua", kind="opcua")
    await add_channels(owner, range(2))
    kept = MemoryAppender()
    async with serving(tmp_path, history=0) as server:
        before, gap = await outage(server, tags, tmp_path, kept, 2.0)
    assert before.to_time == gap.from_time
    assert gap.to_time
    begin, end = gap.from_time - _EARLIER, gap.to_time - _EARLIER
    assert end - begin >= 2_000_000
    await spooled(tmp_path, *earlier(kept.batches))
    await drained(Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=1)))
    await owner.execute("CALL plant.refresh_rollups()")
    changing = await stored(owner, 0)
    again = min(time for time in changing.times if time > begin + 1_000_000)
    known = (changing.end - changing.times[0]) - (again - begin)
    before_us = gap.from_time - before.from_time
    assert known - before_us <= round(changing.seconds * 1e6) <= known, "less at most by the gap before"
    middle = begin + (again - begin) // 2
    status = await owner.fetchval(
        "SELECT status FROM plant.time_average(0, $1, $2, stepped => true, simple_bounds => true)",
        timestamp(begin + 1000), timestamp(middle),
    )  # fmt: skip
    assert status < 0, "Bad"
    value = "SELECT value FROM plant.interpolated(0, $1, $2, stepped => true, simple_bounds => true)"
    assert await owner.fetchval(value, timestamp(middle), timestamp(middle + 1)) is None
