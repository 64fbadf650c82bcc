"""How far means and spreads of intervals differ by chance."""

from __future__ import annotations

import numpy as np
import pytest

from core.batch import Float64s
from history.sql.kernels.reference import DRIFTING, JUDGED, UNLIKE
from history.sql.kernels.shifts import by_chance, quantile

_N, _SHARE = 300, 1 / 400  # values; of comparisons


def noise(kind: str, seed: int, n: int = 2 * _N) -> Float64s:
    random = np.random.default_rng(seed)
    if kind == "heavy":
        heavy: Float64s = random.standard_t(3, n)
        return heavy
    white, power = random.normal(0, 1, n + 100), float(kind)
    for i in range(1, len(white)):
        white[i] += power * white[i - 1]
    return white[100:]


def beyond(values: Float64s) -> bool:
    """Whether the second half differs from the first more than by chance."""
    before, after = values[:_N], values[_N:]
    chance, times = by_chance(before, np.ones(_N), _N), quantile(_SHARE)
    shift, widening = after.mean() - before.mean(), np.log(after.std() / before.std())
    return bool(abs(shift) > times * chance.mean or abs(widening) > times * chance.spread)


@pytest.mark.parametrize("kind", ["0", "0.5", "0.9", "heavy"])
def test_noise_differs_about_as_rarely_as_is_asked(kind: str) -> None:
    assert sum(beyond(noise(kind, seed)) for seed in range(100)) <= 2  # 0.5 are expected of two statistics


def test_shifts_and_other_spreads_are_seen() -> None:
    for seed in range(10):
        values = noise("0.5", seed)
        for changed in (values[_N:] + 3, values[_N:] * 6, values[_N:] / 6):
            assert beyond(np.append(values[:_N], changed))


def test_limits_of_drifts_are_wide() -> None:
    drift, seconds = np.linspace(0, 1, _N), np.ones(_N)
    assert by_chance(drift, seconds, _N).mean > 2 * by_chance(noise("0", 1, _N) * drift.std(), seconds, _N).mean


def test_limits_follow_the_scale_whatever_it_is() -> None:
    values, seconds = noise("0.5", 1, _N), np.ones(_N)
    one = by_chance(values, seconds, _N)
    for scale in (1e-200, 1e200):
        other = by_chance(values * scale, seconds, _N)
        assert (other.mean / scale, other.spread) == pytest.approx((one.mean, one.spread))
    assert by_chance(np.tile([1.7e308, -1.7e308], _N // 2), seconds, _N)[:2] == (np.inf, np.inf)
    assert by_chance(np.full(3, 7.0), np.ones(3), 3).mean < 1e-200


def test_a_value_that_is_held_counts_for_its_time() -> None:
    values, seconds = noise("0.5", 1, _N), np.ones(_N)
    held = by_chance(values[::1], seconds, _N)
    twice = by_chance(np.repeat(values, 2), np.repeat(seconds, 2) / 2, _N)
    assert twice.mean == pytest.approx(held.mean, rel=0.2)


def test_a_fault_of_the_reference_is_said() -> None:
    values = noise("0", 1, _N)
    assert by_chance(values, np.ones(_N), _N).verdict == JUDGED
    values[100:160] += 20
    assert by_chance(values, np.ones(_N), _N).verdict == UNLIKE


def test_a_drift_of_the_reference_is_said() -> None:
    drift = np.linspace(0, 4, _N)
    assert by_chance(noise("0", 1, _N) + drift, np.ones(_N), _N).verdict == DRIFTING


def test_quantiles_are_those_of_student() -> None:
    """Quantiles of ten degrees of freedom, by tables."""
    for share, value in ((0.05, 2.228), (0.01, 3.169), (0.001, 4.587), (0.0001, 6.211)):
        assert quantile(share) == pytest.approx(value, rel=0.01)
    assert quantile(1e-15) < quantile(1e-18) < np.inf  # 1 - 1e-18 is 1
