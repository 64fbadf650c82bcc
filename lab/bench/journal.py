"""Cost of the journal for the writer: CPU and bytes a sample, beside a writer without one.

The samples go on all the time, at their pace; the writer's process is one with a journal and one without in turn, as
the machine's own speed drifts.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil

from core.batch import SampleBatch
from core.config.model import SpoolOptions, WriterOptions
from core.timestamps import now_us
from ingest.spool.append import Spool
from ingest.spool.segments import segments
from ingest.writer.writer import Writer
from lab.bench.copy_speed import BenchDatabase, prepare
from lab.bench.data import Plant
from lab.bench.workload import Workload

_BATCHES = 4  # a second
_WARM_UP = 5.0  # s of a writer that do not count
_MAX_BYTES = 1024**3  # of the spool


@dataclass(frozen=True, slots=True)
class JournalCost:
    """Cost of a sample for the writer's process, as the median of the rounds."""

    journal: bool
    cpu_us: float
    journal_bytes: float  # a sample
    disk_bytes: float  # a sample, that the process had written to disk: the journal, and deletes from the spool
    rss_mib: float


async def measure(
    bench: BenchDatabase, channels: int, seconds: float, rounds: int, progress: Callable[[str], None]
) -> list[JournalCost]:
    """``channels`` at 1 Hz; ``seconds`` of each writer in each round."""
    load = await prepare(bench, channels, 1)
    bench.folder.mkdir(exist_ok=True)
    feed = _Feed(load, channels)
    feeding = asyncio.create_task(feed.run(bench.folder / "bench.sqlite"))
    costs: dict[bool, list[tuple[float, float, float, float]]] = {False: [], True: []}
    try:
        for number in range(rounds):
            for journal, found in costs.items():
                found.append(await _cost(bench, feed, journal, seconds))
                name = "with" if journal else "without"
                progress(f"round {number + 1} of {rounds}, {name} a journal: {found[-1][0]:.3f} µs per sample")
    finally:
        feed.stop.set()
        await feeding
    return [JournalCost(journal, *map(statistics.median, zip(*of, strict=True))) for journal, of in costs.items()]


class _Feed:
    """Samples of all channels each second, in some batches."""

    def __init__(self, load: Workload, channels: int) -> None:
        self.rows = 0
        self.stop = asyncio.Event()
        self._load = load
        self._plant = Plant(channels, now_us())

    async def run(self, path: Path) -> None:
        """Append until ``stop``."""
        spool = Spool(path, _MAX_BYTES)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not self.stop.is_set():
            samples = self._plant.samples(1)
            channel_id = samples.channel + (self._load.channel_id[0] - 1)
            bounds = [len(samples) * n // _BATCHES for n in range(_BATCHES + 1)]
            for first, last in pairwise(bounds):
                part = slice(first, last)
                await spool.append(
                    SampleBatch(
                        self._load.source_id,
                        now_us(),
                        channel_id[part],
                        samples.time[part],
                        samples.value[part],
                        samples.status[part],
                    )
                )
                self.rows += last - first
                due += 1 / _BATCHES
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self.stop.wait()
        await spool.close()


async def _cost(bench: BenchDatabase, feed: _Feed, journal: bool, seconds: float) -> tuple[float, float, float, float]:
    async with _writer(bench, journal) as process:
        await asyncio.sleep(_WARM_UP)
        rows, before = feed.rows, _used(process, bench.folder)
        await asyncio.sleep(seconds)
        rows = feed.rows - rows
        cpu, kept, disk = ((now - then) / rows for now, then in zip(_used(process, bench.folder), before, strict=True))
        return cpu * 1e6, kept, disk, process.memory_info().rss / 1024**2


def _used(process: psutil.Process, folder: Path) -> tuple[float, int, int]:
    """CPU seconds, and bytes in the journal and to disk."""
    times = process.cpu_times()
    kept = sum(path.stat().st_size for _, path in segments(folder))
    return times.user + times.system, kept, process.io_counters().write_bytes


@asynccontextmanager
async def _writer(bench: BenchDatabase, journal: bool) -> AsyncIterator[psutil.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lab.bench.journal", bench.ingest_dsn, str(bench.folder), "1" if journal else "0")
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def _write(dsn: str, folder: Path, journal: bool) -> None:
    """The writer's process, until SIGTERM."""
    writer = Writer(folder, dsn, WriterOptions(), SpoolOptions(keep=86400.0 if journal else 0.0))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, writer.drain)
    await writer.run()


if __name__ == "__main__":
    asyncio.run(_write(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "1"))
