"""Statistics of held values equal those of a loop over the samples."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.sql.kernels.columns import RHYTHM, Channels
from history.sql.kernels.weighted_statistics import WeightedInterval, overlapping
from tests.unit.history.sql_samples import columns

BAD = 0x80000000
_SAMPLES = st.dictionaries(
    st.integers(0, 60),
    st.tuples(
        st.sampled_from([0.0, 1.0, 2.5, -7.0, 1e-60, 1e60, float("nan")]), st.sampled_from([0, 0, 0, BAD, 1 << 30])
    ),
    max_size=30,
)


def increase(before: float, value: float, wraps_at: float | None) -> float:
    if value >= before:
        return value - before
    wraps = wraps_at is not None and wraps_at / 2 < before - value <= wraps_at
    return value + wraps_at - before if wraps and wraps_at is not None else max(value, 0.0)


def expected(
    samples: list[tuple[int, float]],
    bounds: tuple[int, int],
    gaps: list[int],
    bad: list[int],
    counter: bool,
    wraps_at: float | None,
) -> tuple[float, float] | None:
    held = []
    for place, (time, value) in enumerate(samples):
        following = samples[place + 1] if place + 1 < len(samples) else None
        gap = min((start for start in [*gaps, *bad] if start >= time), default=math.inf)
        seconds = (min(following[0] if following else math.inf, gap, bounds[1]) - max(time, bounds[0])) / 1e6
        if seconds <= 0:
            continue
        level = value
        if counter:
            if following is None or gap < following[0]:
                continue
            level = increase(value, following[1], wraps_at) / ((following[0] - time) / 1e6)
        held.append((level, seconds))
    if not held:
        return None
    whole = math.fsum(seconds for _, seconds in held)
    mean = math.fsum(level * seconds for level, seconds in held) / whole
    return mean, math.sqrt(math.fsum((level - mean) ** 2 * seconds for level, seconds in held) / whole)


@given(
    st.lists(
        st.tuples(_SAMPLES, st.lists(st.integers(-5, 70), max_size=4), st.integers(-5, 80), st.booleans()), max_size=4
    ),
    st.integers(-5, 40),
    st.integers(-5, 10),
    st.sampled_from([1, 4, 65_536]),
    st.sampled_from([None, 8.0]),
)
def test_what_was_held(
    channels: list[tuple[dict[int, tuple[float, int]], list[int], int, bool]],
    since: int,
    first: int,
    block: int,
    wraps_at: float | None,
) -> None:
    """Of channels with their samples, gaps and ends, and whether they are counters."""
    edges = [sorted(gap * 1_000_000 for gap in gaps) for _, gaps, _, _ in channels]
    every = [
        {
            "channel_id": number,
            "kind": "counter" if counter else "analog",
            "wraps_at": wraps_at,
            "ends": end * 1_000_000,
            "gaps_from": of,
            "gaps_to": of,
        }
        for number, ((_, _, end, counter), of) in enumerate(zip(channels, edges, strict=True))
    ]
    held = WeightedInterval(
        Channels.of_fields(every[::-1]), since * 1_000_000, (first * 1_000_000, 50_000_000), since > 9
    )
    samples = [(number, time * 1_000_000, *of[time]) for number, (of, *_) in enumerate(channels) for time in sorted(of)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("history.sql.kernels.weighted_statistics._BLOCK_SAMPLES", block)
        computed = held.compute(columns(samples))
    wanted = []
    for number, (of, _, end, counter) in enumerate(channels):
        before = [time for time in of if time < first] if len(of) <= RHYTHM else []  # what was seldom sent is held
        begin = max(before, default=first) * 1_000_000
        read = [of for of in samples if of[0] == number and begin <= of[1] < 50_000_000]
        good = [
            (time, 0.0 if abs(value) < 1e-50 else value)
            for _, time, value, status in read
            if not status & BAD and abs(value) < 1e50
        ]
        bad = [time for _, time, _, _ in read if time not in dict(good)]
        one = expected(good, (since * 1_000_000, end * 1_000_000), edges[number], bad, counter, wraps_at)
        if one is not None:
            wanted.append((number, *one))
    assert computed["later"].tolist() == [since > 9] * len(wanted)
    assert computed["channel_id"].tolist() == [number for number, _, _ in wanted]
    assert computed["mean"].tolist() == pytest.approx([mean for _, mean, _ in wanted], rel=1e-9, abs=1e-9)
    assert computed["spread"].tolist() == pytest.approx([spread for *_, spread in wanted], rel=1e-9, abs=1e-9)


def test_intervals_that_overlap_are_read_together() -> None:
    none = {"compared": None, "share": None}
    one, two, other = (
        WeightedInterval.of_fields(
            {"channels": [], "first": first, "since": first, "until": until, "later": False, **none}
        )
        for first, until in ((0, 5), (5, 9), (10, 12))
    )
    computed = overlapping([other, two, one])
    assert [of.intervals for of in computed] == [[one, two], [other]]
    assert [of.samples for of in computed] == [(0, 9), (10, 12)]


def test_a_bad_sample_ends_a_value() -> None:
    """1 for 10 s, unknown for 10 s, 3 for 10 s; the rate of a counter is known between two readings only."""
    samples = columns(
        [
            (number, second * 1_000_000, value, status)
            for number in (0, 1)
            for second, value, status in [(0, 1.0, 0), (10, 1.0, BAD), (20, 3.0, 0), (30, 8.0, 0)]
        ]
    )
    fields: list[dict[str, Any]] = [
        {"channel_id": number, "kind": kind, "ends": 30_000_000, "gaps_from": [], "gaps_to": []}
        for number, kind in enumerate(("analog", "counter"))
    ]
    computed = WeightedInterval(Channels.of_fields(fields), 0, (0, 40_000_000), True).compute(samples)
    assert computed["mean"].tolist() == [2.0, 0.5]
