"""Running medians: for all windows at once, in time and memory that hardly grow with their length.

By a wavelet matrix: Claude, Navarro and Ordóñez, The wavelet matrix: an efficient wavelet tree for large alphabets,
Information Systems 47 (2015).
"""

from __future__ import annotations

import numpy as np

from core.batch import Float64s, Int64s


def running_median(values: Float64s, half: int) -> Float64s:
    """Medians of so many values before and behind each one: stops and transients that are shorter are gone.

    NaN: there is no value.
    """
    if not half:
        return values
    place = np.arange(len(values))
    begins, ends = np.maximum(place - half, 0), np.minimum(place + half + 1, len(values))
    known = np.append(0, np.cumsum(~np.isnan(values)))
    last = np.maximum(known[ends] - known[begins] - 1, 0)
    order = np.argsort(values, kind="stable")  # NaN are the last ones
    ranks = np.empty(len(values), np.int64)
    ranks[order] = place
    middle = order[_smallest(ranks, begins, ends, np.stack([last // 2, (last + 1) // 2]))]
    medians: Float64s = values[middle].sum(axis=0) / 2
    return medians


def _smallest(ranks: Int64s, begins: Int64s, ends: Int64s, at: Int64s) -> Int64s:
    """Ranks that are ``at`` this place of each window, by size. ``ranks``: all from 0 on, in the order of time."""
    smallest = np.zeros_like(at)
    for bit in range((len(ranks) - 1).bit_length() - 1, -1, -1):
        is_set = (ranks >> bit & 1).astype(np.bool_)
        clear = np.append(0, np.cumsum(~is_set))  # ranks without the bit before each place
        first, last = clear[begins], clear[ends]
        is_upper = at >= last - first
        smallest |= is_upper.astype(np.int64) << bit
        at = np.where(is_upper, at - (last - first), at)
        # Those without the bit come first in the next order.
        begins = np.where(is_upper, clear[-1] + begins - first, first)
        ends = np.where(is_upper, clear[-1] + ends - last, last)
        ranks = np.concatenate([ranks[~is_set], ranks[is_set]])
    return smallest
