"""Intervals between samples of channels: pauses that are longer than usual, silences, and those without."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import pyarrow as pa

from core.batch import Int64s
from core.samples import Samples, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Columns, following

PAUSES = pa.struct(
    [("channel_id", pa.int32()), ("usual_seconds", pa.float64()), ("from_time", TIME), ("to_time", TIME)]
)
_MIN_DISTANCES = 20  # distances
_SHARE, _FACTOR = 0.9, 5
_ALIKE = 2  # times as long: distances of what is sampled regularly differ no more, but for a few


def pauses(samples: Samples) -> Columns:
    """Pauses of channels with enough distances, of samples by channel and time. The columns of PAUSES; times in µs."""
    channel, time = samples.channel, samples.time
    rows, usual = [np.empty(0, np.int64)], [np.empty(0)]
    for segment in segments(channel):
        distances = np.diff(time[segment])
        if len(distances) < _MIN_DISTANCES:
            continue
        seconds = _FACTOR * (_long(distances) / 1e6)
        rows.append(segment.start + np.append(np.flatnonzero(distances / 1e6 > seconds), len(distances)))
        usual.append(np.full(len(rows[-1]), seconds))
    rows_before_pauses = np.concatenate(rows)
    return {
        "channel_id": channel[rows_before_pauses],
        "usual_seconds": np.concatenate(usual),
        "from_time": time[rows_before_pauses],
        "to_time": following(channel, time)[rows_before_pauses],
    }


def silences(time: Int64s, end: int) -> Int64s:
    """Positions of samples after which a channel that is sampled regularly is silent, until the next one or the end.

    Most of its distances are alike, and it is silent for less than half of the time: else it reports changes.
    """
    distances, none = np.diff(time), np.empty(0, np.int64)
    if len(distances) < _MIN_DISTANCES:
        return none
    long = _long(distances)
    if 2 * np.count_nonzero(_ALIKE * distances < long) > len(distances):
        return none
    distances = np.append(distances, max(end - time[-1], 0))
    silent = distances > _FACTOR * long
    return np.flatnonzero(silent) if 2 * distances[silent].sum() < distances.sum() else none


def _long(distances: Int64s) -> int:
    """Distance that most others do not exceed."""
    rank = ceil(_SHARE * len(distances)) - 1
    return int(np.partition(distances, rank)[rank])


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

    def compute(self, samples: Samples) -> Columns:
        """The columns of INTERVALS, of samples by channel and time.

        An interval may have several rows, with parts of its samples.
        """
        channel, time, status = samples.channel, samples.time, samples.status.view(np.int32)
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
