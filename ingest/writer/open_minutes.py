"""Minutes of the rollups that the writer makes: which are open, what is still on its way to them, when each is over.

A minute opens with the first group that has samples of it, and is closed when it has been over for a little longer than
samples take, and all groups that touch it are written. What comes for it later is late, and goes through rollup_dirty.
A gap touches the minute that it begins in.
Groups are folded in the order in which they were taken, whatever order they were written in.

Where all that comes is behind our clock, a backlog that is caught up with or a plant that sends late, minutes go by the
newest of it: else all of them would be made from what is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.batch import Int32s
from ingest.writer.counts import MINUTE_US
from ingest.writer.group import NO_COLUMNS, Columns, Group
from ingest.writer.minutes import NO_GAPS, Begins
from ingest.writer.transaction import Written

_SECOND_US = 1_000_000
_AHEAD_US = 20 * _SECOND_US  # by which the time of a sample may be ahead of our clock
_LEAST_US = 2 * _SECOND_US  # that a minute stays open when it is over
_MOST_US = 45 * _SECOND_US  # see plant.open_for()
_STUCK_US = 10 * _SECOND_US  # and so much longer where a group is not written
_FOLDED = 20_000  # rows at a time, or what there is when a minute is over
_BEHIND_US = MINUTE_US  # by less than that nobody is behind our clock, and for so long we remember who was
_WAITING = 500_000  # rows that wait for a group that was taken before them
_LONG = 2**62  # µs
_MOST_CHANNELS = 8_000_000  # ids above would be arrays of gigabytes


@dataclass(slots=True, eq=False)
class Taken:
    """A group that was taken from the spools."""

    minutes: range  # since 1970, that are open for it
    columns: Columns = NO_COLUMNS  # of it that are new
    gaps: Begins = NO_GAPS  # of it that are new
    written: bool = False

    def __len__(self) -> int:
        return len(self.columns)


class OpenMinutes:
    """Of one writer."""

    def __init__(self) -> None:
        self.left: list[int] = []  # rows of rollup_dirty of minutes that this writer does not make after all
        self._taken: deque[Taken] = deque()  # what is not yet folded
        self._rows: dict[int, list[int]] = {}  # of rollup_dirty, by minute
        self._closed_to = 0  # before this minute none opens
        self._lateness = [0, 0]  # µs, of the samples since the last minute was closed, and before that
        self._behind = [_LONG, _LONG]  # µs behind our clock that all samples were of late, and before that
        self._of_late = -_LONG  # since when that is, µs

    def take(self, group: Group, now: int, low: bool) -> Taken:
        """Call it for each group, in the order of taking. ``low``: of the lane that is not in order."""
        columns, gaps = group.columns or NO_COLUMNS, [gap for batch in group.gaps() for gap in batch.gaps]
        if low or not _fits(columns.channel_id) or not all(_fits(gap.channel_ids or ()) for gap in gaps):
            return Taken(range(0))
        begins = [gap.from_time for gap in gaps if gap.to_time != gap.from_time]
        times = np.concatenate((columns.time, np.array(begins, np.int64)))
        if not len(times):
            return Taken(range(0))
        if len(columns):
            self._came(int(columns.time.max()), now)
        clock = self._clock(now)
        first = max(self._closed_to, clock // MINUTE_US - 1, int(times.min()) // MINUTE_US)
        last = min((clock + _AHEAD_US) // MINUTE_US, int(times.max()) // MINUTE_US)
        taken = Taken(range(first, last + 1))
        self._taken.append(taken)
        return taken

    def written(self, taken: Taken, now: int, by: Written | None) -> None:
        """The database has it; ``by`` the transaction of all of it, None: there was none."""
        taken.written = True
        if by is None:
            return
        taken.columns, taken.gaps = by.fresh or NO_COLUMNS, by.gaps
        for minute, rows in by.opened.items():
            known = self._rows.setdefault(minute, []) if minute in taken.minutes else self.left
            known += rows
        times, clock = np.concatenate((taken.columns.time, by.gaps.time)), self._clock(now)
        times = times[times >= taken.minutes.start * MINUTE_US]
        if by.opened:
            self._lateness[0] = max(self._lateness[0], clock - int(times.min(initial=clock)))

    def over(self, now: int) -> int | None:
        """The oldest minute, where it has been over for long enough."""
        minutes = [*self._rows, *(taken.minutes[0] for taken in self._taken if taken.minutes)]
        allowance = min(_MOST_US, max(_LEAST_US, max(self._lateness) * 3 // 2 + _SECOND_US))
        oldest = min(minutes, default=None)
        return oldest if oldest is not None and self._clock(now) >= (oldest + 1) * MINUTE_US + allowance else None

    def to_fold(self, now: int, over: int | None) -> list[Taken]:
        """Groups that can be folded now, in order, which are forgotten; few at a time are not worth it as long as no
        minute is ``over``. One that is not written holds up those behind it, but not without an end."""
        late = over is not None and self._clock(now) >= (over + 1) * MINUTE_US + _MOST_US + _STUCK_US
        in_order = not late and sum(map(len, self._taken)) <= _WAITING
        ready: list[Taken] = []
        for taken in self._taken:
            if in_order and not taken.written:
                break
            ready += [taken] if taken.written else []
        if over is None and sum(map(len, ready)) < _FOLDED:
            return []
        gone = set(map(id, ready))
        self._taken = deque(taken for taken in self._taken if id(taken) not in gone)
        return ready

    def close(self, minute: int) -> list[int] | None:
        """The rows of rollup_dirty of ``minute``, which is no longer open; None: samples of it are on their way."""
        if any(minute in taken.minutes for taken in self._taken):
            return None
        self._closed_to = minute + 1
        self._lateness = [0, self._lateness[0]]
        return self._rows.pop(minute, [])

    def leave(self) -> None:
        """All minutes, and what is on its way to them: they are made from what is stored."""
        for rows in self._rows.values():
            self.left += rows
        self._rows.clear()
        for taken in self._taken:
            taken.minutes = range(0)

    def _came(self, newest: int, now: int) -> None:
        """A group whose newest sample is of that time."""
        passed = now - self._of_late
        if passed >= _BEHIND_US:
            self._behind = [_LONG, self._behind[0] if passed < 2 * _BEHIND_US else _LONG]
            self._of_late = now
        self._behind[0] = min(self._behind[0], max(0, now - newest))

    def _clock(self, now: int) -> int:
        """By which minutes open and are over."""
        behind = min(self._behind)
        return now - behind if behind >= _BEHIND_US else now


def _fits(channels: Sequence[int] | Int32s) -> bool:
    """Whether the ids, ascending, can be places in arrays."""
    return not len(channels) or 0 <= int(channels[0]) <= int(channels[-1]) < _MOST_CHANNELS
