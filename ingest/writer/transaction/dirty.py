"""The rollup buckets that a group's samples invalidate: rows of ``plant.rollup_dirty``, in the same transaction.

Minutes that the writer holds open (``open_minutes``) are excluded. A minute with many channels is one row for all
channels; late data of few channels lists them, so that only those are recomputed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import numpy as np

from core.batch import Int32s, Int64s
from core.samples import Samples, changes
from core.timestamps import MINUTE_US, timestamp

_MAX_LISTED = 200  # channels in a minute; if there are more, all are recomputed
_MAX_SPACING = 60  # minutes of few channels at most this far apart share a row
_MAX_EXCESS_FACTOR = 4  # a row may cover this many times the (minute, channel) pairs that are dirty
_MAX_EXCESS = 600  # plus this many

# Start of the first minute and end of the last one, µs; channels (None: all)
Dirty: TypeAlias = tuple[int, int, list[int] | None]


def split_by_minutes(samples: Samples, minutes: Collection[int]) -> tuple[list[int], Samples]:
    """The ``minutes`` (since 1970) with samples in ``samples``, and the samples outside of them."""
    if not minutes:
        return [], samples
    minute = samples.time // MINUTE_US
    present = [open_minute for open_minute in minutes if (minute == open_minute).any()]
    return present, samples.part(~np.isin(minute, present))


def dirty(samples: Samples) -> list[Dirty]:
    """The rows for ``samples`` (n ≥ 1, sorted by channel and time) by time; those for all channels first."""
    minute = samples.time // MINUTE_US
    first = int(minute.min())
    last = int(minute.max())
    if first == last:  # live data, nearly always
        channels = samples.channel[changes(samples.channel)]
        few = len(channels) <= _MAX_LISTED
        return [(first * MINUTE_US, (last + 1) * MINUTE_US, channels.tolist() if few else None)]
    pairs = changes(samples.channel) | changes(minute)  # unique (channel, minute)
    minute, channel = minute[pairs], samples.channel[pairs]
    minutes, minute_index, count = np.unique(minute, return_inverse=True, return_counts=True)
    many = count > _MAX_LISTED
    rows: list[Dirty] = [(begin, end, None) for begin, end in _runs(minutes[many], 1)]
    rare = ~many[minute_index]
    minute, channel = minute[rare], channel[rare]
    for begin, end in _runs(minutes[~many], _MAX_SPACING):
        inside = (minute >= begin // MINUTE_US) & (minute < end // MINUTE_US)
        rows += _rows(minute[inside], channel[inside])
    return rows


def _rows(minute: Int64s, channel: Int32s) -> list[Dirty]:
    """Rows that cover (minute, channel) pairs, (n,) each, and little more: everything a row covers is recomputed."""
    channels = np.unique(channel)
    first, last = int(minute.min()), int(minute.max())
    if (last + 1 - first) * len(channels) <= _MAX_EXCESS_FACTOR * len(minute) + _MAX_EXCESS:
        return [(first * MINUTE_US, (last + 1) * MINUTE_US, channels.tolist())]
    order = np.argsort(minute, kind="stable")
    minutes, starts = np.unique(minute[order], return_index=True)
    rows: list[Dirty] = []
    begin = end = pairs = 0
    channels_so_far: set[int] = set()
    for at, channels_at in zip(minutes.tolist(), np.split(channel[order], starts[1:]), strict=True):
        union = channels_so_far.union(channels_at.tolist())
        if (
            channels_so_far
            and (at + 1 - begin) * len(union) > _MAX_EXCESS_FACTOR * (pairs + len(channels_at)) + _MAX_EXCESS
        ):
            rows.append((begin * MINUTE_US, end * MINUTE_US, sorted(channels_so_far)))
            channels_so_far, union, pairs = set(), set(channels_at.tolist()), 0
        if not channels_so_far:
            begin = at
        channels_so_far, pairs, end = union, pairs + len(channels_at), at + 1
    return [*rows, (begin * MINUTE_US, end * MINUTE_US, sorted(channels_so_far))]


def parameters(rows: list[Dirty]) -> list[tuple[object, ...]]:
    """The parameters of section ``dirty`` of write.sql, one tuple per row."""
    return [(timestamp(begin), timestamp(end), channels, False) for begin, end, channels in rows]


def _runs(minutes: Int64s, near: int) -> list[tuple[int, int]]:
    """(begin, end) in µs of runs of ascending ``minutes``, (m,), that are at most ``near`` apart."""
    if len(minutes) == 0:
        return []
    breaks = np.flatnonzero(np.diff(minutes) > near)
    begins = minutes[np.concatenate(([0], breaks + 1))]
    ends = minutes[np.concatenate((breaks, [len(minutes) - 1]))] + 1
    return list(zip((begins * MINUTE_US).tolist(), (ends * MINUTE_US).tolist(), strict=True))
