"""Vectorised alarm evaluation for one source: a batch without changes costs about ten numpy operations.

Each channel has a band: the range of values and the rate within which a sample changes nothing. Samples in the band
need no more work; channels with a sample outside are evaluated sample by sample. The band of a channel with a running
delay is empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int64s, SampleBatch, UInt32s
from core.counters import increases
from core.errors import OperationError
from core.status_codes import BAD
from ingest.alarms.channel import MAX_LEAD_US, SET_BACK_US, AlarmChange, AlarmChannel, LimitMonitor
from ingest.alarms.limits import Limit


class AlarmColumns:
    """Columns over all ids from the lowest to the highest channel with limits, plus one element at each end.

    Raises ValueError if no channel has a limit.
    """

    def __init__(self, limits: Mapping[int, tuple[Limit, ...]], now: int, before: AlarmColumns | None = None) -> None:
        """``before``: the previous evaluation; a channel with unchanged limits keeps its state."""
        self._limits = {channel: channel_limits for channel, channel_limits in limits.items() if channel_limits}
        if not self._limits:
            raise ValueError("no channel has alarm limits")
        self._below = min(self._limits) - 1
        self._above = max(self._limits) - self._below + 1
        n = self._above + 1
        self._watched = np.zeros(n, bool)
        self._low, self._high = np.full(n, -np.inf), np.full(n, np.inf)
        self._rate = np.full(n, np.inf)  # units a second
        self._counter, self._wraps_at = (
            np.zeros(n, bool),
            np.full(n, np.inf),
        )  # counters: the rate is that of the increase
        self._stale = np.full(n, np.inf)  # µs; infinite too while it is an alarm
        self._time, self._value = np.zeros(n, np.int64), np.full(n, np.nan)  # of the last sample
        self._seen = np.full(n, now, np.int64)  # µs, our clock
        self._position = np.zeros(n, np.intp)  # scratch: position of the channel's last sample in a batch
        self._channels: dict[int, AlarmChannel] = {}  # by index; those with a recorded state
        self._dirty: set[AlarmChannel] = set()
        self._timed: set[int] = set()  # indices of channels that a check of the clock may change
        self._has_rates = self._has_stale = False
        for channel, channel_limits in self._limits.items():
            self._watched[channel - self._below] = True
            self._band(channel - self._below, [LimitMonitor(limit) for limit in channel_limits])
            for limit in channel_limits:
                if limit.name == "rate":
                    self._has_rates = True
                    self._counter[channel - self._below] = limit.counter
                    self._wraps_at[channel - self._below] = limit.wraps_at
            self._has_stale |= any(limit.name == "stale" for limit in channel_limits)

        for channel in self._limits if before is not None else ():
            assert before is not None
            if before.limits_of(channel) == self._limits[channel]:
                self._copy_channel(channel, before)

    def _copy_channel(self, channel: int, before: AlarmColumns) -> None:
        index, index_before = channel - self._below, channel - before._below
        for name in ("_low", "_high", "_rate", "_stale", "_time", "_value", "_seen"):
            getattr(self, name)[index] = getattr(before, name)[index_before]
        if index_before in before._channels:
            self._channels[index] = before._channels[index_before]
        if index_before in before._timed:
            self._timed.add(index)

    def limits_of(self, channel_id: int) -> tuple[Limit, ...]:
        """The limits of a channel."""
        return self._limits.get(channel_id, ())

    def restore(self, channel: AlarmChannel) -> None:
        """Restore the state of a channel from an earlier process."""
        index = channel.channel_id - self._below
        self._channels[index] = channel
        self._store(index, channel)

    def evaluate(self, batch: SampleBatch) -> list[AlarmChange]:
        """Changes that a batch causes, in order for each channel."""
        samples = batch.samples
        index = samples.channel.astype(np.intp)
        index -= self._below
        np.clip(index, 0, self._above, out=index)
        time, value, status = samples.time, samples.value, samples.status
        order = self._order(index)
        if order is not None:
            index, time, value, status = index[order], time[order], value[order], status[order]
        last = self._time[index]
        before = self._value[index] if self._has_rates else None
        if order is not None:
            follows = index[1:] == index[:-1]  # another sample of its channel
            last[1:][follows] = time[:-1][follows]
            if before is not None:
                before[1:][follows] = value[:-1][follows]
        quiet = value >= self._low[index]
        quiet &= value <= self._high[index]
        quiet &= status < BAD
        quiet &= time > last
        if before is not None:
            rate = self._rate[index]
            with np.errstate(invalid="ignore"):  # infinite values, and an infinite rate in no time
                change = value - before
                if self._counter.any():
                    increase = increases(before, value, self._wraps_at[index])
                    change = np.where(self._counter[index], increase, change)
                slow = np.abs(change) <= rate * ((time - last) / 1e6)
            quiet &= slow | np.isinf(rate) | np.isnan(before)  # no rate without a previous sample
        if quiet.all():
            self._store_last(index, time, value, batch.received_at)
            return []
        return self._step_channels(index, time, value, status, quiet, batch.received_at)

    def _order(self, index: NDArray[np.intp]) -> NDArray[np.intp] | None:
        """The batch by channel, each in order of arrival; None: no channel has two samples in it."""
        position = np.arange(len(index))
        self._position[index] = position
        has_repeats = (self._position[index] != position).any()
        return np.argsort(index, kind="stable") if has_repeats else None

    def _store_last(self, index: NDArray[np.intp], time: Int64s, value: Float64s, received_at: int) -> None:
        self._time[index] = time  # of two samples of one channel the later one stays
        self._value[index] = value
        self._seen[index] = received_at

    def _step_channels(
        self,
        index: NDArray[np.intp],
        time: Int64s,
        value: Float64s,
        status: UInt32s,
        quiet: NDArray[np.bool_],
        received_at: int,
    ) -> list[AlarmChange]:
        """Evaluate sample by sample the channels with a sample outside the band."""
        # Late samples are not evaluated, unless others of their channel came with them.
        last = self._time[index]
        ahead = received_at + MAX_LEAD_US
        late = (time <= last) & ((last <= ahead) | (time > ahead)) & (received_at - self._seen[index] <= SET_BACK_US)
        has_late, has_live, marked = (np.zeros(self._above + 1, bool) for _ in range(3))
        has_late[index[late]] = True
        has_live[index[~late]] = True
        marked[index[~quiet & ~late]] = True
        marked |= has_late & has_live
        marked &= self._watched
        slow = marked[index]
        fast = quiet & ~slow & ~late
        self._store_last(index[fast], time[fast], value[fast], received_at)
        changes: list[AlarmChange] = []
        rows = np.flatnonzero(slow)
        rows = rows[np.argsort(index[rows], kind="stable")]
        bad = status[rows] >= BAD
        samples = zip(index[rows].tolist(), time[rows].tolist(), value[rows].tolist(), bad.tolist(), strict=True)
        channel, current = None, -1
        for i, t, v, b in samples:
            if i != current or channel is None:
                if channel is not None:
                    self._store(current, channel)
                channel, current = self._channel_at(i), i
            changes += channel.sample(t, v, b, received_at)
        if channel is not None:
            self._store(current, channel)
        return changes

    def check_clock(self, now: int) -> list[AlarmChange]:
        """Changes at ``now`` (µs, our clock) without a sample."""
        indices = set(self._timed)
        if self._has_stale:
            indices.update(np.flatnonzero(now - self._seen > self._stale).tolist())
        return [
            change
            for index in sorted(indices)
            for change in self._update_at(index, lambda channel: channel.check_clock(now))
        ]

    def clock_moved(self, by: int) -> None:
        """Exclude ``by`` µs from silence: the clock was set, or this process did not run."""
        self._seen += by

    def apply_command(self, channel_id: int, command: Callable[[AlarmChannel], list[AlarmChange]]) -> list[AlarmChange]:
        """Apply an operator command to a channel. Raises OperationError if it has no limits, or as the command does."""
        if channel_id not in self._limits:
            raise OperationError("the channel has no alarm limits")
        return self._update_at(channel_id - self._below, command)

    def channel(self, channel_id: int) -> AlarmChannel:
        """The current state of a channel with limits; read only."""
        return self._channel_at(channel_id - self._below)

    def channels(self) -> Iterable[int]:
        """The ids of channels that have limits."""
        return self._limits

    def touched(self) -> Iterable[AlarmChannel]:
        """Channels with any recorded state; read only."""
        return map(self._channel_at, self._channels)

    def take_dirty(self) -> set[AlarmChannel]:
        """Channels whose state changed since the last call."""
        dirty, self._dirty = self._dirty, set()
        return dirty

    def _update_at(self, index: int, command: Callable[[AlarmChannel], list[AlarmChange]]) -> list[AlarmChange]:
        channel = self._channel_at(index)
        try:
            return command(channel)
        finally:
            self._store(index, channel)

    def _channel_at(self, index: int) -> AlarmChannel:
        channel = self._channels.get(index)
        if channel is None:
            number = index + self._below
            channel = AlarmChannel(number, self._limits[number], 0)
        channel.time, channel.value = int(self._time[index]), float(self._value[index])
        channel.seen = int(self._seen[index])
        return channel

    def _store(self, index: int, channel: AlarmChannel) -> None:
        if channel.dirty:
            channel.dirty = False
            self._channels[index] = channel
            self._dirty.add(channel)
        self._time[index], self._value[index], self._seen[index] = channel.time, channel.value, channel.seen
        self._band(index, channel.monitors)

    def _band(self, index: int, monitors: Iterable[LimitMonitor]) -> None:
        low, high, timed = -math.inf, math.inf, False
        self._stale[index] = self._rate[index] = math.inf
        for monitor in monitors:
            limit = monitor.limit
            timed |= monitor.alarm.state == "shelved" or monitor.pending is not None
            if limit.name == "stale" and not monitor.active:
                self._stale[index] = limit.threshold * 1e6
            elif monitor.pending is not None or (monitor.active and not limit.is_level):
                low, high = math.inf, -math.inf
                timed |= limit.name == "rate"
            elif limit.is_level and limit.is_high:
                if monitor.active:
                    low = max(low, math.nextafter(limit.clear_threshold, math.inf))
                else:
                    high = min(high, limit.threshold)
            elif limit.is_level:
                if monitor.active:
                    high = min(high, math.nextafter(limit.clear_threshold, -math.inf))
                else:
                    low = max(low, limit.threshold)
            elif limit.name == "rate":
                self._rate[index] = limit.threshold
        self._low[index], self._high[index] = low, high
        (self._timed.add if timed else self._timed.discard)(index)
