"""Channels on a common time grid, as resampled() (schema/routines/forensics/resampled.sql) has them.

To have DuckDB hold values until the next one takes 400 ns of CPU a bucket; here it takes 20.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.batch import Int64s
from ingest.errors import OperationError
from ops.archive.sample_file import TIME, rows_of, segments
from ops.sql.columns import Columns, count_up, following, good_samples

Asked = Mapping[str, Any]  # a channel of gapped_channels (schema/queries/duckdb.sql): the fields of ASKED
ASKED = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("kind", pa.string()),
        ("span", pa.float64()),  # of its range; None: it has none
        ("ends", pa.int64()),  # µs
        ("gaps_from", pa.list_(pa.int64())),  # µs, of gaps that were not backfilled
        ("gaps_to", pa.list_(pa.int64())),
    ]
)
MEANS = pa.struct([("channel_id", pa.int32()), ("time", TIME), ("value", pa.float64())])


def require_length(name: str, us: int) -> None:
    """Raise OperationError if buckets or bins have no length."""
    if us <= 0:
        raise OperationError(f"{name}: found {us} µs; legal: more than 0")


def spans(channels: Iterable[Asked]) -> dict[int, float]:
    """The spans of the ranges of channels that have one."""
    return {one["channel_id"]: one["span"] for one in channels if one["span"] is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Buckets from ``since`` on. One without samples has the last value before it, but not within a gap."""

    channels: NDArray[np.int32]  # (n,) ascending
    ends: Int64s  # (n,) the bucket before which each ends
    gap_channels: NDArray[np.int32]  # (gaps,) ascending
    gaps: Int64s  # (gaps, 2) the first bucket that is within one, and the first one behind
    since: int  # µs
    step: int  # µs

    @classmethod
    def of_channels(cls, channels: Sequence[Asked], since: int, step: int) -> Grid:
        """Of channels in any order. Raises OperationError."""
        require_length("step", step)
        asked = sorted(channels, key=lambda one: int(one["channel_id"]))
        begins = np.array([time for one in asked for time in one["gaps_from"]], np.int64)
        ends = np.array([time for one in asked for time in one["gaps_to"]], np.int64)
        ids = np.array([one["channel_id"] for one in asked], np.int32)
        return cls(
            ids,
            -((since - np.array([one["ends"] for one in asked], np.int64)) // step),
            np.repeat(ids, [len(one["gaps_from"]) for one in asked]),
            np.column_stack([-((since - begins) // step), (ends - since) // step]),
            since,
            step,
        )

    def numbers(self, found: Columns) -> Columns:
        """``channel_id``, ``number`` (of the bucket, from 0) and ``value``, by channel and bucket.

        ``found``: all samples of some channels, by channel and time; those before since are held, too.
        """
        channel, time, value = good_samples(found)
        number = np.maximum((time - self.since) // self.step, -1)
        edges = np.flatnonzero((channel[1:] != channel[:-1]) | (number[1:] != number[:-1])) + 1
        first, last = np.append(0, edges)[: len(time)], np.append(edges, len(time))[: len(time)] - 1
        channel, number, held = channel[first], number[first], value[last]
        mean = np.add.reduceat(value, first) / (last - first + 1) if len(first) else value
        until = np.minimum(following(channel, number), self.ends[np.searchsorted(self.channels, channel)])
        lengths = np.maximum(until - number, 1)
        row = np.repeat(np.arange(len(number)), lengths)
        carried = count_up(lengths)
        channel, number = channel[row], number[row] + carried
        kept = (number >= 0) & ((carried == 0) | ~self._within_gaps(channel, number))
        value = np.where(carried == 0, mean[row], held[row])
        return {"channel_id": channel[kept], "number": number[kept], "value": value[kept]}

    def of(self, found: Columns) -> Columns:
        """The same with the columns of MEANS."""
        one = self.numbers(found)
        time = self.since + one["number"] * self.step
        return {"channel_id": one["channel_id"], "time": time, "value": one["value"]}

    def _within_gaps(self, channel: NDArray[np.int32], number: Int64s) -> NDArray[np.bool_]:
        within = np.zeros(len(channel), np.bool_)
        if len(self.gap_channels):
            for rows in segments(channel):
                of = rows_of(self.gap_channels, int(channel[rows.start]))
                for begin, end in np.searchsorted(number[rows], self.gaps[of]).tolist():
                    within[rows][begin:end] = True
        return within
