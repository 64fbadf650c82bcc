"""Aggregates of intervals (OPC 10000-13): of the samples in them, and of the course of values between these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.counters import increases
from core.errors import OperationError
from core.samples import Samples, changes, segments
from core.status_codes import BAD
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Columns, count_up, joined
from history.sql.kernels.courses import GAP, GOOD, HOLD, Course, Courses, courses
from history.sql.kernels.resampled import require_length

AGGREGATES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("number", pa.int32()),  # of the aggregate, from 0
        ("time", TIME),  # when the interval begins
        ("value", pa.float64()),  # NaN: it has none
        ("seconds", pa.float64()),  # of the interval whose value counts
        ("status", pa.int32()),
    ]
)
OF_LINES = ("time_average", "total")  # of total, the value is the integral over seconds
_OF_COUNTERS = ("increase", "rate")
_OF_SAMPLES = ("percentile", "minimum", "maximum")
NAMES = (*OF_LINES, "duration_in_state", "count_transitions", *_OF_COUNTERS, *_OF_SAMPLES)
_MAX_INTERVALS = 1_000_000  # intervals
NO_DATA, NOT_SUPPORTED, SUBNORMAL = 0x809B0000, 0x80D50000, 0x40A40000  # Bad_NoData, Bad_AggregateNotSupported
_CALCULATED, _PARTIAL = 0x401, 4  # bits of a data value

Flags = NDArray[np.bool_]


def require_intervals(since: int, until: int, step: int) -> None:
    """Raise OperationError if a time has too many intervals, or they have no length."""
    require_length("step", step)
    if since >= until:
        raise OperationError("found a time without length; legal: an end after the begin")
    if (n := -((since - until) // step)) > _MAX_INTERVALS:
        raise OperationError(
            f"--step: found {n:,} intervals; legal: {_MAX_INTERVALS:,} at most: a longer step, or a shorter time"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Aggregates:
    """Aggregates of some names, of intervals that begin with the window; the last one ends with it."""

    courses: Courses
    step: int  # µs
    names: Sequence[str]
    state: float  # of duration_in_state
    fraction: float  # of percentile

    def __post_init__(self) -> None:
        """Check the arguments. Raises OperationError."""
        require_intervals(*self.courses.window, self.step)
        if unknown := sorted({*self.names} - {*NAMES}):
            raise OperationError(f"--aggregate: found {', '.join(unknown)}; legal: {', '.join(NAMES)}")
        if not 0 <= self.fraction <= 1:
            raise OperationError(f"--fraction: found {self.fraction:g}; legal: 0 to 1, such as 0.95")
        if not abs(self.state) < np.inf:
            raise OperationError(f"--in-state: found {self.state:g}; legal: the number that is its value, such as 1")

    def compute(self, samples: Samples) -> Columns:
        """The columns of AGGREGATES. ``samples``: all samples in the window of some channels, by channel and time."""
        channel = samples.channel
        return self.of_channels([int(channel[rows.start]) for rows in segments(channel)], samples)

    def of_channels(self, ids: Sequence[int], samples: Samples) -> Columns:
        """Columns of AGGREGATES for these channels, ascending, whether they have samples or not."""
        calculation = _Calculation(self, ids, samples)
        starts, n = self.starts, len(self.starts)
        parts = list[Columns]()
        for number, name in enumerate(self.names):
            result = calculation.result(name)
            parts.append(
                {
                    "channel_id": np.repeat(np.array(ids, np.int32), n),
                    "number": np.full(len(ids) * n, number, np.int32),
                    "time": np.tile(starts, len(ids)),
                    "value": np.where(result.status & BAD, np.nan, result.value).ravel(),
                    "seconds": np.maximum(result.seconds, 0.0).ravel(),
                    "status": result.status.astype(np.uint32).view(np.int32).ravel(),
                }
            )
        return joined(parts)

    @property
    def starts(self) -> Int64s:
        """Begins of the intervals (µs)."""
        since, until = self.courses.window
        return np.arange(since, until, self.step)


@dataclass(frozen=True, slots=True, eq=False)
class _Result:
    """Values of an aggregate; (channels, intervals) each."""

    value: Float64s
    seconds: Float64s
    status: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums of the course of values; (channels, intervals) each."""

    area: Float64s  # value × seconds
    with_value: Int64s  # µs
    good: Int64s  # µs in which it is Good
    in_state: Int64s  # µs in which it is a Good state
    holds: Flags  # whether a value from before holds in it


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """Counts of samples; (channels, intervals) each."""

    n: Int64s  # with gaps
    usable: Int64s
    good: Int64s


