"""Changes of the level, the slope or the spread of channels (schema/questions/change_points.sql).

Moving sums at several bandwidths: Eichinger and Kirch, A MOSUM procedure for the estimation of multiple random change
points, Bernoulli 24 (2018); Messer et al., A multiple filter test for the detection of rate changes, Annals of
Applied Statistics 8 (2014). Steps and kinks are tested against a line: Baranowski, Chen and Fryzlewicz,
Narrowest-over-threshold detection of multiple change points, JRSS B 81 (2019); each is placed where the better of both
fits best. The noise is that of an autoregression by robust spreads of differences: Chakar et al., A robust approach for
estimating change-points in the mean of an AR(1) process, Bernoulli 23 (2017); and no less than what the sums themselves
are in most windows, for noise of another kind and for channels that change again and again. What is usual of a
reference counts as noise, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s
from core.samples import Samples, segments
from history.codec.row_groups import TIME
from history.sql.kernels.change_places import LEVEL, SLOPE, SPREAD, clear_windows, fitted
from history.sql.kernels.columns import Columns, columns_of
from history.sql.kernels.reference import (
    CAME_ONCE,
    FEW_SAMPLES,
    INTERVAL_ALONE,
    JUDGED,
    MOSTLY_MISSING,
    NO_SPREAD,
    is_held,
    smoothed,
)
from history.sql.kernels.resampled import Grid

CHANGES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of changes only
        ("time", TIME),  # where the first bucket after the change begins
        ("kind", pa.int32()),  # 0: level, 1: slope (an hour), 2: spread
        ("before", pa.float64()),
        ("after", pa.float64()),
        ("score", pa.float64()),  # NaN: the channel has no noise to measure by
    ]
)
_Row: TypeAlias = tuple[int, int, int, int, float, float, float]  # of CHANGES
_MIN_SIDE = 8  # buckets on each side
_SIDES = (32, 16, 8)  # of the buckets of a channel: how many are on each side
_TRIM = 0.9  # of differences, the smallest ones: steps and spikes are among the others
_TRIMMED = 0.6573  # mean of the smallest 90 % of |z|, z normal
_HABIT = 4  # changes of a channel in the interval: where it has more, they are what it usually does
_RARER_THAN = 0.25  # of the parts of a reference: as many have no larger change than is usual
_USUAL_SCORE = 4.6  # of a change that is as large as is usual: 5.5 is 1.2 times that
_ALIKE = 2.0  # times: how far changes of one kind differ in size, at most
_MEDIAN = 0.6745  # of |z|
_FAR_LAG = 4  # buckets
_AUTOCORRELATIONS = np.linspace(0, 0.97, 98)  # more is not told from changes
# Variance of differences of values that are so far apart, by that of neighbours
_GROWTHS = (1 - _AUTOCORRELATIONS**_FAR_LAG) / (1 - _AUTOCORRELATIONS)
_WHITE_MEAN_ROUGHNESS = 1.287  # root of |second differences| of white noise of spread 1
_WHITE_ROUGHNESS = 0.6  # long-run deviation of roots of |second differences| of white noise, in their means
_ROUGHNESS_FACTOR = 1.15  # times the usual roughness: that of a few means is no larger by chance
_HOUR = 3.6e9  # µs


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Places at which the means of buckets before and after differ by more than noise does, and than is usual."""

    grid: Grid
    spans: Mapping[int, float]  # of the ranges of channels that have one
    reference: tuple[int, int]  # µs
    within: tuple[int, int]  # µs
    least_score: float

    def compute(self, samples: Samples) -> Columns:
        """The columns of CHANGES. ``samples``: all samples of some channels, by channel and time."""
        means = self.grid.numbers(samples)
        reference, within = self.grid.whole(self.reference), self.grid.whole(self.within)
        rows, groups = list[_Row](), defaultdict[tuple[int, int], list[tuple[slice, slice]]](list)
        for channel in segments(means["channel_id"]):
            before, inside = (
                slice(*(channel.start + np.searchsorted(means["number"][channel], bounds)).tolist())
                for bounds in (reference, within)
            )
            n = inside.stop - inside.start
            verdict = FEW_SAMPLES if n < 4 * _MIN_SIDE else _verdict(before.stop - before.start, *reference)
            rows.append((int(means["channel_id"][channel.start]), verdict, 0, 0, np.nan, np.nan, np.nan))
            if verdict != FEW_SAMPLES:
                groups[n, before.stop - before.start].append((before, inside))
        for _, alike in sorted(groups.items()):
            earlier, values = (np.array([means["value"][rows] for rows in part]) for part in zip(*alike, strict=True))
            ids = [int(means["channel_id"][inside.start]) for _, inside in alike]
            for row, verdict, at, kind, size_before, size_after, score in self._of_values(values, earlier, ids):
                number = int(means["number"][alike[row][1].start + at])
                time = self.grid.since + number * self.grid.step
                rows.append((ids[row], verdict, time, kind, size_before, size_after, score))
        return columns_of(CHANGES, rows)

    def _of_values(self, values: Float64s, earlier: Float64s, ids: list[int]) -> Iterator[_Row]:
        """Rows of CHANGES by row of the values, and by bucket. ``values``, ``earlier``: (channels, buckets)."""
        extent = np.ptp(values, axis=1)
        # A thousandth of what a channel does is no noise to measure by, nor is a ten-thousandth of its range, nor is
        # half of what rounded values differ by.
        ranges = np.array([self.spans.get(number, 0.0) for number in ids])
        floor = np.maximum.reduce([1e-3 * extent, 1e-4 * ranges, _resolution(values) / 2])
        moves = extent > NO_SPREAD * np.abs(values).max(axis=1)  # else by rounding errors
        middle, floor = values[:, :1], np.where(moves, floor, 1.0)[:, None]
        held = np.array([is_held(course) for course in np.hstack([earlier, values])])
        scores = list(_scores((values - middle) / floor, (earlier - middle) / floor, held))
        unusual = np.any([one.by_chance.max(axis=1) > one.often * self.least_score for one in scores], axis=0)
        for row in np.flatnonzero(unusual & moves).tolist():
            # Usual changes have their places, too: else what is between two of them would be a change.
            candidates = [
                (one.kind, one.side, bucket, float(one.by_chance[row, bucket]))
                for one in scores
                for bucket in np.flatnonzero(one.by_chance[row] > self.least_score).tolist()
            ]
            came_once = False
            scaled = (values[row : row + 1] - middle[row]) / floor[row]
            [rough], [smooth] = np.sqrt(floor[row]) * _roughness(scaled), smoothed(scaled)
            for kind, window, at, change in fitted(smooth, clear_windows(candidates), self.least_score):
                of_change = [one for one in scores if one.kind == change[0] and one.side <= change[1]]
                score = max(float(one.score[row, change[2]]) for one in of_change)
                if score <= self.least_score:
                    by_chance = ((one.by_chance[row, change[2]], one.often[row]) for one in of_change)
                    came_once |= any(size > often * self.least_score for size, often in by_chance)
                    continue
                scored = rough if kind == SPREAD else values[row]
                before, after = (
                    self._size(half, kind) for half in (scored[window.start : at], scored[at : window.stop])
                )
                yield row, 0, at, kind, before, after, np.nan if held[row] else score
            if came_once:
                yield row, CAME_ONCE, 0, 0, np.nan, np.nan, np.nan

    def _size(self, values: Float64s, kind: int) -> float:
        """Level, slope or spread, of values, of a spread of their roughness."""
        if kind == LEVEL:
            return float(values.mean())
        if kind == SPREAD:
            return float(np.square(values.mean() / _WHITE_MEAN_ROUGHNESS))
        off = np.arange(len(values)) - (len(values) - 1) / 2
        return float(off @ values / (off @ off)) * _HOUR / self.grid.step


