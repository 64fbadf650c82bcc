"""Correlations of channels with a target that is shifted in time: sums of products, for all channels at a time.

To have DuckDB join each mean with that of the target, once for each lag, takes 100 ns of CPU a pair; here it takes 5.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.batch import Float64s

CORRELATIONS = pa.list_(pa.struct([("n", pa.int32()), ("r", pa.float64()), ("pairs", pa.int64())]))
_LEAST = 20  # pairs, for a correlation
_ELEMENTS = 1_000_000  # means of channels that are in memory at a time, with those that are missing
_DOUBTFUL = 1e-6  # of the squares' sum: less remains of so few digits that it is computed from single values


def lagged_correlations(number: Any, value: Any, target_number: Any, target_value: Any, most: Any) -> Any:
    """For each channel the correlations with a target that is ``n`` buckets earlier, for |n| <= ``most``, ascending.

    Arrays of Arrow, with an element for each channel. ``number``, ``value``: lists of the numbers (from 0) and means of
    buckets that have one; those of the target are the same for all. Correlations of fewer than 20 pairs, or with what
    is constant, are left out.
    """
    target = _dense(target_number[:1], target_value[:1])[0] if len(number) else np.empty(0)
    lags = np.arange(-most[0].as_py(), most[0].as_py() + 1) if len(number) else np.empty(0, np.int64)
    width = 1 + max((int(one.max()) for one in _lists(number) if len(one)), default=0)
    size = max(1, _ELEMENTS // width)
    found = [
        _correlations(_dense(number[first : first + size], value[first : first + size]), target, lags)
        for first in range(0, len(number), size)
    ]
    return pa.concat_arrays([_lists_of(r, pairs, lags) for r, pairs in found]) if found else pa.array([], CORRELATIONS)


def _correlations(values: Float64s, target: Float64s, lags: NDArray[np.int64]) -> tuple[Float64s, NDArray[np.int64]]:
    """Correlations and numbers of pairs, (channels, lags); NaN: there is none. ``values``: (channels, buckets)."""
    r, pairs = np.full((len(values), len(lags)), np.nan), np.zeros((len(values), len(lags)), np.int64)
    own, other = _Sums.of(values), _Sums.of(target)
    for place, lag in enumerate(lags.tolist()):
        first, last = max(0, lag), min(values.shape[1], len(target) + lag)
        if first >= last:
            continue
        here, there = slice(first, last), slice(first - lag, last - lag)
        n, y, yy = (own.present[:, here] @ one[there] for one in (other.present, other.off, other.square))
        x, xx = (one[:, here] @ other.present[there] for one in (own.off, own.square))
        pairs[:, place] = n
        with np.errstate(divide="ignore", invalid="ignore"):
            spread, target_spread = xx - x * x / n, yy - y * y / n
            r[:, place] = (own.off[:, here] @ other.off[there] - x * y / n) / np.sqrt(spread * target_spread)
        known = (n >= _LEAST) & (xx > 0) & (yy > 0)
        r[~known, place] = np.nan
        doubtful = known & ((spread < _DOUBTFUL * xx) | (target_spread < _DOUBTFUL * yy))
        for channel in np.flatnonzero(doubtful):
            r[channel, place] = _exact(values[channel, here], target[there])
    return r, pairs


class _Sums:
    """Of values that may be NaN: what is summed; each of their shape."""

    def __init__(self, present: Float64s, off: Float64s) -> None:
        self.present = present
        self.off = off  # from their mean; exactly 0 where they are constant
        self.square = off * off

    @classmethod
    def of(cls, values: Float64s) -> _Sums:
        there = ~np.isnan(values)
        known = np.where(there, values, 0.0)
        low, high = (
            extreme(values, axis=-1, keepdims=True, where=there, initial=initial)
            for extreme, initial in ((np.min, np.inf), (np.max, -np.inf))
        )
        n = np.maximum(1, np.count_nonzero(there, axis=-1, keepdims=True))
        middle = np.clip(known.sum(axis=-1, keepdims=True) / n, low, np.maximum(low, high))
        return cls(there.astype(np.float64), np.where(there, known - middle, 0.0))


def _exact(values: Float64s, target: Float64s) -> float:
    both = ~(np.isnan(values) | np.isnan(target))
    x, y = values[both], target[both]
    if x.min() == x.max() or y.min() == y.max():
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def _dense(number: Any, value: Any) -> Float64s:
    """The values of each list at their numbers, and NaN at others: (lists, numbers)."""
    places, values = _lists(number), _lists(value)
    found = np.full((len(places), 1 + max((int(one.max()) for one in places if len(one)), default=0)), np.nan)
    for row, (one, of_one) in enumerate(zip(places, values, strict=True)):
        found[row, one] = of_one
    return found


def _lists(column: Any) -> list[NDArray[Any]]:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    flat, offsets = array.values.to_numpy(), array.offsets.to_numpy().tolist()
    return [flat[first:last] for first, last in pairwise(offsets)]


def _lists_of(r: Float64s, pairs: NDArray[np.int64], lags: NDArray[np.int64]) -> Any:
    known = ~np.isnan(r)
    offsets = np.append(0, np.cumsum(np.count_nonzero(known, axis=1)))
    columns = [np.broadcast_to(lags, r.shape)[known].astype(np.int32), r[known], pairs[known]]
    struct = pa.StructArray.from_arrays([pa.array(one) for one in columns], fields=list(CORRELATIONS.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), struct, type=CORRELATIONS)
