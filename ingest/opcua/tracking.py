"""What is known of each channel between notifications: its last time, where times come from, whether it is silent."""

from __future__ import annotations

from time import monotonic

import numpy as np
from numpy.typing import NDArray

from ingest.batch import ROUNDED, Event, Int64s, UInt32s, now_us
from ingest.opcua.data_change import DataChange
from ingest.opcua.tags import Tags

_ORIGINS = ("source", "server", "arrival")


class Tracking:
    """Columns over a source's tags, all of length n."""

    def __init__(self, tags: Tags, before: Tracking | None = None) -> None:
        """``before``: of the tags as they were; what it knows of channels that stay is taken over."""
        n, source = len(tags), tags.source
        self.tags = tags
        self._ids = tags.ids
        self.time: Int64s = np.zeros(n, np.int64)  # µs, of the last sample; 0: none since start
        self._origin = np.zeros(n, np.uint8)  # of the last sample's time, a place in _ORIGINS
        limits = [tag.stale_after or source.stale_after or np.inf for tag in source.tags]
        self._stale_after = np.array(limits, np.float64)  # s
        self.looks_for_stale = bool(np.isfinite(self._stale_after).any())
        self._seen = np.full(n, monotonic())  # s, monotonic
        self._stale = np.zeros(n, bool)
        self._rounded = np.zeros(n, bool)  # it was said that its integers are
        if before is not None:
            stay = np.flatnonzero(np.isin(tags.ids, before._ids))
            old = before.tags.places(tags.ids[stay].tolist())
            for mine, theirs in (
                (self.time, before.time),
                (self._origin, before._origin),
                (self._seen, before._seen),
                (self._stale, before._stale),
                (self._rounded, before._rounded),
            ):
                mine[stay] = theirs[old]

    def sampled(self, handle: UInt32s, time: Int64s) -> list[int]:
        """These came; returns the ids of channels that were stale until now."""
        self.time[handle] = time
        if not self.looks_for_stale:
            return []
        self._seen[handle] = monotonic()
        again = handle[self._stale[handle]]
        self._stale[again] = False
        return [int(i) for i in np.unique(self._ids[again])]

    def silent(self) -> list[tuple[int, int]]:
        """(channel id, since µs) of channels that became stale since the last call."""
        late = ~self._stale & (monotonic() - self._seen > self._stale_after)
        self._stale |= late
        now, seconds = now_us(), monotonic()
        return [
            (int(self._ids[i]), int(self.time[i]) or now - int((seconds - self._seen[i]) * 1e6))
            for i in np.flatnonzero(late)
        ]

    def origins(self, change: DataChange, handle: UInt32s) -> list[Event]:
        """Events of channels whose times come from elsewhere than before."""
        if not (change.server_time or change.arrival_time or self._origin.any()):
            return []
        origin = np.zeros(len(self._origin), np.uint8)
        for code, runs in ((1, change.server_time), (2, change.arrival_time)):
            for run in runs:
                origin[run[run < len(origin)]] = code
        came = np.unique(np.concatenate([handle, *change.server_time, *change.arrival_time]))
        came = came[came < len(origin)]
        changed: NDArray[np.uint32] = came[origin[came] != self._origin[came]]
        self._origin[changed] = origin[changed]
        return [
            Event("time_source", now_us(), int(self._ids[i]), text=_ORIGINS[self._origin[i]]) for i in changed.tolist()
        ]

    def rounded(self, change: DataChange) -> list[Event]:
        """An event for each channel whose integers are too large for a sample, once."""
        if not change.rounded:
            return []
        places = np.unique(np.concatenate(change.rounded))
        places = places[places < len(self._rounded)]
        fresh = places[~self._rounded[places]]
        self._rounded[fresh] = True
        return [Event("rounded", now_us(), int(self._ids[i]), detail=ROUNDED) for i in fresh.tolist()]


class Skew:
    """Whether a source's clock and ours differ, by what came in the last interval: one late message proves nothing."""

    def __init__(self, limit: float, interval: float = 10.0) -> None:
        self._limit = limit  # s
        self._interval = interval  # s
        self._until = monotonic() + interval
        self._least = {"server": np.inf, "source": np.inf}  # s, the smallest difference of either clock, with its sign
        self._skewed = {"server": False, "source": False}

    def seen(self, which: str, time: int, arrival: int) -> None:
        """A time (µs) that is at most a little older than ``arrival`` if clocks agree."""
        ahead = (time - arrival) / 1e6
        if abs(ahead) < abs(self._least[which]):
            self._least[which] = ahead

    def events(self) -> list[Event]:
        """What changed, once an interval."""
        if monotonic() < self._until:
            return []
        self._until = monotonic() + self._interval
        said = []
        for which, ahead in self._least.items():
            if not np.isfinite(ahead):
                continue
            skewed = abs(ahead) > self._limit
            if skewed != self._skewed[which]:
                self._skewed[which] = skewed
                detail = {"clock": which, "ahead_seconds": round(ahead, 3), "limit_seconds": self._limit}
                said.append(Event("clock_skew", now_us(), text="skewed" if skewed else "good", detail=detail))
        self._least = dict.fromkeys(self._least, np.inf)
        return said
