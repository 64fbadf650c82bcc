"""One channel's alarms, sample by sample: what :mod:`ingest.alarms.columns` hands over because something may change.

A value holds until the next sample. So a delay ends at the time when it is over, whether a sample tells so or a look
at the clock in between; both give the same change at the same time.

- A Bad sample, or one that is not a number, says nothing of the value: delays begin anew, what is an alarm stays one.
- The rate is that between a sample and the one before it. A channel that has been silent for :data:`QUIET_US` does
  not change; without a sample before (after a start, a Bad one) there is no rate.
- Silence is counted by our clock, everything else by the samples' own times.
- A sample that is not newer than the last one is not judged: what is backfilled or comes late raises no alarm. Unless
  the last one's time was far ahead of our clock and this one's is not, or nothing newer came for :data:`SET_BACK_US`:
  then the source's clock was set back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ingest.alarms.limits import Limit
from ingest.alarms.state import Alarm, acknowledged, inhibited, raised, released, removed, returned

QUIET_US = 10_000_000
SET_BACK_US = 300_000_000
AHEAD_US = 60_000_000  # that a source's clock may be ahead of ours before its times count as wrong
GRACE_US = 2_000_000  # a sample may be under way for so long before a look at the clock decides without it

Action: TypeAlias = Literal[
    "raised",
    "returned",
    "acknowledged",
    "shelved",
    "unshelved",
    "suppressed",
    "unsuppressed",
    "out of service",
    "in service",
    "removed",
]


@dataclass(frozen=True, slots=True)
class Change:
    """One alarm of a channel is another than before."""

    channel_id: int
    limit: Limit
    at: int  # µs
    action: Action
    before: Alarm
    after: Alarm
    received_at: int  # µs, our clock when it became known


@dataclass(slots=True)
class Watch:
    """One limit, and how far it is."""

    limit: Limit
    active: bool = False
    pending: int | None = None  # µs, since when it has been the other way round, while the delay runs
    alarm: Alarm = field(default_factory=Alarm)


class Channel:
    """``time`` (µs, 0: none yet), ``value`` (NaN: Bad) and ``seen`` (µs, our clock) are those of the last sample.

    ``altered`` says that something is to be kept that was not before; who keeps it sets it back.
    """

    __slots__ = ("_changes", "_now", "altered", "channel_id", "seen", "time", "value", "watches")

    def __init__(self, channel_id: int, limits: tuple[Limit, ...], seen: int) -> None:
        self.channel_id = channel_id
        self.watches = [Watch(limit) for limit in limits]
        self.time = 0
        self.value = math.nan
        self.seen = seen
        self.altered = False
        self._now = seen
        self._changes: list[Change] = []

    def sample(self, time: int, value: float, bad: bool, received_at: int) -> list[Change]:
        """A sample came; what that changed, in order."""
        self._now = received_at
        if not self._is_live(time, received_at):
            return []
        if time > self.time:
            self._timers(time)
        else:
            for watch in self.watches:
                self._wait(watch, None)
        bad = bad or math.isnan(value)
        elapsed, before = (time - self.time) / 1e6, self.value
        for watch in self.watches:
            limit = watch.limit
            if limit.name == "stale":
                if watch.active:
                    self._turn(watch, received_at, value)
            elif limit.name == "bad":
                self._judge(watch, time, value, bad, not bad)
            elif bad:
                self._wait(watch, None)
            elif limit.is_level:
                self._judge(watch, time, value, *beyond(limit, value))
            elif math.isnan(before) or elapsed <= 0:
                self._wait(watch, None)
            else:
                fast = abs(value - before) > limit.threshold * elapsed
                self._judge(watch, time, value, fast, not fast)
        self.time, self.value, self.seen = time, math.nan if bad else value, received_at
        # What these watches do next follows from this very sample, also in a process that was started since.
        self.altered |= any(w.pending is not None or (w.active and w.limit.name == "rate") for w in self.watches)
        return self._said()

    def _is_live(self, time: int, received_at: int) -> bool:
        if time > self.time:
            return True
        set_right = time <= received_at + AHEAD_US < self.time
        return set_right or (time < self.time and received_at - self.seen > SET_BACK_US)

    def look(self, now: int) -> list[Change]:
        """Our clock says ``now`` (µs) and no sample came: delays that are over, silence, shelving that ends."""
        self._now = now
        if self.time and (held := now - self.seen - GRACE_US) > 0:
            self._timers(self.time + held)
        for watch in self.watches:
            over = self.seen + round(watch.limit.threshold * 1e6)
            if watch.limit.name == "stale" and not watch.active and now > over:
                self._turn(watch, over)
            until = watch.alarm.shelved_until
            if watch.alarm.state == "shelved" and until is not None and until <= now:
                self._set(watch, released(watch.alarm, until, "shelved", "plantlog"), until, "unshelved")
        return self._said()

    def _timers(self, to: int) -> None:
        """The last value has held until ``to`` (µs)."""
        quiet = self.time + QUIET_US
        for watch in self.watches:
            if watch.limit.name == "rate" and to >= quiet and not math.isnan(self.value):
                self._over(watch, quiet)
                self._judge(watch, quiet, self.value, False, True)
            self._over(watch, to)

    def _over(self, watch: Watch, to: int) -> None:
        if watch.pending is not None and (end := watch.pending + _delay(watch)) <= to:
            self._turn(watch, end)

    def _judge(self, watch: Watch, time: int, value: float, on: bool, off: bool) -> None:
        """The condition since ``time``: ``on`` beyond the limit, ``off`` inside again, neither: in the deadband."""
        if not (off if watch.active else on):
            self._wait(watch, None)
            return
        if watch.pending is None:
            self._wait(watch, time)
        if watch.pending is not None and watch.pending + _delay(watch) <= time:
            self._turn(watch, time, value)

    def _wait(self, watch: Watch, since: int | None) -> None:
        self.altered |= watch.pending != since
        watch.pending = since

    def _turn(self, watch: Watch, at: int, value: float | None = None) -> None:
        watch.active, watch.pending = not watch.active, None
        held = self.value if value is None else value
        number = held if math.isfinite(held) else None
        if watch.active:
            self._set(watch, raised(watch.alarm, at, number), at, "raised")
        else:
            self._set(watch, returned(watch.alarm, at, number, watch.limit.latch), at, "returned")

    def _set(self, watch: Watch, alarm: Alarm, at: int, action: Action) -> None:
        change = Change(self.channel_id, watch.limit, at, action, watch.alarm, alarm, self._now)
        watch.alarm = alarm
        self.altered = True
        self._changes.append(change)

    def _said(self) -> list[Change]:
        said, self._changes = self._changes, []
        return sorted(said, key=lambda change: change.at) if len(said) > 1 else said

    # What people do. Each raises OperationError where the alarm's state does not allow it.

    def acknowledge(self, watch: Watch, at: int, who: str) -> list[Change]:
        """Somebody has seen it."""
        self._now = at
        self._set(watch, acknowledged(watch.alarm, at, who), at, "acknowledged")
        return self._said()

    def shelve(self, watch: Watch, at: int, until: int, who: str, why: str) -> list[Change]:
        """Nobody is to be told until ``until`` (µs)."""
        self._now = at
        self._set(watch, inhibited(watch.alarm, at, "shelved", who, why, until), at, "shelved")
        return self._said()

    def unshelve(self, watch: Watch, at: int, who: str) -> list[Change]:
        """The end of :meth:`shelve`."""
        self._now = at
        self._set(watch, released(watch.alarm, at, "shelved", who), at, "unshelved")
        return self._said()

    def suppress(self, watch: Watch, at: int, who: str, why: str) -> list[Change]:
        """The plant's logic knows that the alarm means nothing now."""
        self._now = at
        self._set(watch, inhibited(watch.alarm, at, "suppressed_by_design", who, why), at, "suppressed")
        return self._said()

    def unsuppress(self, watch: Watch, at: int, who: str) -> list[Change]:
        """The end of :meth:`suppress`."""
        self._now = at
        self._set(watch, released(watch.alarm, at, "suppressed_by_design", who), at, "unsuppressed")
        return self._said()

    def out_of_service(self, watch: Watch, at: int, who: str, why: str) -> list[Change]:
        """Somebody works on it."""
        self._now = at
        self._set(watch, inhibited(watch.alarm, at, "out_of_service", who, why), at, "out of service")
        return self._said()

    def in_service(self, watch: Watch, at: int, who: str) -> list[Change]:
        """The end of :meth:`out_of_service`."""
        self._now = at
        self._set(watch, released(watch.alarm, at, "out_of_service", who), at, "in service")
        return self._said()

    def remove(self, watch: Watch, at: int) -> list[Change]:
        """The limit is no longer configured."""
        self._now = at
        watch.active, watch.pending = False, None
        self._set(watch, removed(watch.alarm, at), at, "removed")
        return self._said()


def _delay(watch: Watch) -> int:
    return watch.limit.off_delay if watch.active else watch.limit.delay


def beyond(limit: Limit, value: float) -> tuple[bool, bool]:
    """Whether ``value`` is beyond a level limit, and whether it is normal again."""
    if limit.is_high:
        return value > limit.threshold, value <= limit.back
    return value < limit.threshold, value >= limit.back
