"""Accumulates samples into rollup minutes as they arrive: arrays indexed by channel id, no database.

The rows are identical to those that the database computes (see ``rollup_rows``), provided that the value
carried into the minute is the last one accumulated. So sums are added in order of time, one by one: numpy adds
pairwise. Otherwise a channel is doubtful in that minute: nothing was accumulated of it before, or a sample
or gap arrived out of order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int32s, Int64s
from core.counters import increases
from core.samples import Samples, changes, joined
from core.status_codes import BAD
from core.timestamps import MINUTE_US
from ingest.writer.minutes.rollup_rows import (
    Bools,
    Increases,
    Kinds,
    Rows,
    SampleCourse,
    States,
    rows,
    states,
    summable,
    weight,
)
from ingest.writer.transaction.rows import NO_GAPS, GapStarts

NEVER = -(2**62)  # µs: "no sample before"
_NOTHING_CARRIED = NEVER - 1  # µs: nothing known yet of the sample before
_RANKS = 16  # up to this many samples per channel are added for all channels at once; more, channel by channel
_GROW = 4096


class _Channels:
    """Growing arrays indexed by channel id."""

    _empty: ClassVar[dict[str, Any]]  # array → its value for a channel without data

    def __init__(self) -> None:
        self.size = 0
        for name, value in self._empty.items():
            setattr(self, name, np.zeros(0, type(value)))

    def grow(self, size: int) -> None:
        """Grow the arrays for channel ids below ``size``."""
        if size > self.size:
            more = size + _GROW - self.size
            for name, value in self._empty.items():
                setattr(self, name, np.concatenate((getattr(self, name), np.full(more, value))))
            self.size += more


class _Last(_Channels):
    """The last sample of each channel, or the gap after it (as one that does not hold)."""

    _empty: ClassVar = {"time": np.int64(NEVER), "value": np.float64(0), "holds": np.False_}
    time: Int64s
    value: Float64s
    holds: Bools


class _Sums(_Channels):
    """One minute so far, by channel."""

    _empty: ClassVar = {
        **dict.fromkeys(("n", "n_good", "gaps"), np.int32(0)),
        **dict.fromkeys(("sum", "area", "first", "last", "carried", "increase"), np.float64(0)),
        **{"min": np.float64(np.inf), "max": np.float64(-np.inf), "reading": np.float64(np.nan)},
        **dict.fromkeys(("known", "first_time", "last_time"), np.int64(0)),
        "carried_time": np.int64(_NOTHING_CARRIED),
        **dict.fromkeys(("holds", "carries", "doubtful", "decreases"), np.False_),
    }
    n: Int32s
    n_good: Int32s
    gaps: Int32s
    min: Float64s
    max: Float64s
    sum: Float64s
    area: Float64s
    first: Float64s
    last: Float64s
    known: Int64s
    first_time: Int64s
    last_time: Int64s
    holds: Bools
    carried_time: Int64s
    carried: Float64s
    carries: Bools
    doubtful: Bools
    reading: Float64s  # the last one of a counter; NaN: none
    increase: Float64s
    decreases: Bools  # a reading is lower than that before it


@dataclass(slots=True, eq=False)
class _Minute:
    begin: int  # µs
    kinds: Kinds
    sums: _Sums = field(default_factory=_Sums)
    courses: list[SampleCourse] = field(default_factory=list)  # of discrete channels


@dataclass(frozen=True, slots=True, eq=False)
class ClosedMinute:
    """A minute that is complete."""

    begin: int  # µs
    kinds: Kinds  # that were accumulated
    rows: Rows
    gaps: Int32s  # that begin in the minute, of each row
    states: States
    increases: Increases
    doubtful: Int32s  # channels to be computed from stored samples


class Accumulator:
    """The open minutes, and the last sample of each channel."""

    def __init__(self) -> None:
        self._last = _Last()
        self._open: dict[int, _Minute] = {}
        self.kinds = Kinds.of_rows(())  # for minutes opened from now on

    def fold(self, samples: Samples, minutes: Iterable[int], gaps: GapStarts = NO_GAPS) -> None:
        """Accumulate stored samples and gaps. ``minutes`` (since 1970) are open; of others only the last counts."""
        opened = [self._minute(minute) for minute in minutes]
        is_sample = None  # mask of what is not a gap; None: all
        if len(gaps.time):
            samples, is_sample = _merged(samples, gaps)
        if not len(samples):
            return
        self._last.grow(int(samples.channel[-1]) + 1)
        last = self._last.time[samples.channel]
        late = samples.time <= last if is_sample is None else samples.time < last + is_sample
        if late.any():
            for minute in opened:
                inside = late & (samples.time // MINUTE_US * MINUTE_US == minute.begin)
                minute.sums.grow(len(self._last.time))
                minute.sums.doubtful[samples.channel[inside]] = True
            samples, is_sample = samples.part(~late), None if is_sample is None else is_sample[~late]
            if not len(samples):
                return
        course = self._course(samples)
        for minute in opened:
            inside = (course.time >= minute.begin) & (course.time < minute.begin + MINUTE_US)
            if inside.all():
                _add(minute, course, is_sample)
            elif inside.any():
                _add(minute, course.part(inside), None if is_sample is None else is_sample[inside])

    def close(self, minute: int) -> ClosedMinute:
        """Remove and return ``minute`` (since 1970)."""
        closed = self._minute(minute)
        del self._open[minute]
        sums = closed.sums
        channel = np.flatnonzero((sums.n > 0) & ~sums.doubtful).astype(np.int32)
        columns = {name: getattr(sums, name)[channel] for name in Rows.__slots__ if name != "channel_id"}
        state_rows = states(closed.courses, channel, closed.begin)
        doubtful = np.flatnonzero(sums.doubtful).astype(np.int32)
        minute_rows = rows(closed.begin, channel, columns)
        lower = channel[sums.decreases[channel]]
        increase_rows = Increases(lower, sums.increase[lower])
        gaps = sums.gaps[channel]
        return ClosedMinute(closed.begin, closed.kinds, minute_rows, gaps, state_rows, increase_rows, doubtful)

    def _minute(self, minute: int) -> _Minute:
        if minute not in self._open:
            self._open[minute] = _Minute(minute * MINUTE_US, self.kinds)
        return self._open[minute]

    def _course(self, samples: Samples) -> SampleCourse:
        """The samples and gaps with what was before each; remembers the last of each channel."""
        last, channel = self._last, samples.channel
        not_bad = samples.status < BAD
        good, holds = not_bad & ~np.isnan(samples.value), not_bad & summable(samples.value)
        first = changes(channel)
        if first.all():  # live data, nearly always
            at = _channel_indices(channel)
            before = last.time[at].copy(), last.value[at].copy(), last.holds[at].copy()
            last.time[at], last.value[at], last.holds[at] = samples.time, samples.value, holds
            return SampleCourse(channel, samples.time, samples.value, good, holds, *before)
        begins = channel[first]
        time, value, holds_before = np.roll(samples.time, 1), np.roll(samples.value, 1), np.roll(holds, 1)
        time[first], value[first], holds_before[first] = last.time[begins], last.value[begins], last.holds[begins]
        ends = np.roll(first, -1)
        last.time[begins], last.value[begins], last.holds[begins] = samples.time[ends], samples.value[ends], holds[ends]
        return SampleCourse(channel, samples.time, samples.value, good, holds, time, value, holds_before)


def _merged(samples: Samples, gaps: GapStarts) -> tuple[Samples, Bools]:
    """Samples and gaps by channel and time, gaps as Bad and after samples of the same time; and the mask of samples."""
    n, m = len(samples), len(gaps.time)
    both = joined((samples, Samples(gaps.channel_id, gaps.time, np.zeros(m), np.full(m, BAD, np.uint32))))
    order = both.order()
    return both.part(order), order < n


def _add(minute: _Minute, course: SampleCourse, sample: Bools | None) -> None:
    """Add data to the minute, in order for each channel; ``sample``: mask of what is not a gap, None: all."""
    sums = minute.sums
    sums.grow(int(course.channel[-1]) + 1)
    runs = _Runs.of_channels(course.channel)
    channel, at = runs.channel, runs.at
    if (new := sums.carried_time[at] == _NOTHING_CARRIED).any():
        new_channel, carried = channel[new], runs.begins[new]
        sums.carried_time[new_channel] = course.time_before[carried]
        sums.carried[new_channel] = course.before[carried]
        sums.carries[new_channel] = course.before_holds[carried]
        sums.doubtful[new_channel] |= course.time_before[carried] == NEVER
    good, value = course.good, course.value
    held_time = course.held_time(minute.begin)
    area = np.where(course.before_holds, weight(course.before) * (held_time / 1e6), 0.0)
    runs.add(sums.sum, np.where(good, weight(value), 0.0))
    runs.add(sums.area, area)
    sums.known[at] += runs.total(held_time)
    if sample is None:
        sums.n[at] += runs.count
    else:
        samples = runs.total(sample.astype(np.int32))
        sums.n[at] += samples
        sums.gaps[at] += runs.count - samples
    sums.holds[at] = runs.last(course.holds)
    kinds = minute.kinds
    if kinds.discrete.size and (discrete := np.isin(course.channel, kinds.discrete)).any():
        minute.courses.append(course.part(discrete))
    if kinds.counters.size and (readings := course.holds & np.isin(course.channel, kinds.counters)).any():
        _add_readings(minute, course.channel[readings], weight(course.value[readings]))
    if not good.all():  # the rest counts good ones only
        course = course.part(good)
        if not len(course.channel):
            return
        runs, value = _Runs.of_channels(course.channel), course.value
        channel, at = runs.channel, runs.at
    low, high = _extremes(value, runs)
    # Of equal values (0 and -0) the last one, as in PostgreSQL.
    sums.min[at] = np.where(sums.min[at] < low, sums.min[at], low)
    sums.max[at] = np.where(sums.max[at] > high, sums.max[at], high)
    if (new := sums.n_good[at] == 0).any():
        begins = runs.begins[new]
        sums.first[channel[new]], sums.first_time[channel[new]] = value[begins], course.time[begins]
    sums.last[at], sums.last_time[at] = runs.last(value), runs.last(course.time)
    sums.n_good[at] += runs.count


def _add_readings(minute: _Minute, channel: Int32s, value: Float64s) -> None:
    """Add readings of counters, in order for each."""
    sums, kinds, runs = minute.sums, minute.kinds, _Runs.of_channels(channel)
    before = np.roll(value, 1)
    before[runs.begins] = sums.reading[runs.at]
    wraps_at = kinds.wraps_at[np.searchsorted(kinds.counters, channel)]
    runs.add(sums.increase, np.where(np.isnan(before), 0.0, increases(before, value, wraps_at)))
    sums.decreases[runs.channel[runs.total((value < before).astype(np.int32)) > 0]] = True
    sums.reading[runs.at] = runs.last(value)


def _channel_indices(channel: Int32s) -> slice | NDArray[np.intp]:
    """Index of ascending, unique channels into arrays by channel id; a slice if they are consecutive."""
    first, last = int(channel[0]), int(channel[-1])
    return slice(first, last + 1) if last - first + 1 == len(channel) else channel.astype(np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """The runs of each channel in sorted columns."""

    channel: Int32s  # (m,)
    at: slice | NDArray[np.intp]  # index of the channels in arrays by channel id
    begins: NDArray[np.intp]  # (m,) indices into the columns
    count: Int32s  # (m,)
    single: bool  # one row each

    @classmethod
    def of_channels(cls, column: Int32s) -> _Runs:
        """The runs of a sorted channel column."""
        begins = np.flatnonzero(changes(column))
        single = len(begins) == len(column)
        channel = column if single else column[begins]
        return cls(
            channel, _channel_indices(channel), begins, np.diff(begins, append=len(column)).astype(np.int32), single
        )

    def total(self, column: NDArray[Any]) -> NDArray[Any]:
        """Sums of integers."""
        return column if self.single else np.add.reduceat(column, self.begins)

    def last(self, column: NDArray[Any]) -> NDArray[Any]:
        """The last of each run."""
        return column if self.single else column[self.begins + self.count - 1]

    def add(self, total: Float64s, terms: Float64s) -> None:
        """Add terms to each channel's ``total``, one after another."""
        if self.single:
            total[self.at] += terms
            return
        sums = total[self.channel]
        many = self.count > _RANKS
        for rank in range(int(self.count[~many].max(initial=0))):
            with_rank = (self.count > rank) & ~many
            sums[with_rank] += terms[self.begins[with_rank] + rank]
        for i in np.flatnonzero(many):
            terms_of_channel = terms[self.begins[i] : self.begins[i] + self.count[i]]
            sums[i] = np.add.accumulate(np.concatenate((sums[i : i + 1], terms_of_channel)))[-1]
        total[self.channel] = sums


def _extremes(value: Float64s, runs: _Runs) -> tuple[Float64s, Float64s]:
    """Minimum and maximum of each run; of 0 and -0 the last one."""
    if runs.single:
        return value, value
    low, high = np.minimum.reduceat(value, runs.begins), np.maximum.reduceat(value, runs.begins)
    zero = value == 0
    if np.signbit(value[zero]).any():
        last = np.maximum.reduceat(np.where(zero, np.arange(len(value)), 0), runs.begins)
        low, high = np.where(low == 0, value[last], low), np.where(high == 0, value[last], high)
    return low, high
