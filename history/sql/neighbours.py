"""Samples around a window that say what the values in it are: the last ones before it, and the first one after it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from core.samples import segments
from history.sql.columns import Columns, joined, part
from history.sql.courses import HOLD, Configuration, qualities

# What a function makes of samples of channels (ids) within bounds (µs): it is given those of some channels at a time.
Read: TypeAlias = Callable[[Collection[int], tuple[int, int], Callable[[Columns], Columns]], Iterable[Columns]]
_NEAR = (60_000_000, 3_600_000_000)  # µs: most channels have samples nearby

NO_SAMPLES: Columns = {
    "channel_id": np.empty(0, np.int32),
    "time": np.empty(0, np.int64),
    "value": np.empty(0, np.uint64),
    "status": np.empty(0, np.uint32),
}


@dataclass(frozen=True, slots=True)
class Nearest:
    """Samples from the window up to the nearest whose quality suffices, on one side of it."""

    worst: int  # quality that suffices
    later: bool  # after the window, else before it
    n: int  # so many of them

    def of(self, samples: Columns) -> Columns:
        """Those of some channels, by channel and time. Of a channel without such a quality, the nearest one."""
        suffices = qualities(samples) <= self.worst
        kept = np.zeros(len(suffices), np.bool_)
        for rows in segments(samples["channel_id"]):
            enough = np.flatnonzero(suffices[rows])
            if self.later:
                kept[rows][: 1 + (enough[self.n - 1] if len(enough) >= self.n else 0)] = True
            else:
                kept[rows][enough[-min(self.n, len(enough))] if len(enough) else -1 :] = True
        return part(samples, kept)

    def complete(self, samples: Columns) -> frozenset[int]:
        """Channels of which there are enough. ``samples``: of :meth:`of`."""
        channel, n = np.unique(samples["channel_id"][qualities(samples) <= self.worst], return_counts=True)
        return frozenset(channel[n >= self.n].tolist())


def neighbours(read: Read, ids: Collection[int], window: tuple[int, int], configuration: Configuration) -> Columns:
    """Samples of channels around a window (µs) that values in it depend on, by channel and time."""
    since, until = window
    n = 2 if configuration.use_sloped_extrapolation else 1
    before, after = Nearest(configuration.worst, False, n), Nearest(configuration.worst, True, 1)
    found = [NO_SAMPLES]
    for nearest, farthest in ((before, n * HOLD), (after, HOLD)):
        missing = frozenset(ids)
        for distance in (*_NEAR, farthest):
            within = (until, until + distance) if nearest.later else (since - distance, since)
            some = joined([NO_SAMPLES, *read(missing, within, nearest.of)])
            enough = missing if distance == farthest else nearest.complete(some)
            found.append(part(some, np.isin(some["channel_id"], [*enough])))
            if not (missing := missing - enough):
                break
    whole = joined(found)
    return part(whole, np.lexsort((whole["time"], whole["channel_id"])))
