"""Query times of one channel over an hour to a month, while data are written.

The same history is asked of rows (``samples_raw`` with its key) and of the form that closed days have; no channel and
interval is asked twice. 20,000 samples/s go through spool and writer into the same database meanwhile.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import asyncpg
import numpy as np

from core.batch import Int32s
from core.copy_stream import COLUMNS, copy_stream
from core.errors import OperationError
from core.samples import Samples
from core.timestamps import microseconds
from lab.bench.copy_speed import BenchDatabase
from lab.bench.storage import values
from lab.bench.workload import DAY
from ops.maintenance.packing import compress_before
from schema.queries import load

LENGTHS = {
    "1 hour": timedelta(hours=1),
    "1 day": timedelta(days=1),
    "3 days": timedelta(days=3),
    "1 week": timedelta(days=7),
    "1 month": timedelta(days=30),
}
KINDS = ("raw", "minute", "chart")  # every sample; averages by the minute from samples; 1,000 points by series()
_DAY_SECONDS = 86_400
_SECOND_US = 1_000_000
_END_SECONDS = 120.0  # for what live data's spool still holds
LIVE_CHANNELS = 20_000  # a sample a second each
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class QueryTiming:
    """One cell. Times are milliseconds at the client until the last byte is there, planning included."""

    form: str  # rows, or what compress_before makes of closed days here: packed or columnstore
    kind: str
    length: str
    queries: int
    rows: float  # of an answer, on average
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class History:
    """History of ``channels`` channels from ``first_channel``, for ``days`` days at 1 Hz up to the live data."""

    first_channel: int
    channels: int
    days: int

    @property
    def ids(self) -> Int32s:
        """Ids of the channels, shape (channels,)."""
        return np.arange(self.first_channel, self.first_channel + self.channels, dtype=np.int32)

    @property
    def start(self) -> datetime:
        """Time of its first samples."""
        return DAY - timedelta(days=self.days)


async def register(connection: asyncpg.Connection[Any], channels: int, days: int) -> tuple[int, int, History]:
    """Make the channels; returns the source's id, the first live channel's id, and the history to be filled."""
    await connection.execute(load("bench")["insert_channels"], LIVE_CHANNELS + channels)
    rows = await connection.fetch(load("bench")["select_channels"])
    ids: Int32s = np.array([row["id"] for row in rows], np.int32)
    if not np.array_equal(ids, np.arange(ids[0], ids[0] + LIVE_CHANNELS + channels)):
        raise OperationError("the benchmark requires consecutive channel ids: use a separate database")
    return rows[0]["source_id"], int(ids[0]), History(int(ids[LIVE_CHANNELS]), channels, days)


async def fill(connection: asyncpg.Connection[Any], history: History, progress: ProgressCallback) -> None:
    """Fill channels with random walks of a transmitter's resolution, at whole seconds and up to 20 ms more."""
    n = _DAY_SECONDS
    ids = history.ids
    for day in range(history.days):
        random = np.random.default_rng([8, day])
        first = microseconds(history.start) + day * n * _SECOND_US
        regular = first + np.arange(n, dtype=np.int64) * _SECOND_US
        # Second by second of all channels: the order that live data leaves behind.
        stream = copy_stream(
            Samples(
                np.tile(ids, n),
                np.repeat(regular, len(ids)) + random.integers(0, 21, n * len(ids)) * 1000,
                np.stack([values("transmitter", n, random) for _ in ids], axis=1).ravel(),
                np.zeros(n * len(ids), np.uint32),
            ),
        )
        await connection.copy_to_table(
            "samples_raw", schema_name="plant", source=cast(Any, stream), columns=COLUMNS, format="binary"
        )
        if (day + 1) % 10 == 0:
            progress(f"{day + 1} of {history.days} days written")


@contextmanager
def live(dsn: str, folder: Path, source: int, first_channel: int, first_second: int) -> Iterator[list[float]]:
    """Inside the block 20,000 samples/s are written; afterwards the list holds how many a second it really were."""
    folder.mkdir()
    numbers = (first_second, source, first_channel, LIVE_CHANNELS, _DAY_SECONDS)
    command = [sys.executable, "-m", "lab.bench.workload", "live", dsn, str(folder), *map(str, numbers)]
    written: list[float] = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or process.stdout.readline() != "writing\n":
            raise OperationError(f"the live writer did not start: it exited with {process.wait(_END_SECONDS)}")
        began = time.monotonic()
        yield written
        seconds = time.monotonic() - began
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=_END_SECONDS)
    finally:
        process.kill()  # nothing where it has ended
        process.wait()
    if process.returncode:
        raise OperationError(f"the live writer exited with {process.returncode}: {out}")
    written.append(int(out) / seconds)


