"""Means of buckets are those of a loop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import OperationError
from history.sql.kernels.columns import Channels
from history.sql.kernels.resampled import Grid
from history.sql.kernels.unit_means import dense
from tests.unit.history.sql_samples import Sample, columns

BAD = 0x80000000
_VALUES = st.sampled_from([0.0, 1.0, 2.5, -7.0, 1e-60, 1e60, float("nan")])
_CHANNEL = st.tuples(
    st.dictionaries(st.integers(-40, 60), st.tuples(_VALUES, st.sampled_from([0, 0, 0, BAD, 1 << 30])), max_size=30),
    st.lists(st.tuples(st.integers(-30, 60), st.integers(0, 50)), max_size=3),  # gaps, with their lengths
    st.integers(-5, 60),  # where it ends
)
Channel = tuple[dict[int, tuple[float, int]], list[tuple[int, int]], int]
UNTIL = 60


def channel_fields(
    number: int, gaps: list[tuple[int, int]], ends: int, kind: str = "analog", span: float | None = None
) -> dict[str, Any]:
    begins, lengths = zip(*gaps, strict=True) if gaps else ((), ())
    to = [begin + length for begin, length in zip(begins, lengths, strict=True)]
    return {"channel_id": number, "ends": ends, "gaps_from": begins, "gaps_to": to, "kind": kind, "span": span}


def good_of(samples: Mapping[int, tuple[float, int]]) -> dict[int, float]:
    return {
        time: 0.0 if abs(value) < 1e-50 else value
        for time, (value, status) in sorted(samples.items())
        if not status & BAD and abs(value) < 1e50 and time < UNTIL  # later ones are not read
    }


def buckets_of(channel: Channel, step: int) -> dict[int, float]:
    """By number, from 0."""
    samples, gaps, ends = channel
    good, computed = good_of(samples), {}
    for number in range(math.ceil(UNTIL / step)):
        begin, end = number * step, (number + 1) * step
        inside = [value for time, value in good.items() if begin <= time < end]
        before = [value for time, value in good.items() if time < begin]
        is_in_gap = any(one <= begin and one + length >= end for one, length in gaps)
        last = max((time for time in samples if time <= begin), default=None)
        if inside:
            computed[number] = fmean(inside)
        elif before and last in good and begin < ends and not is_in_gap:
            computed[number] = before[-1]
    return computed


def samples_of(channels: list[Channel]) -> list[Sample]:
    return [
        (number, time, *of[time]) for number, (of, _, _) in enumerate(channels) for time in sorted(of) if time < UNTIL
    ]


@given(st.lists(_CHANNEL, min_size=1, max_size=4), st.integers(1, 30), st.sampled_from([1, 32]))
def test_means_are_those_of_a_loop(channels: list[Channel], step: int, several: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("history.sql.kernels.resampled._MIN_LOOKUP", several)
        check_means(channels, step)


def check_means(channels: list[Channel], step: int) -> None:
    every = [channel_fields(number, gaps, ends) for number, (_, gaps, ends) in enumerate(channels)]
    grid = Grid(Channels.of_fields(every[::-1]), 0, step)
    computed = grid.compute(columns(samples_of(channels)))
    expected = [
        (channel, number * step, value)
        for channel, one in enumerate(channels)
        for number, value in buckets_of(one, step).items()
    ]
    assert list(zip(computed["channel_id"].tolist(), computed["time"].tolist(), strict=True)) == [
        one[:2] for one in expected
    ]
    assert computed["value"].tolist() == pytest.approx([value for *_, value in expected])
    of_first = buckets_of(channels[0], step)
    means = grid.numbers(columns([one for one in samples_of(channels) if one[0] == 0]))
    [values] = dense(np.array([0], np.int32), 1 + max(of_first, default=0), [means])
    assert {int(place): values[place] for place in np.flatnonzero(~np.isnan(values))} == pytest.approx(of_first)


def buckets_with_values(times: list[int], ends: int, **fields: Any) -> set[int]:
    """Buckets of 10 µs that have a value, of a channel with a sample at each of some times."""
    channel = {**channel_fields(0, [], ends), "pushed": True, **fields}
    means = Grid(Channels.of_fields([channel]), 0, 10).numbers(columns([(0, time, float(time), 0) for time in times]))
    return set(means["number"].tolist())


def test_silence_of_what_is_sampled_regularly_has_no_value() -> None:
    """Pushed analog channels have no recorded gaps; one that reports changes holds its value."""
    before, after = list(range(-200, 300, 10)), list(range(600, 1200, 10))
    regular, every, known = [*before, *after], set(range(120)), {*range(30), *range(60, 120)}
    assert buckets_with_values(regular, 1200) == known
    assert buckets_with_values([time + 3 * (time // 10 % 4) for time in regular], 1200) == known
    assert buckets_with_values(regular, 1240) == known | set(range(120, 124)), "its next sample may come late"
    assert buckets_with_values(regular, 1800) == known, "it fell silent"
    assert buckets_with_values([*range(-250, -10, 10)], 150) == set(), "before the first bucket"
    for fields in ({"pushed": False}, {"kind": "discrete"}, {"kind": "counter"}):
        assert buckets_with_values(regular, 1200, **fields) == every
    changes = [time for time in regular if time % 70 < 20 or time % 90 < 20]
    assert buckets_with_values(changes, 1200) == every, "it reports changes"
    assert buckets_with_values(before[-20:], 400) == set(range(10, 40)), "too few distances"
    assert buckets_with_values(before[-21:], 400) == set(range(9, 30))
    ramps = [*range(0, 200, 10), *range(800, 1000, 10)]
    assert buckets_with_values(ramps, 1200) == every, "it is moved in steps, and held"


@pytest.mark.parametrize("step", [0, -5])
def test_a_step_is_positive(step: int) -> None:
    with pytest.raises(OperationError, match=f"step: found {step} µs; legal: more than 0"):
        Grid(Channels.of_fields([]), 0, step)
