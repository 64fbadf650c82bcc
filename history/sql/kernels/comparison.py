"""Differences between two runs of a plant that are aligned at their starts (schema/questions/compare.sql).

Runs are warped by dynamic programming: Sakoe and Chiba, Dynamic programming algorithm optimization for spoken word
recognition, IEEE Transactions on Acoustics, Speech, and Signal Processing 26 (1978), of all channels of a unit at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s
from history.codec.row_groups import TIME
from history.sql.kernels.reference import (
    AS_FAR_AS_REFERENCE,
    FEW_SAMPLES,
    JUDGED,
    NO_SAMPLES,
    NO_SPREAD,
    SHORT_REFERENCE,
    UNLIKE,
    has_unlike_part,
)
from history.sql.kernels.unit_means import UnitMeans, run_times, runs

DIFFERENCES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of differences only
        ("from_time", TIME),  # where the first bucket begins that differs
        ("to_time", TIME),  # where the last one ends; None: it lasts until the end
        ("peak_time", TIME),
        ("value", pa.float64()),  # at the peak
        ("other_time", TIME),  # of the other run, that it was compared with
        ("other", pa.float64()),  # value there
        ("score", pa.float64()),  # difference in limits; None: the channel stood in both runs
    ]
)
_NOISES = 8.0  # robust deviations of steps between buckets in a difference that counts
_SHARE = 0.05  # of the extent of the runs in a difference that counts
_MIN_MEANS = 10  # of a run, to know its noise
_LASTS = 3  # buckets that differ, at least
_TRIMMED = 0.6745  # median of |z|, z normal


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Buckets of a run that differ from those of another one."""

    since: int  # µs
    other_since: int  # µs
    step: int  # µs
    warp: int  # buckets by which the runs may be out of step

    def of_unit(self, means: UnitMeans) -> Iterator[dict[str, Any]]:
        """Rows of DIFFERENCES."""
        _, channels, other, values = means
        verdicts = np.full(len(channels), JUDGED if len(other) >= len(values) else AS_FAR_AS_REFERENCE)
        verdicts[(~np.isnan(other)).sum(axis=0) < max(_MIN_MEANS, len(other) // 2)] = SHORT_REFERENCE
        known = (~np.isnan(values)).sum(axis=0)
        verdicts[known < _LASTS] = FEW_SAMPLES
        verdicts[known == 0] = NO_SAMPLES
        for column in np.flatnonzero((verdicts == JUDGED) | (verdicts == AS_FAR_AS_REFERENCE)).tolist():
            runs_off = [run[:, column] - np.nanmedian(run[:, column]) for run in (other, values)]
            if has_unlike_part(*runs_off):  # in start-ups, a part of both runs is
                verdicts[column] = UNLIKE
        for channel, verdict in zip(channels.tolist(), verdicts.tolist(), strict=True):
            yield {"channel_id": channel, "verdict": verdict}
        usable = ~np.isin(verdicts, [SHORT_REFERENCE, NO_SAMPLES, FEW_SAMPLES])
        channels, other, values = channels[usable], other[:, usable], values[:, usable]
        if not len(channels):
            return
        limits, measurable = _limits(other, values)
        n = min(len(other), len(values))
        path = np.arange(n) if not self.warp else _warped(values / limits, other / limits, self.warp)
        off = values[: len(path)] - other[path]
        for column, channel in enumerate(channels.tolist()):
            size = np.nan_to_num(np.abs(off[:, column]) / limits[column])
            for first, last in runs(np.flatnonzero(size > 1), len(size)):
                if (size[first : last + 1] > 1).sum() < _LASTS:
                    continue
                peak = first + int(np.argmax(size[first : last + 1]))
                yield {
                    "channel_id": channel,
                    **run_times(first, last, len(size), self.since, self.step),
                    "peak_time": self.since + peak * self.step,
                    "value": float(values[peak, column]),
                    "other_time": self.other_since + int(path[peak]) * self.step,
                    "other": float(other[path[peak], column]),
                    "score": float(size[peak]) if measurable[column] else None,
                }


def _limits(other: Float64s, values: Float64s) -> tuple[Float64s, NDArray[np.bool_]]:
    """Differences that count, (channels,), and whether there is anything to measure them by.

    They are more than noise, and than a little of what the channel does.
    """
    both = other, values
    noise = np.max([_noise(run) for run in both], axis=0)
    extent = np.max([np.nanmax(run, axis=0) - np.nanmin(run, axis=0) for run in both], axis=0)
    largest = np.max([np.nanmax(np.abs(run), axis=0) for run in both], axis=0)
    least = np.maximum(NO_SPREAD * largest, 1e-12)
    limits = np.maximum(_NOISES * noise / _TRIMMED / np.sqrt(2), _SHARE * extent)
    return np.maximum(limits, least), limits > least


def _noise(values: Float64s) -> Float64s:
    """Usual step from mean to mean, (channels,); 0: no two are side by side."""
    steps = np.abs(np.diff(values, axis=0))
    steps[:, np.isnan(steps).all(axis=0)] = 0.0
    noise: Float64s = np.nanmedian(steps, axis=0)
    return noise


def _warped(values: Float64s, other: Float64s, most: int) -> NDArray[np.intp]:
    """Position in the other run for each bucket, at most so far away, along which both differ least."""
    m = len(other)
    shifts = np.arange(-most, most + 1)
    came = list[NDArray[np.int8]]()
    total = np.where(shifts == 0, 0.0, np.inf)  # both begin together
    for i, here in enumerate(values):
        at = i + shifts
        inside = (at >= 0) & (at < m)
        apart = np.minimum(np.nan_to_num(np.abs(here - other[np.clip(at, 0, m - 1)])), 3.0).sum(axis=1)
        # From the bucket before with the same shift, or with one more or less: the other run stood, or went by two.
        best = np.array([total, np.append(total[1:], np.inf) + 0.1, np.append(np.inf, total[:-1]) + 0.1])
        so_far = np.where(inside, best.min(axis=0) + apart, np.inf)
        if np.isinf(so_far).all():  # the other run is over
            break
        came.append(best.argmin(axis=0).astype(np.int8))
        total = so_far
    path = np.zeros(len(came), np.intp)
    shift = int(np.argmin(total))
    for i in range(len(path) - 1, -1, -1):
        path[i] = i + shifts[shift]
        shift += (0, 1, -1)[came[i][shift]]
    return path
