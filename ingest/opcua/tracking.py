"""What is known of each channel between notifications: its last time, where times come from, whether it is silent."""

from __future__ import annotations

from time import monotonic

import numpy as np
from numpy.typing import NDArray

from ingest.batch import ROUNDED, Event, Int64s, UInt32s, now_us
from ingest.opcua.data_change import DataChange
from ingest.opcua.standing import Standing
from ingest.opcua.tags import Tags

_ROUNDS = 3  # of intervals with samples, one after another, in which a channel's clock must be off
_ORIGINS = ("source", "server", "arrival", "change")


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
        self.standing = Standing(tags)  # begins anew with each configuration: it only spares the database work
        self._rounded = np.zeros(n, bool)  # it was said that its integers are
        self.floor: Int64s = np.zeros(n + 1, np.int64)  # µs, see :meth:`lift`; the last place is of handles beyond
        self._ahead = np.full(n, np.inf)  # s, of times before their arrival: the least of new samples in this interval
        self._off = np.zeros(n, np.uint8)  # intervals in which it was beyond the limit, until one in which it was not
        self._skewed = np.zeros(n, bool)
        self._lifted: dict[int, tuple[int, int]] = {}  # channel id → the last value's own time and the one given, µs
        if before is not None:
            self._lifted = before._lifted
            stay = np.flatnonzero(np.isin(tags.ids, before._ids))
            old = before.tags.places(tags.ids[stay].tolist())
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
        """µs, of a channel's last sample; 0: none since start, or no tag of ours."""
        place = self.tags.place(channel)
        return 0 if place is None else int(self.time[place])

    def lift(self, change: DataChange) -> dict[int, int]:
        """Give values the time of the change of their channel's meaning where they are older.

        The first value of a monitored item may be of long ago; by that time the channel was another node's. Of several
        (its clock is behind) each is a microsecond later than the one before, so that none takes the place of another.
        The first that is not older ends that. Returns the floors (channel id → µs) that were reached.
        """
        reached: dict[int, int] = {}
        if not self.floor.any():
            return reached

        def lifted(place: int, time: int) -> int:
            floor = int(self.floor[place])
            if time < floor:
                change.lifted.append((place, time))
                channel = int(self._ids[place])
                own, given = self._lifted.get(channel, (time, 0))
                if given < floor:
                    own, given = time, floor
                elif time > own:
                    own, given = time, given + 1
                self._lifted[channel] = own, given
                return given
            if floor:
                reached[int(self._ids[place])] = floor
                self.floor[place] = 0
            return time

        for run, (places, time) in enumerate(zip(change.handle, change.time, strict=True)):
            if len(waiting := np.flatnonzero(self.floor[places])):
                change.time[run] = time.copy()
                change.time[run][waiting] = [lifted(int(places[k]), int(time[k])) for k in waiting]
        for text in change.texts:
            text.time = lifted(text.handle, text.time)
        return reached

    def timed(self, place: UInt32s, time: Int64s, arrival: int) -> None:
        """Look at the clock of each sample that is new; call before :meth:`sampled`.

        A first value may be as old as it likes, and so may one that is sent again.
        """
        last = self.time[place]
        fresh = (last > 0) & (time > last)
        place, ahead = place[fresh], (time[fresh] - arrival) / 1e6
        closer = np.abs(ahead) < np.abs(self._ahead[place])
        self._ahead[place[closer]] = ahead[closer]

    def clocks(self, limit: float, of_source: float) -> list[Event]:
        """At the end of an interval: channels whose clock became another one than the source's, or is that again.

        What came late once (a queue was emptied after an outage) is no sign; so it has to be seen in some intervals.
        """
        had = np.isfinite(self._ahead)
        off = had & (np.abs(self._ahead - of_source) > limit)
        self._off[had & ~off] = 0
        self._off[off] = np.minimum(self._off[off] + 1, _ROUNDS)
        changed = had & ((self._off >= _ROUNDS) != self._skewed) & ((self._off == 0) | (self._off >= _ROUNDS))
        self._skewed[changed] = ~self._skewed[changed]
        events = [
            _clock_skew(bool(self._skewed[i]), "channel", float(self._ahead[i]), limit, int(self._ids[i]))
            for i in np.flatnonzero(changed).tolist()
        ]
        self._ahead.fill(np.inf)
        return events

    def sampled(self, handle: UInt32s, time: Int64s) -> list[int]:
        """These came; returns the ids of channels that were stale until now."""
        self.time[handle] = time
        if not self.looks_for_stale:
            return []
        self._seen[handle] = monotonic()
        again = handle[self._stale[handle]]
        self._stale[again] = False
        return [int(i) for i in np.unique(self._ids[again])]

    def slept(self, seconds: float) -> None:
        """For so long this process did not run: that was no silence of the channels."""
        self._seen += seconds

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
        """Events of channels whose times come from elsewhere than before, and of each time that was replaced."""
        if not (change.server_time or change.arrival_time or change.lifted or self._origin.any()):
            return []
        origin = np.zeros(len(self._origin), np.uint8)
        for code, runs in ((1, change.server_time), (2, change.arrival_time)):
            for run in runs:
                origin[run[run < len(origin)]] = code
        origin[[place for place, _ in change.lifted]] = 3
        came = np.unique(np.concatenate([handle, *change.server_time, *change.arrival_time]))
        came = came[came < len(origin)]
        changed: NDArray[np.uint32] = came[origin[came] != self._origin[came]]
        self._origin[changed] = origin[changed]
        said = [(i, {"source_time": time}) for i, time in change.lifted]
        said += [(i, {}) for i in changed[origin[changed] != 3].tolist()]
        return [Event("time_source", now_us(), int(self._ids[i]), None, _ORIGINS[origin[i]], own) for i, own in said]

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
        self._known: dict[str, float] = {}  # s, those of the last interval in which there were any
        self._skewed = {"server": False, "source": False}

    def seen(self, which: str, time: int, arrival: int) -> None:
        """A time (µs) that is at most a little older than ``arrival`` if clocks agree."""
        ahead = (time - arrival) / 1e6
        if abs(ahead) < abs(self._least[which]):
            self._least[which] = ahead

    def ahead(self) -> float:
        """How far (s) the clock that times of samples come from is before ours, as far as is known, or less."""
        now = self._known | {which: ahead for which, ahead in self._least.items() if np.isfinite(ahead)}
        return min(now.values(), default=0.0)

    def events(self, tracking: Tracking) -> list[Event]:
        """What changed, once an interval, also of single channels."""
        if monotonic() < self._until:
            return []
        self._until = monotonic() + self._interval
        said = []
        for which, ahead in self._least.items():
            if not np.isfinite(ahead):
                continue
            self._known[which] = ahead
            skewed = abs(ahead) > self._limit
            if skewed != self._skewed[which]:
                self._skewed[which] = skewed
                said.append(_clock_skew(skewed, which, ahead, self._limit))
        if np.isfinite(self._least["source"]):
            said += tracking.clocks(self._limit, self._least["source"])
        self._least = dict.fromkeys(self._least, np.inf)
        return said


def _clock_skew(skewed: bool, which: str, ahead: float, limit: float, channel: int | None = None) -> Event:
    detail = {"clock": which, "ahead_seconds": round(ahead, 3), "limit_seconds": limit}
    return Event("clock_skew", now_us(), channel, text="skewed" if skewed else "good", detail=detail)
