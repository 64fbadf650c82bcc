"""What was held is that of a loop over the samples."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ops.sql.held import held_statistics

BAD = 0x80000000
_SAMPLES = st.dictionaries(
    st.integers(0, 60),
    st.tuples(
        st.sampled_from([0.0, 1.0, 2.5, -7.0, 1e-60, 1e60, float("nan")]), st.sampled_from([0, 0, 0, BAD, 1 << 30])
    ),
    max_size=30,
)


def expected(
    samples: list[tuple[int, float]], bounds: tuple[int, int], gaps: list[int], counter: bool
) -> tuple[float, float] | None:
    held = []
    for place, (time, value) in enumerate(samples):
        following = samples[place + 1] if place + 1 < len(samples) else None
        gap = min((one for one in gaps if one >= time), default=math.inf)
        seconds = (min(following[0] if following else math.inf, gap, bounds[1]) - max(time, bounds[0])) / 1e6
        if seconds <= 0:
            continue
        level = value
        if counter:
            if following is None or gap < following[0]:
                continue
            level = (following[1] - value) / ((following[0] - time) / 1e6)
        held.append((level, seconds))
    if not held:
        return None
    whole = math.fsum(seconds for _, seconds in held)
    mean = math.fsum(level * seconds for level, seconds in held) / whole
    return mean, math.sqrt(math.fsum((level - mean) ** 2 * seconds for level, seconds in held) / whole)


@given(_SAMPLES, st.lists(st.integers(-5, 70), max_size=4), st.integers(-5, 40), st.integers(1, 40), st.booleans())
def test_what_was_held(
    samples: dict[int, tuple[float, int]], gaps: list[int], since: int, length: int, counter: bool
) -> None:
    bounds = since * 1_000_000, (since + length) * 1_000_000
    edges = sorted(gap * 1_000_000 for gap in gaps)
    found = held_statistics(
        {
            "channel_id": np.zeros(len(samples), np.int32),
            "time": np.array(sorted(samples), np.int64) * 1_000_000,
            "value": np.array([samples[time][0] for time in sorted(samples)], np.float64).view(np.uint64),
            "status": np.array([samples[time][1] for time in sorted(samples)], np.uint32),
        },
        bounds,
        np.array(edges, np.int64),
        counter,
    )
    good = [
        (time * 1_000_000, 0.0 if abs(value) < 1e-50 else value)
        for time, (value, status) in sorted(samples.items())
        if not status & BAD and abs(value) < 1e50
    ]
    wanted = expected(good, bounds, edges, counter)
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        assert math.isclose(found["mean"], wanted[0], rel_tol=1e-9, abs_tol=1e-9)
        assert math.isclose(found["spread"], wanted[1], rel_tol=1e-9, abs_tol=1e-9)
