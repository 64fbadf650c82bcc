"""Relations of channels that a reference shows, and that broke (schema/questions/broken_relation.sql)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from core.batch import Float64s
from history.codec.row_groups import TIME
from history.sql.kernels.dynamics import dynamics
from history.sql.kernels.oscillations import lagged_products
from history.sql.kernels.reference import (
    CODES,
    CONSTANT,
    MIN_POSITIONS,
    NO_SAMPLES,
    NO_SPREAD,
    PARTS,
    SHORT_REFERENCE,
    UNLIKE,
    UNRELATED,
    has_unlike_part,
    least_limit,
    usual,
)
from history.sql.kernels.running_median import running_median
from history.sql.kernels.unit_means import UnitMeans, robust_spread, run_times, runs, wrapped

RELATIONS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of breaks only
        ("is_odd_one", pa.bool_()),  # else it may be the first partner as well
        ("partners", pa.list_(pa.int32())),  # with which it no longer moves, the farthest first
        ("from_time", TIME),  # where the first bucket begins that is too far from the farthest partner's
        ("to_time", TIME),  # where the last one ends; None: it lasts until the end
        ("before", pa.float64()),  # correlation with that partner in the reference
        ("after", pa.float64()),  # and later; None: one of them stands still
        ("score", pa.float64()),  # the largest distance, in limits
    ]
)
_Pair: TypeAlias = tuple[int, int]  # positions of channels
_SURE = 3.0  # standard deviations of Fisher's z that a correlation is from 0, at least
_Groups: TypeAlias = list[list[int]]  # positions of channels that belong together
_Signs: TypeAlias = Mapping[int, Mapping[int, float]]  # of the correlations of pairs, by channel and partner
_LAGS = 4  # parts of a reference: autocorrelations of longer lags are too uncertain
_PARTNERS = 5  # of a channel: those that it moves with most
_AT_A_TIME = 2_000_000  # correlations of all pairs that are in memory at a time
_STILL = 1e-3  # spreads: what moves less from mean to mean stands still
_CLEARLY = 1.5  # times as far as the other one of a pair: it is the odd one
_EACH_WITH_EACH = 3  # sisters: of more, each is compared with the median of the others
_LASTS = 3  # buckets beyond the limit, at least
_LASTING_PART = 20  # of the interval and of the reference: half as long is not seen between sisters


@dataclass(frozen=True, slots=True)
class _Break:
    """One pair: positions of both channels, where it broke, and by how much."""

    pair: _Pair
    first: int
    last: int
    score: float
    sizes: tuple[float, float]  # of the deviations of both: from others that they move with, or from themselves


@dataclass(frozen=True, slots=True, eq=False)
class Relations:
    """Pairs whose scaled values stayed together in a reference, and are farther apart later."""

    since: int  # µs
    step: int  # µs
    alarm_every: int  # µs: the mean time between two breaks in usual operation that is accepted
    least_correlation: float
    machines: Mapping[int, int]  # by channel: channels of one number are compared, each with each
    sisters: Mapping[int, int]  # by channel: those of one number are one quantity of machines of one kind
    discrete: Collection[int]  # channels

    def of_unit(self, means: UnitMeans) -> Iterator[dict[str, Any]]:
        """Rows of RELATIONS of machines of one kind."""
        _, channels, reference, values = means
        verdicts = np.full(len(channels), UNRELATED)
        verdicts[(~np.isnan(reference)).sum(axis=0) < max(MIN_POSITIONS, len(reference) // 2)] = SHORT_REFERENCE
        verdicts[np.isnan(values).all(axis=0)] = NO_SAMPLES
        for row in np.flatnonzero(np.isin(channels, list(self.discrete)) & (verdicts == UNRELATED)):
            if _are_codes(np.concatenate([reference[:, row], values[:, row]])):
                verdicts[row] = CODES
        usable = np.flatnonzero(verdicts == UNRELATED)
        moves, middle, spread = robust_spread(reference[:, usable])
        verdicts[usable[~moves]] = CONSTANT
        usable = usable[moves]
        ids = channels[usable].tolist()
        sisters = _positions(self.sisters[channel] for channel in ids)
        few = [rows for rows in sisters if len(rows) <= _EACH_WITH_EACH]
        many = [rows for rows in sisters if len(rows) > _EACH_WITH_EACH]
        before, after = (_with_medians(((part[:, usable] - middle) / spread).T, many) for part in (reference, values))
        near = _normalized(before)
        pairs = dict[_Pair, float]()
        for rows in _positions(self.machines[channel] for channel in ids):
            pairs |= {(rows[i], rows[j]): r for (i, j), r in self._nearest(near[rows]).items()}
        of_sisters = self._of_sisters(near, few, many, len(ids))
        pairs = _beyond_chance(pairs | of_sisters, near)
        signs = defaultdict[int, dict[int, float]](dict)  # by channel and partner
        for (i, j), correlation in pairs.items():
            signs[i][j] = signs[j][i] = float(np.sign(correlation))
        half = min([len(values), *(~np.isnan(before)).sum(axis=1).tolist()]) // _LASTING_PART // 2
        judged = [
            self._judged(pair, before, after, signs, len(pairs), half if pair in of_sisters else 0) for pair in pairs
        ]
        places = np.array(list(pairs), np.intp).reshape(-1, 2)
        bad = places[[is_unlike for is_unlike, _ in judged]] if judged else places
        n, n_bad = (np.bincount(some.ravel(), minlength=len(before))[: len(ids)] for some in (places, bad))
        for row in np.flatnonzero(n):
            verdicts[usable[row]] = dynamics(before[row])
        verdicts[usable[2 * n_bad > n]] = UNLIKE
        for channel, verdict in zip(channels.tolist(), verdicts.tolist(), strict=True):
            yield {"channel_id": channel, "verdict": verdict}
        breaks = [one for _, one in judged if one is not None]
        apart = [one for one in breaks if one.pair in of_sisters]
        breaks = [one for one in breaks if one.pair not in of_sisters] + _farthest(apart, pairs, len(ids))
        for odd, is_odd_one, broken in _by_odd_one(breaks, len(ids)):
            farthest = broken[0]
            partners = [one for each in broken for one in _partners(each, odd, after[: len(ids)], sisters)]
            yield {
                "channel_id": ids[odd],
                "is_odd_one": is_odd_one,
                "partners": [ids[one] for one in dict.fromkeys(partners)],
                **run_times(farthest.first, farthest.last, len(values), self.since, self.step),
                "before": float(np.clip(pairs[farthest.pair], -1.0, 1.0)),
                "after": _correlation(after, farthest.pair),
                "score": farthest.score,
            }

    def _of_sisters(self, near: Float64s, few: _Groups, many: _Groups, n_channels: int) -> dict[_Pair, float]:
        """Pairs of sisters, or of each of many with the median of the others, and their correlations.

        ``near``: of channels and medians.
        """
        pairs = [pair for rows in few for pair in combinations(rows, 2)]
        pairs += [(row, n_channels + n) for n, row in enumerate(chain(*many))]
        correlations = ((pair, float(near[pair[0]] @ near[pair[1]])) for pair in pairs)
        return {pair: r for pair, r in correlations if round(abs(r), 9) >= self.least_correlation}

    def _nearest(self, near: Float64s) -> dict[_Pair, float]:
        """Pairs of those that move together most, and their correlations. ``near``: (channels, buckets)."""
        pairs, rows = dict[_Pair, float](), max(_AT_A_TIME // max(len(near), 1), 1)
        for begin in range(0, len(near), rows):
            correlations = near[begin : begin + rows] @ near.T
            own = np.arange(len(correlations))
            correlations[own, begin + own] = 0.0
            row, column = np.nonzero(np.round(np.abs(correlations), 9) >= self.least_correlation)
            size = np.round(np.abs(correlations[row, column]), 9)
            order = np.lexsort((column, -size, row))
            place = np.arange(len(row)) - np.searchsorted(row, row)  # in the order of its row
            for one in order[place < _PARTNERS].tolist():
                i, j = sorted((begin + int(row[one]), int(column[one])))
                pairs[i, j] = float(correlations[row[one], column[one]])
        return pairs

    def _judged(
        self, pair: _Pair, before: Float64s, after: Float64s, signs: _Signs, n_pairs: int, half: int
    ) -> tuple[bool, _Break | None]:
        """Return whether a part of a pair's reference is unlike the rest, and the pair's farthest break if it has one.

        ``before``, ``after``: (channels, buckets); ``n_pairs``: number of all pairs; ``half``: of running medians.
        """
        (i, j), sign = pair, signs[pair[0]][pair[1]]
        apart, now = (running_median(part[i] - sign * part[j], half) for part in (before, after))
        known = apart[~np.isnan(apart)]
        if len(known) < MIN_POSITIONS:
            return False, None
        middle = np.median(known)
        known -= middle
        later = now - middle
        is_unlike, far = has_unlike_part(known, later), np.abs(later)
        if (far > least_limit(known)).sum() < _LASTS:
            return is_unlike, None
        limit = max(usual(known, n_pairs * self.alarm_every / self.step).limit, 1e-6)
        size = np.nan_to_num(far / limit)
        breaks = [
            (float(size[first : last + 1].max()), -first, last)
            for first, last in runs(np.flatnonzero(size > 1), len(size))
            if (size[first : last + 1] > 1).sum() >= _LASTS
        ]
        one, other = (running_median(after[row], half) for row in pair) if breaks else (now, now)
        level = sign * other + middle
        beyond = _outside(before[i], one) & _outside(before[j], other)
        parts = [(slice(-first, last + 1), (score, first, last)) for score, first, last in breaks]
        breaks = [found for rows, found in parts if not _follow(one[rows], level[rows], beyond[rows], limit)]
        if not breaks:
            return is_unlike, None
        score, first, last = max(breaks)
        rows = slice(-first, last + 1)
        return is_unlike, _Break(pair, -first, last, score, _sizes(pair, before, after[:, rows], signs))


def _beyond_chance(pairs: Mapping[_Pair, float], near: Float64s) -> dict[_Pair, float]:
    """Pairs whose correlation is none of two slow channels that merely drift at a time, as in half of a daily swing.

    So many independent values as have the same chance correlations (Bartlett, 1935). ``near``: of _normalized.
    """
    if not pairs:
        return {}
    n, sure = near.shape[1], dict[_Pair, float]()
    slow = lagged_products(near, n // _LAGS)[:, 1:]
    for (i, j), correlation in pairs.items():
        independent = n / max(1 + 2 * float(slow[i] @ slow[j]), 1.0)
        size = np.arctanh(min(abs(correlation), 1 - 1e-9)) * np.sqrt(max(independent - 3, 0))
        if size >= _SURE:
            sure[i, j] = correlation
    return sure


def _are_codes(values: Float64s) -> bool:
    """Return whether a state holds more than two values, from mean to mean: of two, one is the larger one."""
    return len(np.unique(values[1:][values[1:] == values[:-1]])) > 2


def _positions(numbers: Iterable[int]) -> _Groups:
    """Positions of each number that is there more than once."""
    groups = defaultdict[int, list[int]](list)
    for position, number in enumerate(numbers):
        groups[number].append(position)
    return [rows for rows in groups.values() if len(rows) > 1]


def _with_medians(scaled: Float64s, many: _Groups) -> Float64s:
    """Values of channels, and behind them for each of many sisters the medians of the others.

    ``scaled``: (channels, buckets).
    """
    return np.vstack([scaled, *(_medians_of_others(scaled[rows]) for rows in many)])


def _medians_of_others(values: Float64s) -> Float64s:
    """Medians of the values of all other rows, by column. ``values``: (rows, columns)."""
    ordered, columns = np.sort(values, axis=0), np.arange(values.shape[1])
    known = (~np.isnan(values)).sum(axis=0)
    medians = np.zeros_like(values)
    for place in (np.maximum(known - 2, 0) // 2, np.maximum(known - 1, 0) // 2):  # of the others, by size
        at = ordered[place, columns]
        medians += np.where(values > at, at, ordered[np.minimum(place + 1, len(values) - 1), columns]) / 2
    return medians


def _normalized(scaled: Float64s) -> Float64s:
    """Values whose products of rows are robust correlations. ``scaled``: (channels, buckets)."""
    if not scaled.size:
        return scaled
    near = wrapped(np.nan_to_num(scaled))
    near -= near.mean(axis=1, keepdims=True)
    near /= np.maximum(np.sqrt(np.square(near).sum(axis=1, keepdims=True)), 1e-12)
    return near


def _farthest(breaks: list[_Break], pairs: Mapping[_Pair, float], n_channels: int) -> list[_Break]:
    """Breaks of sisters, without those of channels that are apart together with a partner that is farther.

    As where a machine stops, or has another load than its sisters. Positions from ``n_channels`` on are of medians.
    """
    events = list[list[_Break]]()  # the farthest break of each one first
    for one in sorted(breaks, key=lambda one: (-round(one.score, 6), one.pair)):
        of_one = [row for row in one.pair if row < n_channels]
        for event in events:
            shared = min(one.last, event[0].last) - max(one.first, event[0].first) + 1
            if 2 * shared > one.last - one.first + 1 and any(
                (min(row, other), max(row, other)) in pairs
                for row in of_one
                for each in event
                for other in each.pair
                if other < n_channels
            ):
                event.append(one)
                break
        else:
            events.append([one])
    return [event[0] for event in events]


def _partners(broken: _Break, odd: int, values: Float64s, sisters: _Groups) -> list[int]:
    """Positions of the channels that one of a broken pair is compared with; of many sisters, those that are farthest.

    ``values``: (channels, buckets).
    """
    partner = sum(broken.pair) - odd
    if partner < len(values):
        return [partner]
    apart = np.abs(values - values[odd])[:, broken.first : broken.last + 1]
    others = {row: float(np.nanmedian(apart[row])) for rows in sisters if odd in rows for row in rows if row != odd}
    return sorted(others, key=lambda row: -others[row])[:_PARTNERS]


def _correlation(values: Float64s, pair: _Pair) -> float | None:
    """Correlation of a pair; None: one of them stands still. ``values``: (channels, buckets)."""
    both = ~np.isnan(values[pair[0]] + values[pair[1]])
    x, y = (values[channel][both] for channel in pair)
    moving = len(x) > 1 and min(np.ptp(x), np.ptp(y)) > NO_SPREAD
    return float(np.corrcoef(x, y)[0, 1]) if moving else None


def _follow(one: Float64s, other: Float64s, beyond: NDArray[np.bool_], limit: float) -> bool:
    """Return whether a pair is apart only where a reference has neither value, and goes the same way there by a slope.

    How far one goes with the other there, where the load changes or both stop, a reference does not tell. It may do so
    a mean earlier or later.
    """
    known = beyond & (other != 0)
    if not known.any() or (steepness := float(np.median(one[known] / other[known]))) <= 0:
        return False
    slope = np.where(beyond, steepness, 1.0)
    around = sliding_window_view(np.pad(other, 1, "edge"), 3) * slope[:, None]
    apart = np.maximum(around.min(axis=1) - one, one - around.max(axis=1))
    return int((apart > limit * np.maximum(slope, 1.0)).sum()) < _LASTS


def _outside(reference: Float64s, values: Float64s) -> NDArray[np.bool_]:
    """Mask of values that a reference does not have."""
    return (values < np.nanmin(reference)) | (values > np.nanmax(reference))


def _sizes(pair: _Pair, before: Float64s, values: Float64s, signs: _Signs) -> tuple[float, float]:
    """How far both channels are from the others that they move with; if both have none, how unlike themselves.

    If one has others, it stays with them, or more of its pairs were broken. ``before``, ``values``: (channels,
    buckets), of the reference and of the break.
    """
    others = [
        [values[k] - sign * values[partner] for partner, sign in signs[k].items() if partner not in pair] for k in pair
    ]
    if not any(others):
        sizes = [_unlikeness(before[k], values[k]) for k in pair]
    elif all(others):
        sizes = [float(np.median([np.nanmedian(np.abs(one)) for one in distances])) for distances in others]
    else:
        sizes = [float(not distances) for distances in others]
    return sizes[0], sizes[1]


def _unlikeness(before: Float64s, values: Float64s) -> float:
    """How unlike before the level and the movement of values are; 1: no more than those of some part of before."""
    before, values = (part[~np.isnan(part)] for part in (before, values))
    width = max(min(len(values), len(before) // PARTS), 2)
    usual, now = (_of_windows(part, width) for part in (before, values))
    middle = np.median(usual, axis=1)
    farthest = np.abs(usual.T - middle).max(axis=0)
    size = np.abs(np.median(now, axis=1) - middle) / np.maximum(farthest, NO_SPREAD)
    return max(float(size.max()), 1.0)


def _of_windows(values: Float64s, width: int) -> Float64s:
    """Level and movement, a logarithm, of windows of values, (2, windows)."""
    sums = np.cumsum([values[:-1], np.abs(np.diff(values))], axis=1)
    sums = np.pad(sums, [(0, 0), (1, 0)])
    level, moves = (sums[:, width - 1 :] - sums[:, : 1 - width]) / (width - 1)
    return np.stack([level, np.log(np.maximum(moves, _STILL))])


def _by_odd_one(breaks: list[_Break], n_channels: int) -> Iterator[tuple[int, bool, list[_Break]]]:
    """Breaks by the channel that most of them have in common, the farthest first; of one pair, by the farther one.

    The bool says whether it clearly is the farther one. Positions from ``n_channels`` on are of medians.
    """
    rest = list(breaks)
    while rest:
        weights = dict[int, tuple[int, float]]()
        for one in rest:
            for channel, size in zip(one.pair, one.sizes, strict=True):
                n, sizes = weights.get(channel, (0, 0.0))
                weights[channel] = (n + 1, sizes + size) if channel < n_channels else (0, 0.0)
        odd = max(weights, key=lambda channel: (*weights[channel], -channel))
        broken = [one for one in rest if odd in one.pair]
        rest = [one for one in rest if odd not in one.pair]
        broken.sort(key=lambda one: (-round(one.score, 6), one.pair))
        (n, size), others = weights[odd], [weights[sum(one.pair) - odd] for one in broken]
        yield odd, all((n, size) >= (n_other, _CLEARLY * other) for n_other, other in others), broken
