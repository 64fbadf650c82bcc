"""Feeder process: appends sample batches to a spool, as a collector does.

``python -m lab.bench.sample_feeder SPOOL SOURCE FIRST-CHANNEL CHANNELS SECONDS IN-FLIGHT``: with so many in the spool,
it waits (steady state: the writer keeps up); 0 never waits (a backlog).
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np

from ingest.spool.append import Spool
from lab.bench.workload import Workload

_POLL_SECONDS = 0.002


async def feed(path: Path, load: Workload, in_flight: int) -> None:
    """Append all of ``load``."""
    spool = Spool(path, 8 * 1024**3)
    for second in range(load.seconds):
        while in_flight and (await spool.depth())[0] >= in_flight:
            await asyncio.sleep(_POLL_SECONDS)
        await spool.append(load.batch(second))
    await spool.close()


if __name__ == "__main__":
    source_id, first, channels, seconds, in_flight = (int(argument) for argument in sys.argv[2:])
    ids = np.arange(first, first + channels, dtype=np.int32)
    asyncio.run(feed(Path(sys.argv[1]), Workload(source_id, ids, seconds), in_flight))
