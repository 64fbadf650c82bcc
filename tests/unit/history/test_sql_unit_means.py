"""Means of channels as matrices, by unit, and runs of buckets."""

from __future__ import annotations

import numpy as np

from history.sql.kernels.columns import Columns
from history.sql.kernels.unit_means import by_unit, dense, run_times, runs


def means(rows: list[tuple[int, int, float]]) -> Columns:
    """Columns of (channel, bucket, value)."""
    channel, number, value = (np.array(column) for column in zip(*rows, strict=True))
    return {"channel_id": channel, "number": number, "value": value}


def test_means_of_channels_in_any_order() -> None:
    matrix = dense(np.array([9, 4], np.int32), 2, [means([(4, 1, 1.0), (9, 0, 2.0), (9, 7, 3.0)])])
    assert np.array_equal(matrix, [[2.0, np.nan], [np.nan, 1.0]], equal_nan=True)


def test_units_have_their_channels_before_and_now() -> None:
    before = 2, [means([(1, 0, 10.0), (2, 1, 20.0)]), means([(7, 0, 70.0)])]
    now = 1, [means([(1, 0, 11.0), (7, 0, 71.0)])]
    first, second = by_unit({7: 1, 2: 2, 1: 1}, before, now)
    assert (first.unit, first.channels.tolist(), second.unit, second.channels.tolist()) == (1, [1, 7], 2, [2])
    assert np.array_equal(first.before, [[10.0, 70.0], [np.nan, np.nan]], equal_nan=True)
    assert first.now.tolist() == [[11.0, 71.0]]
    assert np.array_equal(second.before, [[np.nan], [20.0]], equal_nan=True)
    assert np.array_equal(second.now, [[np.nan]], equal_nan=True)


def test_runs_that_are_close_are_one() -> None:
    assert runs(np.array([], np.intp), 100) == []
    assert runs(np.array([3, 4, 9, 15, 50]), 100) == [(3, 9), (15, 15), (50, 50)]


def test_a_run_near_the_end_has_not_ended() -> None:
    times = [run_times(90, last, 100, 5000, 10) for last in (94, 95, 99)]
    assert times == [{"from_time": 5900, "to_time": ends} for ends in (5950, None, None)]
