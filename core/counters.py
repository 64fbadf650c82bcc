"""Increases of counters, and wraps of their registers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s


def wraps(before: Float64s, value: Float64s, wraps_at: Float64s) -> NDArray[np.bool_]:
    """Mask of readings that are lower because the register wrapped, (n,): by more than half of ``wraps_at``.

    ``wraps_at``: NaN: it does not wrap; one element may stand for all.
    """
    with np.errstate(invalid="ignore"):  # infinite readings
        decrease = before - value
    mask: NDArray[np.bool_] = (decrease > wraps_at / 2) & (decrease <= wraps_at)
    return mask


def increases(before: Float64s, value: Float64s, wraps_at: Float64s) -> Float64s:
    """Increase from each reading to the next, (n,). A lower one is a reset to 0, unless the register wraps.

    ``wraps_at``: NaN: it does not wrap; one element may stand for all.
    """
    with np.errstate(invalid="ignore"):  # infinite readings
        increase: Float64s = np.where(value >= before, value - before, np.maximum(value, 0.0))
        return np.where(wraps(before, value, wraps_at), value + (wraps_at - before), increase)
