"""Aggregates as OPC 10000-13 defines them, slowly: the value and its quality at any time, and sums between changes.

All times are whole µs, and all results exact fractions. Nothing here is made as the kernels do: the value at a time is
found by searching the points before and after it (3.1.8, 3.1.9), and an interval is cut wherever anything may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, zip_longest
from typing import TypeAlias

GOOD, UNCERTAIN, BAD = range(3)
HOLD = 24 * 3_600_000_000  # µs
NO_DATA = 0x809B0000
_SUBNORMAL = 0x40A40000
_CALCULATED, _INTERPOLATED, _PARTIAL = 0x401, 0x402, 0x404

Result: TypeAlias = "tuple[Fraction | None, int]"  # value, StatusCode


@dataclass(frozen=True, slots=True)
class Point:
    """A sample, or the start of a gap, which is Bad from 1 µs after it."""

    time: int
    value: Fraction
    quality: int
    status: int | None = None  # None: a gap

    @property
    def order(self) -> tuple[int, bool]:
        return self.time, self.status is not None


@dataclass(frozen=True, slots=True)
class Configuration:
    """Configuration of a channel and an aggregate."""

    stepped: bool
    simple_bounds: bool
    treat_uncertain_as_bad: bool
    percent_data_bad: int = 100
    percent_data_good: int = 100
    use_sloped_extrapolation: bool = False


class History:
    """A channel's points; those of the same time in their order."""

    def __init__(self, samples: Sequence[Point], gaps: Sequence[int], configuration: Configuration) -> None:
        self.configuration = configuration
        self.points = sorted(
            [*samples, *(Point(gap + 1, Fraction(0), BAD) for gap in gaps)], key=lambda point: point.order
        )
        self.samples = sorted(samples, key=lambda point: point.time)
        self.gaps = sorted(gaps)

    def usable(self, point: Point) -> bool:
        return point.quality <= (GOOD if self.configuration.treat_uncertain_as_bad else UNCERTAIN)

    def value(self, time: Fraction) -> tuple[Fraction, int] | None:
        """The value and the quality at a time; None: Bad_NoData."""
        return self._simple(time) if self.configuration.simple_bounds else self._interpolated(time)

    def _simple(self, time: Fraction) -> tuple[Fraction, int] | None:
        before = [point for point in self.points if point.time <= time][-1:]
        if not before or not self.usable(before[0]) or time - before[0].time >= HOLD:
            return None
        (last,) = before
        if self.configuration.stepped:
            return last.value, last.quality
        after = next((point for point in self.points if point.time > time), None)
        if after is None or not self.usable(after) or after.time - last.time > HOLD:
            return last.value, UNCERTAIN
        return _line(last, after, time), max(last.quality, after.quality)

    def _interpolated(self, time: Fraction) -> tuple[Fraction, int] | None:
        before = [point for point in self.points if self.usable(point) and point.time <= time]
        if not before or time - before[-1].time >= HOLD:
            return None
        last = before[-1]
        after = next((point for point in self.points if self.usable(point) and point.time > time), None)
        if after is None or after.time - last.time > HOLD:
            sloped = self.configuration.use_sloped_extrapolation and not self.configuration.stepped
            known = [point for point in before if last.time - point.time <= HOLD]
            return (_line(known[-2], last, time) if sloped and len(known) > 1 else last.value), UNCERTAIN
        place = self.points.index(last)
        between = self.points[place + 1 : self.points.index(after)]
        if self.configuration.stepped:
            skipped = any(point.time <= time for point in between)
            return last.value, UNCERTAIN if skipped else last.quality
        return _line(last, after, time), UNCERTAIN if between else max(last.quality, after.quality)

    def cells(self, begin: int, end: int) -> list[tuple[int, tuple[Fraction, int] | None]]:
        """Lengths within which the quality stays, and what is known in their middle: there a line has its mean."""
        cuts = {begin, end}
        for point in self.points:
            cuts |= {time for time in (point.time, point.time + HOLD) if begin < time < end}
        edges = sorted(cuts)
        return [(b - a, self.value(Fraction(a + b, 2))) for a, b in pairwise(edges)]

    def data_begins(self, begin: int) -> float:
        """Before it, there is no sample; -infinity if there is one in the 24 h before the window."""
        if any(begin - HOLD <= sample.time < begin for sample in self.samples):
            return float("-inf")
        return min((sample.time for sample in self.samples if sample.time >= begin), default=float("inf"))

    def data_ends(self, end: int) -> float:
        """Until then the last value holds; infinity if there is a sample in the 24 h after the window."""
        if any(end <= sample.time < end + HOLD for sample in self.samples):
            return float("inf")
        before = [sample.time for sample in self.samples if sample.time < end]
        if not before:
            return float("-inf")
        return min((gap + 1 for gap in self.gaps if before[-1] <= gap < end), default=before[-1] + HOLD)


def _line(a: Point, b: Point, time: Fraction) -> Fraction:
    return a.value + (b.value - a.value) * (time - a.time) / (b.time - a.time)


def _intervals(begin: int, end: int, step: int) -> list[tuple[int, int]]:
    return [(start, min(start + step, end)) for start in range(begin, end, step)]


def _ratio_status(history: History, whole: Fraction, good: Fraction, bad: Fraction) -> int:
    """5.4.3.2."""
    configuration = history.configuration
    if good * 100 >= configuration.percent_data_good * whole:
        return 0
    return 0x80000000 if bad * 100 >= configuration.percent_data_bad * whole else _SUBNORMAL


