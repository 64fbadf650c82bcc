"""Alarms of one channel, sample by sample, for the samples that :mod:`ingest.alarms.columns` cannot rule out.

A value holds until the next sample. So a delay ends at its due time, whether the next sample or a check of the clock
before it detects that; both give the same change at the same time.

- After a Bad sample or a NaN the value is unknown: delays restart, active alarms stay active. A NaN is not Bad.
- The rate is that between a sample and the one before it. A channel that has been silent for :data:`QUIET_US` does
  not change; without a sample before (after a start, a Bad one) there is no rate.
- Silence is counted by our clock, everything else by the samples' own times.
- A sample that is not newer than the last one is not evaluated: backfilled and late data raises no alarm. Exception:
  the last time was far ahead of our clock and this one is not, or nothing newer came for :data:`SET_BACK_US`:
  then the source's clock was set back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ingest.alarms.limits import Limit
from ingest.alarms.state import Alarm, Inhibition, State, acknowledged, inhibited, raised, released, removed, returned

QUIET_US = 10_000_000
SET_BACK_US = 300_000_000
MAX_LEAD_US = 60_000_000  # by which a source's clock may be ahead of ours before its times count as wrong
GRACE_US = 2_000_000  # time that a sample may take to arrive before the clock is checked without it

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
INHIBIT: Mapping[State, Action] = {
    "shelved": "shelved",
    "suppressed_by_design": "suppressed",
    "out_of_service": "out of service",
}
RELEASE: Mapping[State, Action] = {
    "shelved": "unshelved",
    "suppressed_by_design": "unsuppressed",
    "out_of_service": "in service",
}

OPERATOR_ACTIONS = ("acknowledged", *INHIBIT.values(), *RELEASE.values())


@dataclass(frozen=True, slots=True)
class AlarmChange:
    """A state change of one alarm."""

    channel_id: int
    limit: Limit
    at: int  # µs
    action: Action
    before: Alarm
    after: Alarm
    received_at: int  # µs, our clock when it became known


@dataclass(slots=True)
class LimitMonitor:
    """The evaluation state of one limit."""

    limit: Limit
    active: bool = False
    pending: int | None = None  # µs, when the delay of a change of ``active`` began; None: none runs
    alarm: Alarm = field(default_factory=Alarm)


class AlarmChannel:
    """``time`` (µs, 0: none yet), ``value`` (NaN: Bad) and ``seen`` (µs, our clock) are those of the last sample.

    ``dirty``: the state changed since it was last saved; reset by whoever saves it.
    """

    __slots__ = ("_changes", "_now", "channel_id", "dirty", "monitors", "seen", "time", "value")

    def __init__(self, channel_id: int, limits: tuple[Limit, ...], seen: int) -> None:
        self.channel_id = channel_id
        self.monitors = [LimitMonitor(limit) for limit in limits]
        self.time = 0
        self.value = math.nan
        self.seen = seen
        self.dirty = False
        self._now = seen
        self._changes: list[AlarmChange] = []

    def sample(self, time: int, value: float, bad: bool, received_at: int) -> list[AlarmChange]:
        """Evaluate a sample; return the changes in order."""
        self._now = received_at
        if not self._is_live(time, received_at):
            return []
        if time > self.time:
            self._run_timers(time)
        else:
            for monitor in self.monitors:
                self._set_pending(monitor, None)
        unknown = bad or math.isnan(value)
        elapsed, before = (time - self.time) / 1e6, self.value
        for monitor in self.monitors:
            limit = monitor.limit
            if limit.name == "stale":
                if monitor.active:
                    self._toggle(monitor, received_at, value)
            elif limit.name == "bad":
                self._evaluate(monitor, time, value, bad, not bad)
            elif unknown:
                self._set_pending(monitor, None)
            elif limit.is_level:
                self._evaluate(monitor, time, value, *beyond(limit, value))
            elif math.isnan(before) or elapsed <= 0:
                self._set_pending(monitor, None)
            else:
                fast = abs(limit.change(before, value)) > limit.threshold * elapsed
                self._evaluate(monitor, time, value, fast, not fast)
        self.time, self.value, self.seen = time, math.nan if unknown else value, received_at
        # The next evaluation needs this very sample, also in a process that is started later.
        self.dirty |= any(m.pending is not None or (m.active and m.limit.name == "rate") for m in self.monitors)
        return self._take_changes()

    def _is_live(self, time: int, received_at: int) -> bool:
        if time > self.time:
            return True
        set_back = time <= received_at + MAX_LEAD_US < self.time
        return set_back or (time < self.time and received_at - self.seen > SET_BACK_US)

    def check_clock(self, now: int) -> list[AlarmChange]:
        """Check timers at ``now`` (µs, our clock): expired delays, stale values, expired shelving."""
        self._now = now
        if self.time and (silence := now - self.seen - GRACE_US) > 0:
            self._run_timers(self.time + silence)
        for monitor in self.monitors:
            stale_at = self.seen + round(monitor.limit.threshold * 1e6)
            if monitor.limit.name == "stale" and not monitor.active and now > stale_at:
                self._toggle(monitor, stale_at)
            until = monitor.alarm.shelved_until
            if monitor.alarm.state == "shelved" and until is not None and until <= now:
                self._set(monitor, released(monitor.alarm, until, "shelved", "plantlog"), until, "unshelved")
        return self._take_changes()

    def _run_timers(self, to: int) -> None:
        """Check delays and rates at ``to`` (µs): the last value has held until then."""
        quiet = self.time + QUIET_US
        for monitor in self.monitors:
            if monitor.limit.name == "rate" and to >= quiet and not math.isnan(self.value):
                self._toggle_if_due(monitor, quiet)
                self._evaluate(monitor, quiet, self.value, False, True)
            self._toggle_if_due(monitor, to)

    def _toggle_if_due(self, monitor: LimitMonitor, to: int) -> None:
        if monitor.pending is not None and (end := monitor.pending + _delay(monitor)) <= to:
            self._toggle(monitor, end)

    def _evaluate(self, monitor: LimitMonitor, time: int, value: float, on: bool, off: bool) -> None:
        """Evaluate the condition since ``time`` (µs): ``on`` beyond the limit, ``off`` inside, neither in between."""
        if not (off if monitor.active else on):
            self._set_pending(monitor, None)
            return
        if monitor.pending is None:
            self._set_pending(monitor, time)
        if monitor.pending is not None and monitor.pending + _delay(monitor) <= time:
            self._toggle(monitor, time, value)

    def _set_pending(self, monitor: LimitMonitor, since: int | None) -> None:
        self.dirty |= monitor.pending != since
        monitor.pending = since

    def _toggle(self, monitor: LimitMonitor, at: int, value: float | None = None) -> None:
        monitor.active, monitor.pending = not monitor.active, None
        last_value = self.value if value is None else value
        number = last_value if math.isfinite(last_value) else None
        if monitor.active:
            self._set(monitor, raised(monitor.alarm, at, number), at, "raised")
        else:
            self._set(monitor, returned(monitor.alarm, at, number, monitor.limit.latch), at, "returned")

    def _set(self, monitor: LimitMonitor, alarm: Alarm, at: int, action: Action) -> None:
        change = AlarmChange(self.channel_id, monitor.limit, at, action, monitor.alarm, alarm, self._now)
        monitor.alarm = alarm
        self.dirty = True
        self._changes.append(change)

    def _take_changes(self) -> list[AlarmChange]:
        changes, self._changes = self._changes, []
        return sorted(changes, key=lambda change: change.at) if len(changes) > 1 else changes

    # Operator commands. Each raises OperationError if the alarm's state does not allow it.

    def acknowledge(self, monitor: LimitMonitor, at: int, who: str) -> list[AlarmChange]:
        """Acknowledge the alarm."""
        self._now = at
        self._set(monitor, acknowledged(monitor.alarm, at, who), at, "acknowledged")
        return self._take_changes()

    def inhibit(
        self, monitor: LimitMonitor, at: int, how: Inhibition, who: str, why: str, until: int | None = None
    ) -> list[AlarmChange]:
        """Shelve the alarm until ``until`` (µs), suppress it by design, or take it out of service."""
        self._now = at
        self._set(monitor, inhibited(monitor.alarm, at, how, who, why, until), at, INHIBIT[how])
        return self._take_changes()

    def release(self, monitor: LimitMonitor, at: int, how: Inhibition, who: str) -> list[AlarmChange]:
        """End an :meth:`inhibit`."""
        self._now = at
        self._set(monitor, released(monitor.alarm, at, how, who), at, RELEASE[how])
        return self._take_changes()

    def adopt(self, monitor: LimitMonitor, alarm: Alarm) -> None:
        """Continue from the state that another member of a redundant pair recorded, if it is newer."""
        if alarm.revision > monitor.alarm.revision:
            monitor.alarm, monitor.active, monitor.pending = alarm, alarm.active, None
            self.dirty = True

    def remove(self, monitor: LimitMonitor, at: int) -> list[AlarmChange]:
        """End the alarm of a limit that is no longer configured."""
        self._now = at
        monitor.active, monitor.pending = False, None
        self._set(monitor, removed(monitor.alarm, at), at, "removed")
        return self._take_changes()


def _delay(monitor: LimitMonitor) -> int:
    return monitor.limit.off_delay if monitor.active else monitor.limit.delay


def beyond(limit: Limit, value: float) -> tuple[bool, bool]:
    """Two booleans: ``value`` is beyond a level limit; it is normal again."""
    if limit.is_high:
        return value > limit.threshold, value <= limit.clear_threshold
    return value < limit.threshold, value >= limit.clear_threshold
