"""Samples of channels in bins of time, counted and summed as they are read.

To put a sample in a group takes DuckDB 100 ns of CPU and more; here it takes 10 to 25 ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.batch import Float64s, Int64s
from ingest.errors import OperationError
from ops.archive.sample_file import TIME
from ops.sql.columns import Columns, good_values, typed

if TYPE_CHECKING:
    from ops.sql.scan import Scan

_PARAMETERS = ("since", "until", "step", "outer_step", "origin", "pause", "carry")
BINS = pa.schema(
    [
        pa.field("channel_id", pa.int32(), nullable=False),
        pa.field("bucket", TIME, nullable=False),  # where the bin begins
        pa.field("whole", pa.bool_(), nullable=False),  # false: other rows may have other samples of the bin
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("not_bad", pa.int64(), nullable=False),
        pa.field("first_time", TIME, nullable=False),
        pa.field("last_time", TIME, nullable=False),
        # Of the samples that good_samples() (schema/queries/duckdb.sql) has:
        pa.field("good", pa.int64(), nullable=False),
        pa.field("good_sum", pa.float64()),
        pa.field("last_good", pa.float64()),  # the value of the last one
        pa.field("last_good_time", TIME),
        pa.field("low", pa.float64()),
        pa.field("high", pa.float64()),
        pa.field("variance", pa.float64()),  # of the population
        pa.field("middle", pa.float64()),  # the median
        pa.field("good_values", pa.list_(pa.float64()), nullable=False),  # none if the row is whole
        *(pa.field(name, pa.int64(), nullable=False) for name in _PARAMETERS),
    ]
)
_SPREAD = ("low", "high", "variance", "middle", "good_values")
_OF_GOOD = ("good", "good_sum", "last_good", "last_good_time", *_SPREAD)


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins of samples with since <= time < until that begin at ``origin`` and each ``step`` before and after; in µs.

    A bin is parted where one of ``outer_step`` ends, and where no sample comes for as long as ``pause`` or longer.
    The bin before the first one has what comes as long as ``carry`` before ``since``.
    """

    schema: Any  # those columns of BINS that are wanted
    since: int
    until: int
    step: int
    outer_step: int
    origin: int
    pause: int
    carry: int

    @classmethod
    def wanted(cls, scan: Scan) -> Bins:
        """those that a query asks for. Raises OperationError."""
        values = scan.constants("sample_bins", _PARAMETERS)
        for name in ("step", "outer_step"):
            if values[name] <= 0:
                raise OperationError(f"sample_bins: {name}: found {values[name]} µs; legal: more than 0")
        return cls(scan.schema, **values)

    @property
    def bounds(self) -> tuple[int, int]:
        """Of the samples that are needed."""
        return self.since - self.carry, self.until

    @property
    def columns(self) -> list[str]:
        """Columns of samples that are needed."""
        names = self.schema.names
        return ["value", "status"] if any(name in names for name in _OF_GOOD) else ["status"]

    def of(self, found: Columns) -> Any:
        """The bins of samples within the bounds, by channel and time, as a batch.

        A bin may have several rows, with parts of its samples; so may the first and the last of samples of one channel,
        which may have others before and after them.
        """
        channel, time, status = found["channel_id"], found["time"], found["status"].view(np.int32)
        number = self._number(time, self.step)
        other = number[1:] != number[:-1]
        if len(channel) and channel[0] != channel[-1]:
            other |= channel[1:] != channel[:-1]
        if self.outer_step % self.step:
            outer = self._number(time, self.outer_step)
            other |= outer[1:] != outer[:-1]
        if self.pause <= self.until - self.since + self.carry:
            other |= time[1:] - time[:-1] >= self.pause
        ends = np.flatnonzero(other)
        first, last = np.append(0, ends + 1)[: len(time)], np.append(ends, len(time) - 1)[: len(time)]
        channel, bucket = channel[first], number[first] * self.step + self.origin
        columns: dict[str, Any] = {
            "channel_id": channel,
            "bucket": bucket,
            "whole": _are_whole(channel, bucket),
            "samples": last - first + 1,
            "not_bad": _counts(status >= 0, first, last),
            "first_time": time[first],
            "last_time": time[last],
            **{name: np.full(len(first), getattr(self, name)) for name in _PARAMETERS},
        }
        if "value" in found:
            spread = any(name in self.schema.names for name in _SPREAD)
            columns |= _of_good(
                time, found["value"].view(np.float64), status, _Rows(first, last, columns["whole"]), spread
            )
        arrays = [typed(columns[one.name], one.type) for one in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _number(self, time: Int64s, step: int) -> Int64s:
        number: Int64s = time - self.origin
        np.floor_divide(number, step, out=number)
        return np.maximum(number, (self.since - self.origin) // step - 1, out=number) if self.carry else number


@dataclass(frozen=True, slots=True)
class _Rows:
    """Samples of each row, from the first to the last, and whether it is whole."""

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    whole: NDArray[np.bool_]


def _of_good(time: Int64s, value: Float64s, status: NDArray[np.int32], rows: _Rows, spread: bool) -> dict[str, Any]:
    value, good = good_values(value, status)
    counts = _counts(good, rows.first, rows.last)
    if not good.all():
        time, value = time[good], value[good]
    some = counts > 0
    n, ends = counts[some], np.cumsum(counts)[some]
    begins = ends - n
    sums = np.add.reduceat(value, begins)
    columns = {
        "good": counts,
        "good_sum": _scattered(sums, some),
        "last_good": _scattered(value[ends - 1], some),
        "last_good_time": _scattered(time[ends - 1], some),
    }
    if spread:
        off = value - np.repeat(sums / n, n)
        columns |= {
            "low": _scattered(np.minimum.reduceat(value, begins), some),
            "high": _scattered(np.maximum.reduceat(value, begins), some),
            "variance": _scattered(np.add.reduceat(off * off, begins) / n, some),
            "middle": _scattered(_medians(value, begins, n), some),
            "good_values": _lists(value, np.where(rows.whole, 0, counts), np.repeat(~rows.whole, counts)),
        }
    return columns


def _scattered(found: NDArray[Any], some: NDArray[np.bool_]) -> Any:
    """What was found of some rows, as an array of all."""
    whole = np.zeros(len(some), found.dtype)
    whole[some] = found
    return pa.array(whole, mask=~some)


def _medians(value: Float64s, begins: NDArray[np.intp], n: Int64s) -> Float64s:
    found = np.empty(len(n))
    for size in np.unique(n).tolist():
        rows = np.flatnonzero(n == size)
        ordered = np.sort(value[begins[rows][:, None] + np.arange(size)], axis=1)
        low, high = ordered[:, (size - 1) // 2], ordered[:, size // 2]
        found[rows] = low + (high - low) / 2
    return found


def _lists(value: Float64s, lengths: Int64s, chosen: NDArray[np.bool_]) -> Any:
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(value[chosen]))


def _are_whole(channel: NDArray[np.int32], bucket: Int64s) -> NDArray[np.bool_]:
    """Whether a row is alone in its bin; of one channel, neither the first nor the last."""
    same = (channel[1:] == channel[:-1]) & (bucket[1:] == bucket[:-1])
    edge = np.full(min(1, len(channel)), bool(len(channel)) and channel[0] == channel[-1])
    whole: NDArray[np.bool_] = ~(np.append(same, edge) | np.append(edge, same))
    return whole


def _counts(chosen: NDArray[np.bool_], first: NDArray[np.intp], last: NDArray[np.intp]) -> Int64s:
    return last - first + 1 if chosen.all() else np.add.reduceat(chosen, first, dtype=np.int64)
