"""State of each channel between notifications: last time, origin of times, staleness."""

from __future__ import annotations

from time import monotonic

import numpy as np
from numpy.typing import NDArray

from core.batch import ROUNDED_DETAIL, Event, Int64s, UInt32s
from core.timestamps import now_us
from ingest.opcua.decode.decoded import DataChange
from ingest.opcua.subscription.repeated_timestamps import RepeatedTimestamps
from ingest.opcua.subscription.source_times import clock_skew
from ingest.opcua.subscription.tags import Tags
from ingest.opcua.subscription.unchanged import Unchanged

_MIN_INTERVALS = 3  # consecutive intervals with samples in which a channel's clock must be off
_ORIGINS = ("source", "server", "arrival", "change")


class ChannelTracking:
    """Columns over a source's tags, all of length n."""

    def __init__(self, tags: Tags, before: ChannelTracking | None = None) -> None:
        """``before``: of the previous tags; its state of remaining channels is kept."""
        n, source = len(tags), tags.source
        self.tags = tags
        self._ids = tags.ids
        self.time: Int64s = np.zeros(n, np.int64)  # µs, last sample; 0: none since the start
        self._origin = np.zeros(n, np.uint8)  # origin of the last sample's time, index into _ORIGINS
        limits = [tag.stale_after or source.stale_after or np.inf for tag in source.tags]
        self._stale_after = np.array(limits, np.float64)  # s
        self.looks_for_stale = bool(np.isfinite(self._stale_after).any())
        self._seen = np.full(n, monotonic())  # s, monotonic
        self._stale = np.zeros(n, bool)
        self.repeated = RepeatedTimestamps(tags)
        self.unchanged = Unchanged(n)
        self._rounded = np.zeros(n, bool)  # rounding was recorded
        self.floor: Int64s = np.zeros(n + 1, np.int64)  # µs, see clamp_times; the last one is for unknown handles
        self._ahead = np.full(n, np.inf)  # s, minimum of (arrival - time) of new samples in this interval
        self._off = np.zeros(n, np.uint8)  # consecutive intervals beyond the limit
        self._skewed = np.zeros(n, bool)
        self._clamped: dict[int, tuple[int, int]] = {}  # channel id → original and clamped time of the last value, µs
        if before is not None:
            self._clamped = before._clamped
            stay = np.flatnonzero(np.isin(tags.ids, before._ids))
            old = before.tags.places(tags.ids[stay].tolist())
            self.unchanged.keep(stay, before.unchanged, old)
            self.repeated.keep(stay, before.repeated, old)
            for mine, theirs in (
                (self.time, before.time),
                (self._origin, before._origin),
                (self._seen, before._seen),
                (self._stale, before._stale),
                (self._rounded, before._rounded),
                (self._off, before._off),
                (self._skewed, before._skewed),
                (self.floor, before.floor),
            ):
                mine[stay] = theirs[old]

    def last(self, channel: int) -> int:
        """Time (µs) of a channel's last sample; 0: none since the start, or unknown channel."""
        place = self.tags.place(channel)
        return 0 if place is None else int(self.time[place])

    def clamp_times(self, change: DataChange) -> dict[int, int]:
        """Clamp times before the last change of a channel's definition to the time of the change.

        The first value of a monitored item may be old, from when the channel belonged to another node. Of several
        (its clock is behind) each is one microsecond later than the previous one, so that none replaces another.
        Ends with the first newer value. Returns the floors (channel id → µs) that were reached.
        """
        reached: dict[int, int] = {}
        if not self.floor.any():
            return reached

        def clamped(place: int, time: int) -> int:
            floor = int(self.floor[place])
            if time < floor:
                change.clamped.append((place, time))
                channel = int(self._ids[place])
                source_time, clamped_time = self._clamped.get(channel, (time, 0))
                if clamped_time < floor:
                    source_time, clamped_time = time, floor
                elif time > source_time:
                    source_time, clamped_time = time, clamped_time + 1
                self._clamped[channel] = source_time, clamped_time
                return clamped_time
            if floor:
                reached[int(self._ids[place])] = floor
                self.floor[place] = 0
            return time

        for run, (places, time) in enumerate(zip(change.handle, change.time, strict=True)):
            if len(waiting := np.flatnonzero(self.floor[places])):
                change.time[run] = time.copy()
                change.time[run][waiting] = [clamped(int(places[k]), int(time[k])) for k in waiting]
        for text in change.texts:
            text.time = clamped(text.handle, text.time)
        return reached

    def observe_clocks(self, place: UInt32s, time: Int64s, arrival: int) -> None:
        """Observe the clock of each new sample; call before :meth:`record_samples`.

        First values and repeated ones may be of any age and are ignored.
        """
        last = self.time[place]
        fresh = (last > 0) & (time > last)
        place, ahead = place[fresh], (time[fresh] - arrival) / 1e6
        closer = np.abs(ahead) < np.abs(self._ahead[place])
        self._ahead[place[closer]] = ahead[closer]

    def clocks(self, limit: float, of_source: float) -> list[Event]:
        """Events for channels whose clock, in the last interval, began or ceased to differ from the source's.

        A single late value proves nothing (a queue emptied after an outage), so several intervals are needed.
        """
        observed = np.isfinite(self._ahead)
        off = observed & (np.abs(self._ahead - of_source) > limit)
        self._off[observed & ~off] = 0
        self._off[off] = np.minimum(self._off[off] + 1, _MIN_INTERVALS)
        changed = (
            observed
            & ((self._off >= _MIN_INTERVALS) != self._skewed)
            & ((self._off == 0) | (self._off >= _MIN_INTERVALS))
        )
        self._skewed[changed] = ~self._skewed[changed]
        events = [
            clock_skew(bool(self._skewed[i]), "channel", float(self._ahead[i]), limit, int(self._ids[i]))
            for i in np.flatnonzero(changed).tolist()
        ]
        self._ahead.fill(np.inf)
        return events

    def record_samples(self, handle: UInt32s, time: Int64s) -> list[int]:
        """Record samples; returns the ids of channels that are no longer stale."""
        self.time[handle] = time
        if not self.looks_for_stale:
            return []
        self._seen[handle] = monotonic()
        again = handle[self._stale[handle]]
        self._stale[again] = False
        return [int(i) for i in np.unique(self._ids[again])]

    def exclude(self, seconds: float) -> None:
        """Exclude time in which this process did not run from the silence of channels."""
        self._seen += seconds

    def newly_stale(self) -> list[tuple[int, int]]:
        """(channel id, since µs) of channels that became stale."""
        late = ~self._stale & (monotonic() - self._seen > self._stale_after)
        self._stale |= late
        now, seconds = now_us(), monotonic()
        return [
            (int(self._ids[i]), int(self.time[i]) or now - int((seconds - self._seen[i]) * 1e6))
            for i in np.flatnonzero(late)
        ]

    def origins(self, change: DataChange, handle: UInt32s) -> list[Event]:
        """Events for changed origins of times, and for clamped times."""
        repeats = self.repeated.repeats
        if not (change.server_time or change.arrival_time or change.clamped or self._origin.any() or repeats.any()):
            return []
        origin = repeats.astype(np.uint8)
        for code, runs in ((1, change.server_time), (2, change.arrival_time)):
            for run in runs:
                origin[run[run < len(origin)]] = code
        origin[[place for place, _ in change.clamped]] = 3
        came = np.unique(np.concatenate([handle, *change.server_time, *change.arrival_time]))
        came = came[came < len(origin)]
        changed: NDArray[np.uint32] = came[origin[came] != self._origin[came]]
        self._origin[changed] = origin[changed]
        changes = [(i, {"source_time": time}) for i, time in change.clamped]
        changes += [(i, {}) for i in changed[origin[changed] != 3].tolist()]
        return [
            Event("time_source", now_us(), int(self._ids[i]), None, _ORIGINS[origin[i]], detail)
            for i, detail in changes
        ]

    def rounded(self, change: DataChange) -> list[Event]:
        """An event, once per channel, for integers too large for a sample."""
        if not change.rounded:
            return []
        places = np.unique(np.concatenate(change.rounded))
        places = places[places < len(self._rounded)]
        fresh = places[~self._rounded[places]]
        self._rounded[fresh] = True
        return [Event("rounded", now_us(), int(self._ids[i]), detail=ROUNDED_DETAIL) for i in fresh.tolist()]
