"""The samples of a day that are in the archive, in the database, or in both: each once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import date
from typing import Any

import asyncpg
import numpy as np

from core.batch import Int64s
from core.samples import NO_SAMPLES, Samples
from core.timestamps import microseconds
from history.archive.day_files import DayFiles, among, merged
from history.archive.location import in_thread
from history.reading.day_samples import Counts, DaySamples
from history.reading.reader import begin, hour_digests
from history.reading.scope import Scope
from schema.queries import load

_STREAMED = 64  # channels in memory


class ArchivedSamples(DaySamples):
    """Archived samples of a day that retention cut. Of two with the same time, the archived one was first."""

    by_hour = False

    def __init__(self, connection: asyncpg.Connection[Any], day: date, files: DayFiles, whole: frozenset[int]) -> None:
        """``whole``: channels that the database has all samples of. What the archive has of them may be out of date."""
        super().__init__(connection, day)
        self.files = files
        self.whole = whole
        self._archived: frozenset[int] | None = None

    @classmethod
    async def recorded(
        cls, connection: asyncpg.Connection[Any], day: date, files: DayFiles, installation: int
    ) -> ArchivedSamples:
        """Make them from the database's record of what it has."""
        return cls(connection, day, files, await _whole(connection, day, installation))

    async def complete(self, chain: int) -> bool:
        """Whether nothing was dropped since."""
        return self.whole == await _whole(self.connection, self.day, chain)

    async def archived(self) -> frozenset[int]:
        """Channels with samples in the archive."""
        if self._archived is None:
            self._archived = frozenset(await in_thread(self.files.channel_ids))
        return self._archived

    async def channels(self, scope: Scope) -> list[int]:
        """Ids of the channels with samples, ascending."""
        return sorted({*await super().channels(scope), *scope.select(await self.archived() - self.whole)})

    async def read(self, channels: Sequence[int], hours: range) -> dict[int, Samples]:
        """Channel → its samples in hours of the day, by time; channels ascend, those without any are left out."""
        stored = await super().read(channels, hours)
        edges = [microseconds(begin(self.day, hour)) for hour in (hours.start, hours.stop)]
        for number, one in (await self.in_archive([n for n in channels if n not in self.whole])).items():
            first, last = np.searchsorted(one.time, edges).tolist()
            if first < last:
                archived = one.part(slice(first, last))
                stored[number] = merged([archived, added(archived, stored.get(number, NO_SAMPLES))])
        return {number: stored[number] for number in sorted(stored)}

    async def new_times(self, times: Mapping[int, Int64s]) -> dict[int, Int64s]:
        """Times (µs) of samples that came to channels and are not archived."""
        not_whole = [number for number in times if number not in self.whole]
        archived = await self.in_archive(not_whole) if not_whole else {}
        return {
            number: np.setdiff1d(channel_times, archived.get(number, NO_SAMPLES).time)
            for number, channel_times in times.items()
        }

    async def counts(self, channels: Sequence[int], hours: range) -> Counts:
        """The number of samples, of the channel-hours that have some."""
        counts = await super().counts(channels, hours)
        for number, archived in (await self.in_archive([n for n in channels if n not in self.whole])).items():
            is_stored = any((number, hour) in counts for hour in hours)
            samples = (await self.read([number], range(24)))[number] if is_stored else archived
            for hour, (n, _) in hour_digests(samples, self.day).items():
                if hour in hours:
                    counts[number, hour] = n
        return counts

    async def event_rows(self, scope: Scope) -> AsyncIterator[tuple[Any, ...]]:
        """The day's events by time and id, also those that retention dropped."""
        rows = {row[:2]: row for row in await in_thread(self.files.rows, "events")}
        rows |= {row[:2]: row async for row in super().event_rows(scope)}
        for key in sorted(rows):
            yield rows[key]

    async def stream(self, channels: Sequence[int]) -> AsyncIterator[tuple[int, Samples]]:
        """The day of channels in their order, some of them at a time."""
        for first in range(0, len(channels), _STREAMED):
            part = channels[first : first + _STREAMED]
            samples = await self.read(part, range(24))
            for number in part:
                if number in samples:
                    yield number, samples[number]

    async def in_archive(self, channels: Collection[int]) -> dict[int, Samples]:
        """The day of channels as the archive has it."""
        archived = set(channels) & await self.archived()
        return await in_thread(lambda: dict(self.files.samples(archived))) if archived else {}


async def _whole(connection: asyncpg.Connection[Any], day: date, installation: int) -> frozenset[int]:
    rows = await connection.fetch(load("archive")["select_whole_channels"], day, installation)
    return frozenset(row["channel_id"] for row in rows)


def added(archived: Samples, stored: Samples) -> Samples:
    """Samples of a channel that are only stored, by their time."""
    return stored.part(~among(stored, archived.time))
