"""Relations of channels that a reference shows, and that broke (schema/questions/broken_relation.sql)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from core.batch import Float64s
from history.codec.row_groups import TIME
from history.sql.kernels.departures import robust_spread, wrapped
from history.sql.kernels.reference import MIN_POSITIONS, usual
from history.sql.kernels.unit_means import UnitMeans, lasting, runs

RELATIONS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("partners", pa.list_(pa.int32())),  # with which it no longer moves, the farthest first
        ("from_time", TIME),  # where the first bucket begins that is too far from the farthest partner's
        ("to_time", TIME),  # where the last one ends; None: it lasts until the end
        ("before", pa.float64()),  # correlation with that partner in the reference
        ("after", pa.float64()),  # and later; None: one of them stands still
        ("score", pa.float64()),  # the largest distance, in limits
    ]
)
_PARTNERS = 5  # of a channel: those that it moves with most
_ROWS = 500  # of a matrix of correlations that are in memory at a time
_LASTS = 3  # buckets beyond the limit, at least
_CONSTANT = 1e-9  # of the largest value: a smaller spread is none


@dataclass(frozen=True, slots=True)
class _Break:
    """One pair: positions of both channels, where it broke, and by how much."""

    pair: tuple[int, int]
    first: int
    last: int
    score: float
    sizes: tuple[float, float]  # of the deviations of both from what is usual of them


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
        usable = (~np.isnan(reference)).sum(axis=0) >= max(MIN_POSITIONS, len(reference) // 2)
        channels, reference, values = channels[usable], reference[:, usable], values[:, usable]
        middle, spread = robust_spread(reference)
        moves = spread > _CONSTANT * np.max(np.abs(np.nan_to_num(reference)), axis=0, initial=0.0)
        channels, middle, spread = channels[moves], middle[moves], spread[moves]
        before, after = (reference[:, moves] - middle) / spread, (values[:, moves] - middle) / spread
        pairs = self._pairs(before)
        breaks = [one for (i, j), r in pairs.items() for one in self._breaks(i, j, r, before, after, len(pairs))]
        for odd, broken in _by_odd_one(breaks):
            farthest = broken[0]
            i, j = farthest.pair
            both = ~np.isnan(after[:, i] + after[:, j])
            x, y = after[both, i], after[both, j]
            moving = len(x) > 1 and min(np.ptp(x), np.ptp(y)) > _CONSTANT
            yield {
                "channel_id": int(channels[odd]),
                "partners": [int(channels[sum(one.pair) - odd]) for one in broken],
                "from_time": self.since + farthest.first * self.step,
                "to_time": None if lasting(farthest.last, len(after)) else self.since + (farthest.last + 1) * self.step,
                "before": pairs[farthest.pair],
                "after": float(np.corrcoef(x, y)[0, 1]) if moving else None,
                "score": farthest.score,
            }

    def _pairs(self, scaled: Float64s) -> dict[tuple[int, int], float]:
        """Pairs of channels that move together, and their correlations. ``scaled``: (buckets, channels)."""
        near = wrapped(np.nan_to_num(scaled))
        near -= near.mean(axis=0)
        near /= np.maximum(np.sqrt(np.square(near).sum(axis=0)), 1e-12)
        pairs = dict[tuple[int, int], float]()
        n = near.shape[1]
        for begin in range(0, n, _ROWS):
            correlations = near[:, begin : begin + _ROWS].T @ near
            own = np.arange(len(correlations))
            correlations[own, begin + own] = 0.0
            sizes = np.round(np.abs(correlations), 9)
            best = np.argsort(-sizes, axis=1, kind="stable")[:, :_PARTNERS]
            for row, column in zip(np.repeat(own, best.shape[1]).tolist(), best.ravel().tolist(), strict=True):
                if sizes[row, column] >= self.least_correlation:
                    one, other = sorted((begin + row, column))
                    pairs[one, other] = float(correlations[row, column])
        return pairs

    def _breaks(
        self, i: int, j: int, correlation: float, before: Float64s, after: Float64s, pairs: int
    ) -> Iterator[_Break]:
        """The farthest break of a pair, if there is one."""
        sign = np.sign(correlation)
        apart = before[:, i] - sign * before[:, j]
        known = apart[~np.isnan(apart)]
        if len(known) < MIN_POSITIONS:
            return
        middle = float(np.median(known))
        limit = max(usual(known - middle, pairs * self.alarm_every / self.step).limit, 1e-6)
        size = np.nan_to_num(np.abs(after[:, i] - sign * after[:, j] - middle) / limit)
        breaks = [
            _Break((i, j), first, last, float(size[first : last + 1].max()), (0.0, 0.0))
            for first, last in runs(np.flatnonzero(size > 1), len(size))
            if (size[first : last + 1] > 1).sum() >= _LASTS
        ]
        if breaks:
            one = max(breaks, key=lambda each: (each.score, -each.first))
            rows = slice(one.first, one.last + 1)
            far = (float(np.nanmedian(np.abs(after[rows, k]))) for k in (i, j))
            yield _Break(one.pair, one.first, one.last, one.score, (next(far), next(far)))


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
