"""Which buckets of the rollups a group's samples make dirty: rows of ``plant.rollup_dirty``, in its transaction.

Minutes that the writer holds open (``open_minutes``) are not among them. A minute of many channels is one row, whatever
channels it is of; what comes late, of few channels, names them, so that only theirs are made anew.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import numpy as np

from ingest.batch import Int32s, Int64s
from ingest.writer.clock import timestamp
from ingest.writer.counts import MINUTE_US
from ingest.writer.group import Columns
from ingest.writer.rollup_rows import changes

_FEW = 200  # channels in a minute; of more than that, all are made anew
_NEAR = 60  # minutes: so far apart, minutes of few channels go into one row
_SPANNED = 4  # as many minutes of channels may a row span, times those that are dirty
_AT_ONCE = 600  # and so many more

Dirty: TypeAlias = tuple[
    int, int, list[int] | None
]  # first minute's begin and last one's end, µs; channels (None: any)


def apart(columns: Columns, minutes: Collection[int]) -> tuple[list[int], Columns]:
    """Those of ``minutes`` (since 1970) that ``columns`` have samples of, and the samples that are of others."""
    if not minutes:
        return [], columns
    minute = columns.time // MINUTE_US
    touched = [one for one in minutes if (minute == one).any()]
    return touched, columns.part(~np.isin(minute, touched))


def dirty(columns: Columns) -> list[Dirty]:
    """The rows for ``columns`` (n ≥ 1, sorted by channel and time), by time; those of many channels first."""
    minute = columns.time // MINUTE_US
    first = int(minute.min())
    last = int(minute.max())
    if first == last:  # live data, nearly always
        channels = columns.channel_id[changes(columns.channel_id)]
        few = len(channels) <= _FEW
        return [(first * MINUTE_US, (last + 1) * MINUTE_US, channels.tolist() if few else None)]
    pairs = changes(columns.channel_id) | changes(minute)  # each channel and minute once
    minute, channel = minute[pairs], columns.channel_id[pairs]
    minutes, place, count = np.unique(minute, return_inverse=True, return_counts=True)
    many = count > _FEW
    rows: list[Dirty] = [(begin, end, None) for begin, end in _runs(minutes[many], 1)]
    rare = ~many[place]
    minute, channel = minute[rare], channel[rare]
    for begin, end in _runs(minutes[~many], _NEAR):
        inside = (minute >= begin // MINUTE_US) & (minute < end // MINUTE_US)
        rows += _rows(minute[inside], channel[inside])
    return rows


def _rows(minute: Int64s, channel: Int32s) -> list[Dirty]:
    """Rows of minutes and channels, (n,) each, that span little more: all that a row spans is made anew."""
    channels = np.unique(channel)
    first, last = int(minute.min()), int(minute.max())
    if (last + 1 - first) * len(channels) <= _SPANNED * len(minute) + _AT_ONCE:
        return [(first * MINUTE_US, (last + 1) * MINUTE_US, channels.tolist())]
    order = np.argsort(minute, kind="stable")
    minutes, starts = np.unique(minute[order], return_index=True)
    rows: list[Dirty] = []
    begin = end = pairs = 0
    together: set[int] = set()
    for at, some in zip(minutes.tolist(), np.split(channel[order], starts[1:]), strict=True):
        union = together.union(some.tolist())
        if together and (at + 1 - begin) * len(union) > _SPANNED * (pairs + len(some)) + _AT_ONCE:
            rows.append((begin * MINUTE_US, end * MINUTE_US, sorted(together)))
            together, union, pairs = set(), set(some.tolist()), 0
        if not together:
            begin = at
        together, pairs, end = union, pairs + len(some), at + 1
    return [*rows, (begin * MINUTE_US, end * MINUTE_US, sorted(together))]


def parameters(rows: list[Dirty]) -> list[tuple[object, ...]]:
    """The parameters of section ``dirty`` of write.sql, a tuple for each row."""
    return [(timestamp(begin), timestamp(end), channels, False) for begin, end, channels in rows]


def _runs(minutes: Int64s, near: int) -> list[tuple[int, int]]:
    """(begin, end) in µs of runs of ascending ``minutes``, shape (m,), with steps of at most ``near``."""
    if len(minutes) == 0:
        return []
    breaks = np.flatnonzero(np.diff(minutes) > near)
    begins = minutes[np.concatenate(([0], breaks + 1))]
    ends = minutes[np.concatenate((breaks, [len(minutes) - 1]))] + 1
    return list(zip((begins * MINUTE_US).tolist(), (ends * MINUTE_US).tolist(), strict=True))