def _partial(history: History, window: tuple[int, int, int], start: int, stop: int) -> int:
    begin, end, step = window
    cut = stop - start < min(step, end - begin)
    outside = start < history.data_begins(begin) or stop > history.data_ends(end)
    return _CALCULATED | (_PARTIAL if cut or outside else 0)


def averages(history: History, begin: int, end: int, step: int) -> list[tuple[Result, Result]]:
    """time_average (5.4.3.6, 5.4.3.7), and the integral in value × µs (5.4.3.8, 5.4.3.9)."""
    results: list[tuple[Result, Result]] = []
    configuration = history.configuration
    data_ends = history.data_ends(end)
    for start, stop in _intervals(begin, end, step):
        cells = history.cells(start, stop)
        known = Fraction(sum(length for length, value in cells if value is not None))
        if not known or start >= data_ends:
            results.append(((None, NO_DATA), (None, NO_DATA)))
            continue
        area = sum((length * value[0] for length, value in cells if value is not None), Fraction(0))
        good = Fraction(sum(length for length, value in cells if value is not None and value[1] == GOOD))
        if configuration.simple_bounds:
            whole = Fraction(int(min(stop, data_ends) - start))
            good = good if configuration.treat_uncertain_as_bad else known
            status = _ratio_status(history, whole, good, whole - good)
        else:
            status = 0 if good == stop - start else _SUBNORMAL
        none = status & 0x80000000
        status |= _partial(history, (begin, end, step), start, stop)
        results.append(((None if none else area / known, status), (None if none else area, status)))
    return results


def interpolated(history: History, begin: int, end: int, step: int) -> list[Result]:
    """5.4.3.4."""
    results: list[Result] = []
    for start, _ in _intervals(begin, end, step):
        value = history.value(Fraction(start))
        own = [point.status for point in history.samples if point.time == start and history.usable(point)]
        if value is None:
            results.append((None, NO_DATA))
        elif own and own[0] is not None:
            results.append((value[0], own[0] & 0xFFFFFFFF))
        else:
            results.append((value[0], _INTERPOLATED | (0 if value[1] == GOOD else _SUBNORMAL)))
    return results


def durations(
    history: History, state: Fraction, begin: int, end: int, step: int
) -> list[tuple[Fraction | None, int, int]]:
    """duration_in_state (5.4.3.22): µs, µs in which the state is Good, StatusCode.

    Values that are not Good are not included, although Uncertain ones may count as Good in the StatusCode.
    """
    results: list[tuple[Fraction | None, int, int]] = []
    data_ends = history.data_ends(end)
    for start, stop in _intervals(begin, end, step):
        cells = [(length, value) for length, value in history.cells(start, stop) if value is not None]
        if not cells:
            results.append((None, 0, NO_DATA))
            continue
        known = sum(length for length, _ in cells)
        whole = Fraction(int(min(stop, data_ends) - start))
        status = _ratio_status(history, whole, Fraction(known), whole - known)
        good = [(length, value[0]) for length, value in cells if value[1] == GOOD]
        inside = sum(length for length, value in good if value == state)
        none = status & 0x80000000
        status |= _partial(history, (begin, end, step), start, stop)
        results.append((None if none else Fraction(inside), sum(length for length, _ in good), status))
    return results


@dataclass(frozen=True, slots=True)
class Values:
    """The samples of an interval, for aggregates that count."""

    usable: list[Fraction]
    good: int
    bad: int  # with gaps
    status: int


def values(history: History, begin: int, end: int, step: int) -> list[Values]:
    """Value of each interval. The status is that of percentile (5.4.3.5)."""
    results = []
    data_ends = history.data_ends(end)
    for start, stop in _intervals(begin, end, step):
        samples = [sample for sample in history.samples if start <= sample.time < stop]
        usable = [sample.value for sample in samples if history.usable(sample)]
        good = sum(sample.quality == GOOD for sample in samples)
        gaps = 0
        for gap, after in zip_longest(history.points, history.points[1:]):
            ends = stop if after is None else after.time
            inside = max(gap.time, start) < min(ends, stop) and max(gap.time, start) < data_ends
            gaps += gap.status is None and gap.time > begin - HOLD and inside  # no gap is looked for before that
        bad = len(samples) - len(usable) + gaps
        if not usable:
            status = NO_DATA
        else:
            status = _ratio_status(history, Fraction(len(usable) + bad), Fraction(good), Fraction(bad))
            status |= _partial(history, (begin, end, step), start, stop)
        results.append(Values(usable, good, bad, status))
    return results


def transitions(history: History, begin: int, end: int, step: int) -> list[tuple[int | None, int]]:
    """count_transitions (5.4.3.24)."""
    results: list[tuple[int | None, int]] = []
    known = [p.value for p in history.samples if begin - HOLD <= p.time < begin and history.usable(p)]
    last = known[-1] if known else None
    for (start, stop), one in zip(_intervals(begin, end, step), values(history, begin, end, step), strict=True):
        count = 0
        for value in one.usable:
            count += value != last
            last = value
        status = one.status
        if not one.usable and one.bad:
            status = 0x80000000
        elif not one.usable and any(value is not None for _, value in history.cells(start, stop)):
            status = _partial(history, (begin, end, step), start, stop)
        results.append((None if status & 0x80000000 else count, status))
    return results
