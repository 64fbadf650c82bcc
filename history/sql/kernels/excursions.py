"""Times at which channels are far from what was usual before, on three time scales (schema/questions/excursions.sql).

To have DuckDB compare bins with what is usual takes 200 ns of CPU a sample; here it takes 50.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.samples import Samples, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Columns, count_up, good_samples, joined
from history.sql.kernels.resampled import require_length

FAR_OFF = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("scale", pa.int32()),  # 0: fast, 1: medium, 2: slow
        ("time", TIME),  # of a sample, or where a bin begins
        ("value", pa.float64()),  # how far off
        ("spread", pa.float64()),  # that is usual
        ("is_known", pa.bool_()),  # whether there is one: else the channel did not move before
    ]
)
_MIN_REFERENCE = 6  # samples or bins before, for something to be usual
_ROUNDING = 2.0**-52
_SMALLEST = 1e-12
_MIN_SPREAD = 1e6  # rounding errors: a smaller spread is none


@dataclass(frozen=True, slots=True, eq=False)
class Excursions:
    """Samples that are far from the median of their short bin, means of short bins that are far from that of their long
    bin, and means of long bins that are far from what they were before ``since``.
    """

    spans: Mapping[int, float]  # of the ranges of channels that have one
    since: int  # µs
    sigmas: float
    short: int  # µs
    long: int  # µs

    def __post_init__(self) -> None:
        """Check the arguments. Raises OperationError."""
        require_length("short", self.short)
        require_length("long", self.long)

    def compute(self, samples: Samples) -> Columns:
        """The columns of FAR_OFF. ``samples``: all samples of some channels, by channel and time."""
        channel, time, value = good_samples(samples)
        bins = _Bins.of_samples(channel, (time - self.since) // self.short, (time - self.since) // self.long, value)
        none = np.empty(0, np.int32)
        parts: list[Columns] = [
            {
                "channel_id": none,
                "scale": none,
                "time": time[:0],
                "value": value[:0],
                "spread": value[:0],
                "is_known": none.astype(bool),
            }
        ]
        for rows in segments(bins.channel):
            for scale, (at, off, spread, is_known) in enumerate(self._of_channel(bins.part(rows), time, value)):
                if not len(at):
                    continue
                ids, scales = (np.full(len(at), value, np.int32) for value in (bins.channel[rows.start], scale))
                usual = {"spread": np.full(len(at), spread), "is_known": np.full(len(at), is_known)}
                parts.append({"channel_id": ids, "scale": scales, "time": at, "value": off, **usual})
        return joined(parts)

    def _of_channel(self, bins: _Bins, time: Int64s, value: Float64s) -> Iterator[tuple[Int64s, Float64s, float, bool]]:
        """Times, distances, the usual spread and whether there is one, on each scale.

        ``time``, ``value``: of all samples.
        """
        first = int(np.searchsorted(bins.short, 0))
        before, after = bins.part(slice(0, first)), bins.part(slice(first, None))
        if not first:
            return
        begins = np.append(0, np.flatnonzero(bins.long[1:] != bins.long[:-1]) + 1)
        number, n = bins.long[begins], np.diff(np.append(begins, len(bins.long)))
        long_mean = np.add.reduceat(bins.mean, begins) / n
        medium = bins.mean - np.repeat(long_mean, n)
        slow = long_mean - long_mean[number < 0].mean()
        samples, variance, middle = before.n.sum(), before.variances(value), before.medians(value)
        total_spread = 0.0
        if before.low.min() < before.high.max():
            off = before.mean - (before.n @ before.mean) / samples
            total_spread = float(np.sqrt(before.n @ (variance + off * off) / samples))
        largest = max(abs(float(bins.low.min())), abs(float(bins.high.max())))
        # A ten-thousandth of the range is no excursion, however quiet the channel was before; nor are rounding errors.
        least, rounding = self.spans.get(int(bins.channel[0]), 0.0) * 1e-4, largest * _ROUNDING

        def usual(square: Any, share: float) -> tuple[float, bool]:
            """The spread of a few slow means is uncertain: at least a share of the whole one is used."""
            spread = max(float(np.sqrt(square)), total_spread * share, least)
            return max(spread, rounding, _SMALLEST), spread > max(_MIN_SPREAD * rounding, _SMALLEST)

        # A spike must not hide itself by pulling its own mean.
        off = before.mean - middle
        spread, is_known = usual(
            before.n @ np.where(before.low < before.high, variance + off * off, 0.0) / samples, 0.0
        )
        farthest = float(np.maximum(before.high - middle, middle - before.low).max())
        limit = max(self.sigmas * spread, 1.5 * farthest)
        # To find medians takes most of the time. In a bin that is no wider than this, no sample is as far from it.
        wide = after.part((after.high - after.low > limit) & (samples >= _MIN_REFERENCE))
        sample = np.repeat(wide.first, wide.n) + count_up(wide.n)
        off = value[sample] - np.repeat(wide.medians(value), wide.n)
        far = np.abs(off) > limit
        yield time[sample][far], off[far], spread, is_known

        for values, numbers, step, share, factor in (
            (medium, bins.short, self.short, 1 / 4, 1.0),
            (slow, number, self.long, 1 / 2, 0.5),
        ):
            reference = values[numbers < 0]
            spread, is_known = usual(reference @ reference / len(reference), share)
            limit = max(self.sigmas * factor * spread, 1.5 * float(np.abs(reference).max()))
            far = (np.abs(values) > limit) & (numbers >= 0) & (len(reference) >= _MIN_REFERENCE)
            yield self.since + numbers[far] * step, values[far], spread, is_known


@dataclass(frozen=True, slots=True, eq=False)
class _Bins:
    """Samples of a channel that are in one short bin and in one long bin; (bins,) each."""

    channel: NDArray[np.int32]
    short: Int64s  # number of the short bin; the first one from since on is 0
    long: Int64s
    first: NDArray[np.intp]  # position of the first sample
    n: Int64s  # samples
    mean: Float64s
    low: Float64s
    high: Float64s

    @classmethod
    def of_samples(cls, channel: NDArray[np.int32], short: Int64s, long: Int64s, value: Float64s) -> _Bins:
        if not len(value):
            return cls(channel, short, long, short, short, value, value, value)
        changes = (channel[1:] != channel[:-1]) | (short[1:] != short[:-1]) | (long[1:] != long[:-1])
        first = np.append(0, np.flatnonzero(changes) + 1)
        n = np.diff(np.append(first, len(value)))
        mean = np.add.reduceat(value, first) / n
        low, high = np.minimum.reduceat(value, first), np.maximum.reduceat(value, first)
        return cls(channel[first], short[first], long[first], first, n, mean, low, high)

    def part(self, rows: Any) -> _Bins:
        """The bins that a mask or indices select."""
        return _Bins(*(getattr(self, column.name)[rows] for column in fields(self)))

    def variances(self, value: Float64s) -> Float64s:
        """Variances of bins that follow each other, at least one. ``value``: of all samples."""
        begin, end = self.first[0], self.first[-1] + self.n[-1]
        off = value[begin:end] - np.repeat(self.mean, self.n)
        squares: Float64s = np.add.reduceat(off * off, self.first - begin) / self.n
        return squares

    def medians(self, value: Float64s) -> Float64s:
        """Medians of the bins. ``value``: of all samples."""
        medians = np.empty(len(self.n))
        for size in np.unique(self.n).tolist():
            rows = np.flatnonzero(self.n == size)
            ordered = np.sort(value[self.first[rows][:, None] + np.arange(size)], axis=1)
            low, high = ordered[:, (size - 1) // 2], ordered[:, size // 2]
            medians[rows] = low + (high - low) / 2
        return medians
