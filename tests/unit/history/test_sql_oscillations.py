"""Oscillations are found with their periods, and hardly any in noise."""

from __future__ import annotations

import numpy as np
import pytest

from core.batch import Float64s
from core.errors import OperationError
from history.sql.kernels.columns import Channels, Columns
from history.sql.kernels.oscillations import Oscillations, autocorrelation
from history.sql.kernels.reference import FEW_SAMPLES, JUDGED
from history.sql.kernels.resampled import Grid
from schema.question_files import questions
from tests.unit.history.sql_samples import columns

_N = 500
_PLACES = np.arange(_N)
_STEP = 1_000_000  # µs


def oscillations(values: Float64s, least_regularity: float = 1.0) -> Columns:
    """Rows of the answer. ``values``: (channels, buckets), one sample each; NaN: none."""
    every = all_rows(values, least_regularity)
    return {name: column[every["verdict"] == 0] for name, column in every.items()}


def all_rows(values: Float64s, least_regularity: float = 1.0) -> Columns:
    """The same, with verdicts."""
    fields = [
        {"channel_id": number, "kind": "analog", "ends": _N * _STEP, "gaps_from": [], "gaps_to": []}
        for number in range(len(values))
    ]
    kernel = Oscillations(Grid(Channels.of_fields(fields), 0, _STEP), _N, least_regularity)
    samples = [
        (number, place * _STEP, float(value), 0)
        for number, row in enumerate(values)
        for place, value in enumerate(row)
        if not np.isnan(value)
    ]
    return kernel.compute(columns(samples))


def noise(seed: int, channels: int, depends: float = 0.0) -> Float64s:
    values = np.random.default_rng(seed).normal(size=(channels, _N + 300))
    for place in range(1, values.shape[1]):
        values[:, place] += depends * values[:, place - 1]
    return values[:, 300:]


@pytest.mark.parametrize("period", [6.0, 13.7, 20.0, 30.0])
def test_period_amplitude_begin_and_phase(period: float) -> None:
    sine = 3 * np.cos(2 * np.pi * (_PLACES - 4) / period)
    computed = oscillations(np.array([sine, sine * (_PLACES >= 250)]) + noise(1, 2) + 0.01 * _PLACES)
    assert computed["channel_id"].tolist() == [0, 1]
    assert computed["period"] == pytest.approx(period, rel=0.02)
    assert computed["amplitude"] == pytest.approx(3, rel=0.15)
    assert computed["from_time"][0] < 0
    assert computed["from_time"][1] / _STEP == pytest.approx(250, abs=max(10, period / 2))
    late = (computed["top_time"] / _STEP - 4.5) / period
    assert np.abs(late - np.round(late)).max() < 0.1


@pytest.mark.parametrize("small", [0.2, 0.3, 1.0])
def test_a_swing_that_grows_began_when_it_was_small(small: float) -> None:
    sine = 3 * np.cos(2 * np.pi * _PLACES / 8) * np.select([_PLACES < 240, _PLACES < 320], [0, small], 1)
    computed = oscillations(sine[None, :] + noise(1, 1) / 20)
    assert computed["from_time"][0] / _STEP == pytest.approx(240, abs=10)


@pytest.mark.parametrize(("depends", "most"), [(0.0, 0), (0.5, 0), (0.9, 1), (1.0, 1)])
def test_noise_hardly_swings(depends: float, most: int) -> None:
    assert len(oscillations(noise(2, 100, depends))["channel_id"]) <= most


def test_triangles_are_told_from_sines() -> None:
    sine = 3 * np.sin(2 * np.pi * _PLACES / 30)
    triangle = 6 * np.abs(_PLACES / 30 % 1 * 2 - 1) - 3
    computed = oscillations(np.array([sine, triangle]) + 0.05 * noise(3, 2))
    assert computed["stiction"][0] < 0.4
    assert computed["stiction"][1] > 0.6


def test_what_cannot_be_judged() -> None:
    values = 3 * np.sin(2 * np.pi * _PLACES / 30) * np.ones((3, 1))
    values[0] = 7.0
    values[1, 100:200] = np.nan  # held, as nothing says that there is a gap
    values[2, :100] = np.nan
    computed = oscillations(values)
    assert 0 not in computed["channel_id"]
    assert 2 not in computed["channel_id"]
    assert len(oscillations(np.empty((0, _N)))["channel_id"]) == 0


def test_a_short_interval_is_an_error() -> None:
    with pytest.raises(OperationError, match="--step: found 199 means in the interval; legal: 200 or more"):
        Oscillations(Grid(Channels.of_fields([]), 0, _STEP), 199, 1.0)


def test_a_channel_with_few_means_is_not_judged() -> None:
    values = noise(1, 3)
    values[1, :100] = np.nan
    values[2] = 7.0
    assert all_rows(values)["verdict"].tolist() == [JUDGED, FEW_SAMPLES, JUDGED]


def test_the_periods_of_the_header_are_found_and_no_others() -> None:
    shortest, times = questions()["oscillation"].periods or (0, 0)
    bounds = np.array([shortest, _N / times])
    for period in (*bounds * [1.02, 0.98], *bounds * [0.9, 1.1]):
        periods = oscillations(np.sin(2 * np.pi * _PLACES / period)[None, :])["period"]
        inside = bounds[0] <= period <= bounds[1]
        assert periods == pytest.approx([period] if inside else [], rel=0.02), (period, periods)


@pytest.mark.parametrize(("n", "lags"), [(2, 1), (7, 3), (199, 99), (999, 334), (2057, 412)])
def test_autocorrelation_is_that_of_sums(n: int, lags: int) -> None:
    values = np.random.default_rng(n).normal(size=(3, n))
    sums = [[row[: n - lag] @ row[lag:] / (n - lag) for lag in range(lags)] for row in values]
    assert autocorrelation(values, lags) == pytest.approx(np.array(sums) / np.square(values).mean(axis=1)[:, None])
