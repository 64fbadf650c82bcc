"""Bytes a sample and query times of each form that samples are stored in, for series as plants have them.

Bytes are of the hypertable with everything that belongs to it: indexes, TOAST, free space. Queries are averages by the
minute of one channel; no channel and interval is asked twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import asyncpg
import numpy as np

from ingest.batch import Float64s, Int64s
from ingest.errors import OperationError
from ingest.writer.clock import microseconds
from ingest.writer.copy_stream import COLUMNS, copy_stream
from schema.queries import load

_START = datetime(2026, 9, 22, tzinfo=UTC)
_DAY_SECONDS = 86_400
_COPY_SECONDS = 600  # of all channels at a time
SERIES = ("noisy", "transmitter", "jittered", "slow")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Stored:
    """One cell. Times are milliseconds at the client, planning included."""

    form: str  # rows: samples_raw with its key; packed: samples_packed; columnstore: of TimescaleDB Community
    series: str
    bytes_per_sample: float
    rows_per_second: float  # COPY, or packing or columnstoring what was copied
    hour_p50: float
    hour_p95: float
    day_p50: float
    day_p95: float


def values(series: str, n: int, random: np.random.Generator) -> Float64s:
    """A day of a channel at 1 Hz, of one of :data:`SERIES`, shape (n,)."""
    if series == "noisy":
        return random.normal(50.0, 10.0, n)
    if series == "slow":  # what passes a deadband: a new value every five minutes or so
        return (500 + np.cumsum(random.choice([-1, 1], n) * (random.random(n) < 1 / 300))) / 10
    return (5000 + np.cumsum(np.rint(random.normal(0.0, 2.5, n)))) / 100


def times(series: str, n: int, random: np.random.Generator) -> Int64s:
    """Their times, µs: each second, or up to 20 ms after it by whole milliseconds."""
    regular = microseconds(_START) + np.arange(n, dtype=np.int64) * 1_000_000
    return regular + random.integers(0, 21, n) * 1000 if series == "jittered" else regular


async def measure(dsn: str, channels: int, queries: int, say: Say) -> list[Stored]:
    """All cells. ``dsn``: the owner of a migrated database that may be emptied."""
    connection = await asyncpg.connect(dsn)
    try:
        cells = []
        for series in SERIES:
            for form in await forms(connection):
                cells.append(await _measure(connection, form, series, channels, queries))
                cell = cells[-1]
                say(f"{series}, {form}: {cell.bytes_per_sample:.2f} B a sample, day {cell.day_p50:.1f} ms")
        return cells
    finally:
        await connection.close()


async def forms(connection: asyncpg.Connection[Any]) -> tuple[str, ...]:
    """What the server can store, in the order in which it is measured: each is made of the rows before it."""
    edition = await connection.fetchval(load("bench")["edition"])
    return ("rows", "packed", "columnstore") if edition == "community" else ("rows", "packed")


async def _measure(connection: asyncpg.Connection[Any], form: str, series: str, channels: int, queries: int) -> Stored:
    if form != "packed":
        await connection.execute(load("bench")["empty_forms"])
    if form == "columnstore":
        await _copy(connection, series, channels)
    started = time.perf_counter()
    match form:
        case "rows":
            await _copy(connection, series, channels)
        case "packed":
            await connection.execute("CALL plant.pack_before($1)", _START + timedelta(days=1))
        case _:
            await connection.execute("CALL plant.compress_before($1)", _START + timedelta(days=1))
    seconds = time.perf_counter() - started
    await connection.execute(load("bench")["analyze_forms"])
    samples = channels * _DAY_SECONDS
    found = await connection.fetchrow(load("bench")["forms"])
    expected = {name: samples if name == form else 0 for name in ("rows", "packed", "columnstore")}
    if found is None or {name: found[name] for name in expected} != expected:
        raise OperationError(f"{expected} samples should be there, the tables hold {dict(found or {})}")
    hour = await _query(connection, list(_hours(channels, queries)), timedelta(hours=1))
    day = await _query(connection, list(_days(channels, queries)), timedelta(days=1))
    size = found["packed_bytes"] if form == "packed" else found["raw_bytes"]
    return Stored(form, series, size / samples, samples / seconds, *hour, *day)


async def _copy(connection: asyncpg.Connection[Any], series: str, channels: int) -> None:
    """A day of the series on each channel, second by second of all channels: the order that live data leaves behind."""
    random = np.random.default_rng(6)
    value = np.stack([values(series, _DAY_SECONDS, random) for _ in range(channels)])
    time_us = np.stack([times(series, _DAY_SECONDS, random) for _ in range(channels)])
    for first in range(0, _DAY_SECONDS, _COPY_SECONDS):
        part = slice(first, first + _COPY_SECONDS)
        stream = copy_stream(
            np.tile(np.arange(1, channels + 1, dtype=np.int32), _COPY_SECONDS),
            time_us[:, part].T.ravel(),
            value[:, part].T.ravel(),
            np.zeros(channels * _COPY_SECONDS, np.uint32),
        )
        await connection.copy_to_table(
            "samples_raw", schema_name="plant", source=cast(Any, stream), columns=COLUMNS, format="binary"
        )


def _hours(channels: int, queries: int) -> Iterator[tuple[int, datetime]]:
    """Channels and first times by chance; an hour begins at any second."""
    random = np.random.default_rng(7)
    for second in random.permutation(_DAY_SECONDS - 3600)[:queries]:
        yield int(random.integers(1, channels + 1)), _START + timedelta(seconds=int(second))


def _days(channels: int, queries: int) -> Iterator[tuple[int, datetime]]:
    """Channels in an order by chance."""
    for channel in np.random.default_rng(7).permutation(channels)[:queries]:
        yield int(channel) + 1, _START


async def _query(
    connection: asyncpg.Connection[Any], intervals: Sequence[tuple[int, datetime]], length: timedelta
) -> tuple[float, float]:
    """p50 and p95 in ms. Statements are not prepared beforehand: planning is a part of what is waited for."""
    took = []
    for channel, first in intervals:
        query = load("bench")["by_minute"].format(channel=channel, first=first, last=first + length)
        started = time.perf_counter()
        await connection.execute(query)
        took.append((time.perf_counter() - started) * 1000)
    return float(np.percentile(took, 50)), float(np.percentile(took, 95))
