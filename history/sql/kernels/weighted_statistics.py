"""Means and standard deviations weighted by time: each value holds until the next sample or a gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.counters import increases
from core.samples import Samples, segments
from history.sql.kernels.columns import (
    CHANNEL,
    NEVER,
    RHYTHM,
    Channels,
    Columns,
    following,
    joined,
    known_samples,
    of_rows,
)
from history.sql.kernels.reference import JUDGED, MOSTLY_MISSING, SHORT_REFERENCE
from history.sql.kernels.shifts import by_chance, quantile

STATISTICS = pa.struct(
    [
        ("later", pa.bool_()),
        ("channel_id", pa.int32()),
        ("mean", pa.float64()),
        ("spread", pa.float64()),
        ("mean_limit", pa.float64()),  # difference of means that is exceeded rarely by chance; of the later one: NaN
        ("spread_limit", pa.float64()),  # logarithm of the ratio of spreads, as well
        ("verdict", pa.int32()),  # on the reference (kernels/reference.py); of the later one: 0
    ]
)
INTERVAL = pa.struct(
    [
        ("later", pa.bool_()),
        *((name, pa.int64()) for name in ("first", "since", "until")),  # µs
        ("compared", pa.int64()),  # µs: length of the interval that it is the reference of; of the later one: NULL
        ("share", pa.float64()),  # of comparisons with it, how many may be beyond a limit by chance
        ("channels", pa.list_(CHANNEL)),
    ]
)
_KNOWN = 0.05  # share of the time of a reference, at least
_BLOCK_SAMPLES = 65_536  # samples


@dataclass(frozen=True, slots=True, eq=False)
class WeightedInterval:
    """Interval in which values of some channels are weighted by their time."""

    channels: Channels
    since: int  # µs
    samples: tuple[int, int]  # the bounds (µs) of those that count; before since, they may still be held
    later: bool  # which of two intervals it is
    compared: int | None = None  # µs: length of the later interval; None: this is it
    share: float | None = None  # of comparisons, how many may be beyond a limit by chance

    @classmethod
    def of_fields(cls, row: Mapping[str, Any]) -> WeightedInterval:
        """Make one. ``row``: the fields of INTERVAL."""
        return cls(
            Channels.of_fields(row["channels"]),
            row["since"],
            (row["first"], row["until"]),
            row["later"],
            row["compared"],
            row["share"],
        )

    def compute(self, samples_in_order: Samples) -> Columns:
        """Mean and standard deviation by time from since until the end: the columns of STATISTICS.

        ``samples_in_order``: samples by channel and time. Channels without values there are left out.
        """
        samples = known_samples(samples_in_order.part(self._inside(samples_in_order)))
        starts = range(0, max(1, len(samples[0])), _BLOCK_SAMPLES)
        sums = joined([self._of_rows(*samples, slice(start, start + _BLOCK_SAMPLES)) for start in starts])
        first, n = _first(sums["channel_id"])
        seconds = _sums(sums["seconds"], first)
        mean = _sums(sums["mean"] * sums["seconds"], first) / seconds
        off = sums["mean"] - np.repeat(mean, n)
        spread = np.sqrt(_sums(sums["squares"] + off * off * sums["seconds"], first) / seconds)
        return {
            "later": np.full(len(first), self.later),
            "channel_id": sums["channel_id"][first],
            "mean": mean,
            "spread": spread,
            **self._limits(samples, sums["channel_id"][first]),
        }

    def _limits(
        self, samples: tuple[NDArray[np.int32], Int64s, Float64s, Int64s], channels: NDArray[np.int32]
    ) -> Columns:
        """Limits of changes from here on (``mean_limit``, ``spread_limit``, ``verdict``) of channels with samples."""
        limits = np.full((2, len(channels)), np.nan)
        verdicts = np.zeros(len(channels), np.int32)
        if self.compared is not None and self.share is not None:
            times, row = quantile(self.share), 0
            for rows in segments(samples[0]):
                _, value, seconds = self._weighted(*samples, rows)
                if len(value):
                    known = 1e6 * float(seconds.sum()) / (self.samples[1] - self.since)
                    *chance, verdict = by_chance(value, seconds, self.compared / 1e6)
                    if known < _KNOWN:
                        chance, verdict = [np.inf, np.inf], SHORT_REFERENCE
                    limits[:, row], verdicts[row] = times * np.array(chance), verdict
                    if verdict == JUDGED and known < 1 / 2:
                        verdicts[row] = MOSTLY_MISSING
                    row += 1
        return {"mean_limit": limits[0], "spread_limit": limits[1], "verdict": verdicts}

    def _of_rows(
        self, channel: NDArray[np.int32], time: Int64s, value: Float64s, known_until: Int64s, rows: slice
    ) -> Columns:
        """Seconds, mean and squared deviations (``seconds``, ``mean``, ``squares``) of each channel among some rows.

        Arrays that fit into the caches take less: 23 ns a sample instead of 37.
        """
        channel, value, seconds = self._weighted(channel, time, value, known_until, rows)
        first, n = _first(channel)
        total = _sums(seconds, first)
        mean = _sums(value * seconds, first) / total
        off = value - _of_each(mean, n)
        return {
            "channel_id": channel[first],
            "seconds": total,
            "mean": mean,
            "squares": _sums(off * off * seconds, first),
        }

    def _weighted(
        self, channel: NDArray[np.int32], time: Int64s, value: Float64s, known_until: Int64s, rows: slice
    ) -> tuple[NDArray[np.int32], Float64s, Float64s]:
        """Channel, value, and seconds for which it counts, of some rows: those that count."""
        more = slice(rows.start, rows.stop + 1)  # the row behind says how long the last one is held
        channels, times, values = channel[more], time[more], value[more]
        channel, time, value = channel[rows], time[rows], value[rows]
        until = following(channels, times)[: len(time)]
        first, n = _first(channel)
        position = self.channels.positions(channel[first])
        counter, end = _of_each(self.channels.counters[position], n), _of_each(self.channels.ends[position], n)
        gap = np.minimum(self._gaps(channel, time), of_rows(known_until, rows))
        seconds = (np.minimum(until, np.minimum(gap, end)) - np.maximum(time, self.since)) / 1e6
        counted = seconds > 0
        if counter.any():
            counted &= ~counter | ((until < NEVER) & (gap >= until))
            after = np.append(values[1:], 0.0)[: len(time)]  # of the last one of a channel it does not count
            increase = increases(value, after, _of_each(self.channels.wraps[position], n))
            value = np.where(counter, increase / ((until - time) / 1e6), value)
        return (channel, value, seconds) if counted.all() else (channel[counted], value[counted], seconds[counted])

    def _inside(self, samples: Samples) -> Any:
        """The rows of samples that count; of a channel with few, also what it held before."""
        time, channel = samples.time, samples.channel
        if len(time) and channel[0] == channel[-1]:
            first, last = np.searchsorted(time, self.samples).tolist()
            return slice(max(first - (len(time) <= RHYTHM), 0), last)
        before = time < self.samples[0]
        held = np.flatnonzero(before & np.append((channel[1:] != channel[:-1]) | ~before[1:], True)[: len(time)])
        n = np.searchsorted(channel, channel[held], "right") - np.searchsorted(channel, channel[held])
        inside = ~before & (time < self.samples[1])
        inside[held[n <= RHYTHM]] = True
        return inside

    def _gaps(self, channel: NDArray[np.int32], time: Int64s) -> Int64s:
        """Begin of the next gap (µs) for each sample. If there is none, one element stands for all."""
        edges = [(rows, self.channels.gaps_of(int(channel[rows.start]))[:, 0]) for rows in segments(channel)]
        gap = np.full(len(time) if any(len(begins) for _, begins in edges) else 1, NEVER)
        for rows, begins in edges:
            if len(begins):
                before = np.diff(np.searchsorted(time[rows], begins, "right"), prepend=0)
                gap[rows][: before.sum()] = np.repeat(begins, before)
        return gap


@dataclass(frozen=True, slots=True)
class OverlappingIntervals:
    """Intervals of which the samples are read once."""

    intervals: Sequence[WeightedInterval]

    @property
    def samples(self) -> tuple[int, int]:
        """Bounds (µs) of all samples that count."""
        firsts, untils = zip(*(interval.samples for interval in self.intervals), strict=True)
        return min(firsts), max(untils)

    def compute(self, samples: Samples) -> Columns:
        """The columns of STATISTICS."""
        return joined([interval.compute(samples) for interval in self.intervals])


def overlapping(intervals: Iterable[WeightedInterval]) -> list[OverlappingIntervals]:
    """Intervals whose samples overlap, together."""
    groups: list[OverlappingIntervals] = []
    for interval in sorted(intervals, key=lambda interval: interval.samples):
        if groups and interval.samples[0] <= groups[-1].samples[1]:
            groups[-1] = OverlappingIntervals([*groups[-1].intervals, interval])
        else:
            groups.append(OverlappingIntervals([interval]))
    return groups


def _first(channel: NDArray[np.int32]) -> tuple[Int64s, Int64s]:
    """The first row of each channel, and how many it has."""
    first = np.array([rows.start for rows in segments(channel)], np.int64)
    return first, np.diff(np.append(first, len(channel)))


def _of_each(values: NDArray[Any], n: Int64s) -> NDArray[Any]:
    """Values of channels repeated for each of their rows. A single one stands for all."""
    return values if len(values) == 1 else np.repeat(values, n)


def _sums(values: Float64s, first: Int64s) -> Float64s:
    """Sums of the values from each of these positions to the next."""
    return np.add.reduceat(values, first) if len(first) else np.empty(0)
