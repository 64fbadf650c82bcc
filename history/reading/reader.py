"""Reads samples as columns, for sealing, verifying and exporting, in every form that samples are stored in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import numpy as np

from core import database
from core.samples import Samples, joined
from core.timestamps import HOUR_US, POSTGRES_EPOCH_US, begin, microseconds
from history.codec.packed_hours import elements, samples_of
from history.standalone import EVENT_WIDTHS, HourDigests, event_digests, row_bytes
from schema.queries import load

if TYPE_CHECKING:
    from history.reading.scope import Scope

_CURSOR_ROWS = 5000
_SETTINGS = {
    "jit": "off",
    "plan_cache_mode": "force_custom_plan",
    "max_parallel_workers_per_gather": "0",
    "client_connection_check_interval": "2000",
}


async def connect(dsn: str, application: str) -> asyncpg.Connection[Any]:
    """A session whose statements know their constants (chunks are found by them), take one core, and end with us."""
    return await database.connect(dsn, application, _SETTINGS)


def connected(dsn: str, application: str) -> AbstractAsyncContextManager[asyncpg.Connection[Any]]:
    """A session as of :func:`connect`, inside the block."""
    return database.connected(dsn, application, _SETTINGS)


async def seal_time(connection: asyncpg.Connection[Any], day: date) -> datetime:
    """Time at which a day (UTC) can be sealed: as long behind its end as its data may be late."""
    return begin(day, 24) + await lateness(connection)


async def lateness(connection: asyncpg.Connection[Any]) -> timedelta:
    """Time that a day still waits for data after its end."""
    return timedelta(seconds=await connection.fetchval(load("evidence")["select_lateness"]))


async def read(
    connection: asyncpg.Connection[Any], channels: Sequence[int], since: datetime, until: datetime
) -> dict[int, Samples]:
    """Channel → its samples with since <= time < until, by time; channels ascend, those without any are left out."""
    rows = await connection.fetch(load("evidence")["select_samples"], list(channels), since, until)
    bounds = microseconds(since), microseconds(until)
    packed, others = [row for row in rows if row["times"] is None], [row for row in rows if row["times"] is not None]
    all_stored = joined([samples_of(packed), *map(_rows, others)])
    if packed and others:  # those of a channel stand together, behind its packed ones
        all_stored = all_stored.part(np.argsort(all_stored.channel, kind="stable"))
    samples_by_channel: dict[int, Samples] = {}
    for channel, stored in all_stored.by_channel():
        samples = _ordered(stored)
        first, last = np.searchsorted(samples.time, bounds).tolist()
        if first < last:
            samples_by_channel[channel] = samples.part(slice(first, last))
    return samples_by_channel


def _ordered(samples: Samples) -> Samples:
    """A channel's samples by time, each once. Late rows stand behind; of two of one time, the packed one was first."""
    if bool(np.all(samples.time[1:] > samples.time[:-1])):
        return samples
    samples = samples.sorted()
    return samples.part(~samples.repeats())


def _rows(row: asyncpg.Record) -> Samples:
    """The samples of a channel that are rows."""
    time_us = elements(row["times"], ">i8").astype(np.int64) + POSTGRES_EPOCH_US
    value = elements(row["values"], ">u8").astype(np.uint64).view(np.float64)
    channel = np.full(len(time_us), row["channel_id"], np.int32)
    return Samples(channel, time_us, value, elements(row["statuses"], ">u4").astype(np.uint32))


async def channels_of(connection: asyncpg.Connection[Any], day: date, scope: Scope) -> list[int]:
    """Ids of the channels with samples on a day, ascending."""
    rows = await connection.fetch(load("evidence")["select_channels"], begin(day), begin(day, 24))
    return scope.select(row["channel_id"] for row in rows)


async def has_data(connection: asyncpg.Connection[Any], day: date, scope: Scope) -> bool:
    """Return whether a day has samples, events or gaps."""
    if await channels_of(connection, day, scope) or await gap_rows(connection, day, scope):
        return True
    async with connection.transaction():
        async for _ in event_rows(connection, day, scope):
            return True
    return False


async def event_hours(rows: AsyncIterator[tuple[Any, ...]], day: date) -> dict[int, list[bytes]]:
    """Hour → events, as the specification has them."""
    hours: dict[int, list[bytes]] = {}
    async for values in rows:
        add_event(hours, values, day)
    return hours


def add_event(hours: dict[int, list[bytes]], values: tuple[Any, ...], day: date) -> int:
    """Add an event of a day to those of its hour, which is returned."""
    hour: int = (values[0] - microseconds(begin(day))) // HOUR_US
    hours.setdefault(hour, []).append(row_bytes(*values, widths=EVENT_WIDTHS))
    return hour


async def events_of(rows: AsyncIterator[tuple[Any, ...]], day: date) -> HourDigests:
    """Counts and digests of a day's events."""
    return HourDigests.of_hours(event_digests(await event_hours(rows, day)))


async def event_rows(connection: asyncpg.Connection[Any], day: date, scope: Scope) -> Any:
    """A day's events as the specification's fields. Needs a transaction."""
    query = load("evidence")["select_events"]
    async for row in connection.cursor(query, begin(day), begin(day, 24), prefetch=_CURSOR_ROWS):
        if scope.covers(row["source_id"], row["channel_id"]):
            yield (microseconds(row["time"]), *list(row.values())[1:])


async def gap_rows(connection: asyncpg.Connection[Any], day: date, scope: Scope) -> list[tuple[Any, ...]]:
    """The gaps that touch a day, as the specification's fields."""
    return await gap_rows_between(connection, begin(day), begin(day, 24), scope)


async def gap_rows_between(
    connection: asyncpg.Connection[Any], since: datetime, until: datetime, scope: Scope
) -> list[tuple[Any, ...]]:
    """The gaps that touch an interval, as the specification's fields."""
    rows = await connection.fetch(load("evidence")["select_gaps"], since, until)
    return [
        tuple(microseconds(v) if isinstance(v, datetime) else v for v in row.values())
        for row in rows
        if scope.covers(row["source_id"])
    ]
