"""Times of a packed hour as a straight line and small deviations from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from history.codec.segments import Segments

PLANES_MIDDLE = np.array([0, 128, 32_896, 8_421_504, 2_155_905_152])  # by number of planes: their offsets of 128
_NO_STEP = 1_000_000  # of a single sample
_UNITS = (1_000_000, 1000, 1)  # µs


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Sample i of a segment has the time ``start + i * step + unit * (deviation - middle of the planes)``, in µs."""

    start: Int64s  # (m,)
    step: Int64s  # (m,)
    unit: Int64s  # (m,)
    planes: NDArray[np.int64]  # (m,) bytes of a deviation; 0: the times are on the line
    deviation: Int64s  # (n,) ≥ 0

    def times(self, segments: Segments) -> Int64s:
        """The times (µs), (n,)."""
        time: Int64s = segments.repeated(self.start) + segments.positions * segments.repeated(self.step)
        if self.planes.any():
            time += segments.repeated(self.unit) * (self.deviation - segments.repeated(PLANES_MIDDLE[self.planes]))
        return time


def planes(extent: Int64s) -> NDArray[np.int64]:
    """Number of bytes that integers from 0 to ``extent`` need; 5: more than four."""
    return np.searchsorted([1, 1 << 8, 1 << 16, 1 << 24, 1 << 32], extent, "right")


def fit(time: Int64s, segments: Segments) -> Lines:
    """The line with the smallest range of deviations, of times (µs) that ascend by less than 2^32 in each segment."""
    start = time[segments.begins]
    since = time - segments.repeated(start)
    last, n = since[segments.ends - 1], segments.lengths
    step = np.where(n == 1, _NO_STEP, np.maximum(1, np.rint(last / np.maximum(1, n - 1)).astype(np.int64)))
    unit, number = np.ones(len(segments), np.int64), np.zeros(len(segments), np.int64)
    deviation = np.zeros(segments.n, np.int64)
    irregular = ~segments.all(since == segments.positions * segments.repeated(step))
    if irregular.any():
        part, irregular_elements = segments.selected(irregular)
        of_part = since[irregular_elements]
        unit[irregular] = _resolution(of_part, part)
        step[irregular], least, extent = _best_step(of_part, unit[irregular], part)
        number[irregular] = planes(extent // unit[irregular])
        middle = PLANES_MIDDLE[number[irregular]] * unit[irregular]
        off = of_part - part.positions * part.repeated(step[irregular]) - part.repeated(least)
        deviation[irregular_elements] = off // part.repeated(unit[irregular])
        start[irregular] += least + middle
    return Lines(start, step, unit, number, deviation)


def _resolution(since: Int64s, segments: Segments) -> Int64s:
    """The largest unit that all times of a segment are multiples of, (m,)."""
    return np.select([segments.all(since % unit == 0) for unit in _UNITS], _UNITS)


def _best_step(since: Int64s, unit: Int64s, segments: Segments) -> tuple[Int64s, Int64s, Int64s]:
    """Step, smallest deviation and range of deviations, (m,) each; segments have at least two samples.

    The mean step, or the median one, which a gap or a late sample does not change.
    """
    mean = np.rint(since[segments.ends - 1] / (segments.lengths - 1) / unit).astype(np.int64) * unit
    usual = _median_step(since, segments)
    rounded = (np.rint(usual / by).astype(np.int64) * by for by in (1000, 10_000))
    best = [np.zeros(len(segments), np.int64)] * 2 + [np.full(len(segments), np.iinfo(np.int64).max)]
    for step in (usual, mean, *rounded):
        off = since - segments.positions * segments.repeated(step)
        least = segments.least(off)
        extent = segments.greatest(off) - least
        better = (step >= unit) & (step % unit == 0)
        better &= (extent < best[2]) | ((extent == best[2]) & (step < best[0]))
        best = [np.where(better, new, old) for new, old in zip((step, least, extent), best, strict=True)]
    return best[0], best[1], best[2]


def _median_step(since: Int64s, segments: Segments) -> Int64s:
    """The lower median of the differences in each segment, (m,)."""
    inside = np.ones(segments.n, np.bool_)
    inside[segments.begins] = False
    number = segments.repeated(np.arange(len(segments)))[inside]
    ordered = np.sort(number << 32 | np.diff(since, prepend=0)[inside])  # an hour has fewer than 2^32 µs
    steps = segments.lengths - 1
    begins = np.cumsum(steps) - steps
    median: Int64s = ordered[begins + (steps - 1) // 2] & 0xFFFF_FFFF
    return median