async def measure(
    where: BenchDatabase, channels: int, days: int, queries: int, progress: ProgressCallback
) -> tuple[list[QueryTiming], float]:
    """All cells, and the samples/s that came in meanwhile. ``where``: a migrated, empty database."""
    connection = await asyncpg.connect(where.owner_dsn)
    try:
        source, first_channel, history = await register(connection, channels, days)
        await fill(connection, history, progress)
        await _roll_up(connection, history)
        cells, rates = [], []
        for form, live_from in (("rows", 0), ("closed", _DAY_SECONDS // 2)):
            if form == "closed":
                await compress_before(connection, DAY)
            await connection.execute(load("bench")["vacuum_samples"])
            name = await connection.fetchval(load("bench")["select_form"], history.start, DAY)
            if (form == "rows") != (name == "rows"):
                raise OperationError(f"the history is stored as {name}, expected {form}")
            with live(where.ingest_dsn, where.folder / form, source, first_channel, live_from) as written:
                cells += await time_queries(connection, name, history, queries, progress)
            rates += written
        return cells, min(rates)
    finally:
        await connection.close()


async def _roll_up(connection: asyncpg.Connection[Any], history: History) -> None:
    """Roll up rows that came by COPY, as the writer and maintenance do."""
    await connection.execute(load("bench")["insert_dirty"], history.start, DAY, history.ids.tolist())
    await connection.execute("CALL plant.refresh_rollups()")


async def time_queries(
    connection: asyncpg.Connection[Any], form: str, history: History, queries: int, progress: ProgressCallback
) -> list[QueryTiming]:
    """All cells of one form."""
    cells = []
    used: set[tuple[int, datetime]] = set()
    for name, length in LENGTHS.items():
        if length > timedelta(days=history.days):
            continue
        for kind in KINDS:
            intervals = list(_intervals(history, length, queries, used))
            cells.append(await _time_cell(connection, form, kind, name, intervals))
            progress(f"{form}, {kind}, {name}: p50 {cells[-1].p50:.1f} ms, p95 {cells[-1].p95:.1f} ms")
    return cells


def _intervals(
    history: History, length: timedelta, queries: int, used: set[tuple[int, datetime]]
) -> Iterator[tuple[int, datetime, datetime]]:
    """Channels and first seconds by chance, none that is in ``used``, where those given are noted."""
    random = np.random.default_rng([9, int(length.total_seconds()), len(used)])
    room = history.days * _DAY_SECONDS - int(length.total_seconds()) + 1
    if room * history.channels < len(used) + queries:
        raise OperationError(f"there are no {queries} different intervals of {length}: use more days or channels")
    count = 0
    while count < queries:
        channel = history.first_channel + int(random.integers(history.channels))
        first = history.start + timedelta(seconds=int(random.integers(room)))
        if (channel, first) not in used:
            used.add((channel, first))
            count += 1
            yield channel, first, first + length


async def _time_cell(
    connection: asyncpg.Connection[Any],
    form: str,
    kind: str,
    length: str,
    intervals: Sequence[tuple[int, datetime, datetime]],
) -> QueryTiming:
    times_ms, rows = [], 0
    for channel, first, last in intervals:
        query = load("bench")[f"query_{kind}"].format(channel=channel, first=first, last=last)
        counter = _ByteCounter()
        started = time.perf_counter()
        # COPY is the form of query whose answer costs this client least: what is measured is the database.
        status = await connection.copy_from_query(query, output=counter.take, format="binary")
        times_ms.append((time.perf_counter() - started) * 1000)
        if not int(status.split()[-1]):
            raise OperationError(f"{query} found nothing")
        rows += int(status.split()[-1])
    p50, p95 = np.percentile(times_ms, (50, 95))
    return QueryTiming(form, kind, length, len(intervals), rows / len(intervals), float(p50), float(p95))


class _ByteCounter:
    """Counts the bytes of an answer."""

    def __init__(self) -> None:
        self.bytes = 0

    async def take(self, data: bytes) -> None:
        self.bytes += len(data)
