"""The alarm limits of a channel, from the columns ``alarm_…`` of its tag."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from core.config.sources import AlarmPriority, Tag
from core.counters import increases

LimitName: TypeAlias = Literal["lolo", "lo", "hi", "hihi", "rate", "stale", "bad"]
LIMITS: tuple[LimitName, ...] = ("lolo", "lo", "hi", "hihi", "rate", "stale", "bad")


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a channel.

    ``threshold``: the value (lolo, lo, hi, hihi), units a second (rate) or seconds of silence (stale) beyond which
    the alarm is active; 0 for bad quality, which has none. The value is normal again at ``clear_threshold``.
    ``counter``: the rate is that of the increase.
    """

    name: LimitName
    threshold: float
    clear_threshold: float
    delay: int  # µs beyond the limit before the alarm is raised
    off_delay: int  # µs inside the limit before the alarm returns to normal
    priority: AlarmPriority
    latch: bool
    counter: bool = False
    wraps_at: float = math.inf  # of a counter: number of readings of its register

    def change(self, before: float, value: float) -> float:
        """The change from a value to the next one, from which the rate is computed."""
        if not self.counter:
            return value - before
        return float(increases(np.array([before]), np.array([value]), np.array([self.wraps_at]))[0])

    @property
    def is_level(self) -> bool:
        """Return whether it limits the value itself."""
        return self.is_high or self.name in ("lolo", "lo")

    @property
    def is_high(self) -> bool:
        """Return whether it is an upper limit."""
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
        raise_delay = 0 if name == "stale" else delay  # the threshold of stale is a delay
        clear_delay = 0 if name == "stale" else off_delay
        limits.append(
            Limit(
                name,
                threshold,
                clear_threshold,
                raise_delay,
                clear_delay,
                tag.alarm_priority,
                tag.alarm_latch,
                counter=tag.kind == "counter",
                wraps_at=math.inf if tag.wraps_at is None else tag.wraps_at,
            )
        )
    return tuple(limits)


def _threshold(tag: Tag, name: LimitName) -> float | None:
    if name == "bad":
        return 0.0 if tag.alarm_bad else None
    value: float | None = getattr(tag, f"alarm_{name}")
    return value


def _us(seconds: float | None) -> int:
    return round((seconds or 0.0) * 1e6)
