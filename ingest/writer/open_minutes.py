"""Minutes of the rollups that the writer makes: which are open, what is still on its way to them, when each is over.

A minute opens with the first group that has samples of it, and is closed when it has been over for a little longer than
samples take, and all groups that touch it are written. What comes for it later is late, and goes through rollup_dirty.
Groups are folded in the order in which they were taken, whatever order they were written in.

Where all that comes is behind our clock, a backlog that is caught up with or a plant that sends late, minutes go by the
newest of it: else all of them would be made from what is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ingest.batch import GapBatch, Int32s, Int64s, SampleBatch
from ingest.writer.counts import MINUTE_US
from ingest.writer.group import Columns, Group
from ingest.writer.minutes import NEVER
from ingest.writer.rollup_rows import Bools, Rows

_SECOND_US = 1_000_000
_AHEAD_US = 20 * _SECOND_US  # by which the time of a sample may be ahead of our clock
_LEAST_US = 2 * _SECOND_US  # that a minute stays open when it is over
_MOST_US = 45 * _SECOND_US  # see plant.open_for()
_FOLDED = 20_000  # rows at a time, or what there is when a minute is over
_BEHIND_US = MINUTE_US  # by less than that nobody is behind our clock, and for so long we remember who was
_WAITING = 500_000  # rows that wait for a group that was taken before them
_LONG = 2**62  # µs
_MOST_CHANNELS = 8_000_000  # ids above would be arrays of gigabytes


@dataclass(slots=True, eq=False)
class Taken:
    """A group that was taken from the spools."""

    minutes: range  # since 1970, that are open for it
    first: int = 0  # its oldest sample of them, µs
    columns: Columns | None = None  # of it that are new
    written: bool = False

    def __len__(self) -> int:
        return 0 if self.columns is None else len(self.columns)


class OpenMinutes:
    """Of one writer."""

    def __init__(self) -> None:
        self.gaps = GapBegins()
        self.left: list[int] = []  # rows of rollup_dirty of minutes that this writer does not make after all
        self._taken: deque[Taken] = deque()  # what is not yet folded
        self._rows: dict[int, list[int]] = {}  # of rollup_dirty, by minute
        self._closed_to = 0  # before this minute none opens
        self._lateness = [0, 0]  # µs, of the samples since the last minute was closed, and before that
        self._behind = [_LONG, _LONG]  # µs behind our clock that all samples were of late, and before that
        self._of_late = -_LONG  # since when that is, µs

    def take(self, group: Group, now: int, low: bool) -> Taken:
        """Call it for each group, in the order of taking. ``low``: of the lane that is not in order."""
        self.gaps.note(group)
        columns = group.columns
        if columns is None or low or int(columns.channel_id[0]) < 0 or int(columns.channel_id[-1]) >= _MOST_CHANNELS:
            return Taken(range(0))
        oldest, newest = int(columns.time.min()), int(columns.time.max())
        self._came(newest, now)
        clock = self._clock(now)
        first = max(self._closed_to, clock // MINUTE_US - 1, oldest // MINUTE_US)
        last = min((clock + _AHEAD_US) // MINUTE_US, newest // MINUTE_US)
        taken = Taken(range(first, last + 1), max(oldest, first * MINUTE_US))
        self._taken.append(taken)
        return taken

    def written(self, taken: Taken, fresh: Columns | None, rows: Mapping[int, int], now: int) -> None:
        """The database has it: ``fresh`` samples (None: not known which), and ``rows`` of rollup_dirty by minute."""
        taken.columns, taken.written = fresh, True
        for minute, row in rows.items():
            (self._rows.setdefault(minute, []) if minute in taken.minutes else self.left).append(row)
        if rows:
            self._lateness[0] = max(self._lateness[0], self._clock(now) - taken.first)

    def over(self, now: int) -> int | None:
        """The oldest minute, where it has been over for long enough."""
        minutes = [*self._rows, *(taken.minutes[0] for taken in self._taken if taken.minutes)]
        allowance = min(_MOST_US, max(_LEAST_US, max(self._lateness) * 3 // 2 + _SECOND_US))
        oldest = min(minutes, default=None)
        return oldest if oldest is not None and self._clock(now) >= (oldest + 1) * MINUTE_US + allowance else None

    def to_fold(self, all_written: bool) -> list[Taken]:
        """Groups that can be folded now, in order, which are forgotten; few at a time are not worth it."""
        ready: list[Taken] = []
        in_order = not all_written and sum(map(len, self._taken)) <= _WAITING
        for taken in self._taken:
            if in_order and not taken.written:
                break
            ready += [taken] if taken.written else []
        if not all_written and sum(map(len, ready)) < _FOLDED:
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


class GapBegins:
    """Since when each channel, or its source, has its newest gap: what was carried from before is not known then."""

    def __init__(self) -> None:
        self._of_channel: Int64s = np.zeros(0, np.int64)  # µs, by channel id
        self._source: Int32s = np.zeros(0, np.int32)  # by channel id
        self._of_source: dict[int, int] = {}  # µs

    def note(self, group: Group) -> None:
        """Gaps of a group that is about to be written, and whose channels there are."""
        for spooled in group.batches():
            batch = spooled.batch
            if isinstance(batch, SampleBatch):
                channel = batch.channel_id[(batch.channel_id >= 0) & (batch.channel_id < _MOST_CHANNELS)]
                self._grow(channel)
                self._source[channel] = batch.source_id
            elif isinstance(batch, GapBatch):
                for gap in batch.gaps:
                    if gap.channel_ids is None:
                        of_source = self._of_source
                        of_source[batch.source_id] = max(of_source.get(batch.source_id, NEVER), gap.from_time)
                        continue
                    channel = np.array([c for c in gap.channel_ids if 0 <= c < _MOST_CHANNELS], np.int32)
                    self._grow(channel)
                    self._of_channel[channel] = np.maximum(self._of_channel[channel], gap.from_time)

    def ended_before(self, rows: Rows) -> Bools:
        """Whether no gap began since what is carried into each row."""
        newest = self._of_channel[rows.channel_id]
        source = self._source[rows.channel_id]
        for of, begin in self._of_source.items():
            newest = np.where(source == of, np.maximum(newest, begin), newest)
        return rows.carried_time > newest

    def _grow(self, channel: Int32s) -> None:
        if (size := int(channel.max(initial=-1)) + 1) > len(self._source):
            more = size + size // 8 + 1024 - len(self._source)
            self._source = np.concatenate((self._source, np.zeros(more, np.int32)))
            self._of_channel = np.concatenate((self._of_channel, np.full(more, NEVER)))
