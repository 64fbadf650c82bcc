"""Values that channels hold, as set points and states do, and the ramps between them, found as samples are read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from core.batch import Float64s, Int64s
from core.samples import Samples, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Columns, columns_of, good_samples, joined

HELD_VALUES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("time", TIME),  # when the change to it began
        ("ended", TIME),  # when it was reached
        ("old_value", pa.float64()),  # NaN: the channel's first one
        ("value", pa.float64()),
        ("is_held", pa.bool_()),  # whether the channel holds its values; else it has one row
    ]
)
_LEAST_SHORT = 3  # values that were held for a short time: fewer were set for a moment, and set back
_SHORT_SHARE = 1 / 4  # of the values of a channel that moves


@dataclass(frozen=True, slots=True)
class HeldValues:
    """Values of channels that hold them.

    Steps in one direction that are less than ``settle`` apart are a ramp, one change. A channel does not hold its
    values if they were held for less than ``hold`` on average, or a quarter of them for less than ``settle``: it moves
    continually while it is not at rest.
    """

    has_ramps: bool  # else each step is a change
    settle: int  # µs
    hold: int  # µs
    until: int  # µs

    def compute(self, samples: Samples) -> Columns:
        """The columns of HELD_VALUES, of all samples of some channels, by channel and time."""
        channel, time, value = good_samples(samples)
        parts = [self._of_channel(int(channel[rows.start]), time[rows], value[rows]) for rows in segments(channel)]
        return joined([columns_of(HELD_VALUES), *parts])

    def _of_channel(self, channel: int, time: Int64s, value: Float64s) -> Columns:
        steps = np.flatnonzero(value[1:] != value[:-1]) + 1
        at, is_up = time[steps], value[steps] > value[steps - 1]
        goes_on = np.zeros(len(steps), np.bool_)
        if self.has_ramps:
            goes_on[1:] = (is_up[1:] == is_up[:-1]) & (np.diff(at) < self.settle)
        begins = np.flatnonzero(~goes_on)
        ends = np.append(begins[1:], len(steps))[: len(begins)] - 1
        began, ended = np.append(time[0], at[begins]), np.append(time[0], at[ends])
        # Nobody knows how long the first one was held, nor how long the last one will be.
        short = np.count_nonzero(began[2:] - ended[1:-1] < self.settle)
        moves = short >= max(_LEAST_SHORT, _SHORT_SHARE * len(began))
        is_held = len(began) == 1 or (not moves and (self.until - time[0]) / len(began) >= self.hold)
        values = np.append(value[0], value[steps[ends]])
        old = np.append(np.nan, values[:-1])
        n = len(began) if is_held else 1
        return {
            "channel_id": np.full(n, channel, np.int32),
            "time": began[:n],
            "ended": ended[:n],
            "old_value": old[:n],
            "value": values[:n],
            "is_held": np.full(n, is_held),
        }
