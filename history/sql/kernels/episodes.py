"""Episodes in which channels are outside the band that a reference shows (schema/questions/episodes.sql).

What it does in each of its cycles, or as it drifts, is usual (kernels/usual_courses.py).
"""

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
    CYCLIC,
    JUDGED,
    MIN_POSITIONS,
    MOSTLY_MISSING,
    NO_SAMPLES,
    NO_SPREAD,
    SHORT_REFERENCE,
    UNLIKE,
    has_unlike_part,
    least_limit,
    usual,
)
from history.sql.kernels.unit_means import UnitMeans, run_times, runs
from history.sql.kernels.usual_courses import usual_courses, with_course

EPISODES = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of episodes only
        ("from_time", TIME),  # where the first bucket beyond the limit begins
        ("to_time", TIME),  # where the last one ends; None: the episode lasts until the end
        ("peak_time", TIME),
        ("usual", pa.float64()),
        ("peak", pa.float64()),
        ("least", pa.float64()),  # distance that counts, from what is usual; 0: the reference has one value
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """Buckets that are farther from what is usual than those of a reference."""

    since: int  # µs
    step: int  # µs
    alarm_every: int  # µs: the mean time between two episodes of a unit in usual operation that is accepted
    spans: Mapping[int, float]  # of the ranges of channels that have one

    def of_unit(self, means: UnitMeans) -> Iterator[dict[str, Any]]:
        """Rows of EPISODES, by channel."""
        _, channels, before, now = means
        course = usual_courses(before, now)
        for channel, off, values, expected, known in zip(
            channels.tolist(), (before - course.before).T, now.T, course.now.T, course.verdicts.tolist(), strict=True
        ):
            deviations = off[~course.left_out] if known == CYCLIC else off
            verdict = with_course(_verdict(deviations, values, expected), known)
            yield {"channel_id": channel, "verdict": verdict}
            if verdict in (JUDGED, CYCLIC, UNLIKE, MOSTLY_MISSING, *TOO_SHORT):
                every = len(channels) * self.alarm_every / self.step
                reference = deviations[~np.isnan(deviations)]
                yield from self._of_channel(channel, reference, values, expected, every)

    def _of_channel(
        self, channel: int, reference: Float64s, values: Float64s, expected: Float64s, buckets: float
    ) -> Iterator[dict[str, Any]]:
        """Rows of a channel that has an episode in so many ``buckets``.

        ``reference``: deviations; ``values``, ``expected``: (buckets,), those that are and would be usual.
        """
        off = np.nan_to_num(values - expected)
        if not (np.abs(off) > least_limit(reference)).any():
            return
        limit = max(usual(reference, buckets).limit, 1e-4 * self.spans.get(channel, 0.0))
        for sign in (1, -1):
            for first, last in runs(np.flatnonzero(sign * off > limit), len(values)):
                peak = first + int(np.argmax(sign * off[first : last + 1]))
                yield {
                    "channel_id": channel,
                    **run_times(first, last, len(values), self.since, self.step),
                    "peak_time": self.since + peak * self.step,
                    "usual": float(expected[peak]),
                    "peak": float(values[peak]),
                    "least": limit,
                }


def _verdict(deviations: Float64s, values: Float64s, expected: Float64s) -> int:
    """Verdict on a channel. ``deviations``: of the means of the reference, from what is usual; the others: as above."""
    known = deviations[~np.isnan(deviations)]
    if np.isnan(values).all():
        return NO_SAMPLES
    if len(known) < MIN_POSITIONS:
        return SHORT_REFERENCE
    if np.ptp(known) <= NO_SPREAD * (np.abs(expected).max() + np.abs(known).max()):
        return CONSTANT
    if has_unlike_part(known, values - expected):
        return UNLIKE
    return MOSTLY_MISSING if 2 * len(known) < len(deviations) else dynamics(known)
