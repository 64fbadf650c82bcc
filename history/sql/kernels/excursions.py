"""Times at which channels deviate farther than by chance, on three time scales (schema/questions/excursions.sql).

To have DuckDB compare bins with what is usual takes 200 ns of CPU a sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.samples import Samples, changes, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Channels, Columns, joined, known_samples, of_rows
from history.sql.kernels.reference import (
    FAULTY,
    JUDGED,
    MOSTLY_MISSING,
    NO_SAMPLES,
    SHORT_REFERENCE,
    deviations,
    is_held,
    last_place,
    reach,
    rounding,
    settled,
    smallest,
    smooth_deviations,
    smoothed,
    usual,
    values_before,
    widest,
)
from history.sql.kernels.resampled import require_length

FAR_OFF = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of excursions only
        ("scale", pa.int32()),  # 0: fast, 1: medium, 2: slow
        ("time", TIME),  # of a sample; for means, of the first one
        ("value", pa.float64()),  # how far off
        ("times", pa.float64()),  # of the limit; NaN: the channel did not deviate at all before
    ]
)
_SCALES = 3


class _Scale(NamedTuple):
    """Deviations of a channel on one scale."""

    number: int
    width: int  # of what deviates: values
    every: float  # µs, from one to the next
    reference: Float64s
    time: Int64s  # of those until the interval ends
    value: Float64s
    first: int  # of them in the interval
    course: Float64s  # what deviates
    middle: float  # its usual deviation


class _Far(NamedTuple):
    """Deviations of a channel beyond a limit on one scale."""

    scale: int
    time: Int64s
    value: Float64s
    limit: float  # 0: the channel did not deviate at all in the reference


@dataclass(frozen=True, slots=True, eq=False)
class Excursions:
    """Samples far from the median of them and their neighbours, and means, short and long, far from those before."""

    channels: Channels
    spans: Mapping[int, float]  # of the ranges of channels that have one
    reference: tuple[int, int]  # µs
    within: tuple[int, int]  # µs
    short: int  # µs
    long: int  # µs
    false_alarms: float  # µs, of a channel: mean time between them

    def __post_init__(self) -> None:
        """Check the arguments. Raises OperationError."""
        require_length("short", self.short)
        require_length("long", self.long)

    def compute(self, samples: Samples) -> Columns:
        """The columns of FAR_OFF. ``samples``: all samples of some channels, by channel and time."""
        channel, time, value, known_until = known_samples(samples)
        parts = [_columns(0, JUDGED, _Far(0, time[:0], value[:0], 1.0))]
        for rows in segments(channel):
            number = int(channel[rows.start])
            verdict, excursions = self._of_channel(number, time[rows], value[rows], of_rows(known_until, rows))
            parts.append(_columns(number, verdict, _Far(0, np.zeros(1, np.int64), np.zeros(1), 1.0)))
            parts += [_columns(number, 0, far) for far in excursions if len(far.time)]
        return joined(parts)

    def _of_channel(self, channel: int, time: Int64s, value: Float64s, known_until: Int64s) -> tuple[int, list[_Far]]:
        """The verdict, and what is far on each scale. ``time``, ``value``, ``known_until``: of all good samples."""
        before, inside = (slice(*np.searchsorted(time, of).tolist()) for of in (self.reference, self.within))
        if inside.start == inside.stop:
            return NO_SAMPLES, []
        if before.stop - before.start < 2:
            return SHORT_REFERENCE, []
        spikes = value - smoothed(value)
        distance = float(time[before][-1] - time[before][0]) / (before.stop - before.start - 1)
        scales = [
            _Scale(0, 1, distance, spikes[before], time[inside], spikes[inside], 0, value, 0.0),
            *self._of_means(time, value, distance),
        ]
        floor, step = smallest(float(value[before].mean()), self.spans.get(channel)), rounding(value[before])
        held = is_held(value[before])
        if held and not step:  # values that were held don't show how they are rounded
            step = rounding(value)
        limits = [usual(scale.reference, self._positions(scale.every), scale.width, held=held) for scale in scales]
        verdicts = [FAULTY if faults else JUDGED for limit, faults in limits if np.isfinite(limit)]
        steps = [step if scale.number else 2 * step for scale in scales]  # rounding makes spikes of two of its steps
        far = [_far(scale, max(limit, of), floor) for scale, (limit, _), of in zip(scales, limits, steps, strict=True)]
        verdict = max(verdicts, default=SHORT_REFERENCE)
        known = self.channels.known_share(channel, time[before], of_rows(known_until, before), self.reference)
        if verdict == JUDGED and known < 1 / 2:
            verdict = MOSTLY_MISSING
        return verdict, far

    def _of_means(self, time: Int64s, value: Float64s, distance: float) -> Iterator[_Scale]:
        """Deviations of single means, and if the reference suffices, of long ones, from their medians there."""
        bins = (time - self.within[0]) // self.short
        whole = slice(*np.searchsorted(bins, self._whole_bins(time, distance)).tolist())
        begins, mean = _means(time[whole], value[whole], bins[whole])
        before, inside = (slice(*np.searchsorted(begins, of).tolist()) for of in (self.reference, self.within))
        longest = widest(before.stop - before.start, self.long // self.short)
        smooth = smoothed(mean)
        for number, width in ((1, 1), (2, longest)) if longest > 1 else ((1, 1),):
            off = smooth_deviations(smooth, width) if width > 1 else deviations(mean, width)
            reference = off[before.start + reach(width) - width : before.stop - width + 1]
            reference = reference[~np.isnan(reference)]
            middle = float(np.median(reference)) if len(reference) else 0.0
            course = smooth[:-1] if width > 1 else mean  # as smooth_deviations()
            usual_off, until = reference - middle, inside.stop
            value = off[:until] - middle
            yield _Scale(number, width, self.short, usual_off, begins[:until], value, inside.start, course, middle)

    def _whole_bins(self, time: Int64s, distance: float) -> tuple[int, int]:
        """The first bin that samples fill, and the one behind the last: a part of a cycle has another mean."""
        begin, end = (time[0] - 1.5 * distance, time[-1] + 1.5 * distance)  # as samples may be half a distance off
        return math.ceil((begin - self.within[0]) / self.short), math.floor((end - self.within[0]) / self.short)

    def _positions(self, distance: float) -> float:
        """Number of positions to one false alarm, which the scales share."""
        return _SCALES * self.false_alarms / max(distance, 1.0)


def _far(scale: _Scale, limit: float, floor: float) -> _Far:
    """Deviations of the interval beyond a limit, which is at least ``floor``."""
    size = np.fmax(np.abs(scale.value), 0.0)  # NaN is not far
    far = size > max(limit, floor)
    far[: settled(size, far, scale.width, scale.first)] = False
    rows, value = _placed(scale, size, far)
    return _Far(scale.number, scale.time[rows], value, limit if limit > floor * 1e-6 else 0.0)


def _means(time: Int64s, value: Float64s, number: Int64s) -> tuple[Int64s, Float64s]:
    """Times of the first samples, and means. ``number``: of the bin of each sample."""
    if not len(number):
        return time, value
    first = np.flatnonzero(changes(number))
    return time[first], np.add.reduceat(value, first) / np.diff(np.append(first, len(value)))


def _placed(scale: _Scale, size: Float64s, far: NDArray[np.bool_]) -> tuple[NDArray[np.intp], Float64s]:
    """Rows that are far, and how far. What follows each other begins where it is farthest, as means reach it before."""
    rows, width = np.flatnonzero(far), scale.width
    if width == 1 or not len(rows):
        return rows, scale.value[rows]
    parts = [
        part[int(size[part[: width + 1]].argmax()) :] for part in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    ]
    rows = np.concatenate(parts)
    value, course, at = scale.value[rows], scale.course, int(rows[-1])
    if len(parts[-1]) == 1 and at + width >= len(course):
        rows[-1] = at = last_place(course, at, width, scale.middle)
        value[-1] = course[at:].mean() - course[at - values_before(width) : at].mean() - scale.middle
    return rows, value


def _columns(channel: int, verdict: int, far: _Far) -> Columns:
    """The columns of FAR_OFF."""
    n = len(far.time)
    return {
        "channel_id": np.full(n, channel, np.int32),
        "verdict": np.full(n, verdict, np.int32),
        "scale": np.full(n, far.scale, np.int32),
        "time": far.time,
        "value": far.value,
        "times": np.abs(far.value) / far.limit if far.limit > 0 else np.full(n, np.nan),
    }
