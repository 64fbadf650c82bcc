"""Whole hours of channels: found in memory, and stored in their packed form at once.

Hours of closed days are, where nothing of them is stored. Rows cost 3 µs a sample, and their packing by maintenance one
more; this takes 0.3 µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from core.samples import Samples, changes
from core.timestamps import DAY_US, HOUR_US, microseconds, timestamp, utc
from history.codec import packed_hours
from history.imports.portion import ImportPortion, joined
from ingest.writer.transaction.write import copy_rows
from schema.queries import load

_MAX_SAMPLES = 2_000_000  # samples in memory, 100 bytes each for a moment
_MAX_KEYS = 1_000_000  # keys
_CHANNELS = 2**31


def hour_keys(portion: ImportPortion) -> Int64s:
    """A number for the channel and hour of each sample, (n,)."""
    return portion.samples.time // HOUR_US * _CHANNELS + portion.samples.channel


@dataclass(slots=True)
class HourCounts:
    """Counts of a file's samples by channel and hour."""

    _keys: list[Int64s] = field(default_factory=list)
    _counts: list[Int64s] = field(default_factory=list)
    _size: int = 0

    def add(self, portion: ImportPortion) -> None:
        """Count a portion."""
        keys, counts = np.unique(hour_keys(portion), return_counts=True)
        self._keys.append(keys)
        self._counts.append(counts)
        self._size += len(keys)
        if self._size > _MAX_KEYS:
            self._compact()

    def of_keys(self, keys: Int64s) -> Int64s:
        """The counts of keys that occur, (n,)."""
        self._compact()
        return self._counts[0][np.searchsorted(self._keys[0], keys)]

    def days_before(self, limits: Int64s) -> list[tuple[int, date]]:
        """Each channel and day with samples before ``limits[channel]`` (µs), by channel and day."""
        self._compact()
        hours, channels = np.divmod(self._keys[0], _CHANNELS)
        older = hours * HOUR_US < limits[channels]
        days = np.unique(np.stack((channels[older], hours[older] * HOUR_US // DAY_US), axis=1), axis=0)
        return [(channel, utc(day * DAY_US).date()) for channel, day in days.tolist()]

    def _compact(self) -> None:
        if len(self._keys) > 1:
            keys, key_indices = np.unique(np.concatenate(self._keys), return_inverse=True)
            counts = np.bincount(key_indices, np.concatenate(self._counts), len(keys)).astype(np.int64)
            self._keys, self._counts, self._size = [keys], [counts], 0


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Samples to be stored in one transaction."""

    portion: ImportPortion
    is_whole: bool  # all of the file's samples of these channels and hours


def regroup(portions: Iterable[ImportPortion], counts: HourCounts, at_once: int = _MAX_SAMPLES) -> Iterator[Part]:
    """The samples of a file by whole hours, as far as ``at_once`` samples contain whole ones.

    The same file gives the same parts.
    """
    incomplete: list[ImportPortion] = []
    for portion in portions:
        incomplete.append(portion)
        if sum(map(len, incomplete)) >= at_once:
            complete, others = _split(joined(incomplete), counts)
            yield complete
            incomplete = [others.portion]
            if len(others.portion) > at_once // 2:  # the file has many channels in each hour
                yield others
                incomplete = []
    if incomplete:
        yield from _split(joined(incomplete), counts)


def _split(portion: ImportPortion, counts: HourCounts) -> tuple[Part, Part]:
    """The whole hours, and the others."""
    keys, key_indices, n_of_keys = np.unique(hour_keys(portion), return_inverse=True, return_counts=True)
    is_complete: NDArray[np.bool_] = (n_of_keys == counts.of_keys(keys))[key_indices]
    return Part(portion.part(is_complete), is_whole=True), Part(portion.part(~is_complete), is_whole=False)


async def packed_days(connection: asyncpg.Connection[Any], times: Int64s) -> list[int]:
    """The days (since 1970) of ``times`` (µs) whose hours can be packed: closed ones. Not for use in a transaction.

    Waits until all queries know their chunks, on which packing by maintenance relies: ``plant._await_older_queries``.
    """
    days = [timestamp(day * DAY_US) for day in np.unique(times // DAY_US).tolist()]
    packed = await connection.fetchval("CALL plant.make_packed_days($1)", days)
    return [microseconds(day) // DAY_US for day in packed]


async def copy_packed(days: list[int], connection: asyncpg.Connection[Any], samples: Samples) -> None:
    """Copy samples, of which each channel and hour is whole. Those that can't be packed now become rows."""
    hours = samples.time // HOUR_US
    begins = np.flatnonzero(changes(hours) | changes(samples.channel))
    can = await _packable(connection, days, samples.channel[begins], hours[begins] * HOUR_US)
    is_packed = np.repeat(can, np.diff(begins, append=len(samples)))
    if can.any():
        await packed_hours.insert(connection, samples.part(is_packed))
    if not can.all():
        await copy_rows(connection, samples.part(~is_packed))


async def _packable(
    connection: asyncpg.Connection[Any], days: list[int], channel: NDArray[np.int32], hour: Int64s
) -> NDArray[np.bool_]:
    """Hours (µs) of these channels that can be packed: hours of ``days`` without stored samples."""
    queries = load("history_import")
    can = np.zeros(len(channel), bool)
    if not await connection.fetchval(load("packing")["try_lock_packing"]):
        return can  # maintenance packs
    day_of_hour = hour // DAY_US
    for day in np.intersect1d(days, day_of_hour).tolist():
        indices = np.flatnonzero(day_of_hour == day)
        rows = await connection.fetch(
            queries["select_packable"],
            channel[indices].tolist(),
            [timestamp(begin) for begin in hour[indices].tolist()],
            timestamp(day * DAY_US),
            timestamp((day + 1) * DAY_US),
        )
        can[indices[[row["index"] for row in rows]]] = True
    return can
