"""Workload of the ingest and query benchmarks: every channel once per second, in order of arrival.

As a process of its own, ``python -m lab.bench.workload``:

- ``feed SPOOL IN-FLIGHT SOURCE FIRST-CHANNEL CHANNELS SECONDS`` appends it to a spool, as a collector does. With
  IN-FLIGHT batches in the spool, it waits (steady state: the writer keeps up); 0 never waits (a backlog).
- ``live DSN FOLDER FIRST-SECOND SOURCE FIRST-CHANNEL CHANNELS SECONDS`` writes it through spool and writer, a batch per
  second. It prints ``writing``, runs until SIGTERM, then drains, and prints how many samples it had committed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from core.batch import Int32s, SampleBatch
from core.config.model import WriterOptions
from core.copy_stream import copy_stream
from core.samples import Samples, joined
from core.timestamps import microseconds
from ingest.spool.append import Spool
from ingest.writer.writer import Writer

DAY = datetime(2026, 9, 22, tzinfo=UTC)  # the rows stay within one chunk
_T0 = microseconds(DAY)
_SECOND = 1_000_000  # µs
_SPOOL_BYTES = 8 * 1024**3
_POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """``seconds`` seconds of the channels in ``channel_id``, one batch of all channels a second."""

    source_id: int
    channel_id: Int32s
    seconds: int

    @property
    def rows(self) -> int:
        """Rows in all."""
        return self.seconds * len(self.channel_id)

    def batch(self, second: int) -> SampleBatch:
        """All channels at one second; values are a random walk of a transmitter's resolution."""
        n = len(self.channel_id)
        random = np.random.default_rng(second)
        time = _T0 + second * _SECOND
        return SampleBatch(
            self.source_id,
            time,
            Samples(
                self.channel_id,
                np.full(n, time, np.int64) + random.integers(0, 1000, n),
                random.integers(0, 10_000, n) / 100.0,
                np.zeros(n, np.uint32),
            ),
        )

    def copy_files(self, folder: Path, parts: int) -> list[Path]:
        """Rows as binary COPY files, second by second in turn, one file a connection."""
        files = []
        for part in range(parts):
            batches = [self.batch(second) for second in range(part, self.seconds, parts)]
            path = folder / f"rows-{part + 1}-of-{parts}.copy"
            path.write_bytes(copy_stream(joined(batch.samples for batch in batches)))
            files.append(path)
        return files


async def feed(path: Path, load: Workload, in_flight: int) -> None:
    """Append all of ``load`` to a spool, with at most ``in_flight`` batches in it; 0: without waiting."""
    spool = Spool(path, _SPOOL_BYTES)
    for second in range(load.seconds):
        while in_flight and (await spool.depth())[0] >= in_flight:
            await asyncio.sleep(_POLL_SECONDS)
        await spool.append(load.batch(second))
    await spool.close()


async def live(dsn: str, folder: Path, load: Workload, first: int, pace: float = 1.0) -> int:
    """Write ``load`` from its second ``first`` on, one each ``pace`` s; returns the samples that the database has."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    spool = Spool(folder / "live.sqlite", _SPOOL_BYTES)
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
    mode, *places, source, channel, channels, length = sys.argv[1:]
    ids = np.arange(int(channel), int(channel) + int(channels), dtype=np.int32)
    rows = Workload(int(source), ids, int(length))
    if mode == "feed":
        asyncio.run(feed(Path(places[0]), rows, int(places[1])))
    else:
        sys.stdout.write(f"{asyncio.run(live(places[0], Path(places[1]), rows, int(places[2])))}\n")
