"""When polls are due: start + k × interval, whatever an earlier poll took; and what is so of a device that is slower.

A device that answers more slowly than its interval is polled as fast as it answers, and on a machine that is overloaded
polls are made as fast as it can: which of both it is, is measured. The polls that are left out are missing samples, and
are counted as such by the coverage, which knows the interval. They are no gaps: between two samples in a row nothing
happened to the device but that it is slow, and a gap each would paint the whole curve as missing. So an episode is said
once, as an event ``poll_stretched`` with the pace, by which gaps are measured meanwhile, and with who is slow.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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
        self._waited: deque[float] = deque(maxlen=_POLLS + 1)  # s, then
        self._waited_share = 0.0  # of the time of the last polls, in which the device was waited for
        self._shorter = 0  # polls one after another that took less than the pace, and more than the interval
        self.seconds = interval  # the interval, or more than that

    @property
    def stretched(self) -> bool:
        """Whether polls take longer than their interval."""
        return self.seconds > self._interval

    @property
    def answers(self) -> float:
        """Seconds of a poll for which the device was waited for; the rest is this machine's."""
        return self.seconds * self._waited_share

    @property
    def slow(self) -> str:
        """Who takes most of a poll: "device" or "machine"."""
        return "device" if self._waited_share >= 0.5 else "machine"

    def __str__(self) -> str:
        said = f"polls take {self.seconds:.3g} s, interval {self._interval:g} s"
        if not self.stretched:
            return said
        why = "" if self.slow == "device" else "this machine is overloaded, "
        return f"{said}: {why}the device answers in {self.answers:.3g} s"

    def figures(self) -> dict[str, Any]:
        """As an event has them."""
        figures: dict[str, Any] = {"interval_seconds": self._interval, "pace_seconds": round(self.seconds, 3)}
        return figures | ({"slow": self.slow, "answers_seconds": round(self.answers, 3)} if self.stretched else {})

    def interrupted(self) -> None:
        """No polls were made for a while, for another reason."""
        self._began.clear()
        self._waited.clear()

    def polls(self, now: float, waited: float = 0.0) -> bool:
        """A poll begins (s, of one steady clock). Returns whether the pace is another one now.

        ``waited``: s for which the device was waited for, since any time.
        """
        self._began.append(now)
        self._waited.append(waited)
        if len(self._began) <= _POLLS:
            return False
        share = (self._waited[-1] - self._waited[0]) / (self._began[-1] - self._began[0])
        self._waited_share = max(0.0, min(1.0, share))
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
