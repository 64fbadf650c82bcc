"""Limits of the days that a source may write to within an hour."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from core.batch import NO_SOURCE, Int64s
from core.config.model import WriterOptions
from core.time_limits import TimeLimits
from core.timestamps import DAY_US, HOUR_US

_RECENT_DAYS = 7  # around the arrival, which are not counted: they are there in any case
_MAX_HOURS = 1000  # of sources, remembered


@dataclass(frozen=True, slots=True)
class DayLimits(TimeLimits):
    """The time limits of the writer: besides, of data that a source sends within an hour, only ``days`` days count.

    It remembers the days of each source and hour: newest first, they are admitted until there are enough, and stay so.
    """

    days: int
    _admitted: OrderedDict[tuple[int, int], set[int]] = field(default_factory=OrderedDict, compare=False)

    @classmethod
    def of_options(cls, options: WriterOptions) -> DayLimits:
        """Limits that the configuration has."""
        return cls(options.future_limit, options.oldest, options.days_per_hour)

    def inside(self, received_at: int, time: Int64s, source_id: int = NO_SOURCE) -> NDArray[np.bool_]:
        """Mask of the times (µs) within the bounds and on days that are admitted, (n,)."""
        within = TimeLimits.inside(self, received_at, time)
        far = within & (np.abs(time - received_at) > _RECENT_DAYS * DAY_US)
        if not far.any():
            return within
        day = time // DAY_US
        admitted = self._admitted_of(source_id, received_at // HOUR_US)
        for new in reversed(np.unique(day[far]).tolist()):
            if len(admitted) >= self.days:
                break
            admitted.add(new)
        inside: NDArray[np.bool_] = within & (~far | np.isin(day, list(admitted)))
        return inside

    def _admitted_of(self, source_id: int, hour: int) -> set[int]:
        admitted = self._admitted.setdefault((source_id, hour), set())
        if len(self._admitted) > _MAX_HOURS:
            self._admitted.popitem(last=False)
        return admitted
