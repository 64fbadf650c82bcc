"""When polls are due: start + k × interval, whatever an earlier poll took."""

from __future__ import annotations

from dataclasses import dataclass


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

    def made(self) -> None:
        """The poll that was due is over."""
        self.due += self.interval
