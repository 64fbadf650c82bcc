"""Poll schedule (start + k × interval, without drift), and the actual pace of devices that are slower.

A device that is slower than its interval is polled as fast as it responds, and an overloaded machine
polls as fast as it can; which of the two applies is measured. Skipped polls are missing samples and
reduce the coverage, which is based on the interval. They are not gaps: between two samples nothing
happened except that the device is slow, and one gap per sample would show the whole trend as missing. So an episode is
recorded once, as an event ``poll_stretched`` with its cause and the pace, which defines gaps meanwhile.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_POLLS = 3  # one after another that are late, or in time again, and a new pace is known
_LATE = 1.1  # times the interval
_TOLERANCE = 1.5  # times the pace, or one part in so many, is another pace
_MIN_SHORTER_POLLS = 10  # polls before a shorter pace is known: those of a machine that is overloaded vary


@dataclass(slots=True)
class Schedule:
    """Due times of one interval; times are seconds of one monotonic clock."""

    interval: float
    due: float  # the next one

    def skip(self, now: float) -> int:
        """Skip all due polls but the last, which can still be made late; return how many were skipped."""
        missed = max(0, int((now - self.due) / self.interval))
        self.due += missed * self.interval
        return missed

    @property
    def next(self) -> float:
        """Time at which the poll after the due one will be due."""
        return self.due + self.interval

    def poll_done(self) -> None:
        """The due poll is done."""
        self.due += self.interval


class PollPace:
    """The actual interval between polls."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._began: deque[float] = deque(maxlen=_POLLS + 1)  # s, the last polls
        self._waited: deque[float] = deque(maxlen=_POLLS + 1)  # s, then
        self._waited_share = 0.0  # of the time of the last polls, in which the device was waited for
        self._shorter_polls = 0  # polls one after another that took less than the pace, and more than the interval
        self.seconds = interval  # the interval, or more than that

    @property
    def stretched(self) -> bool:
        """Whether polls take longer than their interval."""
        return self.seconds > self._interval

    @property
    def answer_seconds(self) -> float:
        """Seconds of a poll spent waiting for the device; the rest is due to this machine."""
        return self.seconds * self._waited_share

    @property
    def bottleneck(self) -> str:
        """The bottleneck: "device" or "machine"."""
        return "device" if self._waited_share >= 0.5 else "machine"

    def __str__(self) -> str:
        text = f"polls take {self.seconds:.3g} s, interval {self._interval:g} s"
        if not self.stretched:
            return text
        why = "" if self.bottleneck == "device" else "this machine is overloaded, "
        return f"{text}: {why}the device answers in {self.answer_seconds:.3g} s"

    def figures(self) -> dict[str, Any]:
        """The figures for an event."""
        figures: dict[str, Any] = {"interval_seconds": self._interval, "pace_seconds": round(self.seconds, 3)}
        return figures | (
            {"slow": self.bottleneck, "answers_seconds": round(self.answer_seconds, 3)} if self.stretched else {}
        )

    def interrupted(self) -> None:
        """Restart the measurement after an interruption for another reason."""
        self._began.clear()
        self._waited.clear()

    def poll_started(self, now: float, waited: float = 0.0) -> bool:
        """A poll starts at ``now`` (s, boot clock). Returns whether the pace changed.

        ``waited``: cumulative s spent waiting for the device.
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
            self.stretched and self.seconds / _TOLERANCE <= middle <= self.seconds * _TOLERANCE
        ):
            new = self.seconds
        elif middle < self.seconds and self._shorter_polls < _MIN_SHORTER_POLLS:
            self._shorter_polls += 1
            return False
        else:
            new = middle
        self._shorter_polls = 0
        changed, self.seconds = new != self.seconds, new
        return changed
