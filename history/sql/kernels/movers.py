"""First moves of channels: where they deviate from what they did before, as they never did in a reference.

Means of several widths are compared with those before them (kernels/reference.py), as in a moving-sum test for changes:
Eichinger and Kirch, A MOSUM procedure for the estimation of multiple random change points, Bernoulli 24 (2018).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.counters import increases
from core.samples import Samples, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Columns, columns_of, good_values
from history.sql.kernels.reference import (
    FAULTY,
    JUDGED,
    MIN_POSITIONS,
    MOSTLY_MISSING,
    NO_SAMPLES,
    SHORT_REFERENCE,
    WIDTHS,
    deviations,
    is_held,
    last_place,
    place,
    reach,
    rounding,
    settled,
    smallest,
    smooth_deviations,
    smoothed,
    usual,
    values_before,
)
from history.sql.kernels.resampled import Grid

MOVES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of moves only
        ("time", TIME),  # of the first sample
        ("usual", pa.float64()),  # the mean before it, going on with the trend of the reference
        ("value", pa.float64()),  # the mean from it on; of a counter the value, and what it would have been is usual
        ("times", pa.float64()),  # of the limit, at most; NaN: it did not deviate at all before, or is a state
    ]
)
_TESTS = 3  # independent ones that make as many false alarms as single values and means of all widths together
_MUCH_FARTHER = 3.0  # times: a later move of a channel that is listed, too
_LASTS = 16  # buckets: a third of what a move takes at least
_ROUNDING = 1e-12  # of the value of a counter: a smaller rate may be a rounding error of means
_AGAIN = 64  # buckets within which a single outlier has to be followed by another one


class _Move(NamedTuple):
    at: int  # bucket
    usual: float
    value: float
    times: float


@dataclass(frozen=True, slots=True, eq=False)
class Movers:
    """First bucket from ``since`` on from which values deviate farther from those before it than by chance."""

    grid: Grid
    spans: Mapping[int, float]  # of the ranges of channels that have one
    reference: tuple[int, int]  # µs
    since: int  # µs
    false_alarms: float  # µs, of a channel: mean time between them
    states: Collection[int] = ()  # channels whose values are not numbers: discrete ones
    sigmas: float = 0.0  # standard deviations of the reference, at least

    def compute(self, samples: Samples) -> Columns:
        """The columns of MOVES. ``samples``: all samples of some channels, by channel and time."""
        continued, is_good = self._continued(samples)
        means, good = self.grid.numbers(continued), continued if is_good.all() else continued.part(is_good)
        time = self.grid.since + means["number"] * self.grid.step
        of_channel = {int(good.channel[rows.start]): good.part(rows) for rows in segments(good.channel)}
        rows = [
            row
            for bins in segments(means["channel_id"])
            for channel in [int(means["channel_id"][bins.start])]
            for row in self._rows(channel, time[bins], means["value"][bins], of_channel[channel])
        ]
        return columns_of(MOVES, rows)

    def _continued(self, samples: Samples) -> tuple[Samples, NDArray[np.bool_]]:
        """The samples, of counters as if they had never wrapped or been reset, and a mask of the good ones."""
        channels = self.grid.channels
        value, is_good = good_values(samples.value, samples.status.view(np.int32))
        if channels.counters.any():
            value = value.copy()
            for rows in segments(samples.channel):
                if channels.is_counter(int(samples.channel[rows.start])):
                    places = rows.start + np.flatnonzero(is_good[rows])
                    before, after = value[places][:-1], value[places][1:]
                    wraps_at = channels.wraps[channels.positions(samples.channel[rows.start : rows.start + 1])]
                    value[places[1:]] += np.cumsum(increases(before, after, wraps_at) - (after - before))
        return Samples(samples.channel, samples.time, value, samples.status), is_good

    def _rows(
        self, channel: int, time: Int64s, value: Float64s, samples: Samples
    ) -> Iterator[tuple[int, int, int, float, float, float]]:
        """Rows of MOVES. ``time``, ``value``: of buckets."""
        first = int(np.searchsorted(time, self.since))
        usual_rows = slice(*np.searchsorted(time, self.reference).tolist())
        is_counter = self.grid.channels.is_counter(channel)
        course = value
        if is_counter:  # only the rate matters, also across a gap
            buckets = np.diff(time, prepend=time[:1] - self.grid.step) / self.grid.step
            course = np.diff(value, prepend=value[:1]) / buckets
        verdict, scales = JUDGED, list[_Scale]()
        if first == len(value):
            verdict = NO_SAMPLES
        elif usual_rows.stop - usual_rows.start < MIN_POSITIONS + reach(1):
            verdict = SHORT_REFERENCE
        else:
            begin, end = self.reference
            is_number = channel not in self.states and not is_counter
            of_reference = samples.value[slice(*np.searchsorted(samples.time, self.reference).tolist())]
            step = rounding(of_reference) if is_number else 0.0
            floor = self._floor(channel, course[usual_rows], value[usual_rows])
            verdict, scales = self._scales(course, usual_rows, floor, step)
            if verdict == JUDGED and 2 * (usual_rows.stop - usual_rows.start) < (end - begin) // self.grid.step:
                verdict = MOSTLY_MISSING
        yield channel, verdict, 0, np.nan, np.nan, np.nan
        new = self._new_state(samples) if scales and channel in self.states else None
        for move in (_with_ramp(move, course, first) for move in _moves(scales, first)):
            # A bucket without samples has the value before it: another one comes with the next sample.
            at = int(samples.time[min(int(np.searchsorted(samples.time, time[move.at])), len(samples) - 1)])
            # Of a counter's rates the difference matters.
            shift = float(value[move.at]) - move.value if is_counter else 0.0
            # Codes of states have no scale.
            times = move.times if np.isfinite(move.times) and channel not in self.states else np.nan
            if new is None or abs(at - samples.time[new]) > self.grid.step:
                yield channel, 0, at, move.usual + shift, move.value + shift, times
        if new is not None:
            before, state = samples.value[new - 1 : new + 1].tolist()
            yield channel, 0, int(samples.time[new]), before, state, np.nan

    def _floor(self, channel: int, course: Float64s, value: Float64s) -> float:
        """Size of deviations that count at least. ``course``, ``value``: of the reference."""
        mean = float(course.mean())
        if not self.grid.channels.is_counter(channel):
            return smallest(mean, self.spans.get(channel))
        # Its range says nothing of its rate.
        return max(smallest(mean, None), _ROUNDING * float(np.abs(value).max()))

    def _new_state(self, samples: Samples) -> int | None:
        """The first sample from since on with a value that a channel never had in the reference, or held into it."""
        begin, end = np.searchsorted(samples.time, self.reference).tolist()
        known = samples.value[max(begin - 1, 0) : end]
        first = int(np.searchsorted(samples.time, self.since))
        new = np.flatnonzero(~np.isin(samples.value[first:], known))
        return first + int(new[0]) if len(new) else None

    def _scales(self, values: Float64s, reference: slice, floor: float, step: float) -> tuple[int, list[_Scale]]:
        """The verdict, and the deviations at each width that the reference suffices for. ``step``: of rounding."""
        smooth, held = smoothed(values), is_held(values[reference])
        verdict, scales = JUDGED, list[_Scale]()
        for width, single in ((1, True), *((width, False) for width in WIDTHS)):
            off = deviations(values, width) if single else smooth_deviations(smooth, width)
            before = off[reference.start + reach(width) - width : reference.stop - width + 1]
            before = before[~np.isnan(before)]
            if len(before) < MIN_POSITIONS:
                continue
            middle = float(np.median(before))
            limit, faults = usual(before - middle, _TESTS * self.false_alarms / self.grid.step, width, held=held)
            verdict = FAULTY if faults else verdict
            limit = max(limit, self.sigmas * float(before.std()), 2 * step if single else step)
            size = np.fmax(np.abs(off - middle), 0.0)  # NaN is not far
            course = values if single else smooth[:-1]  # as smooth_deviations()
            scales.append(_Scale(width, single, course, middle, size, limit, floor))
        return verdict, scales


class _Scale(NamedTuple):
    """Deviations of a channel at one width."""

    width: int
    is_single: bool  # values that are not smoothed: one outlier is no move
    course: Float64s  # what deviates
    middle: float  # its usual deviation
    size: Float64s  # of the deviations from that
    limit: float
    floor: float  # what counts at least

    def far(self, times: float) -> NDArray[np.bool_]:
        """Mask of positions where deviations are farther than so many limits."""
        far = self.size > times * max(self.limit, self.floor)
        return _repeated(far) if self.is_single else far

    def times(self, since: int, until: int) -> float:
        """How many limits deviations reach at positions since <= position < until."""
        largest = float(self.size[max(since, 0) : until].max(initial=0.0))
        return largest / self.limit if self.limit > self.floor * 1e-6 else np.inf

    def move(self, first: int, times: float) -> _Move | None:
        """The first move from a position on that is farther than so many limits."""
        if not len(later := np.flatnonzero(self.far(times)[first:])):
            return None
        width, course, begin = self.width, self.course, first + int(later[0])
        at = place(self.size, begin, width)
        if at + width >= len(course):
            at = last_place(course, at, width, self.middle)
        n = max(width, values_before(1))  # a start a while ago is in the means that are compared
        before, trend = float(course[at - n : at].mean()), self.middle * (width + n) / reach(width)
        value = float(course[at : at + width].mean())
        return _Move(at, before + trend, value, self.times(begin, begin + 3 * width))


def _moves(scales: Sequence[_Scale], first: int) -> Iterator[_Move]:
    """The first move from a position on, and each one that is much farther than those before it."""
    starts = [settled(scale.size, scale.far(1.0), scale.width, first) for scale in scales]
    levels = [1.0] * len(scales)
    while True:
        moves = [scale.move(start, level) for scale, start, level in zip(scales, starts, levels, strict=True)]
        if not (placed := [move for move in moves if move is not None]):
            return
        earliest = min(placed, key=attrgetter("at"))  # of several widths the smallest one
        times = max(move.times for move in placed if move.at == earliest.at)
        yield earliest._replace(times=times)
        since = [earliest.at - scale.width for scale in scales]
        until = [earliest.at + 3 * max(scale.width, _LASTS) for scale in scales]
        reached = [scale.times(*edges) for scale, *edges in zip(scales, since, until, strict=True)]
        levels = [_MUCH_FARTHER * max(times, one) for one in reached]
        starts = until


def _with_ramp(move: _Move, course: Float64s, first: int) -> _Move:
    """A move from the first step on, if it is in a ramp after a value that was held."""
    at, held = move.at, values_before(1)
    while at > first and course[at - 1] != course[at - 2]:
        at -= 1
    before = course[max(at - held, 0) : at]
    return move._replace(at=at, usual=float(before[-1])) if len(before) == held and not np.ptp(before) else move


def _repeated(far: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask of what is far and is soon followed by more."""
    rows = np.flatnonzero(far)
    repeated = np.zeros_like(far)
    repeated[rows[:-1][np.diff(rows) <= _AGAIN]] = True
    return repeated
