"""Means of buckets, and what is made of them, are those of a loop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import OperationError
from history.sql.kernels.columns import Channels, spans
from history.sql.kernels.correlations import dense
from history.sql.kernels.resampled import Grid, Movers
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
    good, found = good_of(samples), {}
    for number in range(math.ceil(UNTIL / step)):
        begin, end = number * step, (number + 1) * step
        inside = [value for time, value in good.items() if begin <= time < end]
        before = [value for time, value in good.items() if time < begin]
        is_in_gap = any(one <= begin and one + length >= end for one, length in gaps)
        if inside:
            found[number] = fmean(inside)
        elif before and begin < ends and not is_in_gap:
            found[number] = before[-1]
    return found


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
    found = grid.compute(columns(samples_of(channels)))
    expected = [
        (channel, number * step, value)
        for channel, one in enumerate(channels)
        for number, value in buckets_of(one, step).items()
    ]
    assert list(zip(found["channel_id"].tolist(), found["time"].tolist(), strict=True)) == [one[:2] for one in expected]
    assert found["value"].tolist() == pytest.approx([value for *_, value in expected])
    values = dense([grid.numbers(columns([one for one in samples_of(channels) if one[0] == 0]))])
    of_first = buckets_of(channels[0], step)
    assert {int(place): values[place] for place in np.flatnonzero(~np.isnan(values))} == pytest.approx(of_first)


@pytest.mark.parametrize("step", [0, -5])
def test_a_step_is_positive(step: int) -> None:
    with pytest.raises(OperationError, match=f"step: found {step} µs; legal: more than 0"):
        Grid(Channels.of_fields([]), 0, step)


def continued(values: list[float], wraps_at: float | None) -> list[float]:
    """Readings of a counter as if it had never wrapped or been reset."""
    found = values[:1]
    for before, value in pairwise(values):
        increase = value - before if value >= before else max(value, 0.0)
        if wraps_at is not None and value < before and wraps_at / 2 < before - value <= wraps_at:
            increase = value + wraps_at - before
        found.append(found[-1] + increase)
    return found


_MOVES = st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.1, 0.2317, -0.1413, 5.03, 9.07]), min_size=30, max_size=45)


@given(
    st.lists(
        st.tuples(
            _MOVES,
            st.sampled_from(["analog", "counter"]),
            st.sampled_from([None, 10.0]),
            st.sampled_from([None, 4.0, 9.1]),
        ),
        max_size=3,
    ),
    st.integers(5, 25),
    st.sampled_from([0.5, 6.0]),
)
def test_moves_are_those_of_a_loop(
    channels: list[tuple[list[float], str, float | None, float | None]], since: int, sigmas: float
) -> None:
    every = [
        {**channel_fields(number, [], 45, kind=kind, span=span), "wraps_at": wraps_at}
        for number, (_, kind, span, wraps_at) in enumerate(channels)
    ]
    samples = [(n, time, value, 0) for n, (values, *_) in enumerate(channels) for time, value in enumerate(values)]
    found = Movers(Grid(Channels.of_fields(every), 0, 1), spans(every), since, sigmas).compute(columns(samples))
    expected = {}
    for number, (values, kind, span, wraps_at) in enumerate(channels):
        if kind == "counter":
            values = continued(values, wraps_at)  # noqa: PLW2901
        values = values + [values[-1]] * (45 - len(values))  # held until the end  # noqa: PLW2901
        usual, changes = values[:since], [b - a for a, b in pairwise(values)]
        before, mean = changes[: since - 1], fmean(usual)
        if since < 10:
            continue
        floor = max((abs(mean) if span is None else span) * 1e-3, 1e-9)
        limit = max(sigmas * pstdev(usual), 1.5 * (max(usual) - mean), 1.5 * (mean - min(usual)), floor)
        change_limit = max(sigmas * pstdev(before), 1.5 * max(map(abs, before)), floor)
        far = [
            max(0.0 if kind == "counter" else abs(values[place] - mean) / limit, abs(changes[place - 1]) / change_limit)
            for place in range(since, 45)
        ]
        for place, one in enumerate(far):
            if one > 1 and sum(two > 1 for two in far[place : place + 3]) >= 2:
                expected[number] = (since + place, mean, values[since + place], max(far[place : place + 3]))
                break
    rows = zip(*(found[name].tolist() for name in ("channel_id", "time", "mean", "value", "times")), strict=True)
    assert {number: pytest.approx(rest) for number, *rest in rows} == {n: list(one) for n, one in expected.items()}


def test_a_wrap_or_a_reset_of_a_counter_is_no_move() -> None:
    """Of 20 a second and 10 samples a bucket, around its wrap and its reset; the third one runs faster."""
    time = np.arange(600)
    readings = ((64_000 + 20 * time) % 65_536, np.where(time < 400, 5000 + 20 * time, 20 * (time - 400)))
    faster = 5000 + 20 * time + 80 * np.maximum(0, time - 450)
    samples = [
        (n, int(t), float(v), 0) for n, of in enumerate((*readings, faster)) for t, v in zip(time, of, strict=True)
    ]
    every = [
        {**channel_fields(n, [], 600, kind="counter"), "wraps_at": wraps_at}
        for n, wraps_at in enumerate((65_536.0, None, None))
    ]
    moves = Movers(Grid(Channels.of_fields(every), 0, 10), spans(every), 300, 6.0).compute(columns(samples))
    assert (moves["channel_id"].tolist(), moves["time"].tolist()) == ([2], [450])
