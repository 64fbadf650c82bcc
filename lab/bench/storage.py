"""Bytes per sample and query times of each storage form, for typical series.

Each cell, a form of a series, has a day to itself in one table. Bytes are of its chunk with everything that belongs to
it: indexes, TOAST, free space. Queries are averages by the minute of one channel; all cells are asked in turn, so that
a machine whose speed changes, as shared ones do, is slow for all of them; no channel and interval is asked twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import asyncpg
import numpy as np

from core.batch import Float64s, Int64s
from core.copy_stream import COLUMNS, copy_stream
from core.errors import OperationError
from core.samples import Samples
from core.timestamps import microseconds
from ops.maintenance.packing import compress_before, pack_before
from schema.queries import load

_START = datetime(2026, 9, 22, tzinfo=UTC)
_DAY = timedelta(days=1)
_DAY_SECONDS = 86_400
_COPY_SECONDS = 600  # of all channels at a time
SERIES = ("noisy", "transmitter", "jittered", "slow")
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StorageForm:
    """One cell. Times are milliseconds at the client, planning included."""

    form: str  # rows: samples_raw with its key; packed: samples_packed; columnstore: of TimescaleDB Community
    series: str
    bytes_per_sample: float
    rows_per_second: float  # COPY, or packing or columnstoring what was copied
    hour_p50: float
    hour_p95: float
    hour_of_rows: float  # its time as a share of that of rows of the same series, asked next to it; the median
    day_p50: float
    day_p95: float
    day_of_rows: float


@dataclass(frozen=True, slots=True)
class _Cell:
    """A form of a series on a day of its own, and what was measured of it."""

    form: str
    series: str
    day: datetime
    seconds: float  # COPY, packing or columnstoring
    hours: list[float] = field(default_factory=list)  # ms
    days: list[float] = field(default_factory=list)


def values(series: str, n: int, random: np.random.Generator) -> Float64s:
    """A day of a channel at 1 Hz, of one of :data:`SERIES`, shape (n,)."""
    if series == "noisy":
        return random.normal(50.0, 10.0, n)
    if series == "slow":  # what passes a deadband: a new value every five minutes or so
        return (500 + np.cumsum(random.choice([-1, 1], n) * (random.random(n) < 1 / 300))) / 10
    return (5000 + np.cumsum(np.rint(random.normal(0.0, 2.5, n)))) / 100


def times(series: str, n: int, first: datetime, random: np.random.Generator) -> Int64s:
    """Their times, µs, from ``first`` on: each second, or up to 20 ms after it by whole milliseconds."""
    regular = microseconds(first) + np.arange(n, dtype=np.int64) * 1_000_000
    return regular + random.integers(0, 21, n) * 1000 if series == "jittered" else regular


async def measure(dsn: str, channels: int, queries: int, progress: ProgressCallback) -> list[StorageForm]:
    """All cells. ``dsn``: the owner of a migrated, empty database."""
    connection = await asyncpg.connect(dsn)
    try:
        cells: list[_Cell] = []
        for form in await forms(connection):
            for series in SERIES:
                cells.append(await _store(connection, form, series, _START + len(cells) * _DAY, channels))
                progress(f"{series} is stored as {form}")
        await connection.execute(load("bench")["vacuum_samples"])
        bytes_of = await _check(connection, cells, channels * _DAY_SECONDS)
        await _time_queries(connection, cells, channels, queries, progress)
        return [_result(cell, cells, bytes_of[cell.day], channels * _DAY_SECONDS) for cell in cells]
    finally:
        await connection.close()


def _result(cell: _Cell, cells: Sequence[_Cell], size: int, samples: int) -> StorageForm:
    (rows,) = (other for other in cells if (other.form, other.series) == ("rows", cell.series))
    figures: list[float] = []
    for times, row_times in ((cell.hours, rows.hours), (cell.days, rows.days)):
        figures += np.percentile(times, (50, 95)).tolist()
        figures.append(float(np.median(np.array(times) / np.array(row_times))))
    return StorageForm(cell.form, cell.series, size / samples, samples / cell.seconds, *figures)


async def forms(connection: asyncpg.Connection[Any]) -> tuple[str, ...]:
    """Forms that the server can store, in the order of the days: rows, as everywhere, are the youngest."""
    edition = await connection.fetchval(load("bench")["select_edition"])
    return ("packed", "columnstore", "rows") if edition == "community" else ("packed", "rows")


async def _store(connection: asyncpg.Connection[Any], form: str, series: str, day: datetime, channels: int) -> _Cell:
    started = time.perf_counter()
    await _copy(connection, series, day, channels)
    if form != "rows":
        started = time.perf_counter()
        close = pack_before if form == "packed" else compress_before
        await close(connection, day + _DAY)
    return _Cell(form, series, day, time.perf_counter() - started)


async def _check(connection: asyncpg.Connection[Any], cells: Sequence[_Cell], samples: int) -> dict[datetime, int]:
    """Day → bytes. Raises OperationError where a day is not in its form as a whole."""
    stored = await connection.fetch(load("bench")["select_forms"], cells[0].day, cells[-1].day + _DAY)
    if [(row["day"], row["form"], row["samples"]) for row in stored] != [(c.day, c.form, samples) for c in cells]:
        raise OperationError(f"expected {samples} samples of each day in its form, found {[dict(r) for r in stored]}")
    return {row["day"]: row["bytes"] for row in stored}


async def _copy(connection: asyncpg.Connection[Any], series: str, day: datetime, channels: int) -> None:
    """The day of the series on each channel, second by second of all channels: the order that live data have."""
    random = np.random.default_rng(6)
    value = np.stack([values(series, _DAY_SECONDS, random) for _ in range(channels)])
    time_us = np.stack([times(series, _DAY_SECONDS, day, random) for _ in range(channels)])
    for first in range(0, _DAY_SECONDS, _COPY_SECONDS):
        part = slice(first, first + _COPY_SECONDS)
        stream = copy_stream(
            Samples(
                np.tile(np.arange(1, channels + 1, dtype=np.int32), _COPY_SECONDS),
                time_us[:, part].T.ravel(),
                value[:, part].T.ravel(),
                np.zeros(channels * _COPY_SECONDS, np.uint32),
            ),
        )
        await connection.copy_to_table(
            "samples_raw", schema_name="plant", source=cast(Any, stream), columns=COLUMNS, format="binary"
        )


async def _time_queries(
    connection: asyncpg.Connection[Any], cells: Sequence[_Cell], channels: int, queries: int, progress: ProgressCallback
) -> None:
    """Channels and first times by chance, the same of each cell; an hour begins at any second."""
    random = np.random.default_rng(7)
    seconds = random.permutation(_DAY_SECONDS - 3600)[:queries]
    day_channels = random.permutation(channels)[:queries] + 1
    for number, second in enumerate(seconds):
        channel = int(random.integers(1, channels + 1))
        for cell in random.permutation(np.array(cells, object)):
            first = cell.day + timedelta(seconds=int(second))
            cell.hours.append(await _query(connection, channel, first, timedelta(hours=1)))
            if number < len(day_channels):
                cell.days.append(await _query(connection, int(day_channels[number]), cell.day, _DAY))
        if (number + 1) % 25 == 0:
            progress(f"{number + 1} of {len(seconds)} hours queried in each form")


async def _query(connection: asyncpg.Connection[Any], channel: int, first: datetime, length: timedelta) -> float:
    """Milliseconds. Statements are not prepared beforehand: planning is a part of what is waited for."""
    query = load("bench")["query_minute"].format(channel=channel, first=first, last=first + length)
    started = time.perf_counter()
    await connection.execute(query)
    return (time.perf_counter() - started) * 1000
