"""Decides when the next group is read: fewer, larger groups cost less per sample, but add latency.

The more samples per second, the longer a group gathers: 1 ms for each, so that a quiet plant's samples
are written immediately. The time is limited to what is left of ``max_delay`` after the age of arriving samples
and the duration of writes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_GATHER = 1e-3  # s per (sample/s)
_SETTLE = 3.0  # s, time constant of the measured rate
_FADE = 0.95  # decay, per group, of the slowest write and the oldest arrival
_WRITES = 2.0  # reserve, as a multiple of the slowest write
_FREE = 0.2  # reserve, as a fraction of max_delay


class GroupPace:
    """Schedules the groups of all connections of one writer."""

    def __init__(self, max_delay: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_delay = max_delay
        self._clock = clock
        self._taken = -math.inf
        self._rate = 0.0  # samples a second
        self._write = 0.0  # s
        self._age = max_delay / 2  # s; initially the maximum
        self._more = False

    def wait(self) -> float:
        """Seconds until the next group; 0 after a pause."""
        if self._more:
            return 0.0
        return max(0.0, self._taken + self.interval() - self._clock())

    def interval(self) -> float:
        """Seconds from the start of one group to the next."""
        left = self._max_delay * (1 - _FREE) - self._age - _WRITES * self._write
        return max(0.0, min(self._rate * _GATHER, left))

    def group_taken(self, rows: int, *, more: bool) -> None:
        """A group was read. ``more``: batches were left, so the next one need not wait."""
        now = self._clock()
        passed = now - self._taken
        self._rate += (rows / max(passed, 1e-3) - self._rate) * -math.expm1(-passed / _SETTLE)
        self._taken, self._more = now, more

    def group_written(self, seconds: float, age: float) -> None:
        """A group was committed; ``age``: of its oldest sample on arrival; at most half of max_delay counts."""
        self._write = max(seconds, self._write * _FADE)
        self._age = max(min(max(0.0, age), self._max_delay / 2), self._age * _FADE)
