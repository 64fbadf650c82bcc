"""Values that a server sends after a gap although they have not changed since before it.

A new monitored item begins with the current value. If that has not changed since before the gap, its source timestamp
is older, too (OPC 10000-4, 7.11), so that it is the sample that the table has already, and nothing says that the value
is known again: that of a set point for days. So it is stored once more, just after the gap. That is what the server has
said then; whether the value was another one within the gap stays unknown.

If the next value of the item is dated before the end of the gap, too, it is stored once more as well, or else the last
value by time would be the one before. There it ends: while the clock of a source is set back, all values are dated so.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s, UInt32s

Statements: TypeAlias = tuple[NDArray[np.intp], Int64s]  # samples of a message; times (µs) to store them at, too

_NONE: Statements = np.empty(0, np.intp), np.empty(0, np.int64)
_MOST = 2  # statements of an item after a gap


class Unchanged:
    """Columns over a source's tags, all of length n."""

    def __init__(self, n: int) -> None:
        self._since = np.zeros(n, np.int64)  # µs, begin of the gap
        self._until = np.zeros(n, np.int64)  # µs, end of the gap; 0: nothing more is to be stated
        self._first = np.zeros(n, np.int64)  # sequence number of the first message that can have the current value
        self._count = np.zeros(n, np.int64)  # statements after the gap so far
        self._time = np.zeros(n, np.int64)  # µs, source timestamp of the value stated last
        self._message = np.zeros(n, np.int64)  # sequence number of the message that it came with
        self._stored = np.zeros(n, bool)  # that statement is on disk
        self._awaits = False  # any

    def keep(self, stay: NDArray[np.intp], before: Unchanged, places: list[int]) -> None:
        """The state of remaining channels, from their ``places`` before."""
        for mine, theirs in (
            (self._since, before._since),
            (self._until, before._until),
            (self._first, before._first),
            (self._count, before._count),
            (self._time, before._time),
            (self._message, before._message),
            (self._stored, before._stored),
        ):
            mine[stay] = theirs[places]
        self._awaits = before._awaits

    def expect(self, places: NDArray[np.intp], since: int, until: int, first: int) -> None:
        """The next values of these places are the current ones, after a gap (µs).

        ``first``: the sequence number of the first message in which they may be. One from before may wait still, until
        a lost one is requested, and its values were the current ones before the gap.
        """
        self._since[places], self._until[places], self._count[places] = since, until, 0
        self._first[places] = first
        self._awaits = True

    def find(self, place: UInt32s, time: Int64s, message: int) -> Statements:
        """Values of a data change to be stored again at the end of their gaps.

        They are the same if the message comes again before :meth:`stored`.

        ``message``: its sequence number. An older value in the same message waited in a queue: it is not the last one.

        The time is not the end of the gap itself: where timestamps have milliseconds, a sample may have that.
        """
        if not self._awaits:
            return _NONE
        awaited = np.flatnonzero((self._until[place] != 0) & (self._first[place] <= message))
        if not len(awaited):
            return _NONE
        awaited = awaited[np.lexsort((time[awaited], place[awaited]))]
        newest = awaited[np.append(np.diff(place[awaited]) != 0, True)]  # of each item
        place, time = place[newest], time[newest]
        queued = (self._count[place] > 0) & (self._message[place] == message) & (time < self._time[place])
        newest, place, time = newest[~queued], place[~queued], time[~queued]
        count, until = self._count[place], self._until[place]
        same = (count > 0) & (time == self._time[place])
        new = ~same & (count < _MOST) & (time <= np.where(count == 0, self._since[place], until))
        self._time[place[new]], self._stored[place[new]] = time[new], False
        self._count[place[new]] += 1
        self._message[place[new]] = message
        if not (same | new).all():
            self._until[place[~(same | new)]] = 0
            self._awaits = bool(self._until.any())
        due = new | (same & ~self._stored[place])
        return newest[due], until[due] + self._count[place[due]]

    def stored(self, place: UInt32s) -> None:
        """Values of these channels that were found are on disk."""
        self._stored[place] = True
