"""Order of lines, which tells the first from the second meaning of a local time as the clocks go back."""

from __future__ import annotations

import numpy as np

from core.batch import Int32s, Int64s
from history.imports.bad_input import BadField

_NEAR_US = 86_400_000_000  # of the same change of the clocks


class LineOrder:
    """The lines of each channel have to be in the order of time: where a time that occurs twice is not behind the one
    before, it is the second one, and so are those behind it."""

    def __init__(self) -> None:
        self._previous: dict[int, tuple[int, bool]] = {}  # channel → its last such time, and whether it is the second
        self._newest: dict[int, int] = {}  # channel → time of its last line

    def resolve(self, channel: Int32s, time: Int64s, later: Int64s) -> Int64s:
        """µs, (n,). ``time`` is that of the first meaning; ``later``: how much later the second one is, or 0.

        Raises BadField.
        """
        if not len(time):
            return time
        time = time.copy()
        for place in np.flatnonzero(later).tolist():
            number, first = int(channel[place]), int(time[place])
            before, second = self._previous.get(number, (-_NEAR_US, False))
            second = abs(first - before) < _NEAR_US and (second or first <= before)
            self._previous[number] = first, second
            if second:
                time[place] += later[place]
        order = np.argsort(channel, kind="stable")
        numbers, begins = np.unique(channel[order], return_index=True)
        before_it = np.concatenate((time[order][:1], time[order][:-1]))
        before_it[begins] = [self._newest.get(number, -(2**63)) for number in numbers.tolist()]
        if (back := np.flatnonzero(time[order] < before_it)).size:
            raise BadField(int(order[back].min()), "an earlier time", "lines in the order of time: see --ambiguous")
        ends = np.append(begins[1:], len(order)) - 1
        self._newest.update(zip(numbers.tolist(), time[order][ends].tolist(), strict=True))
        return time
