"""Filters samples of channels whose source timestamp does not advance.

The table has one sample per channel and time; the first one is kept. Further ones would be rejected by the database,
which each time costs the writer the fast path for the whole group. So known repeats are dropped here. An
identical repeat has no information. Another value is a conflict: the 1st, 2nd, 4th, 8th … of them is an event.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest import metrics
from ingest.batch import Event, Float64s, Int64s, UInt32s
from ingest.opcua.tags import Tags
from ingest.timestamps import iso

_NONE = np.iinfo(np.int64).min  # no sample


class RepeatedTimestamps:
    """The last sample on disk of each channel, in columns by index. Only stored samples count: what was
    received but not stored comes again."""

    def __init__(self, tags: Tags) -> None:
        n = len(tags)
        self._tags = tags
        self._time = np.full(n, _NONE, np.int64)  # µs
        self._value = np.zeros(n, np.float64)
        self._status = np.zeros(n, np.uint32)
        self._refused = np.zeros(n, np.int64)  # number of conflicts with it

    def filter(
        self, place: UInt32s, time: Int64s, value: Float64s, status: UInt32s, arrival: int
    ) -> tuple[NDArray[np.bool_] | None, list[Event]]:
        """Mask of the samples to keep, None: all; and the conflicts to record."""
        again = self._time[place] == time
        if not again.any():
            return None, []
        equal = value.view(np.uint64) == self._value[place].view(np.uint64)
        differs = np.flatnonzero(again & ~(equal & (status == self._status[place])))
        metrics.conflicts.inc(len(differs))
        events: list[Event] = []
        for k in differs.tolist():
            i = int(place[k])
            self._refused[i] += 1
            count = int(self._refused[i])
            if count & (count - 1) == 0:
                detail = {
                    "at": iso(int(time[k])),
                    "kept_value": repr(float(self._value[i])),
                    "kept_status": f"0x{int(self._status[i]):08X}",
                    "refused_value": repr(float(value[k])),
                    "refused_status": f"0x{int(status[k]):08X}",
                    "refused": count,
                }
                text = "time stands still"
                events.append(Event("conflict", arrival, int(self._tags.ids[i]), int(status[k]), text, detail))
        return ~again, events

    def stored(self, place: UInt32s, time: Int64s, value: Float64s, status: UInt32s) -> None:
        """These are on disk. Of several with the same time the first counts, as in the table; a text channel has no
        samples."""
        if self._tags.forms.exact is not None:
            number = ~self._tags.is_text[place]
            place, time, value, status = place[number], time[number], value[number], status[number]
        self._time[place] = time
        last = self._time[place] == time
        if not last.all():
            place, value, status = place[last], value[last], status[last]
        self._value[place[::-1]] = value[::-1]
        self._status[place[::-1]] = status[::-1]
        if self._refused.any():
            self._refused[place] = 0
