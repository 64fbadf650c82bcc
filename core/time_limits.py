"""Limits of a time around its arrival: samples outside are quarantined, and change neither alarms nor gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.timestamps import EARLIEST_US, LATEST_US

if TYPE_CHECKING:  # commands read the settings of processes without numpy
    import numpy as np
    from numpy.typing import NDArray

    from core.batch import Int64s


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """``[writer] future_limit`` and ``oldest``. Data outside would create chunks decades away."""

    future: float  # s
    oldest: float  # s

    def bounds(self, received_at: int) -> tuple[int, int]:
        """The earliest and latest valid time (µs) of data that arrived at ``received_at``."""
        earliest = received_at - round(self.oldest * 1e6)
        return max(EARLIEST_US, earliest), min(LATEST_US, received_at + round(self.future * 1e6))

    def inside(self, received_at: int, time: Int64s, source_id: int = 0) -> NDArray[np.bool_]:
        """Mask of the times (µs) within the bounds, (n,), for data of a source (0: none)."""
        earliest, latest = self.bounds(received_at)
        return (time >= earliest) & (time <= latest)

    def reason(self, received_at: int, time: int) -> Literal["future", "ancient", "days"]:
        """The quarantine reason of a time that is not inside."""
        earliest, latest = self.bounds(received_at)
        return "future" if time > latest else "ancient" if time < earliest else "days"


NO_LIMITS = TimeLimits(1e12, 1e12)
