"""Writes gaps to the table ``plant.gap`` and finds the new ones: in rollups, known time ends at a gap."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import asyncpg
import numpy as np

from core.batch import GapBatch, Int32s, Int64s
from core.timestamps import microseconds, timestamp
from ingest.writer.transaction.counts import MINUTE_US
from schema.queries import load

HeldGaps = list[tuple[int, int]]  # minute since 1970, and row of rollup_dirty


class GapStarts(NamedTuple):
    """Starts of gaps, as columns of equal length: nothing is known from half a µs after ``time``."""

    channel_id: Int32s
    time: Int64s  # µs


NO_GAPS = GapStarts(np.zeros(0, np.int32), np.zeros(0, np.int64))


async def write_gaps(
    connection: asyncpg.Connection[Any],
    batches: Sequence[GapBatch],
    minutes: Collection[int],
    member: int | None = None,
) -> tuple[GapStarts, HeldGaps]:
    """The starts of gaps that are new to the table, and the rows of rollup_dirty of those in ``minutes`` (since
    1970), which the caller holds open. ``member``: of a redundant pair, whose gaps are what both are missing."""
    rows = gap_rows(batches)
    if not rows:
        return NO_GAPS, []
    queries = load("write")
    held_minutes = [timestamp(minute * MINUTE_US) for minute in minutes]
    if held_minutes:
        await connection.execute(queries["set_held_open"], held_minutes)
    columns = map(list, zip(*rows, strict=True))
    if member is None:
        new = await connection.fetch(queries["upsert_gaps"], *columns)
    else:
        new = await connection.fetch(queries["record_member_gaps"], member, *columns)
    if not new:
        return NO_GAPS, []
    channels = [np.array(row["channels"], np.int32) for row in new]
    times = np.repeat(np.array([row["time"] for row in new], np.int64), [len(ids) for ids in channels])
    begins = GapStarts(np.concatenate(channels), times)
    dirty = await connection.fetch(queries["select_held_gaps"]) if held_minutes else ()
    return begins, [(microseconds(row["from_time"]) // MINUTE_US, row["id"]) for row in dirty]


def gap_rows(batches: Sequence[GapBatch]) -> list[tuple[Any, ...]]:
    """The parameters of section ``gap``: the latest state of each gap, in the order of the table's key; equal
    revisions are resolved by their order in the batch."""
    rows: dict[tuple[int, int, bool, int], tuple[Any, ...]] = {}  # by source, time, whether of a channel, channel
    for batch in batches:
        for index, gap in enumerate(batch.gaps):
            begin, end = timestamp(gap.from_time), None if gap.to_time is None else timestamp(gap.to_time)
            revision = batch.received_at + index
            values = begin, end, gap.reason, gap.detail, gap.backfilled, revision
            for channel in (None,) if gap.channel_ids is None else gap.channel_ids:
                key = batch.source_id, gap.from_time, channel is not None, channel or 0
                if key not in rows or rows[key][-1] < revision:
                    rows[key] = batch.source_id, channel, *values
    return [rows[key] for key in sorted(rows)]
