"""PostgreSQL's CPU and WAL per row, by group size and settings.

Each way has a server of its own with the same rows in it. Groups go to the servers in turn, as the machine's own speed
drifts. Every group is of other channels than the one before, as it is where channels have a sample a second each.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from core.batch import SampleBatch, sample_subset
from core.database import connect_writer
from core.time_limits import TimeLimits
from ingest.spool.format import SpooledBatch
from ingest.writer.transaction.copy_stream import COLUMNS, copy_stream
from ingest.writer.transaction.group import assemble
from ingest.writer.transaction.write import RepeatingChannels, write
from lab.bench.copy_speed import BenchDatabase, prepare
from lab.bench.process_usage import cpu_seconds
from lab.bench.server import private
from lab.bench.workload import Workload
from schema.queries import load as queries

_BATCH = 500  # samples, as collectors send them
_FILL_SECONDS = 30  # seconds of all channels
_QUIET = "autovacuum=off"  # WAL is counted for the whole server: its share would be taken for that of rows
_NO_LIMITS = TimeLimits(1e12, 1e12)
_TIME_OUT = 60.0  # s


@dataclass(frozen=True, slots=True)
class RowCost:
    """Cost of a row, as the median of the rounds."""

    settings: str  # NAME=VALUE of PostgreSQL; empty: those that plantlog gives its server
    group: int  # rows
    after_checkpoint: bool  # the first seconds after one, in which pages are logged as a whole
    cpu_us: float  # of the connection's backend
    wal_bytes: float
    full_pages: float


@dataclass(slots=True)
class _Variant:
    settings: str
    load: Workload
    ingest: asyncpg.Connection[Any]
    owner: asyncpg.Connection[Any]
    second: int = 0  # that comes next
    batches: int = 0
    repeating: RepeatingChannels = field(default_factory=RepeatingChannels)

    async def fill(self, seconds: int) -> None:
        """Fill in so many seconds of all channels, fast."""
        while self.second < seconds:
            span = range(self.second, min(seconds, self.second + _FILL_SECONDS))
            batches = [self.load.batch(second) for second in span]
            order = np.lexsort(
                (np.concatenate([b.time for b in batches]), np.concatenate([b.channel_id for b in batches]))
            )
            columns = ([getattr(b, name) for b in batches] for name in ("channel_id", "time", "value", "status"))
            stream: Any = copy_stream(*(np.concatenate(column)[order] for column in columns))
            await self.ingest.copy_to_table(
                "samples_raw", schema_name="plant", source=stream, columns=COLUMNS, format="binary"
            )
            self.second = span[-1] + 1

    async def write(self, group: int, seconds: int) -> tuple[float, float, float]:
        """Write so many seconds in groups of some ``group`` rows: µs, bytes of WAL and full pages a row."""
        batches = [b for _ in range(seconds) for b in self._batches()]
        wal, cpu = await self._wal(), _cpu_us(self.ingest)
        together = max(1, group // len(batches[0].batch))
        for first in range(0, len(batches), together):
            group_batches = batches[first : first + together]
            await write(
                self.ingest, assemble([(Path("bench"), group_batches)], _NO_LIMITS), group_batches, self.repeating
            )
        cpu = _cpu_us(self.ingest) - cpu
        rows = sum(len(b.batch) for b in batches)
        after = await self._wal()
        return cpu / rows, (after[0] - wal[0]) / rows, (after[1] - wal[1]) / rows

    def _batches(self) -> list[SpooledBatch]:
        second: SampleBatch = self.load.batch(self.second)
        self.second += 1
        batches = []
        for first in range(0, len(second), _BATCH):
            batch = sample_subset(second, slice(first, first + _BATCH))
            self.batches += 1
            batches.append(SpooledBatch(self.batches, int(batch.time.min()), int(batch.time.max()), batch))
        return batches

    async def _wal(self) -> tuple[float, float]:
        await self.ingest.execute(queries("bench")["flush_statistics"])  # the backend counts by itself until then
        row = await self.owner.fetchrow(queries("bench")["select_wal"])
        return (row["bytes"], row["full_pages"]) if row else (0.0, 0.0)


def measure(
    variants: Sequence[str],
    sizes: Sequence[int],
    channels: int,
    seconds: int,
    rounds: int,
    folder: Path,
    progress: Callable[[str], None],
) -> list[RowCost]:
    """``variants``: settings of PostgreSQL, NAME=VALUE, several with commas; the default ones come first.

    ``seconds`` of all ``channels`` are there before anything is measured: with some hundreds each channel has a leaf of
    the key to itself, as after some minutes of a plant.
    """
    with ExitStack() as servers:
        databases = []
        for number, settings in enumerate(("", *variants)):
            options = [word for one in (_QUIET, *settings.split(",")) if one for word in ("-c", one)]
            (at := folder / f"way-{number}").mkdir()
            databases.append((settings, servers.enter_context(private(at, options))))
        return asyncio.run(compare(databases, sizes, channels, seconds, rounds, progress))


async def compare(
    databases: Sequence[tuple[str, BenchDatabase]],
    sizes: Sequence[int],
    channels: int,
    seconds: int,
    rounds: int,
    progress: Callable[[str], None],
) -> list[RowCost]:
    """Same as :func:`measure`, of settings and the databases that have them."""
    async with AsyncExitStack() as connections:
        variants = []
        for settings, bench in databases:
            load = await prepare(bench, channels, seconds + rounds * (len(sizes) + 1) * 2)
            ingest, owner = await connect_writer(bench.ingest_dsn, _TIME_OUT), await asyncpg.connect(bench.owner_dsn)
            connections.push_async_callback(ingest.close)
            connections.push_async_callback(owner.close)
            variant = _Variant(settings, load, ingest, owner)
            await variant.fill(seconds)
            progress(f"{settings or 'as it is'}: {seconds * channels:,} rows written")
            variants.append(variant)
        # The first is not counted: a new connection has much to look up.
        cells = [(sizes[0], True), *((size, False) for size in sizes)]
        costs: dict[tuple[str, int, bool], list[tuple[float, float, float]]] = {}
        for done in range(rounds + 1):
            for variant in variants:
                await variant.owner.execute("CHECKPOINT")
                for size, after in cells if done else cells[:1]:
                    cost = await variant.write(size, 2)
                    costs.setdefault((variant.settings, size, after), []).extend([cost] if done else [])
            progress(f"round {done} of {rounds}")
    return [RowCost(*cell, *map(statistics.median, zip(*each, strict=True))) for cell, each in sorted(costs.items())]


def _cpu_us(connection: asyncpg.Connection[Any]) -> float:
    """CPU (µs) that its backend has used."""
    return cpu_seconds(connection.get_server_pid()) * 1e6
