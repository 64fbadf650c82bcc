"""Increments added up: how often something happened, by minute, type and channel.

All increments of a group are added up here, so that the database gets each minute of a type and channel once,
whatever many increments it had. They are sorted by the table's key: two connections that add to the same rows take
their locks in one order, and never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingest.batch import CountBatch, Int32s, Int64s, UInt32s

MINUTE_US = 60_000_000

_LARGEST = 2**63 - 1  # of an int64

_QUALITIES = ("uncertain_quality", "bad_quality")  # types of samples that are not Good


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Increments as columns of equal length; a CountBatch has the same, and may stand in its place."""

    types: tuple[str, ...]
    type: Int32s  # (n,) places in ``types``
    channel_id: Int32s  # (n,) 0: of no channel
    time: Int64s  # (n,) µs
    n: Int64s  # (n,)

    def __len__(self) -> int:
        return len(self.n)


Increments: TypeAlias = Counts | CountBatch

_NO_INT32S, _NO_INT64S = np.zeros(0, np.int32), np.zeros(0, np.int64)
NOTHING = Counts((), _NO_INT32S, _NO_INT32S, _NO_INT64S, _NO_INT64S)


def added_up(increments: Sequence[Increments], step: int = MINUTE_US) -> Counts:
    """One row a minute (or other ``step`` in µs), type and channel, sorted by these; ``time`` is the minute's first µs.

    Exact: sums are 64-bit integers, which as many increments as memory holds do not exceed (MOST_COUNTED).
    """
    increments = [some for some in increments if len(some)]
    if not increments:
        return NOTHING
    # By code points, as "C" collation sorts: the order of the table's key.
    types = tuple(sorted({name for some in increments for name in some.types}))
    place = {name: i for i, name in enumerate(types)}
    codes = [np.array([place[name] for name in some.types], np.int32)[some.type] for some in increments]
    kind = np.concatenate(codes)
    channel_id = np.concatenate([some.channel_id for some in increments])
    minute = np.concatenate([some.time for some in increments]) // step
    n = np.concatenate([some.n for some in increments])
    order = _order(minute, kind, channel_id)
    minute, kind, channel_id = minute[order], kind[order], channel_id[order]
    first = np.ones(len(order), bool)
    first[1:] = (minute[1:] != minute[:-1]) | (kind[1:] != kind[:-1]) | (channel_id[1:] != channel_id[:-1])
    starts = np.flatnonzero(first)
    sums = np.add.reduceat(n[order], starts)
    return Counts(types, kind[starts], channel_id[starts], minute[starts] * step, sums)


def _order(minute: Int64s, kind: Int32s, channel_id: Int32s) -> NDArray[np.intp]:
    """What sorts by minute, type and channel: by one number made of the three where that fits, which is 3 to 8 times
    faster than by each (MEASURED: 8 to 27 against 64 ms for 400,000)."""
    first_minute, minutes = _range(minute)
    first_kind, kinds = _range(kind)
    first_channel, channels = _range(channel_id)
    if minutes * kinds * channels > _LARGEST:
        return np.lexsort((channel_id, kind, minute))
    key = ((minute - first_minute) * kinds + (kind - first_kind)) * channels + (channel_id - np.int64(first_channel))
    return np.argsort(key)


def _range(column: Int32s | Int64s) -> tuple[int, int]:
    """The least value, and how many there are from it to the largest."""
    least = int(column.min())
    return least, int(column.max()) - least + 1


def part_of(increments: Increments, which: NDArray[np.bool_] | slice) -> Counts:
    """Some of the increments."""
    some = increments
    return Counts(some.types, some.type[which], some.channel_id[which], some.time[which], some.n[which])


def of_events(rows: Iterable[tuple[int, str, int]]) -> Counts:
    """One increment for each (µs, type, channel id)."""
    place: dict[str, int] = {}
    found = [(place.setdefault(name, len(place)), channel_id, time) for time, name, channel_id in rows]
    kind, channel, when = np.array(found, np.int64).reshape(-1, 3).T
    return Counts(tuple(place), kind.astype(np.int32), channel.astype(np.int32), when, np.ones(len(found), np.int64))


def of_quality(channel_id: Int32s, time: Int64s, status: UInt32s) -> Counts:
    """One increment for each sample whose status is not Good."""
    severity = status >> 30  # OPC 10000-4, 7.39
    which = np.flatnonzero(severity)
    kind = (severity[which] > 1).astype(np.int32)
    return Counts(_QUALITIES, kind, channel_id[which], time[which], np.ones(len(which), np.int64))


def columns(counts: Counts) -> tuple[list[Any], ...]:
    """The parameters of section ``count``: one list a column."""
    return (
        (counts.time // MINUTE_US).tolist(),
        [counts.types[kind] for kind in counts.type.tolist()],
        counts.channel_id.tolist(),
        counts.n.tolist(),
    )
