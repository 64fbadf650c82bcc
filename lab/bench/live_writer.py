"""Background process of a benchmark: writes one batch of all channels per second through spool and writer.

``python -m lab.bench.live_writer DSN FOLDER SOURCE FIRST-CHANNEL CHANNELS FIRST-SECOND`` says ``writing``, runs until
SIGTERM, then drains, and prints how many samples it had committed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from core.config.model import WriterOptions
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from lab.bench.workload import Workload


async def live(dsn: str, folder: Path, load: Workload, first: int, pace: float = 1.0) -> int:
    """Write ``load`` from its second ``first`` on, one each ``pace`` s; returns the samples that the database has."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    spool = Spool(folder / "live.sqlite", 8 * 1024**3)
    writer = Writer(folder, dsn, WriterOptions())
    running = asyncio.create_task(writer.run())
    sys.stdout.write("writing\n")
    sys.stdout.flush()
    began, parent = loop.time(), os.getppid()
    for second in range(load.seconds - first):
        if os.getppid() != parent:
            sys.exit("the benchmark was killed: nobody reads what is written here")
        await spool.append(load.batch(first + second))
        with suppress(TimeoutError):
            async with asyncio.timeout_at(began + (second + 1) * pace):
                await stop.wait()
        if stop.is_set():  # also where the load is never in time
            break
    await spool.close()
    writer.drain()
    await running
    return writer.written


if __name__ == "__main__":
    source_id, channel, channels, begin = (int(argument) for argument in sys.argv[3:])
    rows = Workload(source_id, np.arange(channel, channel + channels, dtype=np.int32), 86_400)
    sys.stdout.write(f"{asyncio.run(live(sys.argv[1], Path(sys.argv[2]), rows, begin))}\n")
