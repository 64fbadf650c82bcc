"""Rows per second of spool and writer, beside plain COPY of the same rows through psql, in one run.

Each cell is a pair in turn (reference, ours, reference, ours …) into emptied, equal hypertables; the ratio is that of
the medians, because the machine's own speed drifts.

``python -m lab.bench.copy_speed SPOOL IN-FLIGHT SOURCE FIRST-CHANNEL CHANNELS SECONDS`` appends the rows to a spool, as
a collector does.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from core.batch import Int32s, SampleBatch
from core.config.model import WriterOptions
from core.copy_stream import copy_stream
from core.database import connected
from core.errors import OperationError
from core.samples import Samples, joined
from core.timestamps import microseconds
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from lab.bench.data import SECOND
from lab.bench.server import BenchDatabase
from schema.queries import load as queries

_STEADY_IN_FLIGHT = 2  # batches a connection that are durable and not yet written: the writer never has a backlog
_POLL_SECONDS = 0.002
_DAY = microseconds(datetime(2026, 9, 22, tzinfo=UTC))  # the rows stay within one chunk
_SPOOL_BYTES = 8 * 1024**3


@dataclass(frozen=True, slots=True)
class CopySpeed:
    """One cell: rows a second, medians of the repeats."""

    case: str  # steady: batches of one second; backlog: all is in the spool before the writer starts
    connections: int
    plain_copy: float
    spool_and_writer: float
    repeats: int

    @property
    def ratio(self) -> float:
        """Ours over plain COPY."""
        return self.spool_and_writer / self.plain_copy


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
        """Samples of all channels at one second; values are a random walk of a transmitter's resolution."""
        n = len(self.channel_id)
        random = np.random.default_rng(second)
        time = _DAY + second * SECOND
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


async def prepare(bench: BenchDatabase, channels: int, seconds: int) -> Workload:
    """Register the channels and make the reference hypertable."""
    async with connected(bench.owner_dsn, "plantlog bench") as connection:
        await connection.execute(queries("bench")["insert_channels"], channels)
        await connection.execute(queries("bench")["create_reference_table"])
        rows = await connection.fetch(queries("bench")["select_channels"])
    ids = np.array([row["id"] for row in rows[:channels]], np.int32)
    if not np.array_equal(ids, np.arange(ids[0], ids[0] + channels)):
        raise OperationError("the benchmark requires consecutive channel ids: use a separate database")
    return Workload(rows[0]["source_id"], ids, seconds)


async def measure(
    bench: BenchDatabase, load: Workload, connections: Sequence[int], repeats: int, progress: Callable[[str], None]
) -> list[CopySpeed]:
    """Measure all cells."""
    cells = []
    for n in connections:
        files = load.copy_files(bench.folder, n)
        for case in ("steady", "backlog"):
            plain: list[float] = []
            ours: list[float] = []
            for repeat in range(repeats):
                await _empty(bench)
                plain.append(load.rows / await _plain_copy(bench, files))
                ours.append(load.rows / await _spool_and_writer(bench, load, n, case, repeat))
                await _check(bench, load)
                progress(f"{case}, {n} connections: plain COPY {plain[-1]:,.0f} rows/s, spool + writer {ours[-1]:,.0f}")
            cells.append(CopySpeed(case, n, statistics.median(plain), statistics.median(ours), repeats))
        for file in files:
            file.unlink()
    return cells


async def _empty(bench: BenchDatabase) -> None:
    connection: asyncpg.Connection[Any] = await asyncpg.connect(bench.owner_dsn)
    await connection.execute(queries("bench")["truncate_samples"])
    await connection.execute("CHECKPOINT")
    await connection.close()


async def _check(bench: BenchDatabase, load: Workload) -> None:
    connection: asyncpg.Connection[Any] = await asyncpg.connect(bench.owner_dsn)
    counts = await connection.fetchrow(queries("bench")["count_samples"])
    await connection.close()
    if counts is None or set(counts.values()) != {load.rows}:
        raise OperationError(f"{load.rows} rows were sent, the tables hold {dict(counts or {})}")


async def _plain_copy(bench: BenchDatabase, files: Sequence[Path]) -> float:
    started = time.perf_counter()
    processes = [
        await asyncio.create_subprocess_exec(
            *bench.psql,
            "-qc",
            f"\\copy plant.bench_reference (time, value, channel_id, status) FROM '{file}' (FORMAT binary)",
            env=bench.psql_environment,
        )
        for file in files
    ]
    codes = [await process.wait() for process in processes]
    if any(codes):
        raise OperationError(f"psql exited with {codes}")
    return time.perf_counter() - started


async def _spool_and_writer(bench: BenchDatabase, load: Workload, connections: int, case: str, repeat: int) -> float:
    folder = bench.folder / f"spool-{case}-{connections}-{repeat}"
    folder.mkdir()
    writer = Writer(folder, bench.ingest_dsn, WriterOptions(connections=connections, max_delay=0.0))  # fed in step
    in_flight = _STEADY_IN_FLIGHT * connections if case == "steady" else 0
    numbers = (in_flight, load.source_id, load.channel_id[0], len(load.channel_id), load.seconds)
    command = [sys.executable, "-m", "lab.bench.copy_speed", str(folder / "bench.sqlite"), *map(str, numbers)]
    running = None
    if case == "steady":
        running = asyncio.create_task(writer.run())
        while writer.database != "connected":
            await asyncio.sleep(_POLL_SECONDS)
    feeder = await asyncio.create_subprocess_exec(*command)
    while not (folder / "bench.sqlite").exists():  # Python's own start is not part of it
        await asyncio.sleep(_POLL_SECONDS)
    started = time.perf_counter()
    if running is None:
        await feeder.wait()
        started = time.perf_counter()
        running = asyncio.create_task(writer.run())
    while writer.written < load.rows and not running.done():
        await asyncio.sleep(_POLL_SECONDS)
    seconds = time.perf_counter() - started
    writer.drain()
    await running
    await feeder.wait()
    shutil.rmtree(folder)
    return seconds


if __name__ == "__main__":
    spool, *numbers = sys.argv[1:]
    waiting, source, first, channels, length = map(int, numbers)
    ids = np.arange(first, first + channels, dtype=np.int32)
    asyncio.run(feed(Path(spool), Workload(source, ids, length), waiting))
