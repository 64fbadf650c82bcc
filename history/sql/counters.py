"""Counters: where they run backwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from core.counters import wraps
from history.archive.sample_file import TIME
from history.sql.channels import Channels
from history.sql.columns import Columns, good_samples

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

    def of(self, samples: Columns) -> Columns:
        """The columns of DECREASES. ``samples``: all of some channels, by channel and time."""
        channel, time, value = good_samples(samples)
        place = self.channels.places(channel[1:])
        lower = (channel[1:] == channel[:-1]) & (value[1:] < value[:-1])
        lower &= ~wraps(value[:-1], value[1:], self.channels.wraps[place])
        rows = np.flatnonzero(lower)
        return {
            "channel_id": channel[rows],
            "old_time": time[rows],
            "time": time[rows + 1],
            "old_value": value[rows],
            "value": value[rows + 1],
        }
