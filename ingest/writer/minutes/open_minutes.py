"""Tracks the rollup minutes computed by the writer: which are open, pending groups, when each is due.

A minute opens with the first group that has samples of it. It is due when it has been over for a little longer than
samples take to arrive and all groups that touch it are committed. Later samples go through rollup_dirty.
A gap touches the minute in which it starts.
Groups are accumulated in the order in which they were read, whatever the order of their commits.

If all samples are late (a backlog, or a plant that sends late), minutes follow the newest sample
instead of the clock: otherwise all of them would be computed from stored samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.batch import Int32s
from core.samples import NO_SAMPLES, Samples
from core.timestamps import MINUTE_US
from ingest.writer.transaction.group import Group
from ingest.writer.transaction.rows import NO_GAPS, GapStarts
from ingest.writer.transaction.write import WriteResult

_SECOND_US = 1_000_000
_MAX_LEAD_US = 20 * _SECOND_US  # how far a sample may be ahead of the clock
_LEAST_US = 2 * _SECOND_US  # how long a minute stays open at least after its end
_MOST_US = 45 * _SECOND_US  # see plant.open_minute_limit()
_UNCOMMITTED_US = 10 * _SECOND_US  # additional time while a group is not committed
_FOLD_ROWS = 20_000  # rows accumulated at a time; fewer when a minute is due
_ON_TIME_US = MINUTE_US  # samples less late than this are on time; also how long lateness is remembered
_MAX_WAITING = 500_000  # rows waiting for an earlier group
_FOREVER_US = 2**62  # µs
_MOST_CHANNELS = 8_000_000  # higher ids would need arrays of gigabytes


@dataclass(slots=True, eq=False)
class PendingGroup:
    """A group read from the spools."""

    minutes: range  # since 1970, open for it
    samples: Samples = NO_SAMPLES  # the new ones
    gaps: GapStarts = NO_GAPS  # the new ones
    written: bool = False

    def __len__(self) -> int:
        return len(self.samples)


class OpenMinutes:
    """Minutes that a writer computes, until they are closed."""

    def __init__(self) -> None:
        self.databases = 1  # that were written to: rows are of the last one
        self.released: list[int] = []  # rows of rollup_dirty of minutes that this writer does not compute after all
        self._pending: deque[PendingGroup] = deque()  # not yet accumulated
        self._rows: dict[int, list[int]] = {}  # of rollup_dirty, by minute
        self._closed_to = 0  # no minute before this one is opened
        self._lateness = [0, 0]  # µs, of samples since the last minute was closed, and before
        self._behind = [_FOREVER_US, _FOREVER_US]  # µs by which all recent samples were behind the clock, and before
        self._behind_since = -_FOREVER_US  # µs: since when

    def add(self, group: Group, now: int, low_priority: bool) -> PendingGroup:
        """Add a group; groups come in the order of reading. ``low_priority``: low priority, not in order of time."""
        samples, gaps = group.samples, [gap for batch in group.gaps() for gap in batch.gaps]
        if low_priority or not _fits(samples.channel) or not all(_fits(gap.channel_ids or ()) for gap in gaps):
            return PendingGroup(range(0))
        begins = [gap.from_time for gap in gaps if gap.to_time != gap.from_time]
        times = np.concatenate((samples.time, np.array(begins, np.int64)))
        if not len(times):
            return PendingGroup(range(0))
        if len(samples):
            self._observe_age(int(samples.time.max()), now)
        clock = self._clock(now)
        first = max(self._closed_to, clock // MINUTE_US - 1, int(times.min()) // MINUTE_US)
        last = min((clock + _MAX_LEAD_US) // MINUTE_US, int(times.max()) // MINUTE_US)
        pending = PendingGroup(range(first, last + 1))
        self._pending.append(pending)
        return pending

    def written(self, pending: PendingGroup, now: int, result: WriteResult | None) -> None:
        """The group is committed; ``result``: the result of its one transaction, None: it took several."""
        pending.written = True
        if result is None:
            return
        pending.samples, pending.gaps = result.fresh, result.gaps
        for minute, rows in result.opened.items():
            row_ids = self._rows.setdefault(minute, []) if minute in pending.minutes else self.released
            row_ids += rows
        times, clock = np.concatenate((pending.samples.time, result.gaps.time)), self._clock(now)
        times = times[times >= pending.minutes.start * MINUTE_US]
        if result.opened:
            self._lateness[0] = max(self._lateness[0], clock - int(times.min(initial=clock)))

    def oldest_due(self, now: int) -> int | None:
        """The oldest minute, if it is due."""
        minutes = [*self._rows, *(pending.minutes[0] for pending in self._pending if pending.minutes)]
        allowance = min(_MOST_US, max(_LEAST_US, max(self._lateness) * 3 // 2 + _SECOND_US))
        oldest = min(minutes, default=None)
        return oldest if oldest is not None and self._clock(now) >= (oldest + 1) * MINUTE_US + allowance else None

    def to_fold(self, now: int, due: int | None) -> list[PendingGroup]:
        """Remove and return the groups that can be accumulated now, in order; only if there are enough rows, or a
        minute is ``oldest_due``. A group that is not committed delays those after it, up to a limit."""
        late = due is not None and self._clock(now) >= (due + 1) * MINUTE_US + _MOST_US + _UNCOMMITTED_US
        in_order = not late and sum(map(len, self._pending)) <= _MAX_WAITING
        ready: list[PendingGroup] = []
        for pending in self._pending:
            if in_order and not pending.written:
                break
            ready += [pending] if pending.written else []
        if due is None and sum(map(len, ready)) < _FOLD_ROWS:
            return []
        folded = set(map(id, ready))
        self._pending = deque(pending for pending in self._pending if id(pending) not in folded)
        return ready

    def close(self, minute: int) -> list[int] | None:
        """Close ``minute`` and return its rows of rollup_dirty; None: samples of it are still pending."""
        if any(minute in pending.minutes for pending in self._pending):
            return None
        self._closed_to = minute + 1
        self._lateness = [0, self._lateness[0]]
        return self._rows.pop(minute, [])

    def release_all(self) -> None:
        """Give up all minutes and pending groups: they are computed from stored samples."""
        for rows in self._rows.values():
            self.released += rows
        self._rows.clear()
        for pending in self._pending:
            pending.minutes = range(0)

    def restored(self) -> None:
        """Begin with another database, whose rollup_dirty has other rows."""
        self.databases += 1
        self.release_all()
        self.released.clear()

    def _observe_age(self, newest: int, now: int) -> None:
        """Observe the time of the newest sample of a group."""
        passed = now - self._behind_since
        if passed >= _ON_TIME_US:
            self._behind = [_FOREVER_US, self._behind[0] if passed < 2 * _ON_TIME_US else _FOREVER_US]
            self._behind_since = now
        self._behind[0] = min(self._behind[0], max(0, now - newest))

    def _clock(self, now: int) -> int:
        """The clock for opening and closing minutes."""
        behind = min(self._behind)
        return now - behind if behind >= _ON_TIME_US else now


def _fits(channels: Sequence[int] | Int32s) -> bool:
    """Return whether the ascending ids can be array indices."""
    return not len(channels) or 0 <= int(channels[0]) <= int(channels[-1]) < _MOST_CHANNELS
