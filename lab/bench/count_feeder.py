"""Feeder process: appends count batches to a spool, as a push gateway does.

``python -m lab.bench.count_feeder SPOOL SOURCE TYPES SECONDS IN-FLIGHT``: with IN-FLIGHT increments durable but not yet
in the database it waits. Prints how many batches it sent.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from ingest.spool.append import Spool
from lab.bench.increments import Increments

_POLL_SECONDS = 0.002
_TOGETHER = 4  # appends under way at a time, as of several gateways


async def feed(path: Path, source_id: int, increments: Increments, seconds: float, in_flight: int) -> int:
    """Append for ``seconds``; how many batches that were."""
    spool = Spool(path, 8 * 1024**3)
    until = time.monotonic() + seconds
    sent = 0
    while time.monotonic() < until:
        while (await spool.depth())[1] >= in_flight:
            await asyncio.sleep(_POLL_SECONDS)
        numbers = range(sent, sent + _TOGETHER)
        await asyncio.gather(*(spool.append(increments.batch(number, source_id)) for number in numbers))
        sent += _TOGETHER
    await spool.close()
    return sent


if __name__ == "__main__":
    source, types, in_flight = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[5])
    print(asyncio.run(feed(Path(sys.argv[1]), source, Increments(types), float(sys.argv[4]), in_flight)))
