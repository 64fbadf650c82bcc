"""Running medians are those of each window, whatever they take."""

from __future__ import annotations

import tracemalloc
from math import isnan
from statistics import median

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from history.sql.kernels.running_median import running_median

_VALUES = st.lists(st.integers(-9, 9).map(float) | st.just(float("nan")), min_size=1, max_size=70)


@given(_VALUES, st.integers(0, 80))
def test_running_medians_are_those_of_the_values_that_are_there(values: list[float], half: int) -> None:
    windows = (values[max(place - half, 0) : place + half + 1] for place in range(len(values)))
    known = ([value for value in window if not isnan(value)] for window in windows)
    expected = [median(some) if some else float("nan") for some in known]
    assert np.array_equal(running_median(np.array(values), half), expected, equal_nan=True)


def test_long_windows_take_no_more_memory_than_short_ones() -> None:
    """Windows are a 20th of a day of means of 1 s."""
    values = np.random.default_rng(1).normal(size=86_400)
    tracemalloc.start()
    try:
        running_median(values, 2160)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30 * values.nbytes
