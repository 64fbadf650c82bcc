"""Usual behaviour of a channel, learned from a reference: its sampling interval, and how far it deviates by itself.

A limit is set by how rarely it may be exceeded by chance. The largest deviations of the blocks of a reference have
heavy tails and autocorrelation in them already; an extreme value distribution, fitted by L-moments (Hosking, Wallis
and Wood, Technometrics 27, 1985), goes on from them. Deviations in a few episodes that are unlike the rest are faults
of the reference: they are counted and left out. What happens more often than that is the channel's habit, and so is
each change of one that holds its values.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.samples import Samples, segments
from history.sql.kernels.columns import Columns

WIDTHS = (1, 4, 16, 64)  # values whose mean is compared with that of those before
# Verdicts on a channel, as verdict_text (schema/queries/duckdb.sql) has them in words.
JUDGED, FAULTY, NO_SAMPLES, SHORT_REFERENCE, MOSTLY_MISSING = 1, 2, 3, 4, 5
UNLIKE, CONSTANT, UNRELATED, FEW_SAMPLES, AS_FAR_AS_REFERENCE = 6, 7, 8, 9, 10
DRIFTING, FEW_CYCLES, INTERVAL_ALONE, CYCLIC, LEFT_OUT, CODES = 11, 12, 13, 14, 15, 16
STANDING, NO_TARGET, CAME_ONCE = 17, 18, 19
MAD = 1.4826  # standard deviations of normal values in a median absolute deviation
NO_SPREAD = 1e-9  # of the largest values: a smaller one is a rounding error
MIN_POSITIONS = 40  # of a reference, to learn from: one in each block
PARTS = 5  # of a reference, each of which has to be like the others
_UNLIKE = 4.0  # times what is usual: a part whose deviations are so large
_AS_LARGE = 2.0  # times what another part deviates: it is like it
_BLOCKS = 40
_REACHES = 15  # a reference is at least so many times as long as what one comparison takes
_MAX_FAULTS = 4  # of a reference: what happens more often is usual
_FEW_CHANGES = 4 * _MAX_FAULTS  # there and back, each of them within a mean or at its edge
_OFF_GRID = 0.05  # of a step of rounded values
_STATES = 2.5  # steps between the values of what may be a state
_MAX_FAULTY_SHARE = 0.5  # of the blocks of a reference
_LASTING = 16  # values: in the mean of fewer, a single outlier is no fault, but may be usual
_NEARLY_NORMAL = 1.5  # power of means of many values that has an exponential tail; that of normal ones is 2
_MIN_SAMPLES = 8  # for a sampling interval
_EULER = 0.5772156649
_CLEARLY_HEAVY, _HEAVIEST = 0.1, 0.4  # shapes of generalized extreme value distributions; 0: Gumbel
_TWO_KINDS = 0.9  # of the variance of maxima is between two kinds of blocks, at least; 3/4: they are uniform
_MARGIN = 1.2  # above the largest deviation of the reference
_KNOWN = 3.0  # times the largest deviation of the reference: how far a heavy tail is known from it


class Usual(NamedTuple):
    """Limit of the size of deviations, and how many faults of the reference were left out for it."""

    limit: float  # inf: the reference is too short
    faults: int


_UNKNOWN = Usual(np.inf, 0)


def values_before(width: int) -> int:
    """Number of values that a mean of ``width`` is compared with, those before it."""
    return max(16, 2 * width)


def reach(width: int) -> int:
    """Number of values that a comparison of :func:`deviations` takes."""
    return width + values_before(width)


def widest(n: int, width: int) -> int:
    """The largest width up to ``width`` that a reference of ``n`` values suffices for; 0: none."""
    return next((one for one in range(width, 0, -1) if n >= _REACHES * reach(one)), 0)


def smallest(mean: float, span: float | None) -> float:
    """Size of deviations that count at least: a thousandth of the range, without one of the mean."""
    return max((abs(mean) if span is None else span) * 1e-3, 1e-9)


def rounding(values: Float64s) -> float:
    """Step to which the values of samples are rounded, a bit more; 0: they are not, or are states.

    Most changes of what is rounded are of one step, or it has many values.
    """
    changes = np.abs(np.diff(values))
    changes = changes[changes > 0]
    if len(changes) <= _FEW_CHANGES:
        return 0.0
    step = float(changes.min())
    if np.abs(changes / step - np.round(changes / step)).max() >= _OFF_GRID:
        return 0.0
    is_noisy = np.median(changes) < 1.5 * step and np.ptp(values) > _STATES * step
    return step * (1 + _OFF_GRID) if is_noisy or len(np.unique(values)) > _FEW_CHANGES else 0.0


def smoothed(values: Float64s) -> Float64s:
    """Medians of three along the last axis: single outliers are gone, steps stay where they are, and both ends stay."""
    smooth = values.copy()
    first, middle, last = values[..., :-2], values[..., 1:-1], values[..., 2:]
    low, high = np.minimum(first, middle), np.maximum(first, middle)
    smooth[..., 1:-1] = np.maximum(low, np.minimum(high, last))
    return smooth


def deviations(values: Float64s, width: int) -> Float64s:
    """Mean of ``width`` values from each position on, minus the mean of those before it.

    As many positions as values; NaN: there are too few values before or after.
    """
    before, n = values_before(width), len(values)
    result = np.full(n, np.nan)
    if n < before + width:
        return result
    # Sums of deviations from one value keep their digits.
    sums = np.append(0.0, np.cumsum(values - values[0]))
    inner = sums[before : n - width + 1]
    result[before : n - width + 1] = (sums[before + width :] - inner) / width - (inner - sums[: len(inner)]) / before
    return result


def smooth_deviations(smooth: Float64s, width: int) -> Float64s:
    """:func:`deviations` of :func:`smoothed` values, but without the first and the last one.

    Medians turn values that alternate upside down: ends that stay as they are don't belong to them.
    """
    result = np.full(len(smooth), np.nan)
    result[1:-1] = deviations(smooth[1:-1], width)
    return result


def place(size: Float64s, begin: int, width: int) -> int:
    """Position of a change whose deviations are too far from ``begin`` on: means reach it before.

    ``size``: of :func:`deviations`.
    """
    return begin + int(np.fmax(size[begin : begin + width + 1], 0.0).argmax())


def last_place(values: Float64s, begin: int, width: int, middle: float) -> int:
    """Position from ``begin`` on of a change for which fewer than ``width`` values may be left.

    That at which means of what is left deviate most, in their standard errors. ``middle``: the usual deviation.
    """
    n, positions = len(values), np.arange(begin, len(values))
    sums = np.append(0.0, np.cumsum(values - values[begin - values_before(width)]))
    after = (sums[-1] - sums[positions]) / (n - positions)
    earlier = (sums[positions] - sums[positions - values_before(width)]) / values_before(width)
    return begin + int((np.abs(after - earlier - middle) * np.sqrt(n - positions)).argmax())


def settled(size: Float64s, far: NDArray[np.bool_], width: int, first: int) -> int:
    """Position from ``first`` on from which deviations no longer come from a change before it.

    ``size``: of :func:`deviations`; ``far``: which of them are too far.
    """
    start, end = max(first - reach(width), 0), first
    for begin in start + np.flatnonzero(far[start:first]):
        if (at := place(size, int(begin), width)) <= first:  # the value before it may have a part of the change
            end = max(end, at + values_before(width))
    quiet = np.flatnonzero(~far[end:])
    return end if end == first else end + int(quiet[0]) if len(quiet) else len(far)


def is_held(values: Float64s) -> bool:
    """Return whether a channel holds its values in a reference for most of the time, as a set point does.

    Or as the current of a pump that stands, but for a few runs. What goes there and back at once is rounded noise.
    """
    rounding_error = NO_SPREAD * float(np.abs(values).max(initial=0.0))  # of means
    changes = np.flatnonzero(np.abs(np.diff(values)) > rounding_error)
    if len(changes) <= _FEW_CHANGES:
        return True
    lengths = np.diff(changes, prepend=-1, append=len(values) - 1)  # of runs of equal values
    rests = lengths > values_before(1)
    if 2 * lengths[rests].sum() <= len(values) or rests[:-1].sum() > _FEW_CHANGES:
        return False
    apart = np.abs(values[changes[:-1]] - values[changes[1:] + 1])
    back = (lengths[1:-1] == 1) & (apart <= rounding_error)
    return not (back & (rests[:-2] | rests[2:])).any()


def usual(reference: Float64s, positions: float, width: int | None = None, *, held: bool = False) -> Usual:
    """Limit of deviations that is exceeded once in so many positions.

    ``reference``: deviations at regular positions, in the order of time; ``width``: of :func:`deviations`, so that
    faults are left out of lasting ones, which have to be of :func:`smooth_deviations`; None: nothing is left out, nor
    of values that are ``held``.
    """
    n = len(reference)
    if n < MIN_POSITIONS or (width is not None and width > 1 and n < _REACHES * reach(width)):
        return _UNKNOWN
    size = n // _BLOCKS
    sizes = np.abs(reference)
    maxima = sizes[: n // size * size].reshape(-1, size).max(axis=1)
    blocks = math.log(max(positions / size, 2.0))
    if width is None or width < _LASTING:
        return Usual(max(_level(maxima, blocks), _MARGIN * float(maxima.max())), 0)
    location, scale = _lower_gumbel(maxima)
    beyond, faults = maxima > location + scale * blocks, 0
    if beyond.any() and beyond.mean() < _MAX_FAULTY_SHARE:
        faults = _episodes(reference[: len(maxima) * size].reshape(-1, size), beyond, 1 + -(-reach(width) // size))
    if 0 < faults <= _MAX_FAULTS and not held:
        maxima = maxima[~beyond]
    else:
        faults = 0
    level = _level(maxima**_NEARLY_NORMAL, blocks) ** (1 / _NEARLY_NORMAL)
    return Usual(max(level, _MARGIN * float(maxima.max())), faults)


def least_limit(reference: Float64s) -> float:
    """Lower bound of the limit of :func:`usual`, at a tenth of its cost. ``reference``: as there."""
    n = len(reference)
    return _MARGIN * float(np.abs(reference[: n // (n // _BLOCKS) * (n // _BLOCKS)]).max())


def has_unlike_part(deviations: Float64s, later: Float64s) -> bool:
    """Return whether a part of a reference is unlike the others, and no part of an interval is like it.

    ``deviations``, ``later``: those of both from the usual. What the interval does, too, is no fault of the reference.
    """
    sizes, now = _part_sizes(deviations), _part_sizes(later)
    return bool(len(sizes) and (sizes[unlike(sizes[:, None])[:, 0]] > _AS_LARGE * now.max(initial=0.0)).any())


def _part_sizes(deviations: Float64s) -> Float64s:
    """Usual size of the deviations of each part."""
    known = np.abs(deviations[~np.isnan(deviations)])
    parts = known[: len(known) // PARTS * PARTS].reshape(PARTS, -1)
    sizes: Float64s = np.median(parts, axis=1) if parts.size else np.zeros(0)
    return sizes


def unlike(sizes: Float64s) -> NDArray[np.bool_]:
    """Mask of the parts of a reference that are unlike the others. ``sizes``: (parts, statistics), usual ones."""
    far: NDArray[np.bool_] = sizes > _UNLIKE * np.maximum(np.median(sizes, axis=0), 1e-12)
    return far


def sampling_intervals(samples: Samples) -> Columns:
    """Median time (µs) between samples of channels that have eight. ``samples``: by channel and time.

    ``channel_id`` and ``interval``.
    """
    rows = [rows for rows in segments(samples.channel) if rows.stop - rows.start >= _MIN_SAMPLES]
    return {
        "channel_id": np.array([samples.channel[row.start] for row in rows], np.int32),
        "interval": np.array([_median(np.diff(samples.time[row])) for row in rows], np.int64),
    }


def _median(distances: Int64s) -> int:
    middle = len(distances) // 2
    return int(np.partition(distances, middle)[middle])


def _level(maxima: Float64s, blocks: float) -> float:
    """Maximum of a block that one in exp(``blocks``) blocks exceeds.

    Where some blocks have what others don't, such as a start, these set it. A tail is heavy only where that is clear,
    and then no farther than it is known.
    """
    n, maxima = len(maxima), _upper(maxima)
    blocks = max(blocks + math.log(len(maxima) / n), math.log(2))
    mean, second, third = map(float, _moment_weights(len(maxima)) @ np.sort(maxima))
    spread = 2 * second - mean
    if spread <= NO_SPREAD * mean:
        return mean
    place = 2 / (3 + (6 * third - 6 * second + mean) / spread) - np.log(2) / np.log(3)
    shape = min(-7.859 * place - 2.9554 * place**2, _HEAVIEST)
    scale = spread / np.log(2)
    light = float(mean - _EULER * scale + scale * blocks)
    if shape < _CLEARLY_HEAVY * math.sqrt(n / len(maxima)):
        return light
    gamma = math.gamma(1 - shape)
    scale = spread * shape / ((2**shape - 1) * gamma)
    heavy = float(mean - scale * (gamma - 1) / shape + scale * math.expm1(shape * blocks) / shape)
    return min(heavy, max(light, _KNOWN * float(maxima.max())))


def _upper(maxima: Float64s) -> Float64s:
    """Maxima of the kind of blocks with the larger ones, if there clearly are two, and it begins oftener than faults.

    ``maxima``: of blocks, in the order of time.
    """
    ordered, n = np.sort(maxima), np.arange(1, len(maxima) - _MAX_FAULTS)
    lower, total = np.cumsum(ordered)[: len(n)], float(ordered.sum())
    of_kinds = n * (len(maxima) - n) * np.square((total - lower) / (len(maxima) - n) - lower / n)
    if float(of_kinds.max()) < _TWO_KINDS * len(maxima) * float(np.square(ordered - ordered.mean()).sum()):
        return maxima
    upper = maxima >= ordered[int(of_kinds.argmax()) + 1]
    begins = int(upper[0]) + int((upper[1:] > upper[:-1]).sum())
    return maxima[upper] if begins > _MAX_FAULTS else maxima


@cache
def _moment_weights(n: int) -> Float64s:
    """Weights of n ordered values in their first three probability-weighted moments, (3, n)."""
    rank = np.arange(n)
    second, third = rank / (n - 1), rank * (rank - 1) / ((n - 1) * (n - 2))
    return np.stack([np.ones(n), second, third]) / n


@cache
def _half_line(n: int) -> tuple[float, Float64s]:
    """Line of least squares through the lower half of n ordered values, over the reduced variate of a Gumbel
    distribution: its mean, and weights of the values in the slope."""
    variate = -np.log(-np.log((np.arange(n // 2) + 0.5) / n))
    place = float(variate.mean())
    return place, (variate - place) / ((variate - place) ** 2).sum()


def _lower_gumbel(maxima: Float64s) -> tuple[float, float]:
    """Location and scale, by the lower half: the upper one may have faults in it."""
    place, slope = _half_line(len(maxima))
    half = np.sort(maxima)[: len(slope)]
    scale = float(slope @ half)
    return float(half.mean()) - scale * place, scale


def _episodes(blocks: Float64s, beyond: Float64s, apart: int) -> int:
    """Number of times that deviations of one sign begin. A fault has two: where it begins, and where it ends."""
    rows = np.flatnonzero(beyond)
    farthest = blocks[rows, np.abs(blocks[rows]).argmax(axis=1)]
    signs = [rows[farthest > 0], rows[farthest < 0]]
    return max(1 + int((np.diff(of_sign) > apart).sum()) if len(of_sign) else 0 for of_sign in signs)
