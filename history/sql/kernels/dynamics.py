"""Channels that a reference is too short for: they drift all through it, or it holds few of their cycles."""

from __future__ import annotations

import numpy as np

from core.batch import Float64s
from history.sql.kernels.oscillations import autocorrelation
from history.sql.kernels.reference import DRIFTING, FEW_CYCLES, JUDGED, MAD, MIN_POSITIONS, NO_SPREAD, PARTS

TOO_SHORT = (DRIFTING, FEW_CYCLES)  # verdicts
_RISE = 1.5  # spreads within the parts that the level rises or falls by, from the first part to the last one
_STEP = 0.6  # of that, at most from one part to the next: more is a step
CYCLES = 5  # of a reference: fewer are few
ALIKE = 0.6  # autocorrelation of cycles, at least
_SLOW = 0.3  # of the variance, at least, is left of it in means of blocks
_FEWEST = 3  # cycles
_SHORTER = 0.75  # of that: as much of shorter ones, which are then the cycles


def dynamics(values: Float64s) -> int:
    """Verdict on the reference of a channel: one of TOO_SHORT, or JUDGED.

    ``values``: in the order of time; NaN: there is none.
    """
    known = values[~np.isnan(values)]
    if len(known) < MIN_POSITIONS:
        return JUDGED
    return DRIFTING if drifts(known) else FEW_CYCLES if _has_few_cycles(known) else JUDGED


def levels(values: Float64s) -> Float64s:
    """Medians of the parts of a reference."""
    parts = np.sort(values[: len(values) // PARTS * PARTS].reshape(PARTS, -1), axis=1)
    middle: Float64s = parts[:, parts.shape[1] // 2]
    return middle


def drifts(values: Float64s) -> bool:
    """Return whether the level rises or falls all through them, by more than noise, as part of a daily swing does."""
    of_parts = levels(values)
    steps = np.diff(of_parts)
    steps = steps if steps.sum() > 0 else -steps
    if not (steps.min() > 0 and steps.max() < _STEP * steps.sum()):
        return False
    parts = values[: len(values) // PARTS * PARTS].reshape(PARTS, -1)
    spread = MAD * float(np.median(np.abs(parts - of_parts[:, None])))
    return float(steps.sum()) > max(_RISE * spread, NO_SPREAD * float(np.abs(of_parts).max()))


def _has_few_cycles(values: Float64s) -> bool:
    """Return whether they repeat themselves three or four times: of two events, nothing says that they are cycles."""
    off = values - values.mean()
    blocks = off[: len(off) // MIN_POSITIONS * MIN_POSITIONS].reshape(MIN_POSITIONS, -1).mean(axis=1)
    if float(blocks @ blocks) * len(off) < _SLOW * float(off @ off) * MIN_POSITIONS:
        return False  # at a fifth of the cost
    correlation = autocorrelation(off, len(values) // _FEWEST + 1)
    below = np.flatnonzero(correlation < 0)
    if not len(below):
        return False
    begin, few = int(below[0]), len(values) // CYCLES
    longer = correlation[max(begin, few + 1) :]
    highest = float(longer.max(initial=0.0))
    if highest < ALIKE or float(correlation[begin : few + 1].max(initial=0.0)) >= _SHORTER * highest:
        return False
    period = max(begin, few + 1) + int(np.argmax(longer))
    cycles = values[len(values) % period :].reshape(-1, period)
    return bool(np.diag(np.corrcoef(cycles), 1).mean() >= ALIKE)
