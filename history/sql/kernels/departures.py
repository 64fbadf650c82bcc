"""Departures of units from their usual operation (schema/questions/departure.sql).

Hotelling's T² and the squared prediction error of a principal component analysis: Jackson and Mudholkar, Control
procedures for residuals associated with principal component analysis, Technometrics 21 (1979). It is robust by medians
and wrapped values (kernels/unit_means.py). Limits come from the reference (kernels/reference.py), each fifth of which
is judged by a model of the others. What channels do in each cycle, or as they drift, is taken away
(kernels/usual_courses.py). Channels are named by reconstruction: Alcala and Qin, Reconstruction-based contribution for
process monitoring, Automatica 45 (2009), of the index of Yue and Qin, Industrial & Engineering Chemistry Research 40
(2001).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s
from core.formatting import count
from history.codec.row_groups import TIME
from history.sql.kernels.dynamics import dynamics
from history.sql.kernels.reference import (
    CONSTANT,
    JUDGED,
    NO_SAMPLES,
    PARTS,
    SHORT_REFERENCE,
    unlike,
    usual,
)
from history.sql.kernels.unit_means import UnitMeans, lasting, robust_spread, runs, wrapped
from history.sql.kernels.usual_courses import usual_courses

DEPARTURES = pa.struct(
    [
        ("unit", pa.int32()),
        ("channel_id", pa.int32()),  # of a verdict
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of departures and notes only
        ("from_time", TIME),  # where the first bucket beyond the limit begins; None: the unit was not judged
        ("to_time", TIME),  # where the last one ends; None: the departure lasts until the end
        ("peak_time", TIME),
        ("is_spe", pa.bool_()),  # whether the larger statistic at the peak is the error, and not T²
        ("score", pa.float64()),  # the larger statistic at the peak, in limits
        ("channels", pa.list_(pa.int32())),  # those that contribute most to the first buckets, the most first
        ("shares", pa.list_(pa.float64())),
        ("judged", pa.int32()),  # channels
        ("left_out", pa.int32()),  # channels without a spread in the reference
        ("note", pa.string()),  # why nothing can be said, or little; None: nothing is wrong
    ]
)
MIN_REFERENCE = 50  # buckets
_VARIANCE = 0.9  # share that the components explain
_LEAST = 0.01  # spreads: what is nearer has not departed, even from an exact relation
_FARTHEST = 1e6  # spreads: what is farther counts as so far
_ONSET = 3  # buckets, by which channels are named
_NAMED = 5  # channels


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Usual operation: (p,) channels and (k,) components."""

    middle: Float64s  # (p,)
    spread: Float64s  # (p,)
    components: Float64s  # (p, k)
    variances: Float64s  # (k,)

    def scaled(self, values: Float64s) -> Float64s:
        """Distances (n, p) from the middle in spreads; 0: there is no value."""
        return np.clip(np.nan_to_num((values - self.middle) / self.spread), -_FARTHEST, _FARTHEST)

    def statistics(self, scaled: Float64s) -> Float64s:
        """T² and the squared prediction error, (2, n)."""
        scores = scaled @ self.components
        error = np.square(scaled).sum(axis=1) - np.square(scores).sum(axis=1)
        if self.components.shape[0] == self.components.shape[1]:
            error = np.zeros(len(scaled))  # nothing is left but rounding errors
        return np.array([(np.square(scores) / self.variances).sum(axis=1), np.maximum(error, 0.0)])

    def contributions(self, scaled: Float64s, limits: Float64s) -> Float64s:
        """Decrease of T² + error, in limits, if a channel is set right, summed over buckets: (p,)."""
        scores, inverse = scaled @ self.components, 1.0 / limits
        off = (scores / self.variances) @ self.components.T * inverse[0]
        off += (scaled - scores @ self.components.T) * inverse[1]
        squares = np.square(self.components)
        weight = squares @ (1.0 / self.variances) * inverse[0] + np.maximum(1 - squares.sum(axis=1), 0) * inverse[1]
        gone: Float64s = np.square(off).sum(axis=0) / np.maximum(weight, 1e-12)
        return gone


