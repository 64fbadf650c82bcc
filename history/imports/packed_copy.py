"""Stores whole hours of closed days in their packed form at once, where nothing of them is stored.

Rows cost 3 µs a sample, and their packing by maintenance one more; this takes 0.3 µs.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from core.samples import Samples
from core.timestamps import microseconds, timestamp
from history.codec import packed_table
from history.codec.packed_hours import HOUR_US
from ingest.writer.transaction.write import copy_rows
from schema.queries import load

_DAY_US = 86_400_000_000


async def packed_days(connection: asyncpg.Connection[Any], times: Int64s) -> list[int]:
    """The days (since 1970) of ``times`` (µs) whose hours can be packed: closed ones. Not for use in a transaction.

    Waits until all queries know their chunks, on which packing by maintenance relies: ``plant._await_older_queries``.
    """
    days = [timestamp(day * _DAY_US) for day in np.unique(times // _DAY_US).tolist()]
    found = await connection.fetchval("CALL plant.make_packed_days($1)", days)
    return [microseconds(day) // _DAY_US for day in found]


async def copy_packed(days: list[int], connection: asyncpg.Connection[Any], samples: Samples) -> None:
    """Copy samples, of which each channel and hour is whole. Those that can't be packed now become rows."""
    hours = samples.time // HOUR_US
    begins = np.flatnonzero(np.append(True, (np.diff(hours) != 0) | (np.diff(samples.channel) != 0)))
    can = await _packable(connection, days, samples.channel[begins], hours[begins] * HOUR_US)
    is_packed = np.repeat(can, np.diff(begins, append=len(samples)))
    if can.any():
        await packed_table.insert(connection, samples.part(is_packed))
    if not can.all():
        await copy_rows(connection, samples.part(~is_packed))


async def _packable(
    connection: asyncpg.Connection[Any], days: list[int], channel: NDArray[np.int32], hour: Int64s
) -> NDArray[np.bool_]:
    """Hours (µs) of these channels that can be packed: those of ``days`` of which nothing is stored."""
    queries = load("history_import")
    can = np.zeros(len(channel), bool)
    if not await connection.fetchval(load("packing")["try_lock_packing"]):
        return can  # maintenance packs
    for day in days:
        places = np.flatnonzero(hour // _DAY_US == day)
        found = await connection.fetch(
            queries["select_packable"],
            channel[places].tolist(),
            [timestamp(one) for one in hour[places].tolist()],
            timestamp(day * _DAY_US),
            timestamp((day + 1) * _DAY_US),
        )
        can[places[[row["place"] for row in found]]] = True
    return can
