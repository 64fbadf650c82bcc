"""Differences between two runs, aligned at their starts or warped."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from core.batch import Float64s
from history.sql.kernels.comparison import Comparison
from history.sql.kernels.reference import AS_FAR_AS_REFERENCE, FEW_SAMPLES, JUDGED, NO_SAMPLES, SHORT_REFERENCE, UNLIKE
from history.sql.kernels.unit_means import UnitMeans

_IDS = np.arange(10, 13, dtype=np.int32)


def rows(other: Float64s, values: Float64s, warp: int = 0) -> list[dict[str, Any]]:
    means = UnitMeans(1, _IDS[: values.shape[1]], other, values)
    return [row for row in Comparison(1000, 500, 10, warp).of_unit(means) if row.get("verdict") is None]


def verdicts(other: Float64s, values: Float64s) -> list[int]:
    means = UnitMeans(1, _IDS[: values.shape[1]], other, values)
    return [row["verdict"] for row in Comparison(1000, 500, 10, 0).of_unit(means) if row.get("verdict") is not None]


def start_up(seed: int, delay: int = 0, n: int = 300) -> Float64s:
    """Three channels that rise, wait, and rise again, the second time later by ``delay`` buckets."""
    place = np.arange(n)
    course = 60 * np.clip(place / 50, 0, 1) + 30 * np.clip((place - 100 - delay) / 30, 0, 1)
    return course[:, None] * [1, -2, 0.1] + np.random.default_rng(seed).normal(0, 0.1, (n, 3))


def test_the_same_run_does_not_differ() -> None:
    for seed in range(10):
        assert rows(start_up(seed), start_up(100 + seed)) == []


def test_a_difference_has_begin_end_and_values() -> None:
    values = start_up(2)
    values[150:200, 1] += 30
    [row] = rows(start_up(1), values)
    assert (row["channel_id"], row["from_time"], row["to_time"]) == (11, 2500, 3000)
    assert row["value"] - row["other"] == pytest.approx(30, abs=1)
    assert row["other_time"] - 500 == row["peak_time"] - 1000
    assert row["score"] > 1


def test_a_longer_phase_is_no_difference_where_it_may_be_warped() -> None:
    other, values = start_up(1), start_up(2, delay=15)
    assert {row["channel_id"] for row in rows(other, values)} == {10, 11, 12}
    assert rows(other, values, warp=30) == []
    values[200:, 0] -= 20
    [row] = rows(other, values, warp=30)
    assert (row["channel_id"], row["from_time"], row["to_time"]) == (10, 3000, None)


def test_warping_takes_a_byte_for_each_pair_of_means() -> None:
    other, values = start_up(1, n=3000), start_up(2, n=3000)
    tracemalloc.start()
    try:
        assert rows(other, values, warp=500) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 3000 * 1001


def test_a_fault_of_the_earlier_run_is_said() -> None:
    random = np.random.default_rng(1)
    other, values = random.normal(50, 1, (2, 300, 3))
    other[100:160, 1] += 20
    assert verdicts(other, values) == [JUDGED, UNLIKE, JUDGED]
    assert verdicts(values, other) == [JUDGED] * 3
    assert verdicts(start_up(1), start_up(2)) == [JUDGED] * 3


def test_a_channel_that_stood_has_no_score() -> None:
    [row] = rows(np.full((100, 1), 3.0), np.full((100, 1), 4.0))
    assert (row["from_time"], row["value"], row["other"], row["score"]) == (1000, 4.0, 3.0, None)
    assert rows(np.full((100, 1), 3.0), np.full((100, 1), 3.0)) == []


def test_what_is_missing_does_not_differ() -> None:
    other, values = start_up(1), start_up(2)
    other[:, 0] = np.nan
    values[100:150] = np.nan
    assert rows(other, values) == []
    assert rows(other, values[:40]) == []
    assert rows(other[:0], values) == []


def test_an_earlier_run_that_says_nothing_is_no_answer() -> None:
    other, values = start_up(1), start_up(2)
    assert verdicts(other, values) == [JUDGED] * 3
    assert verdicts(other[:100], values) == [AS_FAR_AS_REFERENCE] * 3
    assert verdicts(other[:9], values) == verdicts(other[:0], values) == [SHORT_REFERENCE] * 3
    other[:200, 0] = np.nan
    values[:, 1] = np.nan
    assert verdicts(other, values) == [SHORT_REFERENCE, NO_SAMPLES, JUDGED]


@pytest.mark.parametrize("n", [1, 2])
def test_a_run_that_is_too_short_to_differ_is_not_judged(n: int) -> None:
    assert verdicts(start_up(1), start_up(2)[:n]) == [FEW_SAMPLES] * 3


def test_means_of_which_no_two_are_side_by_side_are_compared() -> None:
    other, values = start_up(1), start_up(2)
    values[::2] = np.nan
    assert rows(other, values) == []
