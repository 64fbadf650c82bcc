"""Channels on a common time grid, for comparison.

To have DuckDB hold values until the next one takes 400 ns of CPU a bucket; here it takes 20.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Int64s
from core.errors import OperationError
from core.samples import Samples, changes, segments
from history.archive.sample_file import rows_of
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Channels, Columns, count_up, following, known_samples, of_rows
from history.sql.kernels.intervals import silences

_MIN_LOOKUP = 32  # samples of a bucket: to look up where it begins takes less time than to compute the bucket of each
MEANS = pa.struct([("channel_id", pa.int32()), ("time", TIME), ("value", pa.float64())])


def require_length(name: str, us: int) -> None:
    """Raise OperationError if buckets or bins have no length."""
    if us <= 0:
        raise OperationError(f"--{name}: found {us} µs; legal: more than 0")


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Buckets from ``since`` on. One without samples has the last value before it, but not within a gap.

    Nor has it one behind a Bad sample, nor within a silence of a channel that is sampled regularly, if its silences are
    no recorded gaps.
    """

    channels: Channels
    since: int  # µs
    step: int  # µs

    def __post_init__(self) -> None:
        """Check the length of a bucket. Raises OperationError."""
        require_length("step", self.step)

    def numbers(self, samples: Samples) -> Columns:
        """``channel_id``, ``number`` (of the bucket, from 0) and ``value``, by channel and bucket.

        ``samples``: all samples of some channels, by channel and time; those before since are held, too.
        """
        channels, time, value, known_until = known_samples(samples)
        first = self._first_rows(channels, time)
        last = np.append(first, len(time))[1:] - 1
        channel, number, last_value = channels[first], self._number(time[first]), value[last]
        mean = np.add.reduceat(value, first) / (last - first + 1) if len(first) < len(time) else value
        ends = self.channels.ends[self.channels.positions(channel)]
        ends = np.minimum(ends, of_rows(known_until, last))
        until = np.minimum(following(channel, number), self._first_from(ends))
        lengths = np.maximum(until - number, 1)
        if lengths.sum() == len(lengths):  # nothing is held: each bucket has samples
            kept = number >= 0
            return {"channel_id": channel[kept], "number": number[kept], "value": mean[kept]}
        lengths[np.isin(last, self._before_silences(channels, time, channel[lengths > 1]))] = 1
        row = np.repeat(np.arange(len(number)), lengths)
        carried = count_up(lengths)
        channel, number = channel[row], number[row] + carried
        kept = (number >= 0) & ((carried == 0) | ~self._within_gaps(channel, number))
        value = np.where(carried == 0, mean[row], last_value[row])
        return {"channel_id": channel[kept], "number": number[kept], "value": value[kept]}

    def compute(self, samples: Samples) -> Columns:
        """The columns of MEANS of some channels."""
        buckets = self.numbers(samples)
        time = self.since + buckets["number"] * self.step
        return {"channel_id": buckets["channel_id"], "time": time, "value": buckets["value"]}

    def whole(self, within: tuple[int, int]) -> tuple[int, int]:
        """First bucket that lies within an interval (µs) as a whole, and the one behind the last."""
        since, until = within
        return -((self.since - since) // self.step), (until - self.since) // self.step

    def _number(self, time: Int64s) -> Int64s:
        """Number of the bucket; -1: it is before the first one."""
        return np.maximum((time - self.since) // self.step, -1)

    def _first_rows(self, channel: NDArray[np.int32], time: Int64s) -> Int64s:
        """The first row of each bucket of each channel."""
        if (
            len(time)
            and channel[0] == channel[-1]
            and (n := int(self._number(time[-1])) + 1) < len(time) // _MIN_LOOKUP
        ):
            begins = np.searchsorted(time, self.since + self.step * np.arange(n))
            return np.append(0, begins[np.diff(begins, prepend=0) > 0])
        number = self._number(time)
        return np.flatnonzero(changes(channel) | changes(number))

    def _first_from(self, time: Int64s) -> Int64s:
        """The first bucket that begins at a time or later."""
        return -((self.since - time) // self.step)

    def _before_silences(self, channel: NDArray[np.int32], time: Int64s, held: NDArray[np.int32]) -> Int64s:
        """Rows of the last samples before silences, of channels of which a value is ``held``."""
        rows = [np.empty(0, np.int64)]
        numbers = np.unique(held)
        places = self.channels.positions(numbers)
        pushed, ends = self.channels.pushed[places], self.channels.ends[places]
        for number, end in zip(numbers[pushed].tolist(), ends[pushed].tolist(), strict=True):
            of_channel = rows_of(channel, number)
            rows.append(of_channel.start + silences(time[of_channel], end))
        return np.concatenate(rows)

    def _within_gaps(self, channel: NDArray[np.int32], number: Int64s) -> NDArray[np.bool_]:
        within = np.zeros(len(channel), np.bool_)
        if len(self.channels.gaps):
            for rows in segments(channel):
                begins, ends = self.channels.gaps_of(int(channel[rows.start])).T
                buckets = np.column_stack([self._first_from(begins), (ends - self.since) // self.step])
                for begin, end in np.searchsorted(number[rows], buckets).tolist():
                    within[rows][begin:end] = True
        return within
