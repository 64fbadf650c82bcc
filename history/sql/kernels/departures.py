"""Departures of units from their usual operation (schema/questions/departure.sql).

Hotelling's T² and the squared prediction error of a principal component analysis: Jackson and Mudholkar, Control
procedures for residuals associated with principal component analysis, Technometrics 21 (1979). It is robust by medians
and wrapped values (kernels/unit_means.py). Limits come from the reference (kernels/reference.py), each fifth of which
is judged by a model of the others. Fifths that are unlike the rest are left out if the last one is like it: a change of
load in the reference ended them. What channels do in each cycle, or as they drift, is taken away
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
from history.codec.row_groups import TIME
from history.sql.kernels.dynamics import dynamics
from history.sql.kernels.reference import (
    CONSTANT,
    JUDGED,
    LEFT_OUT,
    NO_SAMPLES,
    PARTS,
    SHORT_REFERENCE,
    UNLIKE,
    unlike,
    usual,
)
from history.sql.kernels.unit_means import UnitMeans, robust_spread, run_times, runs, wrapped
from history.sql.kernels.usual_courses import usual_courses, with_course

DEPARTURES = pa.struct(
    [
        ("unit", pa.int32()),
        ("channel_id", pa.int32()),  # of a verdict
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of departures only
        ("unlike_from", pa.list_(TIME)),  # of a verdict: where parts of the reference begin that are unlike the rest
        ("unlike_to", pa.list_(TIME)),  # where they end
        ("like_from", TIME),  # where a better reference begins; None: none is known
        ("like_to", TIME),  # where it ends
        ("from_time", TIME),  # where the first bucket beyond the limit begins
        ("to_time", TIME),  # where the last one ends; None: the departure lasts until the end
        ("peak_time", TIME),
        ("is_spe", pa.bool_()),  # whether the larger statistic at the peak is the error, and not T²
        ("score", pa.float64()),  # the larger statistic at the peak, in limits
        ("channels", pa.list_(pa.int32())),  # those that contribute most to the first buckets, the most first
        ("shares", pa.list_(pa.float64())),
        ("judged", pa.int32()),  # channels
        ("left_out", pa.int32()),  # channels without a spread in the reference
    ]
)
MIN_REFERENCE = 50  # buckets
_VARIANCE = 0.9  # share that the components explain
_INTERVALS = 2  # of a reference that tells how far each channel alone goes, and not only all together
_RIDGE = 1e-3  # of the variance of a channel: by a smaller one, nothing is told by the others
_LEAST = 0.01  # spreads: what is nearer has not departed, even from an exact relation
_FARTHEST = 1e6  # spreads: what is farther counts as so far
_FAR = 4.0  # spreads: levels of a channel that are as far apart are of different states
_ALIKE = 4 / 5  # of the parts of an interval
_ONSET = 3  # buckets, by which channels are named
_NAMED = 5  # channels


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Usual operation of p channels: their principal axes, the first k of which are the components.

    There are as many axes as channels, or as buckets that they were learned from, if these are fewer.
    """

    middle: Float64s  # (p,)
    spread: Float64s  # (p,)
    axes: Float64s  # (p, axes)
    variances: Float64s  # (axes,) descending
    k: int

    @property
    def components(self) -> Float64s:
        """The axes that explain most of the variance, (p, k)."""
        return self.axes[:, : self.k]

    def scaled(self, values: Float64s) -> Float64s:
        """Distances (n, p) from the middle in spreads; 0: there is no value."""
        return np.clip(np.nan_to_num((values - self.middle) / self.spread), -_FARTHEST, _FARTHEST)

    def statistics(self, scaled: Float64s) -> Float64s:
        """T² and the squared prediction error, (2, n)."""
        scores = scaled @ self.components
        error = np.square(scaled).sum(axis=1) - np.square(scores).sum(axis=1)
        if self.k == len(self.axes):
            error = np.zeros(len(scaled))  # nothing is left but rounding errors
        return np.array([(np.square(scores) / self.variances[: self.k]).sum(axis=1), np.maximum(error, 0.0)])

    def alone(self, values: Float64s) -> Float64s:
        """Distances of each channel from its middle, and from what all others tell of it, (2, p, n)."""
        scaled, told = self.scaled(values), self.variances / (self.variances + _RIDGE)
        # By the inverse of the covariances, as the axes have it: there is no room for either of many channels.
        error = scaled - (scaled @ self.axes * told) @ self.axes.T
        error /= 1 - np.square(self.axes) @ told
        error[np.isnan(values).any(axis=1)] = 0.0
        distances: Float64s = np.abs(np.stack([scaled.T, error.T]))
        return distances

    def contributions(self, scaled: Float64s, limits: Float64s) -> Float64s:
        """Decrease of T² + error, in limits, if a channel is set right, summed over buckets: (p,)."""
        scores, variances, inverse = scaled @ self.components, self.variances[: self.k], 1.0 / limits
        off = (scores / variances) @ self.components.T * inverse[0]
        off += (scaled - scores @ self.components.T) * inverse[1]
        squares = np.square(self.components)
        weight = squares @ (1.0 / variances) * inverse[0] + np.maximum(1 - squares.sum(axis=1), 0) * inverse[1]
        gone: Float64s = np.square(off).sum(axis=0) / np.maximum(weight, 1e-12)
        return gone


