"""The table of packed hours: samples are copied into it, and read from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import asyncpg
import numpy as np

from core.samples import NO_SAMPLES, Samples
from core.timestamps import timestamp
from history.codec.packed_hours import HOUR_US, PackedHours, pack
from history.codec.packed_rows import COLUMNS, copy_stream, samples_of
from schema.queries import load


async def insert(connection: asyncpg.Connection[Any], samples: Samples) -> None:
    """Pack and copy hours of which nothing is packed, in the caller's transaction; n ≥ 1 by channel and time."""
    hours, stream = await asyncio.to_thread(_encoded, samples)
    source = cast(Any, memoryview(stream))
    await connection.copy_to_table(
        "samples_packed", schema_name="plant", source=source, columns=COLUMNS, format="binary"
    )
    last = np.append(np.flatnonzero(np.diff(hours.channel_id)), len(hours.segments) - 1)
    until = [timestamp(hour + HOUR_US) for hour in hours.hour[last].tolist()]
    await connection.execute(load("packing")["record_packed"], hours.channel_id[last].tolist(), until)


def _encoded(samples: Samples) -> tuple[PackedHours, bytes]:
    hours = pack(samples.channel, samples.time, samples.bits, samples.status.view(np.int32))
    return hours, copy_stream(hours)


async def select(connection: asyncpg.Connection[Any], hour: datetime, channels: Sequence[int]) -> Samples:
    """The packed samples of an hour, by channel and time."""
    rows = await connection.fetch(load("packing")["select_packed"], hour, channels)
    return samples_of(rows)[1] if rows else NO_SAMPLES
