"""Channels whose lines repeat a timestamp with another value.

The table has one sample per channel and time: the first to arrive is stored. A different value with the same time is
lost, and a gap begins there. It does not get the time of its arrival, because only the timestamp distinguishes a new
value from one that is sent again, by a retry or by a gateway that empties its buffer. ``time = "arrival"`` is for
devices whose clock stands still.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from core.batch import Int32s, Int64s
from core.samples import Samples
from ingest.gaps import Gaps
from ingest.status import SourceStatus

_REASON = "time_stands_still"
_DETAIL = "different values have the same timestamps"
# s without a refused value until the gap is closed: one gap, however often the timestamp advances
_QUIET_SECONDS = 10.0
_NO_SAMPLE = np.iinfo(np.int64).min  # no sample


@dataclass(slots=True)
class _Refused:
    """The last refused value of a channel."""

    at: float  # s, monotonic
    time: int  # µs
    resumed: int | None = None  # µs, time of the first sample after it


class RepeatedTimes:
    """The latest sample of each channel of a source, and the channels that have a gap."""

    def __init__(self, status: SourceStatus, gaps: Gaps) -> None:
        self._status = status
        self._gaps = gaps
        self._ids = np.empty(0, np.int32)  # sorted
        self._time = np.empty(0, np.int64)  # µs
        self._bits = np.empty(0, np.uint64)  # of the value: a NaN equals itself
        self._of_status = np.empty(0, np.uint32)
        self._refused = {
            channel: _Refused(monotonic(), gaps.open_since(channel) or 0) for channel in gaps.channels_open_for(_REASON)
        }
        status.remark_repeated(len(self._refused))

    async def check(self, samples: Samples) -> None:
        """Open and close the gaps of samples, within the time limits, that are about to be stored."""
        if not len(samples):
            return
        samples = samples.sorted()  # equal keys in order of arrival
        channel, time, status, bits = samples.channel, samples.time, samples.status, samples.bits
        index = self._indices(channel)
        kept = np.maximum.accumulate(np.where(samples.repeats(), 0, np.arange(len(samples))))
        same_time = time == self._time[index]
        is_equal = np.where(same_time, self._bits[index], bits[kept]) == bits
        is_equal &= np.where(same_time, self._of_status[index], status[kept]) == status
        last = np.append(channel[1:] != channel[:-1], True)
        last &= time > self._time[index]
        self._time[index[last]], self._of_status[index[last]] = time[last], status[kept][last]
        self._bits[index[last]] = bits[kept][last]
        begins = self._refuse(channel[~is_equal], time[~is_equal])
        if self._refused:  # before the first await: a body that is stored meanwhile needs this state
            ends = self._resume(channel, time)
            await self._gaps.open_each(begins, _REASON, _DETAIL)
            await self._gaps.close_each([([i], t) for i, t in ends if self._gaps.reason(i) == _REASON])
            self._refused = {i: refused for i, refused in self._refused.items() if self._gaps.reason(i) == _REASON}
            self._status.remark_repeated(len(self._refused))

    def _indices(self, channel: Int32s) -> NDArray[np.intp]:
        """Indices of channels in the columns, (n,); new channels are added."""
        new = np.setdiff1d(channel, self._ids)
        if len(new):
            at = np.searchsorted(self._ids, new)
            self._ids = np.insert(self._ids, at, new)
            self._time = np.insert(self._time, at, _NO_SAMPLE)
            self._bits = np.insert(self._bits, at, 0)
            self._of_status = np.insert(self._of_status, at, 0)
        return np.searchsorted(self._ids, channel)

    def _refuse(self, channel: Int32s, time: Int64s) -> list[tuple[list[int], int]]:
        """Note values that are not stored, sorted by channel and time; return the beginnings (µs) of their gaps."""
        channels, first, count = np.unique(channel, return_index=True, return_counts=True)
        latest = time[first + count - 1].tolist()
        self._refused |= {i: _Refused(monotonic(), t) for i, t in zip(channels.tolist(), latest, strict=True)}
        return [([i], t) for i, t in zip(channels.tolist(), time[first].tolist(), strict=True)]

    def _resume(self, channel: Int32s, time: Int64s) -> list[tuple[int, int]]:
        """Channels whose timestamps advance again, and the first time (µs) after the gap. Samples are sorted."""
        for i in np.intersect1d(channel, np.fromiter(self._refused, np.int32)).tolist():
            refused = self._refused[i]
            times = time[np.searchsorted(channel, i) : np.searchsorted(channel, i, "right")]
            if refused.resumed is None and times[-1] > refused.time:
                refused.resumed = int(times[np.searchsorted(times, refused.time, "right")])
        quiet_since = monotonic() - _QUIET_SECONDS
        return [
            (i, refused.resumed)
            for i, refused in self._refused.items()
            if refused.resumed is not None and refused.at < quiet_since
        ]
