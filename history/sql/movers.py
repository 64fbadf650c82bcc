"""The first moves of channels: means of buckets that are far from what was usual before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from core.batch import Float64s
from core.counters import increases
from history.archive.sample_file import TIME, segments
from history.sql.columns import Columns, good_samples
from history.sql.resampled import Grid

MOVES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("time", TIME),
        ("mean", pa.float64()),  # what was usual
        ("value", pa.float64()),
        ("times", pa.float64()),  # of the limit, at most, in three buckets
    ]
)
_LEAST = 10  # buckets before, for something to be usual


@dataclass(frozen=True, slots=True, eq=False)
class Movers:
    """First bucket from ``since`` on that is beyond a limit, as is one of the two after it."""

    grid: Grid
    spans: Mapping[int, float]  # of the ranges of channels that have one
    since: int  # µs
    sigmas: float

    def of(self, samples: Columns) -> Columns:
        """The columns of MOVES. ``samples``: all samples of some channels, by channel and time."""
        means = self.grid.numbers(self._continued(samples))
        time = self.grid.since + means["number"] * self.grid.step
        moves = [
            self._move(int(means["channel_id"][rows.start]), time[rows], means["value"][rows])
            for rows in segments(means["channel_id"])
        ]
        columns = list(zip(*(one for one in moves if one is not None), strict=True)) or [()] * len(MOVES)
        kinds = (np.int32, np.int64, np.float64, np.float64, np.float64)
        return {of.name: np.array(one, kind) for of, one, kind in zip(MOVES, columns, kinds, strict=True)}

    def _continued(self, samples: Columns) -> Columns:
        """The good samples, of counters as if they had never wrapped or been reset."""
        channels = self.grid.channels
        if not channels.counters.any():
            return samples
        channel, time, value = good_samples(samples)
        value = value.copy()
        for rows in segments(channel):
            if channels.is_counter(int(channel[rows.start])):
                before, after = value[rows][:-1], value[rows][1:]
                wraps_at = channels.wraps[channels.places(channel[rows.start : rows.start + 1])]
                value[rows][1:] += np.cumsum(increases(before, after, wraps_at) - (after - before))
        status = np.zeros(len(channel), np.uint32)
        return {"channel_id": channel, "time": time, "value": value.view(np.uint64), "status": status}

    def _move(self, channel: int, time: Any, value: Float64s) -> tuple[int, int, float, float, float] | None:
        """A row of MOVES; None: the channel does not move."""
        n = int(np.searchsorted(time, self.since))
        if n < _LEAST:
            return None
        usual, change = value[:n], np.diff(value)
        before, mean = change[: n - 1], float(usual.mean())
        # Less than a thousandth of the range is no move.
        floor = max(self.spans.get(channel, abs(mean)) * 1e-3, 1e-9)
        limit = np.inf  # of a counter only steps matter
        if not self.grid.channels.is_counter(channel):
            limit = max(self.sigmas * usual.std(), 1.5 * (usual.max() - mean), 1.5 * (mean - usual.min()), floor)
        change_limit = max(self.sigmas * before.std(), 1.5 * np.abs(before).max(), floor)
        far = np.maximum(np.abs(value[n:] - mean) / limit, np.abs(change[n - 1 :]) / change_limit)
        beyond = np.append(far > 1, [False, False])
        onsets = np.flatnonzero(beyond[:-2] & (beyond[1:-1] | beyond[2:]))
        if not len(onsets):
            return None
        first = int(onsets[0])
        return channel, int(time[n + first]), mean, float(value[n + first]), float(far[first : first + 3].max())
