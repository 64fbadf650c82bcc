"""Values that a server states again after a gap although they have not changed since before it.

A new monitored item begins with the current value. If that has not changed since before the gap, its source timestamp
is older, too (OPC 10000-4, 7.11), so that it is the sample that the table has already, and nothing says that the value
is known again: that of a set point for days. So it is stored a second time, at the end of the gap. That is what the
server has said then; whether the value was another one within the gap stays unknown.

If a change with a time before the end of the gap comes after that, it is stated, too, a microsecond later: the last
statement is the value at the end of the gap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.batch import Int64s, UInt32s


class Statements(NamedTuple):
    """Samples of a message to be stored a second time, as columns of equal length."""

    at: NDArray[np.intp]  # in the message
    place: UInt32s
    time: Int64s  # µs, of the second one


_NONE = Statements(np.empty(0, np.intp), np.empty(0, np.uint32), np.empty(0, np.int64))


class Unchanged:
    """Columns over a source's tags, all of length n."""

    def __init__(self, n: int) -> None:
        self._since = np.zeros(n, np.int64)  # µs, begin of the gap; of a value that was stated: its own time
        self._until = np.zeros(n, np.int64)  # µs, end of the gap, or after the last statement; 0: none is expected
        self._stated = np.zeros(n, bool)
        self._awaits = False  # any

    def keep(self, stay: NDArray[np.intp], before: Unchanged, places: list[int]) -> None:
        """The state of remaining channels, from their ``places`` before."""
        self._since[stay], self._until[stay] = before._since[places], before._until[places]
        self._stated[stay], self._awaits = before._stated[places], before._awaits

    def expect(self, places: NDArray[np.intp], since: int, until: int) -> None:
        """The next values of these places are the current ones, after a gap (µs)."""
        self._since[places], self._until[places], self._stated[places] = since, until, False
        self._awaits = True

    def find(self, place: UInt32s, time: Int64s) -> Statements:
        """What is to be stated in a message; :meth:`stored` once it is on disk."""
        if not self._awaits:
            return _NONE
        last: dict[int, int] = {}  # place → the last value from before the end of the gap
        for k in np.flatnonzero(time < self._until[place]).tolist():
            last[int(place[k])] = k
        taken = set(place[time == self._until[place]].tolist())  # by a sample of that time
        # A value that changed within the gap holds since then.
        again = [k for i, k in last.items() if i not in taken and (time[k] > self._since[i]) == self._stated[i]]
        if not again:
            return _NONE
        at = np.array(again, np.intp)
        return Statements(at, place[at], self._until[place[at]])

    def stored(self, place: UInt32s, time: Int64s, found: Statements) -> None:
        """A message is on disk, with these statements."""
        if not self._awaits:
            return
        self._stated[found.place] = True
        self._since[found.place], self._until[found.place] = time[found.at], found.time + 1
        self._until[place[~self._stated[place] | (time >= self._until[place])]] = 0
        self._awaits = bool(self._until.any())
