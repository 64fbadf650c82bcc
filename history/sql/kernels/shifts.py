"""How far means and spreads of intervals differ by chance, learned from the parts of a reference.

Parts of several lengths show how much they differ, from each other and from the whole. None is as long as the reference
itself: an interval of its length differs as the longest ones do, or as all do on average, if that is more. Few parts
tell it as well as a sample of ten does, so that limits are quantiles of Student's distribution (Hill, Algorithm 396,
Communications of the ACM 13, 1970).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from core.batch import Float64s
from history.sql.kernels.dynamics import dynamics
from history.sql.kernels.reference import JUDGED, UNLIKE, has_unlike_part

_CELLS = 512  # of a reference
_LONGEST = _CELLS // 4  # part, in cells
_CELLS_OF_PART = 4  # by which parts that are unlike the others are seen
_LENGTHS = 6  # of parts, each half as long as the one before
_OF_MEAN, _OF_SPREAD = 4, 16  # values of a part, at least
_FREEDOM = 10  # degrees
_TINY = 1e-300


class Chance(NamedTuple):
    """Standard deviations by chance, and what can be said of the reference."""

    mean: float  # of the difference of means
    spread: float  # of the logarithm of the ratio of spreads
    verdict: int  # of kernels/reference.py


def quantile(share: float) -> float:
    """How many standard deviations so small a share of differences exceeds, of either sign."""
    z, n = -NormalDist().inv_cdf(min(share, 1.0) / 2), _FREEDOM
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return float(z + sum(term / n**power for power, term in enumerate(terms, 1)))


def by_chance(value: Float64s, seconds: Float64s, length: float) -> Chance:
    """How far an interval of such a ``length`` (s) differs from a reference by chance.

    ``value``: those of the reference in order; ``seconds``: how long each was held.
    """
    passed = np.append(0.0, np.cumsum(seconds))
    edges = np.linspace(0.0, passed[-1], _CELLS + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        off = value - (value @ seconds) / passed[-1]
    size = float(np.abs(off).max())
    if not np.isfinite(size):
        return Chance(np.inf, np.inf, JUDGED)
    off = off / max(size, _TINY)
    first, second = (np.interp(edges, passed, np.append(0.0, np.cumsum(x * seconds))) for x in (off, off * off))
    first, second = first / edges[1], second / edges[1]
    middle = _log_spread(second[-1:] / _CELLS)
    means, spreads = list[tuple[int, float]](), list[tuple[int, float]]()
    for sizes, least, is_spread in ((means, _OF_MEAN, False), (spreads, _OF_SPREAD, True)):
        fewest = min(-(-least * _CELLS // len(value)), _LONGEST)
        for n in sorted({max(fewest, _LONGEST >> i) for i in range(_LENGTHS)}):
            part = (first[n:] - first[:-n]) / n
            if is_spread:
                part = _log_spread((second[n:] - second[:-n]) / n - part * part) - middle
            # Neighbours, and each with the whole.
            sizes.append((n, max(_root_mean_square(part[n:] - part[:-n]), _root_mean_square(part))))
    parts = np.diff(first[::_CELLS_OF_PART])
    verdict = UNLIKE if has_unlike_part(parts - np.median(parts), np.zeros(0)) else dynamics(parts)
    of_mean, of_spread = (_at(max(length / edges[1], 1.0), sizes) for sizes in (means, spreads))
    return Chance(of_mean * size, of_spread, verdict)


def _log_spread(variance: Float64s) -> Float64s:
    spread: Float64s = np.log(np.maximum(variance, _TINY)) / 2
    return spread


def _root_mean_square(values: Float64s) -> float:
    return max(math.sqrt(float(values @ values) / len(values)), _TINY)


def _at(cells: float, sizes: list[tuple[int, float]]) -> float:
    """The deviation of parts that are so long. ``sizes``: of shorter ones, with theirs."""
    length, size = np.log(np.array(sizes)).T
    at = np.log(cells)
    return float(np.exp(np.interp(at, length, size) if at <= length[-1] else max(size.mean(), size[-1])))