@dataclass(frozen=True, slots=True, eq=False)
class Departures:
    """Buckets of a unit that are unlike those of a reference."""

    since: int  # µs
    step: int  # µs
    alarm_every: int  # µs: the mean time between two in usual operation that is accepted

    def of_unit(self, means: UnitMeans) -> Iterator[dict[str, Any]]:
        """Rows of DEPARTURES."""
        unit, channels, reference, values = means
        empty = {field.name: None for field in DEPARTURES} | {"unit": unit}
        filled = int((~np.isnan(reference)).any(axis=1).sum())
        course = usual_courses(reference, values)
        moves = course.verdicts != JUDGED
        reference = np.where(moves, reference - course.before, reference)
        values = np.where(moves, values - course.now, values)
        verdicts, middle, spread = _spreads(reference, filled)
        usable = verdicts == JUDGED
        for row in np.flatnonzero(usable):
            verdict = dynamics(reference[:, row])
            verdicts[row] = course.verdicts[row] if verdict == JUDGED else verdict
        verdicts[usable & np.isnan(values).all(axis=0)] = NO_SAMPLES
        for channel, verdict in zip(channels.tolist(), verdicts.tolist(), strict=True):
            yield empty | {"channel_id": channel, "verdict": verdict}
        nothing = empty | {"judged": 0, "left_out": len(channels)}
        if filled < MIN_REFERENCE:
            yield nothing | {"note": f"not judged: the reference has {filled} means, needs {MIN_REFERENCE}"}
            return
        missing = int((verdicts == SHORT_REFERENCE).sum())
        if missing == len(channels):
            yield nothing | {"note": f"not judged: {count(missing, 'channel')} mostly missing in the reference"}
            return
        if not usable.any():
            why = f"; {count(missing, 'channel')} mostly missing there" if missing else ""
            yield nothing | {"note": f"not judged: no channel moves in the reference{why}"}
            return
        reference, values, channels = reference[:, usable], values[:, usable], channels[usable]
        model = _model(reference, middle, spread)
        limits, note = self._limits(model, reference)
        known = nothing | {"judged": len(channels), "left_out": len(usable) - len(channels), "note": None}
        if note:
            yield known | {"note": note}
        scaled = model.scaled(values)
        times = model.statistics(scaled) / limits[:, None]
        times[:, np.isnan(values).mean(axis=1) > 1 / 2] = 0.0
        score = times.max(axis=0)
        for first, last in runs(np.flatnonzero(score > 1), len(score)):
            peak = first + int(np.argmax(score[first : last + 1]))
            beyond = first + np.flatnonzero(score[first : last + 1] > 1)[:_ONSET]
            gone = model.contributions(scaled[beyond], limits)
            most = np.argsort(-np.round(gone / gone.sum(), 9), kind="stable")[:_NAMED]
            yield known | {
                "from_time": self._time(first),
                "to_time": None if lasting(last, len(score)) else self._time(last + 1),
                "peak_time": self._time(peak),
                "is_spe": bool(times[1, peak] > times[0, peak]),
                "score": float(score[peak]),
                "channels": channels[most].tolist(),
                "shares": (gone[most] / gone.sum()).tolist(),
            }

    def _time(self, bucket: int) -> int:
        return self.since + bucket * self.step

    def _limits(self, model: Model, reference: Float64s) -> tuple[Float64s, str | None]:
        """The limits of both statistics, (2,), and what is wrong with the reference."""
        edges = np.linspace(0, len(reference), PARTS + 1).astype(int).tolist()
        parts = []
        for begin, end in pairwise(edges):
            others = np.concatenate([reference[:begin], reference[end:]])
            held_out = _model(others, model.middle, model.spread)
            parts.append(held_out.statistics(held_out.scaled(reference[begin:end])))
        statistics = np.concatenate(parts, axis=1)
        statistics = statistics[:, ~np.isnan(reference).all(axis=1)]
        share = min(self.step / self.alarm_every, 1.0) / 2  # of buckets beyond each limit
        limits = np.array([_limit(values, share) for values in statistics])
        medians = np.array([np.nanmedian(part, axis=1) for part in parts])
        parts_unlike = int(unlike(medians).any(axis=1).sum())
        note = f"the reference is unusual in {parts_unlike} of its {PARTS} parts: choose another one"
        return limits, note if parts_unlike else None


def _spreads(reference: Float64s, filled: int) -> tuple[NDArray[np.intp], Float64s, Float64s]:
    """Verdicts on the channels of a reference, and the medians and spreads of those that can be judged.

    ``filled``: number of buckets in which any channel has a mean.
    """
    usable = np.flatnonzero((np.isnan(reference).mean(axis=0) <= 1 / 2) & (filled >= MIN_REFERENCE))
    moves, middle, spread = robust_spread(reference[:, usable])
    verdicts = np.full(reference.shape[1], SHORT_REFERENCE)
    verdicts[usable] = np.where(moves, JUDGED, CONSTANT)
    return verdicts, middle, spread


def _model(values: Float64s, middle: Float64s, spread: Float64s) -> Model:
    """The components that explain 90 % of the variance of (n, p) values without the far ones."""
    near = wrapped(np.nan_to_num((values - middle) / spread))
    size = np.maximum(np.sqrt(np.square(near).mean(axis=0)), 1 / 2)
    near /= size
    n, p = near.shape
    if p <= n:
        variances, components = np.linalg.eigh(near.T @ near / n)
    else:  # more channels than buckets: the same components, by the smaller matrix
        variances, rows = np.linalg.eigh(near @ near.T / n)
        components = near.T @ rows / np.sqrt(np.maximum(n * variances, 1e-12))
    variances, components = np.maximum(variances[::-1], 1e-12), components[:, ::-1]
    k = int(np.searchsorted(np.cumsum(variances), _VARIANCE * variances.sum())) + 1
    k = max(1, min(k, p - 1, n // 3))
    return Model(middle, spread * size, components[:, :k], variances[:k])


def _limit(values: Float64s, share: float) -> float:
    """The limit that such a share of values is beyond; infinity: they are all 0."""
    if not values.any():
        return float("inf")
    return max(usual(np.sqrt(values), 1 / share).limit, _LEAST) ** 2
