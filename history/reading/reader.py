"""Reads samples as columns and computes the digests of their hours, for sealing, verifying and exporting, in every form
that samples are stored in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core import database
from core.batch import Int64s, UInt32s
from core.timestamps import POSTGRES_EPOCH_US, microseconds
from history.codec.packed_rows import Samples, elements, samples_of
from history.standalone import EVENT_WIDTHS, ChannelLabel, HourDigests, event_digests, row_bytes, tagged_hash
from schema.queries import load

if TYPE_CHECKING:
    from history.reading.scope import Scope

Item = TypeVar("Item")
_HOUR_US = 3_600_000_000
_CURSOR_ROWS = 5000
_STREAMED = 1_000_000  # samples in memory, unless a single channel has more
_SAMPLE = np.dtype([("time", ">i8"), ("value", ">u8"), ("status", ">u4")])  # the canonical form: 20 bytes


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Samples of one channel by ascending time, n ≥ 1. ``value`` has the doubles' bits: a NaN keeps its payload."""

    channel_id: int
    time: Int64s  # (n,) µs since 1970
    value: NDArray[np.uint64]  # (n,)
    status: UInt32s  # (n,)

    def hours(self, day: date, kept: dict[tuple[int, int], bytes] | None = None) -> dict[int, tuple[int, bytes]]:
        """Hour of the day → (n, digest), of the hours that have samples.

        ``kept``: the values for this channel and hours of it become the samples in the canonical form.
        """
        samples = np.empty(len(self.time), _SAMPLE)
        samples["time"], samples["value"], samples["status"] = self.time, self.value, self.status
        edges = np.searchsorted(self.time, microseconds(begin(day)) + np.arange(25) * _HOUR_US)
        parts = list(enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)))
        if kept:
            kept |= {
                (self.channel_id, hour): samples[i:j].tobytes()
                for hour, (i, j) in parts
                if i < j and (self.channel_id, hour) in kept
            }
        return {hour: (j - i, tagged_hash("hour", samples[i:j].tobytes())) for hour, (i, j) in parts if i < j}

    def part(self, places: slice | NDArray[np.bool_]) -> Series:
        """Part of the samples."""
        return replace(self, time=self.time[places], value=self.value[places], status=self.status[places])

    def by_label(self, labels: Sequence[ChannelLabel]) -> Iterator[tuple[ChannelLabel, Series]]:
        """The samples under each of the day's meanings; those without samples are left out."""
        edges = [0, *np.searchsorted(self.time, [one[0] for one in labels[1:]]).tolist(), len(self.time)]
        for label, i, j in zip(labels, edges[:-1], edges[1:], strict=True):
            if i < j:
                yield label, self.part(slice(i, j))


def begin(day: date, hour: int = 0) -> datetime:
    """The first moment of a day (UTC), or of an hour of it; hour 24 is the day's end."""
    return datetime.combine(day, time(), UTC) + timedelta(hours=hour)


async def connect(dsn: str, application: str) -> asyncpg.Connection[Any]:
    """A session whose statements know their constants (chunks are found by them), take one core, and end with us."""
    settings = {
        "jit": "off",
        "plan_cache_mode": "force_custom_plan",
        "max_parallel_workers_per_gather": "0",
        "client_connection_check_interval": "2000",
    }
    return await database.connect(dsn, application, settings)


async def seal_time(connection: asyncpg.Connection[Any], day: date) -> datetime:
    """Time at which a day (UTC) can be sealed: as long behind its end as its data may be late."""
    return begin(day, 24) + await lateness(connection)


async def lateness(connection: asyncpg.Connection[Any]) -> timedelta:
    """Time that a day still waits for data after its end."""
    return timedelta(seconds=await connection.fetchval(load("evidence")["select_lateness"]))


async def read(
    connection: asyncpg.Connection[Any], channels: Sequence[int], since: datetime, until: datetime
) -> list[Series]:
    """Samples with since <= time < until, by ascending channel; channels without any are left out."""
    rows = await connection.fetch(load("evidence")["select_samples"], list(channels), since, until)
    bounds = microseconds(since), microseconds(until)
    packed = iter(_packed([row for row in rows if row["times"] is None]))
    parts = ((row["channel_id"], _rows(row) if row["times"] is not None else next(packed)) for row in rows)
    found = (_series(number, [part for _, part in of], bounds) for number, of in groupby(parts, itemgetter(0)))
    return [series for series in found if len(series.time)]


