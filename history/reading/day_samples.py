"""The samples of a day, each once, wherever they are: rows, packed hours, archive.

What retention dropped is read from the archive, and what came since from the database. Seals, archive, exports and
questions read samples here; charts, which have little time for the archive's storage, join what they read by
:func:`union`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import asyncpg
import numpy as np

from core.batch import Int64s
from core.samples import NO_SAMPLES, Samples
from core.timestamps import begin, hours_begun, microseconds
from history.archive.archived_days import ArchivedDays
from history.archive.day_files import DayFiles, merged, time_mask
from history.archive.location import in_thread
from history.reading.hours import hour_digests
from history.reading.reader import channels_of, event_hours, event_rows, read
from history.reading.scope import Scope
from schema.queries import load

Counts = dict[tuple[int, int], int]  # (channel, hour of the day) → samples
_HOUR = timedelta(hours=1)
_STREAMED = 1_000_000  # samples in memory, unless a single channel has more
_MANY_PER_HOUR = 36_000  # samples of a channel: few have more


class DaySamples:
    """The samples of one day and its events. Of two samples with the same time, the archived one was first."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        day: date,
        files: DayFiles | None = None,
        whole: frozenset[int] = frozenset(),
    ) -> None:
        """``files``: those of the archive, if retention dropped samples of the day. ``whole``: channels that the
        database has all samples of. What the archive has of them may be out of date.
        """
        self.connection = connection
        self.day = day
        self.files = files
        self.whole = whole
        self._archived: frozenset[int] | None = None

    @classmethod
    async def of_day(
        cls, connection: asyncpg.Connection[Any], archived: ArchivedDays, day: date, chain: int
    ) -> DaySamples:
        """Samples of a day that an installation sealed, by the database's record of where they are.

        Raises OperationError if they are archived, and not as recorded.
        """
        for row in await connection.fetch(load("sql")["select_archived"], [day]):
            if row["number"] == chain and row["dropped"]:
                return cls(connection, day, await in_thread(archived.files, row, day), frozenset(row["whole"]))
        return cls(connection, day)

    @classmethod
    async def in_files(cls, connection: asyncpg.Connection[Any], day: date, files: DayFiles, chain: int) -> DaySamples:
        """Samples of a day of which an installation dropped some, with these files."""
        return cls(connection, day, files, await _whole(connection, day, chain))

    async def complete(self, chain: int) -> bool:
        """Return whether no samples of an installation were dropped since, in the caller's snapshot."""
        if self.files is None:
            return not await self.connection.fetchval(load("archive")["select_whether_dropped"], self.day, chain)
        return self.whole == await _whole(self.connection, self.day, chain)

    async def archived(self) -> frozenset[int]:
        """Channels with samples that are read in the archive."""
        if self._archived is None:
            ids = await in_thread(self.files.channel_ids) if self.files is not None else ()
            self._archived = frozenset(ids) - self.whole
        return self._archived

    async def channels(self, scope: Scope) -> list[int]:
        """Ids of the channels with samples, ascending."""
        stored = await channels_of(self.connection, self.day, scope)
        return sorted({*stored, *scope.select(await self.archived())})

    async def read(self, channels: Sequence[int], hours: range) -> dict[int, Samples]:
        """Channel → its samples in hours of the day, by time; channels ascend, those without any are left out."""
        bounds = begin(self.day, hours.start), begin(self.day, hours.stop)
        samples = await read(self.connection, channels, *bounds)
        for number, archived in (await self.in_archive(channels)).items():
            first, last = np.searchsorted(archived.time, [microseconds(bound) for bound in bounds]).tolist()
            if first < last:
                samples[number] = union(archived.part(slice(first, last)), samples.get(number, NO_SAMPLES))
        return {number: samples[number] for number in sorted(samples)}

    async def portions(self, channels: Sequence[int], hours: range = range(24)) -> AsyncIterator[dict[int, Samples]]:
        """Samples as of :meth:`read`, of some channels at a time in their order."""
        size, done = max(1, _STREAMED // (_MANY_PER_HOUR * hours_begun(self.day, hours))), 0
        while part := channels[done : done + size]:
            samples = await self.read(part, hours)
            done += len(part)
            size = max(1, min(2 * size, size * _STREAMED // max(1, sum(map(len, samples.values())))))
            yield {number: samples[number] for number in part if number in samples}

    async def stream(self, channels: Sequence[int], hours: range = range(24)) -> AsyncIterator[tuple[int, Samples]]:
        """Samples as of :meth:`read`, channel by channel."""
        async for samples in self.portions(channels, hours):
            for item in samples.items():
                yield item

    async def in_archive(self, channels: Collection[int]) -> dict[int, Samples]:
        """The day of channels as the archive has it."""
        archived = await self.archived() & set(channels)
        return await in_thread(lambda files: dict(files.samples(archived)), self.files) if archived else {}

    async def new_times(self, times: Mapping[int, Int64s]) -> dict[int, Int64s]:
        """Times (µs) of samples that came to channels and are not archived."""
        archived = await self.in_archive(times)
        return {number: np.setdiff1d(new, archived.get(number, NO_SAMPLES).time) for number, new in times.items()}

    async def counts(self, channels: Sequence[int], hours: range) -> Counts:
        """The number of samples, of the channel-hours that have some."""
        if not hours:
            return {}
        first, last = begin(self.day, hours.start), begin(self.day, hours.stop)
        rows = await self.connection.fetch(load("evidence")["count_samples"], list(channels), first, last)
        counts = {(row["channel_id"], (row["hour"] - begin(self.day)) // _HOUR): row["n"] for row in rows}
        async for number, samples in self.stream(sorted(await self.archived() & set(channels))):
            for hour, (n, _) in hour_digests(samples, self.day).items():
                if hour in hours:
                    counts[number, hour] = n
        return counts

    async def event_rows(self, scope: Scope) -> AsyncIterator[tuple[Any, ...]]:
        """The day's events as the specification's fields, by time and id, also those that retention dropped."""
        async with self.connection.transaction():
            if self.files is None:
                async for row in event_rows(self.connection, self.day, scope):
                    yield row
                return
            rows = {row[:2]: row for row in await in_thread(self.files.rows, "events")}
            rows |= {row[:2]: row async for row in event_rows(self.connection, self.day, scope)}
        for key in sorted(rows):
            yield rows[key]

    async def event_hours(self, scope: Scope) -> dict[int, list[bytes]]:
        """Hour → the day's events, as the specification has them."""
        return await event_hours(self.event_rows(scope), self.day)


async def _whole(connection: asyncpg.Connection[Any], day: date, chain: int) -> frozenset[int]:
    rows = await connection.fetch(load("archive")["select_whole_channels"], day, chain)
    return frozenset(row["channel_id"] for row in rows)


def union(archived: Samples, stored: Samples) -> Samples:
    """Samples of a channel that are archived and stored, by time, each once."""
    return merged([archived, only_stored(archived, stored)])


def only_stored(archived: Samples, stored: Samples) -> Samples:
    """Samples of a channel that are only stored, by their time."""
    return stored.part(~time_mask(stored, archived.time))
