"""plantlog's writer as a separate process: ``python -m lab.bench.choose.writer_process FOLDER DSN``, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from core.config.model import WriterOptions
from ingest.writer.writer import Writer


async def write(folder: Path, dsn: str) -> None:
    """Write what comes into the spools of ``folder``; at the end what is still there."""
    writer = Writer(folder, dsn, WriterOptions())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, writer.drain)
    await writer.run()


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2]))
