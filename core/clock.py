"""Arrival times: the wall clock of this machine, interpolated by a clock that is never set.

Times go on with CLOCK_BOOTTIME, which counts while the process or the machine sleeps and is never set; NTP slews it as
it does the wall clock. Arrival times start at the wall clock and follow it: a small difference is slewed away,
so that times stay distinct and in order. A difference beyond a limit means that the wall clock was set: a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from core.batch import Event
from core.timestamps import iso

ReadClocks: TypeAlias = Callable[[], tuple[int, int]]  # (wall clock, steady clock), both in µs

_SLEW = 20  # times differ from elapsed time by at most 1/20
_MAX_READ_US = 20  # between two reads of clocks that count as simultaneous
_MAX_READS = 10  # on a slower machine; the fastest read counts


def boot_seconds() -> float:
    """Seconds of CLOCK_BOOTTIME, which is never set and continues while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def machine_clocks() -> tuple[int, int]:
    """This machine's wall clock and steady clock, µs, of one moment: a process may be suspended between two reads.

    The steady clock is read first: a time made of both is no earlier than the wall clock's.
    """
    reads: list[tuple[int, int, int]] = []
    while len(reads) < _MAX_READS:
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        wall = time.time_ns()
        elapsed = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - before
        reads.append((elapsed, wall, before))
        if elapsed <= _MAX_READ_US * 1000:
            break
    _, wall, before = min(reads)
    return wall // 1000, before // 1000


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A step of the wall clock. Times are µs."""

    before: int  # the time without the step; later than any that was returned
    after: int  # the time after it

    @property
    def seconds(self) -> float:
        """Size of the step (s), negative if the clock was set back."""
        return (self.after - self.before) / 1e6

    def event(self) -> Event:
        """The event ``clock_set``."""
        detail = {"from": iso(self.before), "to": iso(self.after), "step_seconds": round(self.seconds, 3)}
        return Event("clock_set", self.after, text="back" if self.seconds < 0 else "forward", detail=detail)


class ArrivalClock:
    """Strictly increasing times, except across a clock step that :meth:`detect_step` reports."""

    def __init__(self, limit: float, since: int = 0, read_clocks: ReadClocks = machine_clocks) -> None:
        """``limit``: s; ``since``: µs, the last time that an earlier process returned (0: none)."""
        self._limit = round(limit * 1e6)
        self._read_clocks = read_clocks
        wall, self._base_boot_us = read_clocks()
        self._base = max(wall, since)  # µs, the time at _base_boot_us
        self._lag_us = 0  # µs by which the wall clock was ahead then
        self.last = since  # µs, the latest time that was returned

    def set_limit(self, limit: float) -> None:
        """Set another limit (s)."""
        self._limit = round(limit * 1e6)

    def now(self, times: int = 1) -> int:
        """The first (µs since 1970) of ``times`` timestamps, one µs apart, all later than any before."""
        first = max(self._time_at(self._read_clocks()[1]), self.last + 1)
        self.last = first + times - 1
        return first

    def detect_step(self) -> ClockStep | None:
        """Compare with the wall clock; return the step if it was set, else None."""
        wall, boot_us = self._read_clocks()
        reading = self._time_at(boot_us)
        if abs(wall - reading) > self._limit:
            step = ClockStep(max(reading, self.last), wall)
            self._base, self._lag_us, self.last = wall, 0, wall - 1
        else:
            step, self._base, self._lag_us = None, reading, wall - reading
        self._base_boot_us = boot_us
        return step

    def _time_at(self, boot_us: int) -> int:
        elapsed = max(0, boot_us - self._base_boot_us)
        slew = elapsed // _SLEW
        return self._base + elapsed + max(-slew, min(self._lag_us, slew))