class _Calculation:
    """Aggregates of some channels."""

    def __init__(self, aggregates: Aggregates, ids: Sequence[int], samples: Samples) -> None:
        self._aggregates, self._configuration = aggregates, aggregates.courses.configuration
        self._channels = aggregates.courses.channels
        self._own = self._channels.positions(np.array(ids, np.int32))
        self._since, self._until = aggregates.courses.window
        self._starts = aggregates.starts
        self._ends = np.minimum(self._starts + aggregates.step, self._until)
        self._shape = len(ids), len(self._starts)
        self._points = aggregates.courses.points(ids, samples)
        begins, ends = self._points.ranges(aggregates.courses.window)
        self._data_begins, self._data_ends = begins[:, None], ends[:, None]
        length = min(aggregates.step, self._until - self._since)
        self._partial = (self._starts < self._data_begins) | (self._ends > self._data_ends)
        self._partial |= self._ends - self._starts < length

    def result(self, name: str) -> _Result:
        """Result of an aggregate."""
        if name in OF_LINES:
            return self._of_lines(name)
        if name == "duration_in_state":
            return self._duration()
        if name in _OF_SAMPLES:
            return self._of_samples(name)
        return self._of_changes(name)

    # Of the course of values.

    def _of_lines(self, name: str) -> _Result:
        """TimeAverage (5.4.3.6) and Total (5.4.3.8), with simple bounds TimeAverage2 and Total2 (5.4.3.7, 5.4.3.9).

        Without simple bounds, all that is not Good makes the result Uncertain. An interval after the end of the data
        has no value, as in the examples of the standard.
        """
        sums, configuration = self._lines, self._configuration
        total = self._ends - self._starts
        good = sums.good
        if configuration.simple_bounds:
            total = np.minimum(total, self._data_ends - self._starts)
            good = good if configuration.treat_uncertain_as_bad else sums.with_value
        with_value = np.where(self._starts < self._data_ends, sums.with_value, 0)
        status = self._status(total, with_value, good, total - good, by_share=configuration.simple_bounds)
        seconds = sums.with_value / 1e6
        value = sums.area / np.where(sums.with_value, seconds, np.nan) if name == "time_average" else sums.area
        return _Result(value, seconds, status)

    def _duration(self) -> _Result:
        """DurationInStateZero (5.4.3.22) for any state. Values that are not Good are not included in it."""
        sums = self._stepped
        total = np.minimum(self._ends, self._data_ends) - self._starts
        status = self._status(total, sums.with_value, sums.with_value, total - sums.with_value)
        return _Result(sums.in_state / 1e6, sums.good / 1e6, status)

    @cached_property
    def _lines(self) -> _Sums:
        return self._sums(stepped=False)

    @cached_property
    def _stepped(self) -> _Sums:
        return self._sums(stepped=True)

    def _sums(self, *, stepped: bool) -> _Sums:
        n = self._shape[0] * self._shape[1]
        area, holds = np.zeros(n), np.zeros(n, np.bool_)
        with_value, good, in_state = np.zeros((3, n), np.int64)
        for course in courses(self._points, self._configuration, (self._since, self._until), all_stepped=stepped):
            for piece in self._pieces(course):
                length = piece.ends - piece.begins
                until_good = np.minimum(piece.ends, course.good_until[piece.rows])
                _add(with_value, piece.key, length)
                _add(good, piece.key, np.maximum(until_good, piece.begins) - piece.begins)
                if stepped:
                    is_state = (piece.first == self._aggregates.state) & (course.quality[piece.rows] == GOOD)
                    _add(in_state, piece.key, np.where(is_state, length, 0))
                    holds[piece.key[piece.begins > course.at[piece.rows]]] = True
                else:
                    _add(area, piece.key, (piece.first / 2 + piece.last / 2) * (length / 1e6))
        shape = self._shape
        return _Sums(
            area.reshape(shape),
            with_value.reshape(shape),
            good.reshape(shape),
            in_state.reshape(shape),
            holds.reshape(shape),
        )

    def _pieces(self, course: Course) -> Iterator[_Pieces]:
        """Lines, each in one interval: first those that are so from the beginning, the others without length."""
        since, until, step, n = self._since, self._until, self._aggregates.step, self._shape[1]
        begins, ends = np.maximum(course.at, since), np.minimum(course.ends, until)
        number = (begins - since) // step
        more = (ends - 1 - since) // step - number
        cut = (more > 0) | (begins > course.at) | (ends < course.ends)
        key = course.position * n + number
        yield _Pieces(slice(None), key, np.where(cut, ends, begins), ends, course.first, course.last)
        rows = np.flatnonzero(cut)
        beyond = count_up(more[rows] + 1)
        rows = np.repeat(rows, more[rows] + 1)
        start = since + (number[rows] + beyond) * step
        begins, ends = np.maximum(begins[rows], start), np.minimum(ends[rows], start + step)
        at, first = course.at[rows], course.first[rows]
        rise = (course.last[rows] - first) / (course.ends[rows] - at)
        yield _Pieces(rows, key[rows] + beyond, begins, ends, first + rise * (begins - at), first + rise * (ends - at))

    # Of the samples.

    def _of_samples(self, name: str) -> _Result:
        """A percentile, the minimum or the maximum. The StatusCode is that of Average (5.4.3.5)."""
        counts = self._counts
        status = self._status(counts.n, counts.usable, counts.good, counts.n - counts.usable)
        value = self._percentile() if name == "percentile" else self._extreme(name)
        return _Result(value.reshape(self._shape), self._data_seconds, status)

    def _extreme(self, name: str) -> Float64s:
        key, value = self._usable
        extremes = np.full(self._shape[0] * self._shape[1], np.nan)
        starts = np.flatnonzero(changes(key))
        extremes[key[starts]] = (np.minimum if name == "minimum" else np.maximum).reduceat(value, starts)
        return extremes

    def _percentile(self) -> Float64s:
        key, value = self._usable
        n = self._counts.usable.ravel()
        first, rank = np.cumsum(n) - n, self._aggregates.fraction * np.maximum(n - 1, 0)
        ordered = np.append(value[np.lexsort((value, key))], np.nan)
        low = ordered[first + np.floor(rank).astype(np.int64)]
        high = ordered[first + np.ceil(rank).astype(np.int64)]
        percentile: Float64s = low + (high - low) * (rank - np.floor(rank))
        return percentile

    def _of_changes(self, name: str) -> _Result:
        """NumberOfTransitions (5.4.3.24), and by how much a counter increased.

        The first value is compared with the last usable one before it, however many Bad ones are between; the very
        first value of a channel is a transition, and no increase.
        """
        counts, holds = self._counts, self._stepped.holds
        status = self._status(counts.n, counts.usable, counts.good, counts.n - counts.usable)
        # Without samples, a value that holds had no transition; Bad samples alone say nothing.
        ones = np.ones(self._shape, np.int64)
        status = np.where((counts.n == 0) & holds, self._status(ones, ones, ones, 0 * ones), status)
        status = np.where((counts.n > 0) & (counts.usable == 0), BAD, status)
        seconds = self._data_seconds
        if name == "count_transitions":
            return _Result(self._transitions, seconds, status)
        status = np.where(self._channels.counters[self._own][:, None], status, NOT_SUPPORTED)
        if name == "increase":
            return _Result(self._increases, seconds, status)
        return _Result(self._increases / np.where(seconds > 0, seconds, np.nan), seconds, status)

    @cached_property
    def _transitions(self) -> Float64s:
        rows, before, has_before = self._changes
        changed = ~has_before | (self._points.value[rows] != self._points.value[before])
        return self._by_interval(rows, changed)

    @cached_property
    def _increases(self) -> Float64s:
        rows, before, has_before = self._changes
        value, wraps_at = self._points.value, self._channels.wraps[self._own][self._points.position[rows]]
        return self._by_interval(rows, np.where(has_before, increases(value[before], value[rows], wraps_at), 0.0))

    @cached_property
    def _changes(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Flags]:
        """Usable samples in the window, the ones before them, and whether there are these."""
        points = self._points
        every = np.flatnonzero(points.quality <= self._configuration.worst)
        before = np.append(every[:1], every[:-1])
        has_before = (points.position[before] == points.position[every]) & (before != every)
        has_before &= points.time[before] >= self._since - HOLD
        inside = self._is_inside(points.time[every])
        return every[inside], before[inside], has_before[inside]

    @cached_property
    def _usable(self) -> tuple[Int64s, Float64s]:
        """The interval and the value of each usable sample in the window."""
        points = self._points
        rows = np.flatnonzero((points.quality <= self._configuration.worst) & self._is_inside(points.time))
        return self._keys(rows), points.value[rows]

    @cached_property
    def _counts(self) -> _Counts:
        points = self._points
        samples = self._is_inside(points.time) & (points.quality != GAP)
        usable, good = (samples & (points.quality <= worst) for worst in (self._configuration.worst, GOOD))
        n, of_usable, of_good = (self._by_interval(np.flatnonzero(mask)) for mask in (samples, usable, good))
        return _Counts(n + self._gaps(), of_usable, of_good)

    def _gaps(self) -> Int64s:
        """Number of gaps that touch each interval: each counts as one Bad sample, within the data."""
        points = self._points
        rows = np.flatnonzero(points.quality == GAP)
        position, at = points.position[rows], points.time[rows]
        behind = np.minimum(rows + 1, len(points.time) - 1)
        follows = (behind > rows) & (points.position[behind] == position)
        ends = np.where(follows, points.time[behind], np.maximum(at, points.known_until[position]))
        ends = np.minimum(np.minimum(ends, self._data_ends[position, 0]), self._until)
        begins = np.maximum(at, self._since)
        inside = ends > begins
        position, begins, ends = position[inside], begins[inside], ends[inside]
        number = (begins - self._since) // self._aggregates.step
        n = (ends - 1 - self._since) // self._aggregates.step - number + 1
        keys = np.repeat(position * self._shape[1] + number, n) + count_up(n)
        return np.bincount(keys, minlength=self._shape[0] * self._shape[1]).reshape(self._shape)

    def _by_interval(self, rows: NDArray[np.intp], weights: NDArray[Any] | None = None) -> NDArray[Any]:
        """Number of points in each interval, or the sums of their weights."""
        return np.bincount(self._keys(rows), weights, self._shape[0] * self._shape[1]).reshape(self._shape)

    def _keys(self, rows: NDArray[np.intp]) -> Int64s:
        number = (self._points.time[rows] - self._since) // self._aggregates.step
        return self._points.position[rows] * self._shape[1] + number

    def _is_inside(self, time: Int64s) -> Flags:
        return (time >= self._since) & (time < self._until)

    @property
    def _data_seconds(self) -> Float64s:
        """The part of each interval that is within the data."""
        begins = np.maximum(self._starts, self._data_begins)
        seconds: Float64s = (np.minimum(self._ends, self._data_ends) - begins) / 1e6
        return seconds

    def _status(self, total: Int64s, with_value: Int64s, good: Int64s, bad: Int64s, *, by_share: bool = True) -> Int64s:
        """The StatusCode (5.4.3.2), with the bits Calculated and, for a partial interval, Partial.

        ``total``, ``with_value``, ``good`` and ``bad`` are durations, or numbers of values: all of the interval, those
        with a value, those that count as Good and as Bad. Not ``by_share``: Good if all is Good, else Uncertain. Both
        percentages can be reached only where they add up to 100; then the one for Good counts (4.2.1.2).
        """
        status = np.full(self._shape, SUBNORMAL)
        if by_share:
            status[bad * 100 >= self._configuration.percent_data_bad * total] = BAD
            status[good * 100 >= self._configuration.percent_data_good * total] = 0
        status[good >= total] = 0
        status |= _CALCULATED + _PARTIAL * self._partial
        return np.where(with_value > 0, status, NO_DATA)


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Parts of lines, each in one interval; (n,) each."""

    rows: Any  # of the lines
    key: Int64s  # of channel and interval, ascending
    begins: Int64s  # µs
    ends: Int64s
    first: Float64s
    last: Float64s


def _add(sums: NDArray[Any], key: Int64s, amounts: NDArray[Any]) -> None:
    """Add amounts to the sums of their keys, which ascend."""
    starts = np.flatnonzero(changes(key))
    sums[key[starts]] += np.add.reduceat(amounts, starts)
