"""Gaps into the table ``plant.gap``, and which are new: what is known in the minutes of the rollups ends there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import asyncpg
import numpy as np

from ingest.batch import GapBatch
from ingest.writer.clock import microseconds, timestamp
from ingest.writer.counts import MINUTE_US
from ingest.writer.minutes import NO_GAPS, Begins
from schema.queries import load

HeldGaps = list[tuple[int, int]]  # minute since 1970, and row of rollup_dirty


async def write_gaps(
    connection: asyncpg.Connection[Any], batches: Sequence[GapBatch], minutes: Collection[int]
) -> tuple[Begins, HeldGaps]:
    """Where gaps begin of which the table knew nothing, and the rows of rollup_dirty of those in ``minutes`` (since
    1970), which the caller holds open."""
    rows = gap_rows(batches)
    if not rows:
        return NO_GAPS, []
    queries = load("write")
    held = [timestamp(minute * MINUTE_US) for minute in minutes]
    if held:
        await connection.execute(queries["held_open"], held)
    new = await connection.fetch(queries["gap"], *map(list, zip(*rows, strict=True)))
    if not new:
        return NO_GAPS, []
    channels = [np.array(row["channels"], np.int32) for row in new]
    times = np.repeat(np.array([row["time"] for row in new], np.int64), [len(some) for some in channels])
    begins = Begins(np.concatenate(channels), times)
    dirty = await connection.fetch(queries["held_gaps"]) if held else ()
    return begins, [(microseconds(row["from_time"]) // MINUTE_US, row["id"]) for row in dirty]


def gap_rows(batches: Sequence[GapBatch]) -> list[tuple[Any, ...]]:
    """The parameters of section ``gap``, a tuple for each key of the table, in its order: what was said last; order
    within a batch breaks ties of revision."""
    rows: dict[tuple[int, int, bool, int], tuple[Any, ...]] = {}  # by source, time, whether of one channel, which
    for batch in batches:
        for place, gap in enumerate(batch.gaps):
            begin, end = timestamp(gap.from_time), None if gap.to_time is None else timestamp(gap.to_time)
            revision = batch.received_at + place
            said = begin, end, gap.reason, gap.detail, gap.backfilled, revision
            for channel in (None,) if gap.channel_ids is None else gap.channel_ids:
                key = batch.source_id, gap.from_time, channel is not None, channel or 0
                if key not in rows or rows[key][-1] < revision:
                    rows[key] = batch.source_id, channel, *said
    return [rows[key] for key in sorted(rows)]
