"""Means of buckets as matrices: all channels of a unit in two intervals, and runs of buckets that stand out.

Far values count less by wrapping: Raymaekers and Rousseeuw, Fast robust correlation for high-dimensional data,
Technometrics 63 (2021).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s
from history.sql.kernels.columns import Columns
from history.sql.kernels.reference import MAD, NO_SPREAD

Means: TypeAlias = tuple[int, Iterable[Columns]]  # number of buckets, and the means of some channels, in portions
_APART = 20  # runs that are closer than this part of the interval are one
_LEAST_APART = 3  # buckets
_WRAP_FROM, _WRAP_TO, _WRAP_SIZE, _WRAP_RATE = 1.5, 4.0, 1.540793, 0.8622731  # Raymaekers and Rousseeuw, table 1


class UnitMeans(NamedTuple):
    """The channels of a unit, n of them, before and now; NaN: there is no value."""

    unit: int
    channels: NDArray[np.int32]  # (n,) ascending
    before: Float64s  # (buckets, n), of a reference or an earlier run
    now: Float64s  # (buckets, n)


class UnitKernel(Protocol):
    """A kernel that judges the channels of a unit together."""

    def of_unit(self, means: UnitMeans) -> Iterator[dict[str, Any]]:
        """Rows of the kernel's table; a field that a row lacks is NULL."""


def by_unit(units: Mapping[int, int], before: Means, now: Means) -> Iterator[UnitMeans]:
    """Means by unit. ``units``: channel → unit."""
    ids = np.array(sorted(units, key=lambda channel: (units[channel], channel)), np.int32)
    unit = np.array([units[channel] for channel in ids.tolist()])
    earlier, later = (dense(ids, *means) for means in (before, now))
    for number in np.unique(unit).tolist():
        rows = slice(*np.searchsorted(unit, [number, number + 1]).tolist())
        yield UnitMeans(number, ids[rows], earlier[rows].T, later[rows].T)


def dense(ids: NDArray[np.int32], n: int, portions: Iterable[Columns]) -> Float64s:
    """Means of the first ``n`` buckets of channels, (channels, n); NaN: there is none."""
    order = np.argsort(ids)
    values = np.full((len(ids), n), np.nan)
    for means in portions:
        within = means["number"] < n
        row = order[np.searchsorted(ids[order], means["channel_id"][within])]
        values[row, means["number"][within]] = means["value"][within]
    return values


def robust_spread(values: Float64s) -> tuple[NDArray[np.bool_], Float64s, Float64s]:
    """Mask of the channels that move, and their medians and robust standard deviations; of those that mostly stand, the
    usual ones. ``values``: (buckets, channels)."""
    middle = np.nanmedian(values, axis=0)
    robust, usual = MAD * np.nanmedian(np.abs(values - middle), axis=0), np.nanstd(values, axis=0)
    spread = np.where(robust > 0.1 * usual, robust, usual)
    moves = spread > NO_SPREAD * np.max(np.abs(np.nan_to_num(values)), axis=0, initial=0.0)
    return moves, middle[moves], spread[moves]


def wrapped(values: Float64s) -> Float64s:
    """Values of which those far off count less, and those beyond all bounds nothing."""
    size = np.abs(values)
    far = np.sign(values) * _WRAP_SIZE * np.tanh(_WRAP_RATE * (_WRAP_TO - size))
    return np.where(size <= _WRAP_FROM, values, np.where(size <= _WRAP_TO, far, 0.0))


def runs(places: NDArray[np.intp], n: int) -> Sequence[tuple[int, int]]:
    """First and last of places among ``n``; those that are no farther apart than a 20th of n are one run."""
    if not len(places):
        return []
    ends = np.flatnonzero(np.diff(places) > _apart(n))
    first, last = places[np.append(0, ends + 1)], places[np.append(ends, len(places) - 1)]
    return list(zip(first.tolist(), last.tolist(), strict=True))


def run_times(first: int, last: int, n: int, since: int, step: int) -> dict[str, int | None]:
    """``from_time`` and ``to_time`` (µs) of a run among ``n`` buckets. None: it has not ended after all of them."""
    ends = None if last + _apart(n) >= n else since + (last + 1) * step
    return {"from_time": since + first * step, "to_time": ends}


def _apart(n: int) -> int:
    return max(n // _APART, _LEAST_APART)
