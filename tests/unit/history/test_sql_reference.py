"""Usual behaviour: limits are exceeded as rarely as they say, and faults of a reference do not hide later ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.batch import Float64s
from history.sql.kernels.reference import (
    WIDTHS,
    deviations,
    reach,
    sampling_intervals,
    smooth_deviations,
    smoothed,
    usual,
)
from tests.unit.history.sql_samples import columns

_HOUR = 3600


def _wandering(random: np.random.Generator, n: int) -> Float64s:
    value = 0.0
    return np.array([value := 0.95 * value + move for move in random.normal(0, 1, n)])


@given(st.lists(st.floats(-100, 100), max_size=200), st.sampled_from(WIDTHS))
def test_deviations_are_differences_of_means(values: list[float], width: int) -> None:
    before = reach(width) - width
    expected = [
        np.mean(values[at : at + width]) - np.mean(values[at - before : at])
        if at >= before and at + width <= len(values)
        else np.nan
        for at in range(len(values))
    ]
    assert deviations(np.array(values), width) == pytest.approx(expected, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    "noise",
    [
        lambda random, n: random.normal(0, 1, n),
        lambda random, n: random.standard_t(3, n),
        lambda random, n: np.rint(random.normal(0, 1, n)),
        _wandering,
    ],
)
def test_limits_are_seldom_exceeded_by_chance(noise: Callable[[np.random.Generator, int], Float64s]) -> None:
    """In 20 channels, an hour each after an hour's reference, with a false alarm expected in 20 such hours."""
    exceeded = 0
    for seed in range(20):
        values = noise(np.random.default_rng(seed), 2 * _HOUR)
        smooth = smoothed(values)
        for width in WIDTHS:
            far = smooth_deviations(smooth, width)
            limit = usual(far[reach(width) : _HOUR - width], 20 * _HOUR, width).limit
            exceeded += bool((np.abs(far[_HOUR : -reach(width)]) > limit).any())
    assert exceeded <= 12, exceeded  # of 80; 4 expected, and more where tails are heavy


def test_heavy_tail_of_a_short_reference_does_not_hide_the_end_of_a_flow() -> None:
    """A flow that fell by a tenth at times (Tennessee Eastman, fault 6), and then to zero. Rarer alarms may hide it."""
    flow = np.random.default_rng(6).normal(0, 0.005, 160)
    flow[40:48] -= 0.03
    flow[110:112] -= 0.08
    assert usual(flow, 3e5, 1).limit < 0.3 < usual(flow, 1e100, 1).limit


@pytest.mark.parametrize("seed", range(3))
def test_blocks_without_a_start_do_not_raise_the_limit_of_those_with_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    valve = random.uniform(0, 0.5, 7000)
    for morning in range(250, 7000, 1000):  # of days
        valve[morning : morning + 30] = random.uniform(25, 36, 30)
    assert 36 < usual(valve, 1_000_000).limit < 50


def test_faults_in_the_reference_are_counted_and_left_out() -> None:
    values = np.random.default_rng(1).normal(50, 1, _HOUR)
    clean = usual(deviations(values, 16)[48:-16], 20 * _HOUR, 16)
    for begin in (600, 1800, 3000):
        values[begin : begin + 300] -= 10
    faulty = usual(deviations(values, 16)[48:-16], 20 * _HOUR, 16)
    assert (clean.faults, faulty.faults) == (0, 3)
    assert faulty.limit < 1.3 * clean.limit < 5


def test_what_happens_often_is_usual() -> None:
    values = np.random.default_rng(1).normal(50, 1, _HOUR) + 40 * (np.arange(_HOUR) % 600 < 60)
    habit = usual(deviations(values, 16)[48:-16], 20 * _HOUR, 16)
    assert habit.faults == 0
    assert habit.limit > 40


def test_short_reference_has_no_limit() -> None:
    values = np.random.default_rng(1).normal(50, 1, 100)
    assert usual(deviations(values, 16)[48:-16], 1e5, 16).limit == np.inf
    assert usual(values[:39], 1e5).limit == np.inf


def test_constant_reference_has_the_limit_0() -> None:
    assert usual(deviations(np.full(_HOUR, 5e9), 16)[48:-16], 1e5, 16) == usual(np.zeros(100), 1e5)
    assert usual(np.zeros(100), 1e5).limit == 0


@given(st.floats(1e-6, 1e6), st.integers(40, 300), st.sampled_from([None, *WIDTHS]))
@example(0.9833347065534214, 70, None)  # a spread of rounding errors is no skewness to divide by
def test_deviations_of_one_size_have_a_limit_just_above_it(size: float, n: int, width: int | None) -> None:
    swing = np.where(np.arange(n) % 2, -size, size)
    limit = usual(swing, 1e6, width).limit
    assert limit == pytest.approx(1.2 * size) or np.isinf(limit)


def test_sampling_interval_is_the_median_also_with_gaps_and_bursts() -> None:
    times = [0, 10, 20, 30, 5000, 5010, 5011, 5021]
    samples = (
        [(1, time, 0.0, 0) for time in times]
        + [(2, n, 0.0, 0) for n in range(7)]
        + [(3, 9 * n, 0.0, 0) for n in range(8)]
    )
    intervals = sampling_intervals(columns(samples))
    assert [column.tolist() for column in intervals.values()] == [[1, 3], [10, 9]]