def _verdict(n: int, begin: int, end: int) -> int:
    """Verdict on ``n`` means of a reference of the buckets from ``begin`` to ``end``."""
    if n <= 4 * _MIN_SIDE:
        return INTERVAL_ALONE
    return MOSTLY_MISSING if 2 * n < end - begin else JUDGED


class _Scores(NamedTuple):
    """How far each bucket of channels is from what comes by chance, (channels, buckets); at the ends 0."""

    kind: int
    side: int  # bandwidth: buckets on each side
    by_chance: Float64s
    score: Float64s  # for which what is usual counts as well
    often: Float64s  # (channels,) how much lower the score is by what comes often alone; 1: not at all


def _scores(values: Float64s, earlier: Float64s, held: NDArray[np.bool_]) -> Iterator[_Scores]:
    """Scores of each kind and bandwidth.

    ``values``, ``earlier``: (channels, buckets), in floors of noise. ``held``: mask of channels.
    """
    n = values.shape[1]
    sums = _Sums.of(values)
    reference = _Sums.of(earlier) if earlier.shape[1] > 4 * _MIN_SIDE else None
    deviation, depends = _noise(values) if reference is None else _noise(values, earlier)
    floor = np.ones(len(values))
    sides = sorted({max(n // part, _MIN_SIDE) for part in _SIDES})
    for side in sides:
        moves, louder, spread = _sizes(sums, side)
        noise = deviation * np.max([_correlated(weights, depends) for weights in _weights(side)], axis=0)
        # Few changes are in few windows. What is large in more of them is what the channel does.
        calm = max(1 - _HABIT * 2 * side / n, 0.5)
        habit = np.quantile(moves, calm, axis=2).max(axis=0) / NormalDist().inv_cdf((1 + calm) / 2)
        chance = np.maximum.reduce([noise, floor, habit])
        if side <= n // 16:  # wider windows are often half of all: changes are in too many
            floor = chance
        if side == sides[0]:
            scatter = np.maximum(np.median(spread, axis=1) / _MEDIAN, 1.0)
        moved, scattered = (_NOTHING, _NOTHING) if reference is None else _usual(reference, side, n, held)
        for kind, size in zip((LEVEL, SLOPE), moves / louder, strict=True):
            yield moved.scores(kind, side, size, chance, n)
        yield scattered.scores(SPREAD, 2 * side, spread, scatter, n)


class _Usual(NamedTuple):
    """Sizes of changes that a reference has, of channels; 0: none is known."""

    often: Float64s
    once: Float64s

    def scores(self, kind: int, side: int, sizes: Float64s, chance: Float64s, n: int) -> _Scores:
        """Scores of sizes, (channels, positions), at n buckets. What came once says nothing of a change half as large.

        ``chance``: sizes that come by chance, (channels,).
        """
        often = np.maximum(chance, self.often / _USUAL_SCORE)
        alike, least = _ALIKE * sizes > self.once[:, None], often[:, None]
        scores = sizes / np.where(alike, np.maximum(least, self.once[:, None] / _USUAL_SCORE), least)
        return _Scores(kind, side, _placed(sizes / chance[:, None], n), _placed(scores, n), often / chance)


_NOTHING = _Usual(np.zeros(1), np.zeros(1))


def _usual(reference: _Sums, side: int, n: int, held: NDArray[np.bool_]) -> tuple[_Usual, _Usual]:
    """Usual sizes of moves, and of changes of the spread.

    A reference has parts as long as the interval (``n``). Usual is what three of four have, of two or three each, what
    it has more often than a few times there and back, and each change of what is ``held``. The largest change of one
    part came once.
    """
    end = reference.total.shape[1]
    if end <= 4 * side:
        return _NOTHING, _NOTHING
    moves, louder, spread = _sizes(reference, side)
    moved, scattered = (
        _Usual(np.maximum(of_parts * (end >= 2 * n), _repeated(sizes, wide, held)), of_parts * (end < 2 * n))
        for sizes, wide in ((moves.max(axis=0) / louder, side), (spread, 2 * side))
        for of_parts in [_of_parts(sizes, max(end // n, 1))]
    )
    return moved, scattered


def _of_parts(sizes: Float64s, parts: int) -> Float64s:
    """Size that three of four parts have, of fewer each."""
    whole = sizes[:, : sizes.shape[1] // parts * parts].reshape(len(sizes), parts, -1)
    largest: Float64s = np.sort(whole.max(axis=2), axis=1)[:, int(_RARER_THAN * parts)]
    return largest


def _repeated(sizes: Float64s, side: int, held: NDArray[np.bool_]) -> Float64s:
    """Size that more than a few changes there and back have, ``side`` buckets and more apart; of ``held``: the largest.

    Fewer may be faults.
    """
    rest = sizes.copy()
    for _ in range(2 * _HABIT):
        for row, bucket in enumerate(rest.argmax(axis=1).tolist()):
            rest[row, max(bucket - side, 0) : bucket + side + 1] = 0.0
    repeated: Float64s = np.where(held, sizes.max(axis=1), rest.max(axis=1))
    return repeated


class _Sums(NamedTuple):
    """Sums of values, of moments and of roughness before each bucket, (channels, buckets + 1)."""

    total: Float64s
    moment: Float64s
    rough: Float64s

    @classmethod
    def of(cls, values: Float64s) -> _Sums:
        """Sums of values, (channels, buckets)."""
        smooth = smoothed(values)  # a spike is no change
        return cls(_sums(smooth), _sums(smooth * np.arange(values.shape[1])), _sums(_roughness(values)))


def _weights(side: int) -> tuple[Float64s, Float64s]:
    """Weights of the buckets before and after a change in a step beside a line, and in a kink."""
    u = np.arange(side) + 0.5  # how far from the change
    stepped, kinked = 1 - u.sum() / (u @ u) * u, u - u.mean()
    return np.append(-stepped[::-1], stepped), np.append(kinked[::-1], kinked)


def _sizes(sums: _Sums, side: int) -> tuple[Float64s, Float64s, Float64s]:
    """Sizes of steps and kinks (2, channels, positions), what divides them, and sizes of changes of the spread.

    Positions are those that have so many buckets before and after them. The spread of a few means is uncertain: it
    takes twice as many.
    """
    u, n = np.arange(side) + 0.5, sums.total.shape[1] - 1
    before, after = _around(sums.total, side)
    shift = np.arange(side, n - side + 1) - 0.5
    moment_before, moment_after = (
        moments - shift * total for moments, total in zip(_around(sums.moment, side), (before, after), strict=True)
    )
    tilt = u.sum() / (u @ u)
    step = (after - before - tilt * (moment_after + moment_before)) / np.sqrt(2 * np.square(1 - tilt * u).sum())
    kink = moment_after - moment_before - u.mean() * (after + before)
    kink /= np.sqrt(2 * np.square(u - u.mean()).sum())
    # Where the noise is larger than it usually is, so must a step be.
    louder = np.maximum(_loudest(sums.rough, side) * n / (_ROUGHNESS_FACTOR * sums.rough[:, -1:]), 1.0) ** 2
    rough_before, rough_after = _around(sums.rough, 2 * side)
    spread = np.abs(np.log(rough_after / rough_before)) * np.sqrt(side) / _WHITE_ROUGHNESS
    return np.abs([step, kink]), louder, spread


def _around(sums: Float64s, side: int) -> tuple[Float64s, Float64s]:
    """The sums of so many buckets before and after each position, from the first that has as many before it."""
    return sums[:, side:-side] - sums[:, : -2 * side], sums[:, 2 * side :] - sums[:, side:-side]


def _loudest(sums: Float64s, side: int) -> Float64s:
    """The larger mean of those before and after each position, without the two that a step there would raise."""
    before = sums[:, side - 1 : -side - 1] - sums[:, : -2 * side]
    after = sums[:, 2 * side :] - sums[:, side + 1 : sums.shape[1] - side + 1]
    loudest: Float64s = np.maximum(before, after) / (side - 1)
    return loudest


def _placed(scores: Float64s, n: int) -> Float64s:
    """Scores of all positions: 0 at the ends, where there is none."""
    side = (n + 1 - scores.shape[1]) // 2
    placed: Float64s = np.pad(scores, ((0, 0), (side, side)))[:, :n]
    return placed


def _roughness(values: Float64s) -> Float64s:
    """Roots of second differences, which are nearly normal, (channels, buckets); steps and spikes count little."""
    rough = np.sqrt(np.abs(np.diff(values, 2, axis=1)))
    rough = np.maximum(np.pad(rough, ((0, 0), (1, 1)), mode="edge"), 1.0)
    bounded: Float64s = np.minimum(rough, 3 * rough.mean(axis=1, keepdims=True))
    return bounded


def _resolution(values: Float64s) -> Float64s:
    """Steps by which the values of rounded channels differ, but for a few; of others they are next to nothing."""
    steps = np.abs(np.diff(values, axis=1))
    steps[steps <= NO_SPREAD * np.abs(values).max(axis=1, keepdims=True)] = np.inf
    smallest = np.partition(steps, _HABIT, axis=1)[:, _HABIT]
    return np.where(np.isinf(smallest), 0.0, smallest)


def _noise(values: Float64s, *earlier: Float64s) -> tuple[Float64s, Float64s]:
    """The standard deviation of each channel, and how much each value depends on the one before it.

    The latter takes many values: it is that of ``earlier`` ones, too.
    """
    lag_1, lag_far = (
        _spread(np.hstack([_differences(part, lag) for part in (values, *earlier)])) for lag in (1, _FAR_LAG)
    )
    depends = np.interp(np.square(lag_far / np.maximum(lag_1, 1e-9)), _GROWTHS, _AUTOCORRELATIONS)
    deviation: Float64s = _spread(_differences(values, 1)) / np.sqrt(2 * (1 - depends))
    return deviation, depends


def _differences(values: Float64s, lag: int) -> Float64s:
    """Differences of values that are so many buckets apart, without the trend on the side that has less of it.

    A step is on one side only.
    """
    n, far = values.shape[1], max(values.shape[1] // 16, _MIN_SIDE)
    rises = values[:, far:] - values[:, :-far]
    before, after = rises[:, : n - 2 * far - lag], rises[:, far + lag :]
    trend = np.where(np.abs(before) < np.abs(after), before, after) / far
    differences: Float64s = values[:, far + lag : n - far] - values[:, far : n - far - lag] - lag * trend
    return differences


def _correlated(weights: Float64s, depends: Float64s) -> Float64s:
    """Standard deviation of a weighted sum, by that of uncorrelated values of the same spread.

    ``depends``: how much each value of a channel depends on the one before it. If that is much, the values wander, of
    which a narrow window shows little.
    """
    products = np.correlate(weights, weights, "full")[len(weights) - 1 :] / (weights @ weights)
    products[1:] *= 2
    ratio: Float64s = np.sqrt(np.maximum(np.polynomial.polynomial.polyval(depends, products), 1e-12))
    return ratio


def _spread(differences: Float64s) -> Float64s:
    """The standard deviation of each channel, without the largest ones."""
    kept = int(differences.shape[1] * _TRIM)
    spread: Float64s = np.partition(np.abs(differences), kept, axis=1)[:, :kept].mean(axis=1) / _TRIMMED
    return spread


def _sums(values: Float64s) -> Float64s:
    """Sums of the values before each bucket, from 0."""
    return np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))
