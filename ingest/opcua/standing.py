"""Channels whose source timestamp stands still while notifications go on.

The table has one sample of a channel and time, and the first is kept. A second one would be refused by the database,
which costs the whole group of the writer its fast lane, each time; so what is known to be refused is kept out here. An
exact repeat says nothing new. Another value is a conflict: an event at the first, second, fourth, eighth … of them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from ingest import metrics
from ingest.batch import Event, Float64s, Int64s, UInt32s
from ingest.opcua.tags import Tags

_NONE = np.iinfo(np.int64).min  # no time of a sample
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Standing:
    """The last sample of each channel that is on disk, in columns by place. Only what is there makes a repeat: what was
    taken and not made durable comes again."""

    def __init__(self, tags: Tags) -> None:
        n = len(tags)
        self._tags = tags
        self._time = np.full(n, _NONE, np.int64)  # µs
        self._value = np.zeros(n, np.float64)
        self._status = np.zeros(n, np.uint32)
        self._refused = np.zeros(n, np.int64)  # conflicts with it

    def apart(
        self, place: UInt32s, time: Int64s, value: Float64s, status: UInt32s, arrival: int
    ) -> tuple[NDArray[np.bool_] | None, list[Event]]:
        """Which samples are to be kept, None: all; and what is to be said of the others."""
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
                    "at": (_EPOCH + timedelta(microseconds=int(time[k]))).isoformat(),
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
        """These are on disk. Of several with one time the first counts, as it does in the table; a text channel has no
        samples."""
        if self._tags.exact is not None:
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
