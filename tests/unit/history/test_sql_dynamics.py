"""Channels that a reference is too short for, and those that it suffices for."""

from __future__ import annotations

import numpy as np

from core.batch import Float64s
from history.sql.kernels.dynamics import dynamics
from history.sql.kernels.reference import DRIFTING, FEW_CYCLES, JUDGED


def drifts(values: Float64s) -> bool:
    return dynamics(values) == DRIFTING


def cycles(seed: int, n: float) -> Float64s:
    """So many cycles of 12 to 15 s, ten values a second: a ramp with noise."""
    random = np.random.default_rng(seed)
    ends = np.cumsum(random.uniform(12, 15, int(n) + 4))
    at = np.arange(0, 13.5 * n, 0.1)
    begins = np.append(0, ends)[np.searchsorted(ends, at, "right")]
    ramp: Float64s = np.minimum((at - begins) / 8, 1) + random.normal(0, 0.02, len(at))
    return ramp


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


def test_few_cycles_are_said_and_many_are_not() -> None:
    for n in (3.5, 4):
        assert sum(dynamics(cycles(seed, n)) == FEW_CYCLES for seed in range(20)) >= 16, n
    for n in (7, 10, 20):
        assert sum(dynamics(cycles(seed, n)) == JUDGED for seed in range(20)) >= 19, n
    noise = np.random.default_rng(1).normal(size=(200, 400))
    assert {dynamics(row) for row in noise} == {JUDGED}


def test_two_events_are_no_cycles() -> None:
    at = np.arange(2400)
    for distance in (600, 700, 900, 1100):
        events = 1.0 * ((at % 2400 // 150 == 2) | ((at - distance) // 150 == 2))
        assert dynamics(events + np.random.default_rng(distance).normal(0, 0.02, len(at))) == JUDGED
