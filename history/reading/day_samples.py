"""Samples of a day, read from wherever they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, TypeAlias

import asyncpg

from core.batch import Int64s
from core.samples import Samples
from history.reading.reader import begin, channels_of, event_hours, event_rows, read, stream
from history.reading.scope import Scope
from schema.queries import load

Counts = dict[tuple[int, int], int]  # (channel, hour of the day) → samples
_HOUR = timedelta(hours=1)


class DaySamples:
    """The samples of one day as the database has them, and its events."""

    by_hour = True  # an hour of many channels costs less than the day of some

    def __init__(self, connection: asyncpg.Connection[Any], day: date) -> None:
        self.connection = connection
        self.day = day

    async def complete(self, chain: int) -> bool:
        """Whether the database has all samples of an installation, in the caller's snapshot: if none were dropped."""
        return not await self.connection.fetchval(load("archive")["select_whether_dropped"], self.day, chain)

    async def channels(self, scope: Scope) -> list[int]:
        """Ids of the channels with samples, ascending."""
        return await channels_of(self.connection, self.day, scope)

    async def read(self, channels: Sequence[int], hours: range) -> dict[int, Samples]:
        """Channel → its samples in hours of the day, by time; channels ascend, those without any are left out."""
        return await read(self.connection, channels, begin(self.day, hours.start), begin(self.day, hours.stop))

    async def new_times(self, times: Mapping[int, Int64s]) -> dict[int, Int64s]:
        """Times (µs) of samples that came to channels and were not there before."""
        return dict(times)

    async def counts(self, channels: Sequence[int], hours: range) -> Counts:
        """The number of samples, of the channel-hours that have some."""
        if not hours:
            return {}
        first, last = begin(self.day, hours.start), begin(self.day, hours.stop)
        rows = await self.connection.fetch(load("evidence")["count_samples"], list(channels), first, last)
        return {(row["channel_id"], (row["hour"] - begin(self.day)) // _HOUR): row["n"] for row in rows}

    async def stream(self, channels: Sequence[int]) -> AsyncIterator[tuple[int, Samples]]:
        """The day of channels in their order, some of them at a time."""
        async for one in stream(self.connection, channels, begin(self.day), begin(self.day, 24)):
            yield one

    async def event_rows(self, scope: Scope) -> AsyncIterator[tuple[Any, ...]]:
        """The day's events as the specification's fields, by time and id."""
        async with self.connection.transaction():
            async for row in event_rows(self.connection, self.day, scope):
                yield row

    async def event_hours(self, scope: Scope) -> dict[int, list[bytes]]:
        """Hour → the day's events, as the specification has them."""
        return await event_hours(self.event_rows(scope), self.day)


async def in_database(connection: asyncpg.Connection[Any], day: date, chain: int) -> DaySamples:
    """Samples of a day in the database, whoever sealed it."""
    return DaySamples(connection, day)


SamplesOf: TypeAlias = Callable[["asyncpg.Connection[Any]", date, int], Awaitable[DaySamples]]  # of a day and chain
