"""Values of channels at certain times (Interpolative, OPC 10000-13, 5.4.3.4), and the samples before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Int64s
from core.samples import Samples, segments
from history.codec.row_groups import TIME
from history.sql.kernels.aggregates import NO_DATA, SUBNORMAL
from history.sql.kernels.columns import NEVER, Columns
from history.sql.kernels.courses import BAD, EARLY, HOLD, Courses, Points, courses

VALUES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("time", TIME),
        ("value", pa.float64()),  # NaN: it has none
        ("status", pa.int32()),
        *(
            (f"{side}_{name}", kind)
            for side in ("before", "after")
            for name, kind in (("time", TIME), ("value", pa.float64()), ("status", pa.int32()))
        ),
    ]
)
_INTERPOLATED = 0x402  # bits of a data value


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """Values at times within a window. The status of a sample is its own; other values have the bit Interpolated.

    ``before`` and ``after`` are the last sample before a time and the first one after it, at most 24 hours away, of
    those that values come from: with simple bounds also Bad ones.
    """

    courses: Courses
    times: Int64s  # µs, ascending

    def compute(self, samples: Samples) -> Columns:
        """The columns of VALUES. ``samples``: all samples in the window of some channels, by channel and time."""
        channel = samples.channel
        return self.of_channels([int(channel[rows.start]) for rows in segments(channel)], samples)

    def of_channels(self, ids: Sequence[int], samples: Samples) -> Columns:
        """Columns of VALUES for these channels, ascending, whether they have samples or not."""
        points = self.courses.points(ids, samples)
        time = np.tile(self.times, len(ids))
        key = self._key(np.repeat(np.arange(len(ids)), len(self.times)), time)
        value, status = np.full(len(key), np.nan), np.full(len(key), NO_DATA)
        configuration = self.courses.configuration
        for course in courses(points, configuration, self.courses.window, all_stepped=False):
            line = np.searchsorted(self._key(course.position, course.at), key, "right") - 1
            # The keys of channels are so far apart that another channel's line has ended before.
            ends = np.append(self._key(course.position, course.ends), EARLY)  # of the line -1, which there is not
            here = np.flatnonzero(key < ends[line])
            line, at = line[here], time[here]
            rise = (course.last[line] - course.first[line]) / (course.ends[line] - course.at[line])
            value[here] = course.first[line] + rise * (at - course.at[line])
            calculated = np.where(at < course.good_until[line], 0, SUBNORMAL) | _INTERPOLATED
            status[here] = np.where(at == course.at[line], course.status[line].view(np.uint32), calculated)
        columns: Columns = {
            "channel_id": np.repeat(np.array(ids, np.int32), len(self.times)),
            "time": time,
            "value": value,
            "status": status.astype(np.uint32).view(np.int32),
        }
        worst = BAD if configuration.simple_bounds else configuration.worst
        rows = np.flatnonzero(points.quality <= worst)
        sample_keys = self._key(points.position[rows], points.time[rows])
        columns |= self._samples("before", points, rows, np.searchsorted(sample_keys, key, "left") - 1, key)
        columns |= self._samples("after", points, rows, np.searchsorted(sample_keys, key, "right"), key)
        return columns

    def _samples(
        self, side: str, points: Points, rows: NDArray[np.intp], nearest: NDArray[np.intp], key: Int64s
    ) -> Columns:
        """Time, value and status of samples; time is NEVER where there is none of the channel that is near enough."""
        there = np.flatnonzero((nearest >= 0) & (nearest < len(rows)))
        row = rows[nearest[there]]
        near = np.abs(self._key(points.position[row], points.time[row]) - key[there]) <= HOLD
        there, row = there[near], row[near]
        time, value, status = np.full(len(key), NEVER), np.full(len(key), np.nan), np.zeros(len(key), np.int32)
        time[there], value[there], status[there] = points.time[row], points.value[row], points.status[row]
        return {f"{side}_time": time, f"{side}_value": value, f"{side}_status": status}

    def _key(self, position: Int64s, time: Int64s) -> Int64s:
        """Number by channel and time."""
        since, until = self.courses.window
        return position * (until - since + 8 * HOLD) + (time - since + 3 * HOLD)
