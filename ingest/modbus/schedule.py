"""When polls are due: start + k × interval, whatever an earlier poll took; and what is so of a device that is slower.

A device that answers more slowly than its interval is polled as fast as it answers, and on a machine that is overloaded
polls are made as fast as it can. The polls that are left out are
missing samples, and are counted as such by the coverage, which knows the interval. They are no gaps: between two
samples in a row nothing happened to the device but that it is slow, and a gap each would paint the whole curve as
missing. So an episode is said once, as an event ``poll_stretched`` with the pace, by which gaps are measured meanwhile.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

_POLLS = 3  # one after another that are late, or in time again, and a new pace is known
_LATE = 1.1  # times the interval
_OTHER = 1.5  # times the pace, or one part in so many, is another pace
_SHORTER = 10  # polls before a shorter pace is known: those of a machine that is overloaded vary


@dataclass(slots=True)
class Schedule:
    """Due times of one interval; times are seconds of one monotonic clock."""

    interval: float
    due: float  # the next one

    def skip(self, now: float) -> int:
        """Give up every due poll but the last; returns how many. The last one can still be made, late."""
        missed = max(0, int((now - self.due) / self.interval))
        self.due += missed * self.interval
        return missed

    @property
    def next(self) -> float:
        """When the poll behind the one that is due will be."""
        return self.due + self.interval

    def made(self) -> None:
        """The poll that was due is over."""
        self.due += self.interval


class Pace:
    """How far apart polls really are."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._began: deque[float] = deque(maxlen=_POLLS + 1)  # s, the last polls
        self._shorter = 0  # polls one after another that took less than the pace, and more than the interval
        self.seconds = interval  # the interval, or more than that

    @property
    def stretched(self) -> bool:
        """Whether polls take longer than their interval."""
        return self.seconds > self._interval

    def interrupted(self) -> None:
        """No polls were made for a while, for another reason."""
        self._began.clear()

    def polls(self, now: float) -> bool:
        """A poll begins (s, of one steady clock). Returns whether the pace is another one now."""
        self._began.append(now)
        if len(self._began) <= _POLLS:
            return False
        least, middle, _ = sorted(after - before for before, after in pairwise(self._began))
        if middle <= _LATE * self._interval:
            new = self._interval
        elif least <= _LATE * self._interval or (
            self.stretched and self.seconds / _OTHER <= middle <= self.seconds * _OTHER
        ):
            new = self.seconds
        elif middle < self.seconds and self._shorter < _SHORTER:
            self._shorter += 1
            return False
        else:
            new = middle
        self._shorter = 0
        changed, self.seconds = new != self.seconds, new
        return changed
