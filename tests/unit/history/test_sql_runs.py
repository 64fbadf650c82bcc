"""Runs of equal values are those of a loop, however the samples of a channel are divided."""

from __future__ import annotations

import math
from itertools import chain, groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.sql.kernels.columns import NEVER, Channels, joined
from history.sql.kernels.runs import RUNS, Runs, longest
from tests.unit.history.sql_samples import Sample, columns, parts
from tests.unit.history.test_sql_resampled import channel_fields

BAD = -(2**31)
_SAMPLES = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(-40, 40),
        st.sampled_from([1.0, 1.0, 2.0, 0.0, -0.0, 1e-60, 1e60, float("nan")]),
        st.sampled_from([0, 0, 0, BAD, 0x40000000]),
    ),
    max_size=40,
    unique_by=lambda one: one[:2],
).map(sorted)


def is_good(value: float, status: int) -> bool:
    return status >= 0 and abs(value) < 1e50


def plain(value: float) -> float:
    return 0.0 if abs(value) < 1e-50 else value


def found_by(runs: Runs, samples: list[Sample], size: int | None, together: int = 2) -> list[tuple[Any, ...]]:
    """Rows of RUNS. ``size``: of the parts that samples are in, of which so many are read ``together``."""
    some = list(parts(samples, size))
    made = (runs.compute_parts(some[first : first + together]) for first in range(0, len(some), together))
    found = joined(list(runs.joined(chain.from_iterable(made))))
    return list(zip(*(found[field.name].tolist() for field in RUNS), strict=True))


@given(_SAMPLES, st.integers(0, 30), st.one_of(st.none(), st.integers(1, 41)), st.integers(1, 4))
def test_runs_are_those_of_a_loop(samples: list[Sample], least: int, size: int | None, together: int) -> None:
    known = [
        (channel, time, plain(value) if is_good(value, status) else math.inf)
        for channel, time, value, status in samples
    ]
    expected = []
    for channel, of_channel in groupby(known, lambda one: one[0]):
        begins = [next(same)[1:] for _, same in groupby(of_channel, lambda one: one[2])]
        ends = [time for time, _ in begins[1:]]
        for number, ((begin, value), end) in enumerate(zip(begins, [*ends, NEVER], strict=True), 1):
            if end == NEVER or number <= 2 or end - begin >= least:
                expected.append((channel, value, begin, end, number))
    assert found_by(Runs(least), samples, size, together) == expected


def test_samples_of_one_channel_after_another_in_batches_of_their_own() -> None:
    samples = [(1, 0, 5.0, 0), (1, 1, 5.0, 0), (1, 2, 5.0, 0), (2, 0, 5.0, 0)]
    assert [row[:2] for row in found_by(Runs(0), samples, 1)] == [(1, 5.0), (2, 5.0)]


def test_longest_runs_are_those_that_are_longer_than_by_chance() -> None:
    """Of values held for 1 to 3 s and a pause of 300 s now and then; a few changes say nothing."""
    moves = np.cumsum(np.random.default_rng(1).integers(1, 4, 600)) * 1_000_000
    at_rest = moves + 300_000_000 * (np.arange(600) // 100)
    samples: list[Sample] = [
        (number, int(at), float(n % 7), 0)
        for number, times in ((1, moves), (2, at_rest), (3, moves[:30]))
        for n, at in enumerate(times)
    ]
    every = Channels.of_fields(channel_fields(number, [], int(at_rest[-1])) for number in (1, 2, 3))
    kernel = longest(columns(samples), every, 20 * 600e6, 10_000_000)
    assert kernel["channel_id"].tolist() == [1, 2]
    short, long = kernel["seconds"].tolist()
    assert 3 < short < 10
    assert long > 330
    assert longest(columns(samples), every, 1e15, 10_000_000)["seconds"][1] > long
    bad: list[Sample] = [(2, int(at) + 1_000_000, 0.0, BAD) for at in at_rest[99::100]]
    without_value = longest(columns(sorted(samples + bad)), every, 20 * 600e6, 10_000_000)
    assert without_value["seconds"].tolist() == pytest.approx([short, short], rel=0.2), "no value is kept in a pause"


@pytest.mark.parametrize("pushed", [False, True])
def test_no_value_is_kept_across_a_gap(pushed: bool) -> None:
    """Nor across a silence of a pushed channel; else a value that was kept through a gap would be usual."""
    moves = np.arange(3600) * 1_000_000
    moves[1800:] += 600_000_000
    gaps = [] if pushed else [(int(moves[1799]) + 500_000, 599_000_000), (int(moves[1799]) + 600_000, 10_000_000)]
    values = np.random.default_rng(1).normal(50, 1, 3600)
    samples = columns([(1, int(at), float(value), 0) for at, value in zip(moves, values, strict=True)])

    def limit(**fields: Any) -> float:
        of = {**channel_fields(1, [], int(moves[-1])), **fields}
        [seconds] = longest(samples, Channels.of_fields([of]), 20 * 600e6, 10_000_000)["seconds"].tolist()
        return float(seconds)

    cut = channel_fields(1, gaps, int(moves[-1]))
    assert limit() > 600
    assert limit(**{**cut, "pushed": pushed}) < 2


def test_a_rest_with_a_gap_in_it_is_still_a_rest() -> None:
    seconds = np.arange(3600)
    values = np.where(seconds >= 1800, 0.0, np.random.default_rng(1).normal(50, 1, 3600))
    samples = columns([(1, int(at) * 1_000_000, float(of), 0) for at, of in zip(seconds, values, strict=True)])
    fields = channel_fields(1, [(2_700_000_000, 1_000_000)], 3_600_000_000)
    kernel = longest(samples, Channels.of_fields([fields]), 20 * 600e6, 10_000_000)
    assert (kernel["rests_low"].tolist(), kernel["rests_high"].tolist()) == ([True], [False])
