"""Moves closed hours from rows to packed hours, and closed days to the columnstore, oldest first.

A transaction removes the rows of an hour of some channels and writes their packed hours, so that readers see each
sample in exactly one form, whenever the process is killed: the next run continues there. One session packs at a time,
and nobody waits for it. A row that arrives meanwhile is late: the next run merges it. Minutes of closed days are moved
in the same way, by day instead of hour.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import asyncpg
import numpy as np

from core.copy_stream import samples_of
from core.samples import Samples, joined
from history.codec import packed_hours, packed_minutes
from schema.queries import load

_HOUR = timedelta(hours=1)


async def compress_before(connection: asyncpg.Connection[Any], before: datetime) -> None:
    """Convert closed data before a time to the form that ``plant.compression()`` returns.

    A day keeps its form: late rows of columnstored days are merged into the columnstore, and days with packed hours are
    packed completely, even if the setting has changed since. After the time that the session's statements may take it
    raises TimeoutError, or asyncpg's QueryCanceledError; the next run goes on.
    """
    queries = load("packing")
    [(form, has_columnstore)] = await connection.fetch(queries["select_form"])
    is_native = form == "native"
    if has_columnstore:
        await connection.execute(queries["convert_to_columnstore"], before, not is_native)
    await pack_days(connection, before, only_begun=is_native)


async def pack_days(connection: asyncpg.Connection[Any], before: datetime, only_begun: bool = False) -> None:
    """Pack the whole hours before a time, or ``only_begun`` of days with packed hours; columnstored days are left."""
    queries = load("packing")
    limit = await connection.fetchval(queries["select_time_limit"])
    deadline = time.monotonic() + limit if limit else None
    for chunk, since, until in await connection.fetch(queries["select_days"], before, only_begun):
        if not await _pack_day(connection, since, min(before, until), deadline):
            return
        if until <= before:
            await connection.execute(queries["drop_emptied_chunk"], chunk, since, until)
    for row in await connection.fetch(queries["select_emptied_chunks"]):
        await connection.execute(queries["drop_emptied_chunk"], *row)


async def _pack_day(
    connection: asyncpg.Connection[Any], since: datetime, before: datetime, deadline: float | None
) -> bool:
    """Return whether no other session packs."""
    queries = load("packing")
    channels = await connection.fetchval(queries["select_channels"], since, before)
    is_known = await connection.fetchval(queries["has_packed_hours"], since, since + timedelta(days=1))
    hour = since
    while row := await connection.fetchrow(queries["select_hour"], channels, hour, before):
        hour, due = row
        if not is_known:  # a query that was planned before does not read the new chunk: plant._await_older_queries
            await connection.execute(queries["make_packed_chunk"], "plant.samples_packed", since)
            is_known = await connection.fetchval(queries["await_older_queries"], "plant.samples_packed", 10.0)
            if not is_known:
                break  # the next run tries again
        while due:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("time slice used up")
            n = await connection.fetchval(queries["count_channels"], due, hour)
            if await pack_hour(connection, hour, due[:n]) is None:
                return False
            due = due[n:]
        hour += _HOUR
    return True


async def pack_hour(connection: asyncpg.Connection[Any], hour: datetime, channels: Sequence[int]) -> int | None:
    """Move the rows of one hour of some channels to packed hours. Returns their number; None: another session packs.

    Of two samples with the same channel and time, the packed one stays because it was first: an equal one is dropped, a
    different one becomes a conflict event, as in the writer.
    """
    queries = load("packing")
    async with connection.transaction():
        if not await connection.fetchval(queries["try_lock_packing"]):
            return None
        rows = samples_of(await _moved(connection, queries["move_rows"], hour, hour + _HOUR, channels))
        if not len(rows):
            return 0
        packed = await packed_hours.select(connection, hour, np.unique(rows.channel).tolist())
        changed, kept, refused = merged(packed, rows)
        if len(refused):
            keys = refused.channel.tolist(), refused.time.tolist()
            columns = [
                column.tolist()
                for samples in (kept, refused)
                for column in (samples.value, samples.status.view(np.int32))
            ]
            await connection.execute(queries["insert_conflicts"], *keys, *columns)
        if len(changed):
            if len(packed):
                await connection.execute(queries["delete_packed"], hour, np.unique(changed.channel).tolist())
            await packed_hours.insert(connection, changed)
        await connection.execute(queries["forget_emptied_chunk"], hour)
    return len(rows)


def merged(packed: Samples, rows: Samples) -> tuple[Samples, Samples, Samples]:
    """All samples of the channels of an hour that have new rows, by channel and time; then (kept, refused).

    ``refused``: rows that differ from the packed sample of their channel and time, which is kept.
    """
    both = joined((packed, rows))
    order = both.order()  # stable: a packed sample is before the row that repeats it
    both, is_row = both.part(order), order >= len(packed)
    repeats, bits = both.repeats(), both.bits
    refused = np.flatnonzero(repeats[1:] & ((bits[1:] != bits[:-1]) | (both.status[1:] != both.status[:-1]))) + 1
    has_new = np.isin(both.channel, both.channel[is_row & ~repeats])
    return both.part(has_new & ~repeats), both.part(refused - 1), both.part(refused)


async def pack_minutes(
    connection: asyncpg.Connection[Any], before: datetime | None = None, portions: int | None = None
) -> None:
    """Pack the minutes of whole days (UTC), oldest first, some channels a transaction.

    ``before``: only days that are over by then; None: those that are closed. ``portions``: at most so many
    transactions, so that new data goes first. What is late puts days of its channels back
    among the rows (``plant.refresh_minutes``) until they are packed again.
    """
    queries = load("packing")
    for chunk, since, until in await connection.fetch(queries["select_days_of_minutes"], before):
        while channels := await connection.fetchval(queries["select_channels_of_minutes"], chunk, since, until):
            if portions == 0:
                return
            if not await connection.fetchval(queries["has_packed_minutes"], since):
                await connection.execute(queries["make_packed_chunk"], "plant.rollup_1m_packed", since)
                if not await connection.fetchval(queries["await_older_queries"], "plant.rollup_1m_packed", 1.0):
                    break  # the next run tries again
            if not await _pack_minutes(connection, chunk, since, channels):
                return
            portions = None if portions is None else portions - 1
        await connection.execute(queries["drop_emptied_minutes"], chunk)
    await connection.execute(queries["forget_dropped_minutes"])


async def _pack_minutes(
    connection: asyncpg.Connection[Any], chunk: str, day: datetime, channels: Sequence[int]
) -> bool:
    """Return whether no other session works on rollups."""
    queries = load("packing")
    async with connection.transaction():
        if not await connection.fetchval(queries["try_lock_rollups"]):
            return False
        moved = await _moved(connection, queries["move_minutes"], day, channels)
        if packed := await asyncio.to_thread(packed_minutes.packed_stream, moved):
            await connection.copy_to_table(
                "rollup_1m_packed",
                schema_name="plant",
                source=cast(Any, memoryview(packed)),
                columns=packed_minutes.COLUMNS,
                format="binary",
            )
        await connection.execute(queries["record_packed_minutes"], chunk, channels[-1])
    return True


async def _moved(connection: asyncpg.Connection[Any], query: str, *arguments: object) -> bytes:
    """The binary COPY stream of rows that a query removes."""
    chunks: list[bytes] = []

    async def add(chunk: bytes) -> None:
        chunks.append(chunk)

    # Into a file object, asyncpg would write each chunk in a thread.
    await connection.copy_from_query(query, *arguments, output=add, format="binary")
    return b"".join(chunks)
