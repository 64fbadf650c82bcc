"""When the next group is taken: fewer, larger groups cost less a sample, as long as nobody waits for them too long.

The more samples a second there are, the longer a group gathers: a millisecond for each, so that those of a quiet plant
are written at once. It never gathers for longer than is left of ``max_delay`` behind the age that samples arrive with
and the time that writing takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_GATHER = 1e-3  # s, for each sample a second
_SETTLE = 3.0  # s, in which the measured rate follows
_FADE = 0.95  # of the slowest write and the oldest arrival, with each group: the last peaks count
_WRITES = 2.0  # times the slowest write are kept free
_FREE = 0.2  # of max_delay, for what nobody foresees


class Pace:
    """The beginnings of groups, of all connections of one writer."""

    def __init__(self, max_delay: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_delay = max_delay
        self._clock = clock
        self._taken = -math.inf
        self._rate = 0.0  # samples a second
        self._write = 0.0  # s
        self._age = max_delay / 2  # s; the most that is reckoned with, until it is known
        self._more = False

    def wait(self) -> float:
        """Seconds from now until the next group is to be taken; a group that was alone has none behind it."""
        if self._more:
            return 0.0
        return max(0.0, self._taken + self.between() - self._clock())

    def between(self) -> float:
        """Seconds from the beginning of a group to that of the next."""
        left = self._max_delay * (1 - _FREE) - self._age - _WRITES * self._write
        return max(0.0, min(self._rate * _GATHER, left))

    def took(self, rows: int, *, more: bool) -> None:
        """A group of so many samples was taken. ``more``: others were left, which need not gather."""
        now = self._clock()
        passed = now - self._taken
        self._rate += (rows / max(passed, 1e-3) - self._rate) * -math.expm1(-passed / _SETTLE)
        self._taken, self._more = now, more

    def wrote(self, seconds: float, age: float) -> None:
        """A group was written; ``age``: of its oldest sample when it arrived, which half of max_delay is left for."""
        self._write = max(seconds, self._write * _FADE)
        self._age = max(min(max(0.0, age), self._max_delay / 2), self._age * _FADE)
