"""Rows of alarms, gaps and counts, in the transaction of the batches that have them.

Writing gaps returns those that are new: the known time of rollups ends at them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import asyncpg
import numpy as np

from core.batch import Event, GapBatch, Int32s, Int64s
from core.timestamps import MINUTE_US, microseconds, timestamp
from ingest.event_rows import alarm_columns
from ingest.writer.transaction.counts import Counts, aggregate, columns, subset
from ingest.writer.transaction.failures import classify
from ingest.writer.transaction.group import Group
from schema.queries import load


async def write_alarms(connection: asyncpg.Connection[Any], events: Sequence[tuple[int, Event]]) -> None:
    """Update alarms and conditions from the alarm events among ``events`` (source id, event), and queue notices."""
    alarms = [(source_id, event) for source_id, event in events if event.type == "alarm"]
    if not alarms:
        return
    columns = alarm_columns(alarms)
    for name in ("upsert_alarms", "upsert_conditions", "insert_notices"):
        await connection.execute(load("alarms")[name], *columns)


OpenMinuteGaps = list[tuple[int, int]]  # minute since 1970, and row of rollup_dirty


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
) -> tuple[GapStarts, OpenMinuteGaps]:
    """The starts of gaps that are new to the table, and the rows of rollup_dirty of those in ``minutes`` (since
    1970), which the caller holds open. ``member``: of a redundant pair, whose gaps are what both are missing."""
    rows = gap_rows(batches)
    if not rows:
        return NO_GAPS, []
    queries = load("write")
    open_minute_times = [timestamp(minute * MINUTE_US) for minute in minutes]
    if open_minute_times:
        await connection.execute(queries["set_open_minutes"], open_minute_times)
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
    dirty = await connection.fetch(queries["select_open_minute_gaps"]) if open_minute_times else ()
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


Refused: TypeAlias = list[tuple[Counts, Exception]]  # one row each, with its database error


@dataclass(frozen=True, slots=True)
class AddedIncrements:
    """Numbers of increments added, by origin."""

    counts: int = 0  # received in batches of counts
    events: int = 0
    quality: int = 0  # samples with a status other than Good


async def write_counts(
    connection: asyncpg.Connection[Any],
    group: Group,
    stored: Collection[tuple[int, int]],
    events: Counts,
    not_good: Counts,
    isolate_bad_rows: bool,
) -> tuple[AddedIncrements, Refused]:
    """Add the increments of ``group``, of new events and of new samples.

    ``stored``: the keys of batches that ``plant.ingest_batch`` had before, which add nothing.
    ``isolate_bad_rows``: return rows that the database rejects, and add the rest.
    """
    counted = [batch for batch in group.counted if batch.key not in stored]
    total = group.counts if len(counted) == len(group.counted) else aggregate([batch.inside for batch in counted])
    not_good = await _not_packed(connection, not_good)
    added = AddedIncrements(sum(len(batch.inside) for batch in counted), len(events), len(not_good))
    if len(events) or len(not_good):
        total = aggregate([total, events, not_good])
    if isolate_bad_rows:
        return added, await _count_isolating(connection, total)
    if len(total):
        await connection.execute(load("write")["upsert_event_counts"], *columns(total))
    return added, []


async def _count_isolating(connection: asyncpg.Connection[Any], counts: Counts) -> Refused:
    """Add everything the database accepts, isolating rejected rows by bisection."""
    if not len(counts):
        return []
    try:
        async with connection.transaction():
            await connection.execute(load("write")["upsert_event_counts"], *columns(counts))
    except Exception as error:
        if classify(error) != "poison":
            raise
        if len(counts) == 1:
            return [(counts, error)]
        half = len(counts) // 2
        first = await _count_isolating(connection, subset(counts, slice(None, half)))
        return first + await _count_isolating(connection, subset(counts, slice(half, None)))
    return []


async def _not_packed(connection: asyncpg.Connection[Any], samples: Counts) -> Counts:
    """The samples that are not packed yet. One of a packed hour that is replayed is a row until it is merged."""
    queries = load("write")
    if not len(samples) or not await connection.fetchval(queries["may_be_packed"], int(samples.time.min())):
        return samples
    packed = await connection.fetch(queries["select_packed"], samples.channel_id.tolist(), samples.time.tolist())
    new = np.ones(len(samples), bool)
    new[[row["index"] for row in packed]] = False
    return subset(samples, new)