async def stream(
    connection: asyncpg.Connection[Any], channels: Sequence[int], since: datetime, until: datetime
) -> AsyncIterator[Series]:
    """The same in the order of ``channels``, some of them at a time."""
    async for found in portions(connection, channels, since, until):
        for series in found:
            yield series


async def portions(
    connection: asyncpg.Connection[Any], channels: Sequence[int], since: datetime, until: datetime
) -> AsyncIterator[list[Series]]:
    """The same, as lists of what is read at a time."""
    size, done = 1, 0
    while part := channels[done : done + size]:
        found = await read(connection, part, since, until)
        done += len(part)
        size = max(1, min(2 * size, size * _STREAMED // max(1, sum(len(series.time) for series in found))))
        yield found


def _packed(rows: Sequence[asyncpg.Record]) -> list[Samples]:
    """The samples of each packed hour."""
    if not rows:
        return []
    segments, columns = samples_of(rows)
    edges = zip(segments.begins.tolist(), segments.ends.tolist(), strict=True)
    return [(columns[0][i:j], columns[1][i:j], columns[2][i:j]) for i, j in edges]


def _series(channel_id: int, parts: Sequence[Samples], bounds: tuple[int, int]) -> Series:
    """The samples of one channel that ``select_samples`` returned. Of two with one time, the packed one was first."""
    time_us, value, status = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    if not bool(np.all(time_us[1:] > time_us[:-1])):  # late rows stand behind
        _, order = np.unique(time_us, return_index=True)
        time_us, value, status = time_us[order], value[order], status[order]
    first, last = np.searchsorted(time_us, bounds).tolist()
    return Series(channel_id, time_us[first:last], value[first:last], status[first:last])


def _rows(row: asyncpg.Record) -> Samples:
    time_us = elements(row["times"], ">i8").astype(np.int64) + POSTGRES_EPOCH_US
    return time_us, elements(row["values"], ">u8").astype(np.uint64), elements(row["statuses"], ">u4").astype(np.uint32)


async def channels_of(connection: asyncpg.Connection[Any], day: date, scope: Scope) -> list[int]:
    """Ids of the channels with samples on a day, ascending."""
    rows = await connection.fetch(load("evidence")["select_channels"], begin(day), begin(day, 24))
    return scope.select(row["channel_id"] for row in rows)


async def has_data(connection: asyncpg.Connection[Any], day: date, scope: Scope) -> bool:
    """Whether a day has samples, events or gaps."""
    if await channels_of(connection, day, scope) or await gap_rows(connection, day, scope):
        return True
    async with connection.transaction():
        async for _ in event_rows(connection, day, scope):
            return True
    return False


async def event_hours(rows: AsyncIterator[tuple[Any, ...]], day: date) -> dict[int, list[bytes]]:
    """Hour → events, as the specification has them."""
    found: dict[int, list[bytes]] = {}
    async for values in rows:
        hour = (values[0] - microseconds(begin(day))) // _HOUR_US
        found.setdefault(hour, []).append(row_bytes(*values, widths=EVENT_WIDTHS))
    return found


async def events_of(rows: AsyncIterator[tuple[Any, ...]], day: date) -> HourDigests:
    """Counts and digests of a day's events."""
    return HourDigests.of(event_digests(await event_hours(rows, day)))


async def event_rows(connection: asyncpg.Connection[Any], day: date, scope: Scope) -> Any:
    """A day's events as the specification's fields. Needs a transaction."""
    query = load("evidence")["select_events"]
    async for row in connection.cursor(query, begin(day), begin(day, 24), prefetch=_CURSOR_ROWS):
        if scope.covers(row["source_id"], row["channel_id"]):
            yield (microseconds(row["time"]), *list(row.values())[1:])


async def gap_rows(connection: asyncpg.Connection[Any], day: date, scope: Scope) -> list[tuple[Any, ...]]:
    """The gaps that touch a day, as the specification's fields."""
    rows = await connection.fetch(load("evidence")["select_gaps"], begin(day), begin(day, 24))
    return [
        tuple(microseconds(v) if isinstance(v, datetime) else v for v in row.values())
        for row in rows
        if scope.covers(row["source_id"])
    ]


def slices(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Channels or days, so many at a time."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
