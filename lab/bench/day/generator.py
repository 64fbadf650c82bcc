"""Generator process: appends one batch of all channels per sampling interval to a spool.

``python -m lab.bench.day.generator CLOCK SPOOL SOURCE FIRST-CHANNEL CHANNELS HZ FROM UNTIL`` (times in µs) ends at
UNTIL, or on SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from core.batch import SampleBatch
from core.samples import Samples
from core.timestamps import now_us
from ingest.spool.append import Spool
from lab.bench.data import HOUR, SECOND, SampleGenerator
from lab.bench.day.clock import Clock

BEFORE = 36 * HOUR  # so long before the day there is one sample of each channel: a day that retention can drop
_SPOOL_BYTES = 4 * 1024**3
_IN_FLIGHT = 120_000  # rows that are durable and not yet in the table
_POLL_SECONDS = 0.005


class Generator:
    """Generator of the samples of one source."""

    def __init__(self, clock: Clock, spool: Spool, source: int, first_channel: int) -> None:
        self._clock = clock
        self._spool = spool
        self._source = source
        self._before = np.int32(first_channel - 1)
        self._pending_rows = 0  # rows, at most so many are not yet in the table
        self.stopped = False

    async def run(self, channels: int, hz: float, start: int, until: int) -> None:
        """Run from ``start`` to ``until`` (µs), in order, as fast as it is let."""
        await self._append(SampleGenerator(channels, start - BEFORE).samples(1))
        plant = SampleGenerator(channels, start, step=round(SECOND / hz))
        while plant.next < until and not self.stopped:
            if self._clock.generated >= self._clock.allowed:
                await asyncio.sleep(_POLL_SECONDS)
                continue
            await self._append(plant.samples(1))
            self._clock.generated = plant.next
            await self._wait_for_writer()

    async def _append(self, samples: Samples) -> None:
        batch = SampleBatch(self._source, now_us(), replace(samples, channel=samples.channel + self._before))
        await self._spool.append(batch)
        self._pending_rows += len(batch)

    async def _wait_for_writer(self) -> None:
        while self._pending_rows > _IN_FLIGHT and not self.stopped:
            self._pending_rows = (await self._spool.depth())[1]
            if self._pending_rows > _IN_FLIGHT:
                await asyncio.sleep(_POLL_SECONDS)


async def generate(clock: Clock, path: Path, numbers: tuple[int, int, int], hz: float, start: int, until: int) -> None:
    """``numbers``: source, first channel, how many channels."""
    spool = Spool(path, _SPOOL_BYTES)
    source, first, channels = numbers
    generator = Generator(clock, spool, source, first)

    def stop() -> None:
        generator.stopped = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    parent_watch = asyncio.create_task(_stop_with_parent(os.getppid(), stop))
    try:
        await generator.run(channels, hz, start, until)
    finally:
        parent_watch.cancel()
        await spool.close()


async def _stop_with_parent(parent: int, stop: Callable[[], None]) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(1.0)
    stop()


if __name__ == "__main__":
    os.umask(0o077)  # as the appliance's own processes
    of_source = (int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
    times = int(sys.argv[7]), int(sys.argv[8])
    asyncio.run(generate(Clock(Path(sys.argv[1])), Path(sys.argv[2]), of_source, float(sys.argv[6]), *times))
