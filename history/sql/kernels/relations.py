"""Relations of channels that a reference shows, and that broke (schema/questions/broken_relation.sql)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from core.batch import Float64s
from history.codec.row_groups import TIME
from history.sql.kernels.dynamics import dynamics
from history.sql.kernels.reference import (
    CONSTANT,
    MIN_POSITIONS,
    NO_SAMPLES,
    NO_SPREAD,
    SHORT_REFERENCE,
    UNLIKE,
    UNRELATED,
    has_unlike_part,
    least_limit,
    usual,
)
from history.sql.kernels.unit_means import UnitMeans, lasting, robust_spread, runs, wrapped

RELATIONS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of breaks only
        ("partners", pa.list_(pa.int32())),  # with which it no longer moves, the farthest first
        ("from_time", TIME),  # where the first bucket begins that is too far from the farthest partner's
        ("to_time", TIME),  # where the last one ends; None: it lasts until the end
        ("before", pa.float64()),  # correlation with that partner in the reference
        ("after", pa.float64()),  # and later; None: one of them stands still
        ("score", pa.float64()),  # the largest distance, in limits
    ]
)
_Pair: TypeAlias = tuple[int, int]  # positions of channels
_Signs: TypeAlias = Mapping[int, Mapping[int, float]]  # of the correlations of pairs, by channel and partner
_PARTNERS = 5  # of a channel: those that it moves with most
_ROWS = 500  # of a matrix of correlations that are in memory at a time
_LASTS = 3  # buckets beyond the limit, at least
_SLOPES = 4  # power of a correlation: a slope that is so far from that of the reference may be the plant's


@dataclass(frozen=True, slots=True)
class _Break:
    """One pair: positions of both channels, where it broke, and by how much."""

    pair: _Pair
    first: int
    last: int
    score: float
    sizes: tuple[float, float]  # of the deviations of both: from others that they move with, or from what is usual


@dataclass(frozen=True, slots=True, eq=False)
class Relations:
    """Pairs whose scaled values stayed together in a reference, and are farther apart later."""

    since: int  # µs
    step: int  # µs
    alarm_every: int  # µs: the mean time between two breaks in usual operation that is accepted
    least_correlation: float

    def of_unit(self, means: UnitMeans) -> Iterator[dict[str, Any]]:
        """Rows of RELATIONS of units whose last parts have the same name, as if they were one."""
        _, channels, reference, values = means
        verdicts = np.full(len(channels), UNRELATED)
        verdicts[(~np.isnan(reference)).sum(axis=0) < max(MIN_POSITIONS, len(reference) // 2)] = SHORT_REFERENCE
        verdicts[np.isnan(values).all(axis=0)] = NO_SAMPLES
        usable = np.flatnonzero(verdicts == UNRELATED)
        moves, middle, spread = robust_spread(reference[:, usable])
        verdicts[usable[~moves]] = CONSTANT
        usable = usable[moves]
        before, after = (((part[:, usable] - middle) / spread).T for part in (reference, values))
        pairs = self._pairs(before)
        signs = defaultdict[int, dict[int, float]](dict)  # by channel and partner
        for (i, j), correlation in pairs.items():
            signs[i][j] = signs[j][i] = float(np.sign(correlation))
        judged = [self._judged(pair, before, after, signs, pairs) for pair in pairs]
        places = np.array(list(pairs), np.intp).reshape(-1, 2)
        bad = places[[is_unlike for is_unlike, _ in judged]] if judged else places
        n, n_bad = (np.bincount(some.ravel(), minlength=len(usable)) for some in (places, bad))
        for row in np.flatnonzero(n):
            verdicts[usable[row]] = dynamics(before[row])
        verdicts[usable[2 * n_bad > n]] = UNLIKE
        nothing = {field.name: None for field in RELATIONS}
        for channel, verdict in zip(channels.tolist(), verdicts.tolist(), strict=True):
            yield nothing | {"channel_id": channel, "verdict": verdict}
        channels = channels[usable]
        for odd, broken in _by_odd_one([one for _, one in judged if one is not None]):
            farthest = broken[0]
            yield nothing | {
                "channel_id": int(channels[odd]),
                "partners": [int(channels[sum(one.pair) - odd]) for one in broken],
                "from_time": self.since + farthest.first * self.step,
                "to_time": None
                if lasting(farthest.last, len(values))
                else self.since + (farthest.last + 1) * self.step,
                "before": pairs[farthest.pair],
                "after": _correlation(after, farthest.pair),
                "score": farthest.score,
            }

    def _pairs(self, scaled: Float64s) -> dict[_Pair, float]:
        """Pairs of channels that move together, and their correlations. ``scaled``: (channels, buckets)."""
        if not scaled.size:
            return {}
        near = wrapped(np.nan_to_num(scaled))
        near -= near.mean(axis=1, keepdims=True)
        near /= np.maximum(np.sqrt(np.square(near).sum(axis=1, keepdims=True)), 1e-12)
        pairs = dict[_Pair, float]()
        for begin in range(0, len(near), _ROWS):
            correlations = near[begin : begin + _ROWS] @ near.T
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
        self, pair: _Pair, before: Float64s, after: Float64s, signs: _Signs, pairs: Mapping[_Pair, float]
    ) -> tuple[bool, _Break | None]:
        """Return whether a part of a pair's reference is unlike the rest, and the pair's farthest break if it has one.

        ``before``, ``after``: (channels, buckets); ``pairs``: correlations of all pairs.
        """
        (i, j), sign = pair, signs[pair[0]][pair[1]]
        apart = before[i] - sign * before[j]
        known = apart[~np.isnan(apart)]
        if len(known) < MIN_POSITIONS:
            return False, None
        middle = np.median(known)
        known -= middle
        is_unlike = has_unlike_part(known)
        far = np.abs(after[i] - sign * after[j] - middle)
        if (far > least_limit(known)).sum() < _LASTS:
            return is_unlike, None
        limit = max(usual(known, len(pairs) * self.alarm_every / self.step).limit, 1e-6)
        size = np.nan_to_num(far / limit)
        breaks = [
            (float(size[first : last + 1].max()), -first, last)
            for first, last in runs(np.flatnonzero(size > 1), len(size))
            if (size[first : last + 1] > 1).sum() >= _LASTS
        ]
        correlation, now = abs(pairs[pair]), _correlation(after, pair)
        if now is not None and sign * now >= correlation:  # where both moved, they did so together
            level = sign * after[j] + middle
            parts = [(slice(-first, last + 1), (score, first, last)) for score, first, last in breaks]
            breaks = [one for rows, one in parts if not _on_a_slope(after[i, rows], level[rows], limit, correlation)]
        if not breaks:
            return is_unlike, None
        score, first, last = max(breaks)
        rows = slice(-first, last + 1)
        return is_unlike, _Break(pair, -first, last, score, _sizes(pair, after[:, rows], signs))


def _correlation(values: Float64s, pair: _Pair) -> float | None:
    """Correlation of a pair; None: one of them stands still. ``values``: (channels, buckets)."""
    both = ~np.isnan(values[pair[0]] + values[pair[1]])
    x, y = (values[channel][both] for channel in pair)
    moving = len(x) > 1 and min(np.ptp(x), np.ptp(y)) > NO_SPREAD
    return float(np.corrcoef(x, y)[0, 1]) if moving else None


def _on_a_slope(one: Float64s, other: Float64s, limit: float, correlation: float) -> bool:
    """Return whether values stay together by another slope than that of the reference.

    Noise of a steady operation has a slope of its own, which may be the farther from the plant's the less it
    correlates; where the load changes, scaled values are apart then, however they move together.
    """
    known = (~np.isnan(one - other)) & (np.abs(other) > 1)
    farthest = correlation**_SLOPES
    slope = float(np.median(one[known] / other[known])) if known.any() else np.inf
    slope = min(max(slope, farthest), 1 / farthest)
    return bool((np.abs(one - slope * other) > limit * max(slope, 1.0)).sum() < _LASTS)


def _sizes(pair: _Pair, values: Float64s, signs: _Signs) -> tuple[float, float]:
    """How far both channels are from the others that they move with; if one has none, from what is usual of them."""
    others = [
        [values[k] - sign * values[partner] for partner, sign in signs[k].items() if partner not in pair] for k in pair
    ]
    if not all(others):
        others = [[values[k]] for k in pair]
    first, second = (float(np.median([np.nanmedian(np.abs(one)) for one in distances])) for distances in others)
    return first, second


def _by_odd_one(breaks: list[_Break]) -> Iterator[tuple[int, list[_Break]]]:
    """Breaks by the channel that most of them have in common, the farthest first; of one pair, by the farther one."""
    rest = list(breaks)
    while rest:
        weights = dict[int, tuple[int, float]]()
        for one in rest:
            for channel, size in zip(one.pair, one.sizes, strict=True):
                n, sizes = weights.get(channel, (0, 0.0))
                weights[channel] = n + 1, sizes + size
        odd = max(weights, key=lambda channel: (*weights[channel], -channel))
        broken = [one for one in rest if odd in one.pair]
        rest = [one for one in rest if odd not in one.pair]
        yield odd, sorted(broken, key=lambda one: (-round(one.score, 6), one.pair))
