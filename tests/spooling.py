"""From batches to rows in tests: into a spool, and from all spools of a folder into the database."""

from __future__ import annotations

import asyncio
from pathlib import Path

from core.batch import Batch
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from tests.waiting import PATIENCE


async def spooled(folder: Path, *batches: Batch, name: str = "opcua") -> None:
    """Append batches to a spool, in order."""
    spool = Spool(folder / f"{name}.sqlite", 512 * 1024**2)
    await asyncio.gather(*(spool.append(batch) for batch in batches))
    await spool.close()


async def drained(writer: Writer) -> Writer:
    """Run a writer until the spools are empty; returns it with what it counted."""
    writer.drain()
    await asyncio.wait_for(writer.run(), PATIENCE)
    return writer
