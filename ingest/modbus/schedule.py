"""When polls are due: start + k × interval, whatever an earlier poll took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Schedule:
    """Due times of one interval; times are seconds of one monotonic clock."""

    interval: float
    due: float  # the next one

    def done(self, now: float) -> int:
        """The poll that was due is over at ``now``: set the next due time, return how many were missed meanwhile."""
        missed = max(0, int((now - self.due) / self.interval))
        self.due += (missed + 1) * self.interval
        return missed
