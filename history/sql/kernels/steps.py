"""Far or rare steps of a channel's values, decreases of counters, and changes of quality, found as samples are read.

What is far depends on all steps of a channel. To have DuckDB compare each with these takes 170 ns of CPU a sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from core.batch import Float64s, Int64s
from core.counters import wraps
from core.samples import Samples, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Channels, Columns, good_samples, good_values, joined
from history.sql.kernels.reference import rounding, usual

STEPS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("time", TIME),
        ("old_value", pa.float64()),  # of the sample before; of a step, of the good one before
        ("value", pa.float64()),
        ("old_status", pa.int32()),  # of the sample before
        ("status", pa.int32()),
        ("is_step", pa.bool_()),  # good, and another value than the good sample before
        ("is_jump", pa.bool_()),  # farther than by chance, and the step before was not
        ("steps", pa.int64()),  # of the channel
    ]
)


@dataclass(frozen=True, slots=True)
class Steps:
    """Changes of quality, and steps.

    All steps of a channel that has ``few`` at most; of the others the last one, and those that are larger than they are
    by chance, by a reference (kernels/reference.py).
    """

    few: int
    reference: tuple[int, int]  # µs
    false_alarms: float  # µs, of a channel: mean time between them

    def compute(self, samples: Samples) -> Columns:
        """The columns of STEPS, of all samples of some channels, by channel and time."""
        return joined([self._of_channel(samples.part(rows)) for rows in segments(samples.channel)])

    def _of_channel(self, samples: Samples) -> Columns:
        status = samples.status.view(np.int32)
        value, good = good_values(samples.value, status)
        time = samples.time
        if not good.all():
            time, value = time[good], value[good]
        steps = np.flatnonzero(value[1:] != value[:-1]) + 1
        far = np.abs(value[steps] - value[steps - 1]) > self._limit(time, value)
        place = np.flatnonzero(good)
        jumps = place[steps[1:][far[1:] & ~far[:-1]]]
        quality = np.minimum((status >> 30) & 3, 2)  # two numbers mean Bad
        listed = place[steps] if len(steps) <= self.few else np.append(jumps, place[steps[-1:]])
        rows = np.union1d(np.flatnonzero(quality[1:] != quality[:-1]) + 1, listed)
        old_value, is_step = samples.value[rows - 1], good[rows]
        at = np.searchsorted(place, rows[is_step])
        changed = (at > 0) & (value[at] != value[at - 1])
        is_step[is_step] = changed
        old_value[is_step] = value[at[changed] - 1]
        return {
            "channel_id": samples.channel[rows],
            "time": samples.time[rows],
            "old_value": old_value,
            "value": samples.value[rows],
            "old_status": status[rows - 1],
            "status": status[rows],
            "is_step": is_step,
            "is_jump": np.isin(rows, jumps),
            "steps": np.full(len(rows), len(steps)),
        }

    def _limit(self, time: Int64s, value: Float64s) -> float:
        """The size of steps that is exceeded once in ``false_alarms``. ``time``, ``value``: of good samples."""
        rows = slice(*np.searchsorted(time, self.reference).tolist())
        steps = np.diff(value[rows])
        if not len(steps):
            return np.inf
        distance = float(time[rows][-1] - time[rows][0]) / len(steps)
        return max(usual(steps, self.false_alarms / max(distance, 1.0)).limit, 2 * rounding(value[rows]))


DECREASES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("old_time", TIME),
        ("time", TIME),
        ("old_value", pa.float64()),
        ("value", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Decreases:
    """Samples of counters that are lower than the good one before."""

    channels: Channels

    def compute(self, samples: Samples) -> Columns:
        """The columns of DECREASES. ``samples``: all of some channels, by channel and time."""
        channel, time, value = good_samples(samples)
        position = self.channels.positions(channel[1:])
        lower = (channel[1:] == channel[:-1]) & (value[1:] < value[:-1])
        lower &= ~wraps(value[:-1], value[1:], self.channels.wraps[position])
        rows = np.flatnonzero(lower)
        return {
            "channel_id": channel[rows],
            "old_time": time[rows],
            "time": time[rows + 1],
            "old_value": value[rows],
            "value": value[rows + 1],
        }
