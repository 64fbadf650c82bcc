"""The alarms of one source, judged in columns: a batch in which nothing changes costs some ten numpy operations.

Of every channel is known between which values, and up to which rate, a sample changes nothing: the band. What lies in
it is done with there; the channels that have a sample outside are stepped through sample by sample. The band of a
channel whose delay runs is empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ingest.alarms.channel import AHEAD_US, SET_BACK_US, Change, Channel, Watch
from ingest.alarms.limits import Limit
from ingest.batch import Float64s, Int64s, SampleBatch, UInt32s
from ingest.errors import OperationError

_BAD = np.uint32(0x8000_0000)  # the severity Bad of a StatusCode (OPC 10000-4, 7.39)


class Columns:
    """Columns over the ids from the lowest to the highest channel that has limits, and a place at either end.

    Raises ValueError where no channel has one.
    """

    def __init__(self, limits: Mapping[int, tuple[Limit, ...]], now: int, before: Columns | None = None) -> None:
        """``before``: of the limits as they were; a channel that has the same ones goes on as it is there."""
        self._limits = {channel: of for channel, of in limits.items() if of}
        if not self._limits:
            raise ValueError("no channel has a limit")
        self._below = min(self._limits) - 1
        self._above = max(self._limits) - self._below + 1
        n = self._above + 1
        self._watched = np.zeros(n, bool)
        self._low, self._high = np.full(n, -np.inf), np.full(n, np.inf)
        self._rate = np.full(n, np.inf)  # units a second
        self._stale = np.full(n, np.inf)  # µs; infinite too while it is an alarm
        self._time, self._value = np.zeros(n, np.int64), np.full(n, np.nan)  # of the last sample
        self._seen = np.full(n, now, np.int64)  # µs, our clock
        self._place = np.zeros(n, np.intp)  # scratch: where in a batch the channel's last sample is
        self._channels: dict[int, Channel] = {}  # by place; those in which something happened
        self._altered: set[Channel] = set()
        self._timed: set[int] = set()  # places that a look at the clock may change
        self._has_rates = self._has_stale = False
        for channel, of in self._limits.items():
            self._watched[channel - self._below] = True
            self._band(channel - self._below, [Watch(limit) for limit in of])
            self._has_rates |= any(limit.name == "rate" for limit in of)
            self._has_stale |= any(limit.name == "stale" for limit in of)

        for channel in self._limits if before is not None else ():
            assert before is not None
            if before.limits_of(channel) == self._limits[channel]:
                self._go_on(channel, before)

    def _go_on(self, channel: int, before: Columns) -> None:
        mine, theirs = channel - self._below, channel - before._below
        for name in ("_low", "_high", "_rate", "_stale", "_time", "_value", "_seen"):
            getattr(self, name)[mine] = getattr(before, name)[theirs]
        if theirs in before._channels:
            self._channels[mine] = before._channels[theirs]
        if theirs in before._timed:
            self._timed.add(mine)

    def limits_of(self, channel_id: int) -> tuple[Limit, ...]:
        """The limits of a channel."""
        return self._limits.get(channel_id, ())

    def put(self, channel: Channel) -> None:
        """Go on with a channel as an earlier process left it."""
        place = channel.channel_id - self._below
        self._channels[place] = channel
        self._store(place, channel)

    def evaluate(self, batch: SampleBatch) -> list[Change]:
        """What a batch changes; of one channel in order."""
        place = batch.channel_id.astype(np.intp)
        place -= self._below
        np.clip(place, 0, self._above, out=place)
        time, value, status = batch.time, batch.value, batch.status
        order = self._order(place)
        if order is not None:
            place, time, value, status = place[order], time[order], value[order], status[order]
        last = self._time[place]
        before = self._value[place] if self._has_rates else None
        if order is not None:
            again = place[1:] == place[:-1]
            last[1:][again] = time[:-1][again]
            if before is not None:
                before[1:][again] = value[:-1][again]
        quiet = value >= self._low[place]
        quiet &= value <= self._high[place]
        quiet &= status < _BAD
        quiet &= time > last
        if before is not None:
            rate = self._rate[place]
            with np.errstate(invalid="ignore"):  # infinite values, and an infinite rate in no time
                slow = np.abs(value - before) <= rate * ((time - last) / 1e6)
            quiet &= slow | np.isinf(rate) | np.isnan(before)  # without a sample before there is no rate
        if quiet.all():
            self._had(place, time, value, batch.received_at)
            return []
        return self._loud(place, time, value, status, quiet, batch.received_at)

    def _order(self, place: NDArray[np.intp]) -> NDArray[np.intp] | None:
        """The batch by channel, each in order of arrival; None: no channel has two samples in it."""
        here = np.arange(len(place))
        self._place[place] = here
        twice = self._place[place] != here
        return np.argsort(place, kind="stable") if twice.any() else None

    def _had(self, place: NDArray[np.intp], time: Int64s, value: Float64s, received_at: int) -> None:
        self._time[place] = time  # of two samples of one channel the later one stays
        self._value[place] = value
        self._seen[place] = received_at

    def _loud(
        self,
        place: NDArray[np.intp],
        time: Int64s,
        value: Float64s,
        status: UInt32s,
        quiet: NDArray[np.bool_],
        received_at: int,
    ) -> list[Change]:
        """Step through the channels of which a sample is not quiet."""
        # What comes late is not judged and need not be looked at one by one, unless others of its channel came with it.
        last = self._time[place]
        ahead = received_at + AHEAD_US
        late = (time <= last) & ((last <= ahead) | (time > ahead)) & (received_at - self._seen[place] <= SET_BACK_US)
        has_late, has_live, marked = (np.zeros(self._above + 1, bool) for _ in range(3))
        has_late[place[late]] = True
        has_live[place[~late]] = True
        marked[place[~quiet & ~late]] = True
        marked |= has_late & has_live
        marked &= self._watched
        slow = marked[place]
        fast = quiet & ~slow & ~late
        self._had(place[fast], time[fast], value[fast], received_at)
        changes: list[Change] = []
        which = np.flatnonzero(slow)
        at = np.argsort(place[which], kind="stable")
        which = which[at]
        bad = status[which] >= _BAD
        rows = zip(place[which].tolist(), time[which].tolist(), value[which].tolist(), bad.tolist(), strict=True)
        channel, current = None, -1
        for p, t, v, b in rows:
            if p != current or channel is None:
                if channel is not None:
                    self._store(current, channel)
                channel, current = self._of(p), p
            changes += channel.sample(t, v, b, received_at)
        if channel is not None:
            self._store(current, channel)
        return changes

    def look(self, now: int) -> list[Change]:
        """What the clock changes."""
        places = set(self._timed)
        if self._has_stale:
            places.update(np.flatnonzero(now - self._seen > self._stale).tolist())
        return [change for place in sorted(places) for change in self._with(place, lambda channel: channel.look(now))]

    def clock_moved(self, by: int) -> None:
        """So many µs of our clock are no silence: it was set, or we did not run."""
        self._seen += by

    def act(self, channel_id: int, what: Callable[[Channel], list[Change]]) -> list[Change]:
        """Do something to a channel. Raises OperationError where it has no limits, or ``what`` does."""
        if channel_id not in self._limits:
            raise OperationError("the channel has no alarm limits")
        return self._with(channel_id - self._below, what)

    def channel(self, channel_id: int) -> Channel:
        """A channel that has limits, as it is now; not to be changed."""
        return self._of(channel_id - self._below)

    def channels(self) -> Iterable[int]:
        """The ids of channels that have limits."""
        return self._limits

    def touched(self) -> Iterable[Channel]:
        """The channels in which something happened, ever, as they are now; not to be changed."""
        return map(self._of, self._channels)

    def altered(self) -> set[Channel]:
        """The channels of which something is to be kept that was not at the last call."""
        altered, self._altered = self._altered, set()
        return altered

    def _with(self, place: int, what: Callable[[Channel], list[Change]]) -> list[Change]:
        channel = self._of(place)
        try:
            return what(channel)
        finally:
            self._store(place, channel)

    def _of(self, place: int) -> Channel:
        channel = self._channels.get(place)
        if channel is None:
            number = place + self._below
            channel = Channel(number, self._limits[number], 0)
        channel.time, channel.value = int(self._time[place]), float(self._value[place])
        channel.seen = int(self._seen[place])
        return channel

    def _store(self, place: int, channel: Channel) -> None:
        if channel.altered:
            channel.altered = False
            self._channels[place] = channel
            self._altered.add(channel)
        self._time[place], self._value[place], self._seen[place] = channel.time, channel.value, channel.seen
        self._band(place, channel.watches)

    def _band(self, place: int, watches: Iterable[Watch]) -> None:
        low, high, timed = -math.inf, math.inf, False
        self._stale[place] = self._rate[place] = math.inf
        for watch in watches:
            limit = watch.limit
            timed |= watch.alarm.state == "shelved" or watch.pending is not None
            if limit.name == "stale" and not watch.active:
                self._stale[place] = limit.threshold * 1e6
            elif watch.pending is not None or (watch.active and not limit.is_level):
                low, high = math.inf, -math.inf
                timed |= limit.name == "rate"
            elif limit.is_level and limit.is_high:
                if watch.active:
                    low = max(low, math.nextafter(limit.back, math.inf))
                else:
                    high = min(high, limit.threshold)
            elif limit.is_level:
                if watch.active:
                    high = min(high, math.nextafter(limit.back, -math.inf))
                else:
                    low = max(low, limit.threshold)
            elif limit.name == "rate":
                self._rate[place] = limit.threshold
        self._low[place], self._high[place] = low, high
        (self._timed.add if timed else self._timed.discard)(place)
