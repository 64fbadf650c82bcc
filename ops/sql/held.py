"""What a channel's values were like while they were held: each until the next one, or until a gap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ingest.batch import Float64s, Int64s
from ops.sql.columns import Columns, good_values

HELD = pa.struct([("mean", pa.float64()), ("spread", pa.float64())])
_NEVER = np.iinfo(np.int64).max


def held_statistics(found: Columns, bounds: tuple[int, int], gaps: Int64s, counter: bool) -> dict[str, float] | None:
    """Mean and standard deviation by time of what was held between the bounds (µs); None: nothing was.

    ``found``: a channel's samples until the second bound, and the one before the first one. ``gaps``: where gaps begin,
    ascending. ``counter``: the rate between two samples counts, and not the value.
    """
    value, good = good_values(found["value"].view(np.float64), found["status"].view(np.int32))
    time, value = found["time"][good], value[good]
    following = np.append(time[1:], _NEVER)[: len(time)]
    gap = np.append(gaps, _NEVER)[np.searchsorted(gaps, time)]
    seconds = (np.minimum(np.minimum(following, gap), bounds[1]) - np.maximum(time, bounds[0])) / 1e6
    held = seconds > 0
    if counter:
        held &= (following < _NEVER) & (gap >= following)
    if not held.any():
        return None
    level, seconds = (_rates(time, value) if counter else value)[held], seconds[held]
    mean = (level @ seconds) / seconds.sum()
    off = level - mean
    return {"mean": float(mean), "spread": float(np.sqrt((off * off) @ seconds / seconds.sum()))}


def _rates(time: Int64s, value: Float64s) -> Any:
    """Per second, until the next sample; of the last one, anything."""
    return np.append(np.diff(value) / (np.diff(time) / 1e6), 0.0)[: len(time)]
