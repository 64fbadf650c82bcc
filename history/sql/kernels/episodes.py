"""Episodes in which channels are outside the band that a reference shows (schema/questions/episodes.sql)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from core.batch import Float64s
from history.codec.row_groups import TIME
from history.sql.kernels.dynamics import TOO_SHORT, dynamics
from history.sql.kernels.reference import (
    CONSTANT,
    JUDGED,
    MIN_POSITIONS,
    MOSTLY_MISSING,
    NO_SAMPLES,
    SHORT_REFERENCE,
    UNLIKE,
    has_unlike_part,
    least_limit,
    usual,
)
from history.sql.kernels.unit_means import UnitMeans, lasting, runs

EPISODES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of episodes only
        ("from_time", TIME),  # where the first bucket beyond the limit begins
        ("to_time", TIME),  # where the last one ends; None: the episode lasts until the end
        ("peak_time", TIME),
        ("usual", pa.float64()),
        ("peak", pa.float64()),
        ("least", pa.float64()),  # distance that counts, from what is usual
    ]
)
_CONSTANT = 1e-9  # of the largest value: a smaller extent is none


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """Buckets that are farther from the median of a reference than its own are."""

    since: int  # µs
    step: int  # µs
    alarm_every: int  # µs: the mean time between two episodes of a unit in usual operation that is accepted
    spans: Mapping[int, float]  # of the ranges of channels that have one

    def of_unit(self, means: UnitMeans) -> Iterator[dict[str, Any]]:
        """Rows of EPISODES, by channel."""
        _, channels, before, now = means
        for channel, reference, values in zip(channels.tolist(), before.T, now.T, strict=True):
            yield from self._of_channel(channel, reference, values, len(channels) * self.alarm_every / self.step)

    def _of_channel(
        self, channel: int, reference: Float64s, values: Float64s, buckets: float
    ) -> Iterator[dict[str, Any]]:
        """Rows of a channel that has an episode in so many ``buckets``. ``reference``, ``values``: (buckets,)."""
        nothing = {field.name: None for field in EPISODES} | {"channel_id": channel}
        known = reference[~np.isnan(reference)]
        middle = float(np.median(known)) if len(known) else 0.0
        verdict = _verdict(known - middle, len(reference), values, middle)
        yield nothing | {"verdict": verdict}
        if verdict not in (JUDGED, UNLIKE, MOSTLY_MISSING, *TOO_SHORT):
            return
        off = np.where(np.isnan(values), 0.0, values - middle)
        if not (np.abs(off) > least_limit(known - middle)).any():
            return
        limit = max(usual(known - middle, buckets).limit, 1e-4 * self.spans.get(channel, 0.0))
        for sign in (1, -1):
            for first, last in runs(np.flatnonzero(sign * off > limit), len(values)):
                peak = first + int(np.argmax(sign * off[first : last + 1]))
                yield nothing | {
                    "from_time": self.since + first * self.step,
                    "to_time": None if lasting(last, len(values)) else self.since + (last + 1) * self.step,
                    "peak_time": self.since + peak * self.step,
                    "usual": middle,
                    "peak": float(values[peak]),
                    "least": limit,
                }


def _verdict(deviations: Float64s, n: int, values: Float64s, middle: float) -> int:
    """Verdict on a channel. ``deviations``: of the means of the reference, up to ``n``, from the median."""
    if np.isnan(values).all():
        return NO_SAMPLES
    if len(deviations) < MIN_POSITIONS:
        return SHORT_REFERENCE
    if np.ptp(deviations) <= _CONSTANT * (abs(middle) + np.abs(deviations).max()):
        return CONSTANT
    if has_unlike_part(deviations):
        return UNLIKE
    return MOSTLY_MISSING if 2 * len(deviations) < n else dynamics(deviations)