@dataclass(frozen=True, slots=True, eq=False)
class Departures:
    """Buckets of a unit that are unlike those of a reference."""

    since: int  # µs
    other_since: int  # µs: begin of the reference
    step: int  # µs
    alarm_every: int  # µs: the mean time between two in usual operation that is accepted

    def of_unit(self, means: UnitMeans) -> Iterator[dict[str, Any]]:
        """Rows of DEPARTURES."""
        unit, channels, reference, values = means
        course = usual_courses(reference, values)
        moves = course.verdicts != JUDGED
        reference = np.where(moves, reference - course.before, reference)[~course.left_out]
        values = values - course.now + np.where(moves, 0.0, course.before[0])
        learned = _learned(reference)
        odd, verdict_on_parts = learned.unlike_parts(), UNLIKE
        if odd.any() and not odd[-1]:
            rest = _learned(reference[~odd.repeat(np.diff(_edges(len(reference))))])
            if rest.model is not None:
                learned, verdict_on_parts = rest, LEFT_OUT
        usable = learned.verdicts == JUDGED
        verdicts = learned.verdicts.copy()
        for row in np.flatnonzero(usable):
            verdicts[row] = with_course(dynamics(learned.reference[:, row]), course.verdicts[row])
        verdicts[usable & np.isnan(values).all(axis=0)] = NO_SAMPLES
        for channel, verdict in zip(channels.tolist(), verdicts.tolist(), strict=True):
            yield {"unit": unit, "channel_id": channel, "verdict": verdict}
        if learned.model is None:
            return
        model, values, channels = learned.model, values[:, usable], channels[usable]
        like = _like(model.scaled(reference[:, usable]), model.scaled(values))
        if (odd if verdict_on_parts == LEFT_OUT else odd & ~like.any(axis=0)).any():
            parts = self._parts(odd, like, reference, np.flatnonzero(~course.left_out), verdict_on_parts)
            yield from ({"unit": unit, "channel_id": channel} | parts for channel in channels.tolist())
        limits = self._limits(learned)
        known = {"unit": unit, "judged": len(channels), "left_out": len(usable) - len(channels)}
        scaled = model.scaled(values)
        times = model.statistics(scaled) / limits[:, None]
        alone = np.zeros((2, *values.T.shape))
        if len(learned.reference) >= _INTERVALS * len(values):
            alone = np.square(model.alone(values) / self._limits_alone(model, learned)[..., None])
        times = np.maximum(times, alone.max(axis=1))
        times[:, np.isnan(values).mean(axis=1) > 1 / 2] = 0.0
        score = times.max(axis=0)
        for first, last in runs(np.flatnonzero(score > 1), len(score)):
            peak = first + int(np.argmax(score[first : last + 1]))
            beyond = first + np.flatnonzero(score[first : last + 1] > 1)[:_ONSET]
            gone = alone[:, :, beyond].max(axis=0).sum(axis=1)
            if gone.max() <= len(beyond):  # else a channel alone is beyond its limit
                gone = model.contributions(scaled[beyond], limits)
            most = np.argsort(-np.round(gone / gone.sum(), 9), kind="stable")[:_NAMED]
            yield known | {
                **run_times(first, last, len(score), self.since, self.step),
                "peak_time": self.since + peak * self.step,
                "is_spe": bool(round(times[0, peak] / score[peak], 9) < 1),  # of a single channel they are the same
                "score": float(score[peak]),
                "channels": channels[most].tolist(),
                "shares": (gone[most] / gone.sum()).tolist(),
            }

    def _limits(self, learned: _Learned) -> Float64s:
        """The limits of both statistics, (2,)."""
        statistics = np.concatenate(learned.parts, axis=1)
        statistics = statistics[:, _filled(learned.reference[:, learned.verdicts == JUDGED])]
        share = min(self.step / self.alarm_every, 1.0) / 2  # of buckets beyond each limit
        return np.array([_limit(values, share) for values in statistics])

    def _limits_alone(self, model: Model, learned: _Learned) -> Float64s:
        """Limits of each channel alone, (2, p)."""
        usable = learned.reference[:, learned.verdicts == JUDGED]
        distances = np.concatenate(
            [
                others.alone(usable[begin:end]) * (others.spread / model.spread)[:, None]
                for others, (begin, end) in zip(learned.others, pairwise(_edges(len(usable))), strict=True)
            ],
            axis=2,
        )[:, :, _filled(usable)]
        every = max(self.alarm_every / self.step, 1.0) * 2 * distances.shape[1]
        return np.array([[max(usual(one, every).limit, _LEAST) for one in kind] for kind in distances])

    def _parts(
        self,
        odd: NDArray[np.bool_],
        like: NDArray[np.bool_],
        reference: Float64s,
        buckets: NDArray[np.intp],
        verdict: int,
    ) -> dict[str, Any]:
        """From when to when parts of a reference are unlike the rest, and if they count, what would be a better one.

        ``like``: of :func:`_like`; ``buckets``: those that the reference has, without pauses.
        """
        is_like = like.mean(axis=0) >= _ALIKE
        first, last = max(_places(is_like), key=_length, default=(0, 0))
        edges, filled = _edges(len(reference)), _filled(reference)
        is_better = verdict == UNLIKE and filled[edges[first] : edges[last]].sum() >= MIN_REFERENCE
        if is_better:
            odd = (np.arange(PARTS) < first) | (np.arange(PARTS) >= last)

        def time(part: int) -> int:
            return self.other_since + int(np.append(buckets, buckets[-1] + 1)[edges[part]]) * self.step

        return {
            "verdict": verdict,
            "unlike_from": [time(begin) for begin, _ in _places(odd)],
            "unlike_to": [time(end) for _, end in _places(odd)],
            "like_from": time(first) if is_better else None,
            "like_to": time(last) if is_better else None,
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Learned:
    """Model of a unit, learned from a reference."""

    reference: Float64s  # (buckets, channels)
    verdicts: NDArray[np.intp]  # (channels,): those that are JUDGED are in the model
    model: Model | None  # None: no channel is
    parts: list[Float64s]  # statistics of each part, by a model of the others
    others: list[Model]  # of each part: the model of the others

    def unlike_parts(self) -> NDArray[np.bool_]:
        """Mask of the parts that are unlike the others."""
        if self.model is None:
            return np.zeros(PARTS, np.bool_)
        return np.asarray(unlike(np.array([np.nanmedian(part, axis=1) for part in self.parts])).any(axis=1))


def _learned(reference: Float64s) -> _Learned:
    verdicts, middle, spread = _spreads(reference)
    usable = reference[:, verdicts == JUDGED]
    if not usable.shape[1]:
        return _Learned(reference, verdicts, None, [], [])
    model, parts, models = _model(usable, middle, spread), list[Float64s](), list[Model]()
    for begin, end in pairwise(_edges(len(usable))):
        others = _model(np.concatenate([usable[:begin], usable[end:]]), model.middle, model.spread)
        parts.append(others.statistics(others.scaled(usable[begin:end])))
        models.append(others)
    return _Learned(reference, verdicts, model, parts, models)


def _edges(n: int) -> list[int]:
    """Bounds of the parts of a reference of so many buckets."""
    edges: list[int] = np.linspace(0, n, PARTS + 1).astype(int).tolist()
    return edges


def _like(reference: Float64s, values: Float64s) -> NDArray[np.bool_]:
    """Mask of the parts of a reference that each part of an interval is like, as the same machines run: (parts, parts).

    It is much nearer to them than to the farthest one. ``reference``, ``values``: scaled, (buckets, channels). Of an
    interval without so many buckets nothing is known.
    """
    if len(values) < PARTS:
        return np.zeros((PARTS, PARTS), np.bool_)
    usual, now = (
        np.array([np.median(part[begin:end], axis=0) for begin, end in pairwise(_edges(len(part)))])
        for part in (reference, values)
    )
    distances = np.minimum(np.abs(now[:, None] - usual), _FAR).mean(axis=2)
    like: NDArray[np.bool_] = distances < distances.max(axis=1, keepdims=True) / 2
    return like


def _places(parts: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Bounds of the parts that follow each other in a mask."""
    edges = np.flatnonzero(np.diff(parts, prepend=False, append=False)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _length(place: tuple[int, int]) -> int:
    return place[1] - place[0]


def _filled(reference: Float64s) -> NDArray[np.bool_]:
    """Mask of the buckets in which any channel has a mean."""
    return np.asarray((~np.isnan(reference)).any(axis=1))


def _spreads(reference: Float64s) -> tuple[NDArray[np.intp], Float64s, Float64s]:
    """Verdicts on the channels of a reference, and the medians and spreads of those that can be judged."""
    is_enough = _filled(reference).sum() >= MIN_REFERENCE
    usable = np.flatnonzero((np.isnan(reference).mean(axis=0) <= 1 / 2) & is_enough)
    moves, middle, spread = robust_spread(reference[:, usable])
    verdicts = np.full(reference.shape[1], SHORT_REFERENCE)
    verdicts[usable] = np.where(moves, JUDGED, CONSTANT)
    return verdicts, middle, spread


def _model(values: Float64s, middle: Float64s, spread: Float64s) -> Model:
    """The model whose components explain 90 % of the variance of (n, p) values without the far ones."""
    near = wrapped(np.nan_to_num((values - middle) / spread))
    size = np.maximum(np.sqrt(np.square(near).mean(axis=0)), 1 / 2)
    near /= size
    n, p = near.shape
    if p <= n:
        variances, axes = np.linalg.eigh(near.T @ near / n)
    else:  # more channels than buckets: the same axes, by the smaller matrix
        variances, rows = np.linalg.eigh(near @ near.T / n)
        axes = near.T @ rows / np.sqrt(np.maximum(n * variances, 1e-12))
    variances, axes = np.maximum(variances[::-1], 1e-12), axes[:, ::-1]
    k = int(np.searchsorted(np.cumsum(variances), _VARIANCE * variances.sum())) + 1
    k = max(1, min(k, p - 1, n // 3))
    return Model(middle, spread * size, axes, variances, k)


def _limit(values: Float64s, share: float) -> float:
    """The limit that such a share of values is beyond; infinity: they are all 0."""
    if not values.any():
        return float("inf")
    return max(usual(np.sqrt(values), 1 / share).limit, _LEAST) ** 2
