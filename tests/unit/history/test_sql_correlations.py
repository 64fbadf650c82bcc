"""Correlations with a shifted target are those of pairs of values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import StatisticsError, correlation

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.samples import joined
from history.sql.kernels.columns import Channels
from history.sql.kernels.correlations import CORRELATIONS, Correlations
from history.sql.kernels.reference import FEW_SAMPLES, JUDGED, NO_TARGET, STANDING
from history.sql.kernels.resampled import Grid
from history.sql.kernels.unit_means import dense
from tests.unit.history.sql_samples import columns

Values = dict[int, float]
_NAMES = [measure.name for measure in CORRELATIONS]
_MISSING = st.sets(st.integers(0, 60), max_size=20) | st.sets(st.integers(0, 60))


def _with(values: list[float], missing: set[int]) -> Values:
    return {place: value for place, value in enumerate(values) if place not in missing}


def _step(base: float, size: float, place: int) -> list[float]:
    return [base] * place + [base + size] * (61 - place)


_VALUES = st.builds(_with, st.lists(st.integers(-50, 50).map(float), min_size=61, max_size=61), _MISSING) | st.builds(
    _with,
    st.builds(_step, st.sampled_from([0.0, 0.1, 100.0]), st.sampled_from([0.0, 1e-6, 3.0, 1e12]), st.integers(0, 60)),
    _MISSING,
)


def correlations_of(channels: list[Values], target: Values, most: int) -> list[dict[int, tuple[float, int]]]:
    rows: list[dict[int, tuple[float, int]]] = [{} for _ in channels]
    for channel, verdict, n, r, pairs in found(channels, target, most):
        if not verdict:
            rows[channel][n] = (r, pairs)
    return rows


def found(channels: list[Values], target: Values, most: int) -> Iterator[tuple[int, int, int, float, int]]:
    """Rows of CORRELATIONS. Each value is that of a bucket of 1 µs, where it is the only sample; between is a gap."""
    missing = [[time for time in range(62) if time not in one] for one in (*channels, target)]
    every = [
        {"channel_id": number, "kind": "analog", "ends": 62, "gaps_from": gaps, "gaps_to": [time + 1 for time in gaps]}
        for number, gaps in enumerate(missing)
    ]
    grid = Grid(Channels.of_fields(every), 0, 1)
    samples = [
        columns([(number, time, value, 0) for time, value in one.items()])
        for number, one in enumerate([*channels, target])
    ]
    [values] = dense(np.array([len(channels)], np.int32), 62, [grid.numbers(samples[-1])])
    kernel = Correlations(grid, values, most)
    columns_found = kernel.compute(joined(samples[:-1]))
    return zip(*(columns_found[name].tolist() for name in _NAMES), strict=True)


def expected(channel: Values, target: Values, lag: int) -> tuple[float, int] | None:
    pairs = [(value, target[place - lag]) for place, value in channel.items() if place - lag in target]
    if len(pairs) < 20 or any(len(set(values)) == 1 for values in zip(*pairs, strict=True)):
        return None
    try:
        return correlation(*zip(*pairs, strict=True)), len(pairs)
    except StatisticsError:  # the spread is too small for a double
        return None


@given(st.lists(_VALUES, max_size=4), _VALUES, st.integers(0, 70))
def test_correlations_are_those_of_pairs(channels: list[Values], target: Values, most: int) -> None:
    computed = correlations_of(channels, target, most)
    assert len(computed) == len(channels)
    for channel, of_channel in zip(channels, computed, strict=True):
        assert list(of_channel) == sorted(of_channel)
        for lag in range(-most, most + 1):
            wanted = expected(channel, target, lag)
            assert (lag in of_channel) == (wanted is not None)
            if wanted is not None:
                assert -1 <= of_channel[lag][0] <= 1
                assert of_channel[lag][1] == wanted[1]
                assert math.isclose(of_channel[lag][0], wanted[0], rel_tol=1e-6, abs_tol=1e-6)


def test_what_cannot_be_judged_is_said() -> None:
    swing = [math.sin(place) for place in range(61)]
    target = _with(swing, set(range(20, 61)))
    channels = [
        _with(swing, set()),
        _with(swing, set(range(18))),  # two of the target's, without a lag
        _with([4.0] * 61, set()),
        _with([*swing[:40], *[1.0] * 21], set(range(40))),
    ]
    assert verdicts(channels, target, 0) == [JUDGED, FEW_SAMPLES, STANDING, STANDING]
    assert verdicts(channels, target, 20) == [JUDGED, JUDGED, STANDING, STANDING]
    for no_target in ({}, _with(swing, set(range(19, 61))), _with([1.0] * 61, set())):
        assert verdicts(channels, no_target, 5) == [NO_TARGET] * 4


def verdicts(channels: list[Values], target: Values, most: int) -> list[int]:
    return [verdict for _, verdict, *_ in found(channels, target, most) if verdict]
