"""Channels that drift all through a reference, and those that do not."""

from __future__ import annotations

import numpy as np

from core.batch import Float64s
from history.sql.kernels.drifts import drifts


def swing(seed: int, hours: float, end: float = 25.0) -> Float64s:
    """Means of 10 s of a daily swing of 20 spreads, so many hours before ``end`` (h)."""
    hour = np.arange(end - hours, end, 10 / 3600)
    value: Float64s = 20 * np.sin(2 * np.pi * hour / 24) + np.random.default_rng(seed).normal(0, 1, len(hour))
    return value


def test_a_part_of_a_swing_drifts_and_a_whole_one_does_not() -> None:
    assert all(drifts(swing(seed, 1.0)) for seed in range(20))
    assert not any(drifts(swing(seed, 24.0, end)) for seed in range(20) for end in (24.0, 27.0, 30.0, 33.0))
    gappy = swing(1, 1.0)
    gappy[100:140] = np.nan
    assert drifts(-gappy)


def test_neither_noise_nor_a_step_nor_a_constant_drifts() -> None:
    random = np.random.default_rng(1)
    wandering = random.normal(size=(200, 400))
    for i in range(1, 400):
        wandering[:, i] += 0.9 * wandering[:, i - 1]
    assert sum(map(drifts, wandering)) <= 4  # 0.3 % were counted
    for at in range(20, 380, 20):
        assert not drifts(random.normal(0, 1, 400) + 20 * (np.arange(400) >= at))
    assert not drifts(np.full(400, 7.0))
    assert not drifts(np.arange(30.0)), "too few to say"
