"""Correlations of channels with a target that is shifted in time: sums of products, for all channels at a time.

To have DuckDB join each mean with that of the target, once for each lag, takes 100 ns of CPU a pair; here it takes 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s
from core.samples import Samples
from history.sql.kernels.columns import Columns
from history.sql.kernels.reference import FEW_SAMPLES, JUDGED, NO_SAMPLES, NO_TARGET, STANDING
from history.sql.kernels.resampled import Grid
from history.sql.kernels.unit_means import dense

CORRELATIONS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; 0: a correlation, which the others are of
        ("n", pa.int32()),
        ("r", pa.float64()),
        ("pairs", pa.int64()),
    ]
)
_MIN_PAIRS = 20  # pairs, for a correlation
_CANCELLATION = 1e-6  # of the squares' sum: less remains of so few digits that it is computed from single values


@dataclass(frozen=True, slots=True, eq=False)
class Correlations:
    """Correlations of channels with a target that is ``n`` buckets earlier, for |n| <= ``most``, ascending.

    Correlations of fewer than 20 pairs, or with what is constant, are left out.
    """

    grid: Grid
    target: Float64s  # (buckets,) NaN: it has none there
    most: int

    def compute(self, samples: Samples) -> Columns:
        """The columns of CORRELATIONS. ``samples``: all samples of some channels, by channel and time."""
        channels = np.unique(samples.channel)
        return self._of_means(channels, dense(channels, len(self.target), [self.grid.numbers(samples)]))

    def _of_means(self, channels: NDArray[np.int32], values: Float64s) -> Columns:
        """The columns of CORRELATIONS of means: (channels, buckets); NaN: there is none."""
        lags = np.arange(-self.most, self.most + 1)
        r, pairs = _correlations(values, self.target, lags)
        row, lag = np.nonzero(~np.isnan(r))
        none = np.zeros(len(channels))
        return {
            "channel_id": np.append(channels, channels[row]),
            "verdict": np.append(self._verdicts(values, r), np.zeros(len(row))).astype(np.int32),
            "n": np.append(none, lags[lag]).astype(np.int32),
            "r": np.append(none, r[row, lag]),
            "pairs": np.append(none, pairs[row, lag]).astype(np.int64),
        }

    def _verdicts(self, values: Float64s, r: Float64s) -> NDArray[np.int64]:
        """Verdicts on channels, by their means and correlations."""
        verdicts = np.where(_stands(values), STANDING, FEW_SAMPLES)
        if (~np.isnan(self.target)).sum() < _MIN_PAIRS or _stands(self.target):
            verdicts[:] = NO_TARGET
        verdicts[np.isnan(values).all(axis=1)] = NO_SAMPLES
        verdicts[~np.isnan(r).all(axis=1)] = JUDGED
        return verdicts


def _stands(values: Float64s) -> NDArray[np.bool_]:
    """Return whether all values along the last axis are equal."""
    low, high = (extreme.reduce(values, axis=-1, initial=np.nan) for extreme in (np.fmin, np.fmax))
    return np.asarray(low == high)


def _correlations(values: Float64s, target: Float64s, lags: NDArray[np.int64]) -> tuple[Float64s, NDArray[np.int64]]:
    """Correlations and numbers of pairs, (channels, lags); NaN: there is none. ``values``: (channels, buckets)."""
    r, pairs = np.full((len(values), len(lags)), np.nan), np.zeros((len(values), len(lags)), np.int64)
    channels, other = _Sums.of_values(values), _Sums.of_values(target)
    for column, lag in enumerate(lags.tolist()):
        first, last = max(0, lag), min(values.shape[1], len(target) + lag)
        if first >= last:
            continue
        here, there = slice(first, last), slice(first - lag, last - lag)
        n, y, yy = (channels.present[:, here] @ terms[there] for terms in (other.present, other.off, other.square))
        x, xx = (terms[:, here] @ other.present[there] for terms in (channels.off, channels.square))
        pairs[:, column] = n
        with np.errstate(divide="ignore", invalid="ignore"):
            spread, target_spread = xx - x * x / n, yy - y * y / n
            r[:, column] = (channels.off[:, here] @ other.off[there] - x * y / n) / np.sqrt(spread * target_spread)
        usable = (n >= _MIN_PAIRS) & (xx > 0) & (yy > 0)
        r[~usable, column] = np.nan
        doubtful = usable & ((spread < _CANCELLATION * xx) | (target_spread < _CANCELLATION * yy))
        for channel in np.flatnonzero(doubtful):
            r[channel, column] = _exact(values[channel, here], target[there])
    return np.clip(r, -1.0, 1.0), pairs  # of what is exactly alike, rounding errors are left


class _Sums:
    """Terms to be summed of values that may be NaN; each of their shape."""

    def __init__(self, present: Float64s, off: Float64s) -> None:
        self.present = present
        self.off = off  # from their mean; exactly 0 where they are constant
        self.square = off * off

    @classmethod
    def of_values(cls, values: Float64s) -> _Sums:
        there = ~np.isnan(values)
        filled = np.where(there, values, 0.0)
        low, high = (
            extreme(values, axis=-1, keepdims=True, where=there, initial=initial)
            for extreme, initial in ((np.min, np.inf), (np.max, -np.inf))
        )
        n = np.maximum(1, np.count_nonzero(there, axis=-1, keepdims=True))
        middle = np.clip(filled.sum(axis=-1, keepdims=True) / n, low, np.maximum(low, high))
        return cls(there.astype(np.float64), np.where(there, filled - middle, 0.0))


def _exact(values: Float64s, target: Float64s) -> float:
    both = ~(np.isnan(values) | np.isnan(target))
    x, y = values[both], target[both]
    if x.min() == x.max() or y.min() == y.max():
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))
