"""State of each channel between notifications: last time, origin of times, staleness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from core.batch import ROUNDED_DETAIL, Event, Int32s, Int64s, UInt32s
from core.timestamps import now_us
from ingest.gaps import Gaps
from ingest.opcua.decode.decoded import DataChange
from ingest.opcua.subscription.clocks import clock_skew
from ingest.opcua.subscription.repeated_timestamps import RepeatedTimestamps
from ingest.opcua.subscription.tags import Tags

T = TypeVar("T")
Statements: TypeAlias = tuple[NDArray[np.intp], Int64s]  # samples of a message; times (µs) to store them at, too

_NONE: Statements = np.empty(0, np.intp), np.empty(0, np.int64)
_MOST_STATEMENTS = 2  # of an item after a gap


class Unchanged:
    """Values that a server sends after a gap although they have not changed since before it. Columns of length n.

    A new monitored item begins with the current value. If that has not changed since before the gap, its source
    timestamp is older, too (OPC 10000-4, 7.11), so that it is the sample that the table has already, and nothing says
    that the value is known again: that of a set point for days. So it is stored once more, just after the gap. That is
    what the server has said then; whether the value was another one within the gap stays unknown.

    If the next value of the item is dated before the end of the gap, too, it is stored once more as well, or else the
    last value by time would be the one before. There it ends: while the clock of a source is set back, all values are
    dated so.
    """

    def __init__(self, n: int) -> None:
        self._since = np.zeros(n, np.int64)  # µs, begin of the gap
        self._until = np.zeros(n, np.int64)  # µs, end of the gap; 0: nothing more is to be stated
        self._first = np.zeros(n, np.int64)  # sequence number of the first message that can have the current value
        self._count = np.zeros(n, np.int64)  # statements after the gap so far
        self._time = np.zeros(n, np.int64)  # µs, source timestamp of the value stated last
        self._message = np.zeros(n, np.int64)  # sequence number of the message that it came with
        self._stored = np.zeros(n, bool)  # that statement is on disk

    def expect(self, positions: NDArray[np.intp], since: int, until: int, first: int) -> None:
        """The next values of these positions are the current ones, after a gap (µs).

        ``first``: the sequence number of the first message in which they may be. One from before may wait still, until
        a lost one is requested, and its values were the current ones before the gap.
        """
        self._since[positions], self._until[positions], self._count[positions] = since, until, 0
        self._first[positions] = first

    def find(self, position: UInt32s, time: Int64s, message: int) -> Statements:
        """Values of a data change to be stored again at the end of their gaps.

        They are the same if the message comes again before :meth:`stored`.

        ``message``: its sequence number. An older value in the same message waited in a queue: it is not the last one.

        The time is not the end of the gap itself: where timestamps have milliseconds, a sample may have that.
        """
        if not self._until.any():
            return _NONE
        awaited = np.flatnonzero((self._until[position] != 0) & (self._first[position] <= message))
        if not len(awaited):
            return _NONE
        awaited = awaited[np.lexsort((time[awaited], position[awaited]))]
        newest = awaited[np.append(np.diff(position[awaited]) != 0, True)]  # of each item
        position, time = position[newest], time[newest]
        queued = (self._count[position] > 0) & (self._message[position] == message) & (time < self._time[position])
        newest, position, time = newest[~queued], position[~queued], time[~queued]
        count, until = self._count[position], self._until[position]
        same = (count > 0) & (time == self._time[position])
        new = ~same & (count < _MOST_STATEMENTS) & (time <= np.where(count == 0, self._since[position], until))
        self._time[position[new]], self._stored[position[new]] = time[new], False
        self._count[position[new]] += 1
        self._message[position[new]] = message
        self._until[position[~(same | new)]] = 0
        due = new | (same & ~self._stored[position])
        return newest[due], until[due] + self._count[position[due]]

    def stored(self, position: UInt32s) -> None:
        """Values of these channels that were found are on disk."""
        self._stored[position] = True


_KEPT = ("time", "floor", "_origin", "_seen", "_stale", "_rounded", "_off", "_skewed")  # when tags change
_MOVED = "stopped"  # reason of a gap between the items of two nodes
_MIN_INTERVALS = 3  # consecutive intervals with samples in which a channel's clock must be off
_ORIGINS = ("source", "server", "arrival", "change")
_ARRIVAL = _ORIGINS.index("arrival")


def keep_columns(
    state: T, before: T, stay: NDArray[np.intp], positions: Sequence[int], names: Iterable[str] | None = None
) -> None:
    """The state before of channels that ``stay``, from their ``positions`` then. ``names``: of columns; None: all."""
    for name in vars(state) if names is None else names:
        if isinstance(column := getattr(state, name), np.ndarray):
            column[stay] = getattr(before, name)[positions]


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
        self._offset = np.full(n, np.inf)  # s, minimum of (arrival - time) of new samples in this interval
        self._off = np.zeros(n, np.uint8)  # consecutive intervals beyond the limit
        self._skewed = np.zeros(n, bool)
        self._clamped: dict[int, tuple[int, int]] = {}  # channel id → original and clamped time of the last value, µs
        if before is not None:
            self._clamped = before._clamped
            stay = np.flatnonzero(np.isin(tags.ids, before._ids))
            old = before.tags.positions(tags.ids[stay].tolist())
            keep_columns(self, before, stay, old, _KEPT)
            keep_columns(self.unchanged, before.unchanged, stay, old)
            keep_columns(self.repeated, before.repeated, stay, old)

    @property
    def dates_by_arrival(self) -> bool:
        """Return whether samples of a channel have the time of their arrival."""
        return bool((self._origin == _ARRIVAL).any())

    def last(self, channel: int) -> int:
        """Time (µs) of a channel's last sample; 0: none since the start, or unknown channel."""
        position = self.tags.position(channel)
        return 0 if position is None else int(self.time[position])

    def clamp_times(self, change: DataChange) -> dict[int, int]:
        """Clamp times before the last change of a channel's definition to the time of the change.

        The first value of a monitored item may be old, from when the channel belonged to another node. Of several
        (its clock is behind) each is one microsecond later than the previous one, so that none replaces another.
        Ends with the first newer value. Returns the floors (channel id → µs) that were reached.
        """
        reached: dict[int, int] = {}
        if not self.floor.any():
            return reached

        def clamped(position: int, time: int) -> int:
            floor = int(self.floor[position])
            if time < floor:
                change.clamped.append((position, time))
                channel = int(self._ids[position])
                source_time, clamped_time = self._clamped.get(channel, (time, 0))
                if clamped_time < floor:
                    source_time, clamped_time = time, floor
                elif time > source_time:
                    source_time, clamped_time = time, clamped_time + 1
                self._clamped[channel] = source_time, clamped_time
                return clamped_time
            if floor:
                reached[int(self._ids[position])] = floor
                self.floor[position] = 0
            return time

        for run, (positions, time) in enumerate(zip(change.handle, change.time, strict=True)):
            if len(waiting := np.flatnonzero(self.floor[positions])):
                change.time[run] = time.copy()
                change.time[run][waiting] = [clamped(int(positions[k]), int(time[k])) for k in waiting]
        for text in change.texts:
            text.time = clamped(text.handle, text.time)
        return reached

    def observe_clocks(self, position: UInt32s, time: Int64s, arrival: int) -> None:
        """Observe the clock of each new sample; call before :meth:`record_samples`.

        First values and repeated ones may be of any age and are ignored.
        """
        last = self.time[position]
        fresh = (last > 0) & (time > last)
        position, offset = position[fresh], (time[fresh] - arrival) / 1e6
        closer = np.abs(offset) < np.abs(self._offset[position])
        self._offset[position[closer]] = offset[closer]

    def clocks(self, limit: float, of_source: float) -> list[Event]:
        """Events for channels whose clock, in the last interval, began or ceased to differ from the source's.

        A single late value proves nothing (a queue emptied after an outage), so several intervals are needed.
        """
        observed = np.isfinite(self._offset)
        off = observed & (np.abs(self._offset - of_source) > limit)
        self._off[observed & ~off] = 0
        self._off[off] = np.minimum(self._off[off] + 1, _MIN_INTERVALS)
        changed = (
            observed
            & ((self._off >= _MIN_INTERVALS) != self._skewed)
            & ((self._off == 0) | (self._off >= _MIN_INTERVALS))
        )
        self._skewed[changed] = ~self._skewed[changed]
        events = [
            clock_skew(bool(self._skewed[i]), "channel", float(self._offset[i]), limit, int(self._ids[i]))
            for i in np.flatnonzero(changed).tolist()
        ]
        self._offset.fill(np.inf)
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
        origin[[position for position, _ in change.clamped]] = 3
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
        positions = np.unique(np.concatenate(change.rounded))
        positions = positions[positions < len(self._rounded)]
        fresh = positions[~self._rounded[positions]]
        self._rounded[fresh] = True
        return [Event("rounded", now_us(), int(self._ids[i]), detail=ROUNDED_DETAIL) for i in fresh.tolist()]


class Moves:
    """Channels that are read from other nodes: a gap each, until the first value from there."""

    def __init__(self, gaps: Gaps) -> None:
        self._gaps = gaps
        self.awaited = set(gaps.channels_open_for(_MOVED))  # channels without data from there so far

    async def open(self, begins: Mapping[int, int]) -> None:
        """Open gaps of channels at times (µs), durably, before their items are replaced."""
        spans = [([channel], at) for channel, at in begins.items()]
        await self._gaps.open_each(spans, _MOVED, "read from another node")
        await self._gaps.flush_or_raise()

    def expect_first(self, channels: Iterable[int]) -> None:
        """Data of these channels is from the new nodes from now on, and closes the gaps."""
        self.awaited.update(channels)

    async def close(self, channel: Int32s, time: Int64s) -> None:
        """Close the gaps of those channels that have samples, (n,), each at its first one (µs)."""
        awaited = np.flatnonzero(np.isin(channel, list(self.awaited)))[::-1]
        first = dict(zip(channel[awaited].tolist(), time[awaited].tolist(), strict=True))
        self.awaited -= first.keys()
        await self._gaps.close_each([([moved], at) for moved, at in first.items()])
