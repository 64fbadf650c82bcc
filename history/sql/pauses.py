"""Distances of samples that are longer than usual, and the end of the samples: as ``plant.pauses``."""

from __future__ import annotations

from math import ceil

import numpy as np
import pyarrow as pa

from history.archive.sample_file import TIME, segments
from history.sql.columns import Columns, following

PAUSES = pa.struct(
    [("channel_id", pa.int32()), ("usual_seconds", pa.float64()), ("from_time", TIME), ("to_time", TIME)]
)
_LEAST = 20  # distances
_SHARE, _FACTOR = 0.9, 5


def pauses(samples: Columns) -> Columns:
    """Pauses of channels with enough distances, of samples by channel and time. The columns of PAUSES; times in µs."""
    channel, time = samples["channel_id"], samples["time"]
    rows, usual = [np.empty(0, np.int64)], [np.empty(0)]
    for one in segments(channel):
        distances = np.diff(time[one])
        if len(distances) < _LEAST:
            continue
        place = ceil(_SHARE * len(distances)) - 1
        seconds = _FACTOR * (np.partition(distances, place)[place] / 1e6)
        rows.append(one.start + np.append(np.flatnonzero(distances / 1e6 > seconds), len(distances)))
        usual.append(np.full(len(rows[-1]), seconds))
    place_of = np.concatenate(rows)
    return {
        "channel_id": channel[place_of],
        "usual_seconds": np.concatenate(usual),
        "from_time": time[place_of],
        "to_time": following(channel, time)[place_of],
    }
