"""Excursions equal those of a loop over bins."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean, median, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import OperationError
from history.sql.kernels.excursions import Excursions
from tests.unit.history.sql_samples import columns

BAD = 0x80000000
_VALUES = st.sampled_from([0.0, 0.0, 0.0, 0.1, 0.2317, 0.2571, -0.1413, 7.03, 1e-60, 1e60, float("nan")])
_SAMPLES = st.dictionaries(
    st.integers(-60, 60), st.tuples(_VALUES, st.sampled_from([0, 0, 0, 0, BAD])), min_size=10, max_size=121
) | st.lists(st.tuples(_VALUES, st.just(0)), min_size=121, max_size=121).map(lambda of: dict(enumerate(of, -60)))
Rows = list[tuple[int, int, float, float, bool]]  # scale, time, value, spread, whether it is known


def expected(good: list[tuple[int, float]], wanted: Excursions, span: float | None) -> Rows:
    bins = defaultdict[tuple[int, int], list[tuple[int, float]]](list)
    for time, value in good:
        bins[time // wanted.short * wanted.short, time // wanted.long * wanted.long].append((time, value))
    means = {key: fmean(value for _, value in of) for key, of in bins.items()}
    long_means = {
        long: fmean(mean for (_, one), mean in means.items() if one == long)
        for long in sorted({key[1] for key in bins})
    }
    before = [value for time, value in good if time < 0]
    if not before:
        return []
    whole = 0.0 if min(before) == max(before) else math.sqrt(pvariance(before))
    rounding = max(abs(value) for _, value in good) * 2**-52
    middles = {key: median(value for _, value in of) for key, of in bins.items()}
    off = [(time, value - middles[key]) for key, of in bins.items() for time, value in of]
    base = fmean(mean for long, mean in long_means.items() if long < 0)
    scales = [
        off,
        [(short, mean - long_means[long]) for (short, long), mean in means.items()],
        [(long, mean - base) for long, mean in long_means.items()],
    ]
    computed = []
    for scale, (values, least, sigmas) in enumerate(
        zip(scales, (0.0, whole / 4, whole / 2), (1.0, 1.0, 0.5), strict=True)
    ):
        usual = [value for time, value in values if time < 0]
        if len(usual) < 6:
            continue
        spread = max(math.sqrt(fmean(value * value for value in usual)), least, (span or 0.0) * 1e-4)
        is_known = spread > max(1e6 * rounding, 1e-12)
        spread = max(spread, rounding, 1e-12)
        limit = max(wanted.sigmas * sigmas * spread, 1.5 * max(abs(value) for value in usual))
        computed += [
            (scale, time, value, spread, is_known) for time, value in values if time >= 0 and abs(value) > limit
        ]
    return computed


@given(
    st.lists(st.tuples(_SAMPLES, st.sampled_from([None, 10.0])), max_size=3),
    st.sampled_from([(4, 12), (3, 10), (5, 7), (1, 60)]),
    st.sampled_from([1.0, 3.0]),
)
def test_what_is_far_off(
    channels: list[tuple[dict[int, tuple[float, int]], float | None]], steps: tuple[int, int], sigmas: float
) -> None:
    spans = {number: span for number, (_, span) in enumerate(channels) if span is not None}
    wanted = Excursions(spans, 0, sigmas, *steps)
    samples = [(number, time, *of[time]) for number, (of, _) in enumerate(channels) for time in sorted(of)]
    computed = wanted.compute(columns(samples))
    names = ("channel_id", "scale", "time", "value", "spread", "is_known")
    rows = list(zip(*(computed[name].tolist() for name in names), strict=True))
    every = []
    for number, (of, span) in enumerate(channels):
        good = [
            (time, 0.0 if abs(value) < 1e-50 else value)
            for time, (value, status) in sorted(of.items())
            if not status & BAD and abs(value) < 1e50
        ]
        every += [(number, *row) for row in expected(good, wanted, span)]
    assert [row[:3] for row in rows] == [row[:3] for row in every]
    for row, one in zip(rows, every, strict=True):
        assert row[3:] == pytest.approx(one[3:], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["short", "long"])
def test_bins_have_a_length(name: str) -> None:
    with pytest.raises(OperationError, match=f"{name}: found 0 µs; legal: more than 0"):
        Excursions({}, 0, 8.0, **{"short": 1, "long": 1, name: 0})
