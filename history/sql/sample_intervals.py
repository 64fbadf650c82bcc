"""Intervals without pauses of channels, with counts of samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from history.archive.sample_file import TIME
from history.sql.columns import Columns

INTERVALS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("samples", pa.int64()),
        ("not_bad", pa.int64()),
        ("first_time", TIME),
        ("last_time", TIME),
    ]
)


@dataclass(frozen=True, slots=True)
class SampleIntervals:
    """Intervals that end where no sample comes for ``pause`` (µs) or longer."""

    pause: int

    def of(self, samples: Columns) -> Columns:
        """The columns of INTERVALS, of samples by channel and time.

        An interval may have several rows, with parts of its samples.
        """
        channel, time, status = samples["channel_id"], samples["time"], samples["status"].view(np.int32)
        ends = np.flatnonzero((time[1:] - time[:-1] >= self.pause) | (channel[1:] != channel[:-1]))
        first, last = np.append(0, ends + 1)[: len(time)], np.append(ends, len(time) - 1)[: len(time)]
        n, good = last - first + 1, status >= 0
        return {
            "channel_id": channel[first],
            "samples": n,
            "not_bad": n if good.all() else np.add.reduceat(good, first, dtype=np.int64),
            "first_time": time[first],
            "last_time": time[last],
        }
