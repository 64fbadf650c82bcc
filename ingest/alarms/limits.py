"""The alarm limits of a channel, from the columns ``alarm_…`` of its tag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ingest.config.sources import AlarmPriority, Tag

LimitName: TypeAlias = Literal["lolo", "lo", "hi", "hihi", "rate", "stale", "bad"]
LIMITS: tuple[LimitName, ...] = ("lolo", "lo", "hi", "hihi", "rate", "stale", "bad")
PRIORITIES: tuple[AlarmPriority, ...] = ("critical", "high", "medium", "low")


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a channel.

    ``threshold``: the value (lolo, lo, hi, hihi), units a second (rate) or seconds of silence (stale) beyond which it
    the alarm is active; 0 for bad quality, which has none. The value is normal again at ``clear_threshold``.
    """

    name: LimitName
    threshold: float
    clear_threshold: float
    delay: int  # µs, so long beyond before it is an alarm
    off_delay: int  # µs, so long inside before it is normal again
    priority: AlarmPriority
    latch: bool

    @property
    def is_level(self) -> bool:
        """Whether it limits the value itself."""
        return self.is_high or self.name in ("lolo", "lo")

    @property
    def is_high(self) -> bool:
        """Whether it is an upper limit."""
        return self.name in ("hi", "hihi")


def limits_of(tag: Tag) -> tuple[Limit, ...]:
    """The limits of a tag, in the order of :data:`LIMITS`; empty: the tag has no alarms."""
    delay, off_delay = _us(tag.alarm_delay), _us(tag.alarm_off_delay)
    limits = []
    for name in LIMITS:
        threshold = _threshold(tag, name)
        if threshold is None:
            continue
        deadband = {"lolo": tag.alarm_deadband, "lo": tag.alarm_deadband}.get(name, -tag.alarm_deadband)
        clear_threshold = threshold + deadband if name in ("lolo", "lo", "hi", "hihi") else threshold
        raise_delay = 0 if name == "stale" else delay  # its threshold is one already
        clear_delay = 0 if name == "stale" else off_delay
        limits.append(
            Limit(name, threshold, clear_threshold, raise_delay, clear_delay, tag.alarm_priority, tag.alarm_latch)
        )
    return tuple(limits)


def _threshold(tag: Tag, name: LimitName) -> float | None:
    if name == "bad":
        return 0.0 if tag.alarm_bad else None
    value: float | None = getattr(tag, f"alarm_{name}")
    return value


def _us(seconds: float | None) -> int:
    return round((seconds or 0.0) * 1e6)
