"""Backfill from a server's history, without waiting for something to be missing."""

from __future__ import annotations

from pathlib import Path

from core.config.sources import OpcuaSource, OpcuaTag
from core.opcua.session import close, connect
from core.timestamps import now_us
from ingest.gaps import Gaps
from ingest.opcua.recovery.backfill import Backfill
from ingest.opcua.subscription.tags import Tags
from ingest.status import SourceStatus
from ingest.versions import ChannelVersions
from tests.memory_appender import MemoryAppender
from tests.waiting import running


async def backfilled(
    address: str, tags: list[OpcuaTag], pki: Path, from_time: int, spool: MemoryAppender | None = None
) -> MemoryAppender:
    """Samples of ``tags`` (channels 0, 1, …) since ``from_time`` (µs); gaps go to ``spool``."""
    source = OpcuaSource(name="ua", kind="opcua", address=address, insecure=True, tags=tuple(tags))
    status = SourceStatus(1, "ua", "opcua", address, len(tags))
    spool, samples = spool or MemoryAppender(), MemoryAppender()
    gaps, versions = Gaps(status, spool), ChannelVersions("ua", 1, spool)
    columns = Tags(source, {tag.name: i for i, tag in enumerate(tags)})
    backfill = Backfill(columns, status, spool, samples, gaps, versions)
    await backfill.request(from_time, now_us(), "disconnected", None)
    client = await connect(source, pki)
    try:
        async with running(backfill.run(client)):
            await spool.until(lambda: "backfill:1" not in spool.notes)
    finally:
        await close(client, source.time_out)
    return samples
