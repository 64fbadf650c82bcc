"""Times of samples whose source timestamp does not advance.

The table has one sample per channel and time. So a value that differs from the one before, and whose source timestamp
is not later, takes the server timestamp, if that is later than the source timestamp. This follows from the values and
timestamps alone, so that a message that comes again gives the same samples. An identical repeat has no information and
is dropped. What is left can't be told apart from the sample that is kept: it is refused, which is a gap. The 1st, 2nd,
4th, 8th … refused value of a gap is an event `conflict`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core import metrics
from core.batch import Event, Float64s, Int64s, UInt32s
from core.timestamps import iso
from ingest.opcua.subscription.tags import Tags

_NO_SAMPLE = np.iinfo(np.int64).min  # no sample
# s without a refused value until the gap is closed: one gap, however often the timestamp advances
_QUIET_SECONDS = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Dated:
    """The times of the samples of a message."""

    time: Int64s  # (n,) µs
    keep: NDArray[np.bool_] | None = None  # (n,) mask of those to store; None: all
    gaps: list[tuple[int, int]] = field(default_factory=list)  # (channel, time of its last sample, µs) that begin
    conflicts: list[Event] = field(default_factory=list)


class RepeatedTimestamps:
    """State of each channel, in columns by index."""

    def __init__(self, tags: Tags) -> None:
        n = len(tags)
        self._tags = tags
        # Of the last sample received:
        self._source = np.full(n, _NO_SAMPLE, np.int64)  # µs
        self._server = np.zeros(n, np.int64)  # µs; 0: none
        self._value = np.zeros(n, np.float64)
        self._status = np.zeros(n, np.uint32)
        self._time = np.full(n, _NO_SAMPLE, np.int64)  # µs; if the channel repeats: the latest one
        self._first = np.zeros(n, np.int64)  # µs, server timestamp of the sample whose time is ``_source``; -1: none
        self._first_value = np.zeros(n, np.float64)  # of that sample
        # Of the last sample on disk:
        self._on_disk = np.full(n, _NO_SAMPLE, np.int64)  # µs
        self._on_disk_value = np.zeros(n, np.float64)
        self._on_disk_status = np.zeros(n, np.uint32)
        self.repeats = np.zeros(n, bool)  # has taken server timestamps
        self._row = np.zeros(n, np.intp)  # scratch
        self._count = np.zeros(n, np.int64)  # refused values in the gap
        self._refused_at = np.full(n, np.inf)  # s, monotonic, of the last one; inf: no gap
        self._resumed = np.zeros(n, np.int64)  # µs, time of the first sample since then; 0: none

    def restore(self, repeating: Iterable[int], with_gap: Iterable[int], newest: int) -> None:
        """The state that a process before left: channels that repeat or have a gap, and its newest sample (µs)."""
        positions = self._tags.positions(repeating)
        self.repeats[positions], self._time[positions] = True, newest
        self._refused_at[self._tags.positions(with_gap)] = monotonic()

    @property
    def gaps(self) -> int:
        """The number of channels that have a gap."""
        return int(np.isfinite(self._refused_at).sum())

    def ended(self) -> list[tuple[list[int], int]]:
        """(channel, time of the first sample behind it in µs) of gaps that have ended."""
        ended = np.flatnonzero((self._resumed != 0) & (monotonic() - self._refused_at > _QUIET_SECONDS))
        gaps = [([int(self._tags.ids[i])], int(self._resumed[i])) for i in ended.tolist()]
        self._refused_at[ended], self._resumed[ended], self._count[ended] = np.inf, 0, 0
        return gaps

    def stored(self, position: UInt32s, time: Int64s, value: Float64s, status: UInt32s) -> None:
        """Remember samples that are on disk."""
        self._on_disk[position], self._on_disk_value[position], self._on_disk_status[position] = time, value, status

    def date(
        self, position: UInt32s, source: Int64s, server: Int64s, value: Float64s, status: UInt32s, arrival: int
    ) -> Dated:
        """The times of samples in order of arrival. ``server``: 0 if there is none; ``source``: ``arrival``, too."""
        rows = np.arange(len(position))
        self._row[position] = rows
        if (source > self._time[position]).all() and (self._row[position] == rows).all():
            self._first[position], self._first_value[position] = server, value
            self._receive(position, source, server, value, status, source)
            return Dated(source)
        order = np.argsort(position, kind="stable")
        p, s, v, q, bits = (column[order] for column in (position, source, server, status, value.view(np.uint64)))
        begins = np.append(True, p[1:] != p[:-1])

        def before(column: NDArray[Any], state: NDArray[Any]) -> NDArray[Any]:
            return np.where(begins, state[p], np.roll(column, 1))

        begin = np.maximum.accumulate(np.where(begins, rows, 0))  # first row of the channel
        s = s + np.where((s == arrival) & (v == 0), rows - begin, 0)
        last_source, last_server = before(s, self._source), before(v, self._server)
        same = s == last_source
        # Of a run of samples with equal timestamps the first one is kept, which may have come in a message before.
        equals = same & (v == last_server)
        head = np.maximum.accumulate(np.where(begins | ~equals, rows, 0))
        continues = equals[head]
        kept_bits = np.where(continues, self._value.view(np.uint64)[p], bits[head])
        kept_status = np.where(continues, self._status[p], q[head])
        identical = (bits == before(kept_bits, self._value.view(np.uint64))) & (q == before(kept_status, self._status))

        # Again the sample whose time is the source timestamp.
        replayed = ~equals & (s == self._source[p]) & (v == self._first[p])
        replayed &= bits == self._first_value.view(np.uint64)[p]
        repeated = same & ~equals & ~replayed
        drop = identical & ((equals & ~begins) | (repeated & ((v > last_server) | (v <= s))))
        moved = repeated & ~drop & (v > s)
        self.repeats[p[moved]] = True
        time = np.where(moved | (equals & (v > s) & (v != self._first[p])), v, s)
        last_time = before(time, self._time)
        behind = self.repeats[p] & ~same & ~replayed & (s <= last_time) & (v > s)
        time = np.where(behind, v, time)

        refused = ~drop & ((equals & ~identical) | (repeated & (v <= s)))
        refused |= ~drop & ~equals & ~replayed & (time == last_time) & (last_source != _NO_SAMPLE)
        keep = ~(drop | refused)
        dated = keep & ~same
        self._first[p[dated]] = np.where(time[dated] == s[dated], v[dated], -1)
        self._first_value[p[dated]] = value[order][dated]
        refusals: tuple[list[tuple[int, int]], list[Event]] = [], []
        if refused.any():
            latest = np.maximum.accumulate(np.where(keep, rows, -1))  # row of the sample that was kept last
            is_here = latest >= begin
            kept_value = np.where(is_here, value[order][latest], self._value[p])
            kept_status = np.where(is_here, q[latest], self._status[p])
            kept = last_time[refused], kept_value[refused], kept_status[refused]
            refusals = self._refuse(p[refused], kept, value[order][refused], q[refused], arrival)
        self._row[p] = -1
        self._row[p[refused]] = rows[refused]
        is_behind = rows > self._row[p]  # the last refused value of its channel
        self._receive(p[keep], s[keep], v[keep], value[order][keep], q[keep], time[keep], is_behind[keep])
        keep &= (
            (time != self._on_disk[p])
            | (bits != self._on_disk_value.view(np.uint64)[p])
            | (q != self._on_disk_status[p])
        )
        unsorted = np.argsort(order)
        return Dated(time[unsorted], keep[unsorted], *refusals)

    def _receive(
        self,
        position: UInt32s,
        source: Int64s,
        server: Int64s,
        value: Float64s,
        status: UInt32s,
        time: Int64s,
        may_resume: NDArray[np.bool_] | bool = True,
    ) -> None:
        """Remember samples as received. ``may_resume``: the gap of its channel, if it has one, can end there."""
        in_gap = np.isfinite(self._refused_at[position]) & (self._resumed[position] == 0) & may_resume
        if in_gap.any():
            in_gap &= source != self._source[position]
            self._resumed[position[in_gap][::-1]] = time[in_gap][::-1]
        self._source[position], self._server[position] = source, server
        self._value[position], self._status[position] = value, status
        self._time[position] = np.where(self.repeats[position], np.maximum(self._time[position], time), time)

    def _refuse(
        self,
        position: UInt32s,
        kept: tuple[Int64s, Float64s, UInt32s],
        value: Float64s,
        status: UInt32s,
        arrival: int,
    ) -> tuple[list[tuple[int, int]], list[Event]]:
        """Refused values, sorted by position: the gaps that begin, and the conflicts to record.

        ``kept``: times, values and statuses of the samples that were kept before them.
        """
        metrics.conflicts.inc(len(position))
        positions, first, count = np.unique(position, return_index=True, return_counts=True)
        begin = np.isinf(self._refused_at[positions])
        channels = self._tags.ids[positions]
        last, kept_value, kept_status = kept
        gaps = list(zip(channels[begin].tolist(), last[first[begin]].tolist(), strict=True))
        before = self._count[positions]
        self._count[positions] = before + count
        self._refused_at[positions], self._resumed[positions] = monotonic(), 0
        events = []
        for k in np.flatnonzero(np.frexp(before + count)[1] > np.frexp(before)[1]).tolist():
            i, row = int(positions[k]), int(first[k] + count[k]) - 1
            detail = {
                "at": iso(int(last[row])),
                "kept_value": repr(float(kept_value[row])),
                "kept_status": f"0x{int(kept_status[row]):08X}",
                "refused_value": repr(float(value[row])),
                "refused_status": f"0x{int(status[row]):08X}",
                "refused": int(self._count[i]),
            }
            events.append(Event("conflict", arrival, int(channels[k]), int(status[row]), "time stands still", detail))
        return gaps, events
