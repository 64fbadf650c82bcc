"""Aggregates increments: how often something happened, by minute, type and channel.

The increments of a group are aggregated here, so that the database gets one row per minute, type and channel,
however many increments there are. Rows are sorted by the table's key: two connections that add to the same rows take
their locks in the same order and never deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import CountBatch, Int32s, Int64s, UInt32s
from core.timestamps import MINUTE_US

_LARGEST = 2**63 - 1  # of an int64
_MAX_SPARSITY = 4  # possible keys per row; with more, sorting is faster than an array of all keys

_QUALITIES = ("uncertain_quality", "bad_quality")  # event types counted for samples that are not Good


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Increments as columns of equal length; a CountBatch has the same columns and can be used instead."""

    types: tuple[str, ...]
    type: Int32s  # (n,) indices into ``types``
    channel_id: Int32s  # (n,) 0: no channel
    time: Int64s  # (n,) µs
    n: Int64s  # (n,)

    def __len__(self) -> int:
        return len(self.n)


Increments: TypeAlias = Counts | CountBatch

_NO_INT32S, _NO_INT64S = np.zeros(0, np.int32), np.zeros(0, np.int64)
NO_COUNTS = Counts((), _NO_INT32S, _NO_INT32S, _NO_INT64S, _NO_INT64S)


def aggregate(increments: Sequence[Increments], step: int = MINUTE_US) -> Counts:
    """One row per minute (or other ``step`` in µs), type and channel, sorted; ``time`` is the start of the minute.

    Exact: the increments that fit into memory cannot overflow 64-bit sums (MOST_COUNTED).
    """
    increments = [part for part in increments if len(part)]
    if not increments:
        return NO_COUNTS
    # Sorted by code point like collation "C": the order of the table's key.
    types = tuple(sorted({name for part in increments for name in part.types}))
    code_of = {name: i for i, name in enumerate(types)}
    codes = [np.array([code_of[name] for name in part.types], np.int32)[part.type] for part in increments]
    kind = np.concatenate(codes)
    channel_id = np.concatenate([part.channel_id for part in increments])
    minute = np.concatenate([part.time for part in increments]) // step
    n = np.concatenate([part.n for part in increments])
    cells, sums = _cells(minute, kind, channel_id, n)
    return Counts(types, kind[cells], channel_id[cells], minute[cells] * step, sums)


def _cells(minute: Int64s, kind: Int32s, channel_id: Int32s, n: Int64s) -> tuple[NDArray[np.intp], Int64s]:
    """One row per minute, type and channel, sorted; and the sums.

    The three are combined to one number if it fits. If there are not many more such numbers than rows, they are indices
    into an array, otherwise they are sorted (MEASURED for 400,000 rows: 1 ms, 8 to 27 ms; 64 ms sorted by all three).
    """
    first_minute, minutes = _range(minute)
    first_kind, kinds = _range(kind)
    first_channel, channels = _range(channel_id)
    size = minutes * kinds * channels
    if size > _LARGEST:
        return _sorted(np.lexsort((channel_id, kind, minute)), (minute, kind, channel_id), n)
    key = ((minute - first_minute) * kinds + (kind - first_kind)) * channels + (channel_id - np.int64(first_channel))
    if size > _MAX_SPARSITY * len(key):
        return _sorted(np.argsort(key), (key,), n)
    occupied = np.flatnonzero(np.bincount(key, minlength=size))
    row = np.empty(size, np.intp)
    row[key] = np.arange(len(key))
    sums = np.zeros(size, np.int64)
    np.add.at(sums, key, n)
    return row[occupied], sums[occupied]


def _sorted(order: NDArray[np.intp], keys: Sequence[Int32s | Int64s], n: Int64s) -> tuple[NDArray[np.intp], Int64s]:
    """Cells as of :func:`_cells`, for rows that ``order`` sorts by all ``keys``."""
    first = np.zeros(len(order), bool)
    first[0] = True
    for key in keys:
        ordered = key[order]
        first[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(first)
    return order[starts], np.add.reduceat(n[order], starts)


def _range(column: Int32s | Int64s) -> tuple[int, int]:
    """The minimum, and the number of values from it to the maximum."""
    least = int(column.min())
    return least, int(column.max()) - least + 1


def subset(increments: Increments, mask: NDArray[np.bool_] | slice) -> Counts:
    """The increments selected by a mask."""
    return Counts(
        increments.types, increments.type[mask], increments.channel_id[mask], increments.time[mask], increments.n[mask]
    )


def of_events(rows: Iterable[tuple[int, str, int]]) -> Counts:
    """One increment per (µs, type, channel id)."""
    code_of: dict[str, int] = {}
    rows_of_codes = [(code_of.setdefault(name, len(code_of)), channel_id, time) for time, name, channel_id in rows]
    kind, channel, when = np.array(rows_of_codes, np.int64).reshape(-1, 3).T
    return Counts(
        tuple(code_of), kind.astype(np.int32), channel.astype(np.int32), when, np.ones(len(rows_of_codes), np.int64)
    )


def of_quality(channel_id: Int32s, time: Int64s, status: UInt32s) -> Counts:
    """One increment per sample with a status other than Good."""
    severity = status >> 30  # OPC 10000-4, 7.39
    rows = np.flatnonzero(severity)
    kind = (severity[rows] > 1).astype(np.int32)
    return Counts(_QUALITIES, kind, channel_id[rows], time[rows], np.ones(len(rows), np.int64))


def columns(counts: Counts) -> tuple[list[Any], ...]:
    """The parameters of section ``count``: one list per column."""
    return (
        (counts.time // MINUTE_US).tolist(),
        [counts.types[kind] for kind in counts.type.tolist()],
        counts.channel_id.tolist(),
        counts.n.tolist(),
    )
