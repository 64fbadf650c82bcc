"""Drift of a channel all through a reference, which is then shorter than what the channel does by itself."""

from __future__ import annotations

import numpy as np

from core.batch import Float64s
from history.sql.kernels.reference import MIN_POSITIONS, PARTS

DRIFTING = 11  # a verdict, beside those of kernels/reference.py
_RISE = 1.5  # spreads within the parts that the level rises or falls by, from the first part to the last one
_STEP = 0.6  # of that, at most from one part to the next: more is a step
_MAD = 1.4826  # standard deviations of normal values in a median absolute deviation
_CONSTANT = 1e-9  # of the largest value: a smaller spread is none


def drifts(values: Float64s) -> bool:
    """Return whether the level rises or falls all through a reference, by more than its noise: it is shorter than what
    the channel does by itself, such as a daily swing. ``values``: in the order of time; NaN: there is none."""
    known = values[~np.isnan(values)]
    if len(known) < MIN_POSITIONS:
        return False
    parts = known[: len(known) // PARTS * PARTS].reshape(PARTS, -1)
    levels = np.median(parts, axis=1)
    steps = np.diff(levels)
    steps = steps if steps.sum() > 0 else -steps
    rise = float(steps.sum())
    if not (steps.min() > 0 and steps.max() < _STEP * rise):
        return False
    spread = _MAD * float(np.median(np.abs(parts - levels[:, None])))
    return rise > max(_RISE * spread, _CONSTANT * float(np.abs(levels).max()))
