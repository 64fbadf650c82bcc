"""Samples and texts that both members of a redundant pair poll: those of one member count.

Each has the times of its own polls, so what one wrote is not found in the table by what the other one read. A sample
of this member is covered if the other one has a newer sample of its channel, and no gap around it: a gap is committed
before the samples behind it. A Bad sample only says that a member can't read. Texts are stored when they change, so
that only a gap of the other member leaves one uncovered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.batch import EventBatch, SampleBatch
from core.status_codes import BAD
from core.timestamps import now_us, timestamp
from schema.queries import load

Fetch: TypeAlias = Callable[..., Awaitable[list[asyncpg.Record]]]  # of a query with its parameters
Placed: TypeAlias = Sequence[tuple[int, SampleBatch | EventBatch]]  # batches with their indices

LOOK_UP = 1.0  # poll intervals: what has no neighbour within this was lost
WRITE = 0.5  # poll intervals: this member's own samples are farther apart

_SILENT_INTERVALS = 3  # after two, there is a gap
_ROW = np.dtype([(name, np.int64) for name in ("batch", "source", "channel", "time", "bad", "is_text")])


async def uncovered(batches: Placed, other: int, fetch: Fetch) -> tuple[set[int], set[int]]:
    """Indices of batches with rows that member ``other`` does not cover, and of batches that it never will.

    These are in its gaps, or it has been silent about them for longer than it would be without a gap.
    """
    rows = _rows(batches)
    if not len(rows):
        return set(), set()
    newest, interval = await _newest(rows, fetch)
    covered = (rows["is_text"] != 0) | (rows["time"] <= newest)
    missed = ~covered & (rows["bad"] == 0) & (rows["time"] < now_us() - _SILENT_INTERVALS * interval)
    bounds = timestamp(int(rows["time"].min())), timestamp(int(rows["time"].max()))
    for gap in await fetch(load("lease")["select_member_gaps"], other, np.unique(rows["source"]).tolist(), *bounds):
        inside = (rows["source"] == gap["source_id"]) & (rows["time"] > gap["from"]) & (rows["bad"] == 0)
        if gap["to"] is not None:
            inside &= rows["time"] < gap["to"]
        if gap["channels"] is not None:
            inside &= np.isin(rows["channel"], gap["channels"])
        covered &= ~inside
        missed |= inside
    return _indices(rows[~covered]), _indices(rows[missed])


async def _newest(rows: NDArray[np.void], fetch: Fetch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(n,) time (µs) of the newest stored sample of each row's channel, 0: none as new as the first row; and its poll
    interval (µs)."""
    channels, at = np.unique(rows["channel"], return_inverse=True)
    first = np.full(len(channels), np.iinfo(np.int64).max)
    np.minimum.at(first, at, rows["time"])
    since = [timestamp(time) for time in first.tolist()]
    newest, interval = np.zeros(len(channels), np.int64), np.zeros(len(channels), np.int64)
    for row in await fetch(load("lease")["select_newest_samples"], channels.tolist(), since):
        newest[row["ordinal"] - 1], interval[row["ordinal"] - 1] = row["time"] or 0, row["interval"]
    return newest[at], interval[at]


async def lonely(batches: Placed, distance: float, fetch: Fetch) -> set[int]:
    """Indices of batches with samples near which the database has none: it was restored, and lacks them.

    ``distance``: in poll intervals.
    """
    rows = _rows(batches)
    rows = rows[(rows["bad"] == 0) & (rows["is_text"] == 0)]
    if not len(rows):
        return set()
    bounds = timestamp(int(rows["time"].min())), timestamp(int(rows["time"].max()))
    columns = (rows[name].tolist() for name in ("batch", "channel", "time"))
    return {row["batch"] for row in await fetch(load("lease")["select_lonely_samples"], *columns, distance, *bounds)}


def _rows(batches: Placed) -> NDArray[np.void]:
    """All samples and texts."""
    parts = [np.zeros(0, _ROW)]
    for index, batch in batches:
        if isinstance(batch, SampleBatch):
            part = np.zeros(len(batch), _ROW)
            part["channel"], part["time"] = batch.samples.channel, batch.samples.time
            part["bad"] = batch.samples.status & BAD
        else:
            texts = [event for event in batch.events if event.type == "text"]
            part = np.zeros(len(texts), _ROW)
            part["channel"], part["time"] = [event.channel_id for event in texts], [event.time for event in texts]
            part["is_text"] = 1
        part["batch"], part["source"] = index, batch.source_id
        parts.append(part)
    return np.concatenate(parts)


def _indices(rows: NDArray[np.void]) -> set[int]:
    return set(rows["batch"].tolist())
