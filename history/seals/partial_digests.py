"""Partial digests of a day, by hour and slice of channels, stored in ``plant.seal_work`` so that an
interrupted run continues, and updated with data that arrived meanwhile.

Each slice is a transaction of its own, none longer than some 250,000 samples take; nobody waits for it. What came after
its slice was read is found by its evidence (``plant.ingest_batch``): a channel-hour only ever changes by samples added
or removed, so one whose count is still the same is as it was read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import asyncpg

from core.samples import slices
from core.timestamps import begin
from history.reading.day_samples import DaySamples
from history.reading.hours import hour_digests
from history.reading.scope import Scope
from schema.queries import load

MAX_SAMPLES = 250_000  # samples a transaction
MAX_CHANNELS = 1000  # channels a transaction
MARGIN = timedelta(minutes=5)  # a batch's facts have the time before its commit
_FIRST_SLICE = 32  # channels of the first slice
_HOUR = timedelta(hours=1)
_LOCK_SECONDS = 0.1  # between attempts: whoever waits for a lock holds up those behind

ByHour = dict[int, tuple[int, bytes]]  # hour of the day → (samples, digest)


@dataclass(frozen=True, slots=True)
class Stale:
    """A channel-hour that is not as it was read."""

    channel_id: int
    hour: int
    before: int  # samples
    now: int


async def read_day(samples: DaySamples, scope: Scope) -> int:
    """Digest all channel-hours of a day that are not yet; returns the samples that were read."""
    queries = load("evidence")
    connection, day = samples.connection, samples.day
    await connection.execute(queries["insert_progress"], scope.chain, day)
    while not await connection.fetchval(queries["lock_sealed_days"]):
        await asyncio.sleep(_LOCK_SECONDS)
    await connection.execute(queries["unlock_sealed_days"])
    [progress] = await connection.fetch(queries["select_progress"], scope.chain, day)
    channels = await samples.channels(scope)
    size, total = _FIRST_SLICE, 0
    for hour in range(progress["hour"], 24):
        done = bisect_right(channels, progress["behind"]) if hour == progress["hour"] else 0
        while part := channels[done : done + size]:
            async with connection.transaction():
                n = await _digest(samples, scope.chain, hour, part)
                await connection.execute(queries["update_progress"], scope.chain, day, hour, part[-1])
            done, total = done + len(part), total + n
            size = max(1, min(MAX_CHANNELS, 2 * size, size * MAX_SAMPLES // max(n, 1)))
    return total


async def _digest(
    samples: DaySamples, chain: int, hour: int, channels: Sequence[int], include_empty: bool = False
) -> int:
    """Read one hour of channels into the work; ``include_empty``: those without samples, too."""
    by_channel = await samples.read(channels, range(hour, hour + 1))
    digests = {number: hour_digests(samples_of, samples.day)[hour] for number, samples_of in by_channel.items()}
    rows = [(number, *digests.get(number, (0, b""))) for number in channels if include_empty or number in digests]
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
        query = load("evidence")["upsert_partial_digests"]
        await samples.connection.execute(query, chain, samples.day, hour, *columns)
    return sum(n for n, _ in digests.values())


async def reread_hours(samples: DaySamples, chain: int, stale: Sequence[Stale]) -> None:
    """Read channel-hours once more."""
    for hour in sorted({channel_hour.hour for channel_hour in stale}):
        of_hour = [channel_hour for channel_hour in stale if channel_hour.hour == hour]
        size = max(1, MAX_SAMPLES // max(1, *(channel_hour.now for channel_hour in of_hour)))
        for part in slices([channel_hour.channel_id for channel_hour in of_hour], min(MAX_CHANNELS, size)):
            await _digest(samples, chain, hour, part, include_empty=True)


async def digests_so_far(connection: asyncpg.Connection[Any], day: date, scope: Scope) -> dict[int, ByHour]:
    """Channel → its hours in the work; n = 0 where nothing is left."""
    rows = await connection.fetch(load("evidence")["select_partial_digests"], scope.chain, day)
    return {
        row["channel_id"]: {
            hour: (n, digest) for hour, n, digest in zip(row["hours"], row["n"], row["digests"], strict=True)
        }
        for row in rows
        if scope.covers(None, row["channel_id"])
    }


@dataclass(frozen=True, slots=True)
class Window:
    """Hours in which something came or went, and of which channels (None: all)."""

    channels: frozenset[int] | None
    first: datetime
    last: datetime  # behind it
    deleted: bool  # samples went; else they came


async def windows(connection: asyncpg.Connection[Any], day: date, since: datetime, scope: Scope) -> list[Window]:
    """Recorded arrivals to a day since a moment, then recorded deletions from it."""
    queries = load("evidence")
    by_source: dict[int, set[int]] = {}
    for row in await connection.fetch(queries["select_channel_sources"]):
        by_source.setdefault(row["source_id"], set()).add(row["id"])
    recorded = []
    for row in await connection.fetch(queries["select_arrivals"], since, begin(day), begin(day, 24)):
        if row["kind"] == "samples":
            channels = frozenset(scope.select(by_source.get(row["source_id"], ())))
            recorded.append(Window(channels, row["first_time"], row["last_time"] + _HOUR, False))
    for row in await connection.fetch(queries["select_removals"], since, begin(day), begin(day, 24)):
        if row["type"] == "deleted":
            deleted_channels = None if row["channels"] is None else frozenset(scope.select(row["channels"]))
            recorded.append(Window(deleted_channels, row["begins"], row["ends"] + _HOUR, True))
    return recorded


async def stale(
    samples: DaySamples,
    sealed: Mapping[int, ByHour],
    since: datetime,
    scope: Scope,
    reread: Set[tuple[int, int]] = frozenset(),
) -> list[Stale]:
    """Channel-hours within what is on record since a moment that are, or may be, other than what is known.

    Those are the ones with another count, and those that something was both deleted from and came to (anew, and perhaps
    otherwise), unless they were read again for that: ``reread``, pairs of channel and hour.
    """
    day, stale_hours = samples.day, dict[tuple[int, int], Stale]()
    arrivals: list[tuple[frozenset[int], range]] = []
    all_channels: frozenset[int] | None = None
    for window in await windows(samples.connection, day, since, scope):
        if window.channels is None and all_channels is None:
            all_channels = frozenset(sealed) | frozenset(await samples.channels(scope))
        channels = window.channels if window.channels is not None else all_channels or frozenset()
        hours = _hours(day, window)
        if not window.deleted:
            arrivals.append((channels, hours))
        compared = [
            channel_hour
            for part in slices(sorted(channels), MAX_CHANNELS)
            for channel_hour in await _compared(samples, part, hours, sealed)
        ]
        for comparison in compared:
            channel_hour = (comparison.channel_id, comparison.hour)
            rewritten = window.deleted and any(
                comparison.channel_id in channels_of and comparison.hour in hours_of
                for channels_of, hours_of in arrivals
            )
            if comparison.now != comparison.before or (rewritten and channel_hour not in reread):
                stale_hours[channel_hour] = comparison
    return [stale_hours[channel_hour] for channel_hour in sorted(stale_hours)]


def _hours(day: date, window: Window) -> range:
    """The hours of a day that a window touches."""
    first, last = max(begin(day), _floor(window.first)), min(begin(day, 24), _floor(window.last))
    return range((first - begin(day)) // _HOUR, (last - begin(day)) // _HOUR)


async def _compared(
    samples: DaySamples, channels: Sequence[int], hours: range, sealed: Mapping[int, ByHour]
) -> list[Stale]:
    """Channel-hours that have or had something."""
    now = await samples.counts(channels, hours)
    compared = []
    for channel in channels:
        known_hours = sealed.get(channel, {})
        for hour in hours:
            before, n = known_hours.get(hour, (0, b""))[0], now.get((channel, hour), 0)
            if before or n:
                compared.append(Stale(channel, hour, before, n))
    return compared


def _floor(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
