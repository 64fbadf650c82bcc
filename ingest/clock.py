"""Arrival times: this machine's clock, told by one that nobody sets.

Times go on with CLOCK_BOOTTIME, which counts while the process or the machine sleeps and is never set; NTP slews it as
it does the wall clock. They start at the wall clock and follow it: a small difference is made up by going a little
faster or slower, so that times stay in order and apart. Beyond a limit the wall clock was set: times begin anew there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from ingest.batch import Event

Look: TypeAlias = Callable[[], tuple[int, int]]  # (wall clock, steady clock), both in µs

_SLEW = 20  # times differ from elapsed time by one part in this many, at most
_AT_ONCE_US = 1000  # two clocks read within this time are read at once
_TRIES = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def steady() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def machine() -> tuple[int, int]:
    """This machine's wall clock and steady clock, µs, of one moment: a process may be suspended between two looks."""
    for _ in range(_TRIES):
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        wall = time.time_ns() // 1000
        after = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        if after - before <= _AT_ONCE_US:
            break
    return wall, after


@dataclass(frozen=True, slots=True)
class Step:
    """The wall clock was set. Times are µs."""

    before: int  # what the time would have been; later than any that was given
    after: int  # what it is

    @property
    def seconds(self) -> float:
        """Negative where the clock was set back."""
        return (self.after - self.before) / 1e6

    def event(self) -> Event:
        """The event ``clock_set``."""
        detail = {"from": _iso(self.before), "to": _iso(self.after), "step_seconds": round(self.seconds, 3)}
        return Event("clock_set", self.after, text="back" if self.seconds < 0 else "forward", detail=detail)


class ArrivalClock:
    """Gives times that are later than any before, but where :meth:`follow` says that the wall clock was set."""

    def __init__(self, limit: float, since: int = 0, look: Look = machine) -> None:
        """``limit``: s; ``since``: µs, the last time that an earlier process gave (0: none)."""
        self._limit = round(limit * 1e6)
        self._look = look
        wall, self._steady = look()
        self._base = max(wall, since)  # µs, the time at _steady
        self._behind = 0  # µs that the wall clock was ahead then
        self.last = since  # µs, the latest time that was given

    def allow(self, limit: float) -> None:
        """Another limit (s) from now on."""
        self._limit = round(limit * 1e6)

    def now(self, times: int = 1) -> int:
        """µs since 1970, the first of so many times, one µs apart, that are later than any given before."""
        first = max(self._at(self._look()[1]), self.last + 1)
        self.last = first + times - 1
        return first

    def follow(self) -> Step | None:
        """Look at the wall clock; returns how it was set, where it was."""
        wall, steady_us = self._look()
        reading = self._at(steady_us)
        if abs(wall - reading) > self._limit:
            step = Step(max(reading, self.last), wall)
            self._base, self._behind, self.last = wall, 0, wall - 1
        else:
            step, self._base, self._behind = None, reading, wall - reading
        self._steady = steady_us
        return step

    def _at(self, steady_us: int) -> int:
        elapsed = max(0, steady_us - self._steady)
        slew = elapsed // _SLEW
        return self._base + elapsed + max(-slew, min(self._behind, slew))


def _iso(us: int) -> str:
    return (_EPOCH + timedelta(microseconds=us)).isoformat()
