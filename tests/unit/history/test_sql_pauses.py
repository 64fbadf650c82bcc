"""Pauses of samples are those of a loop."""

from __future__ import annotations

from itertools import groupby, pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.sql.columns import NEVER
from history.sql.pauses import pauses
from tests.unit.history.sql_samples import columns

_TIMES = st.sets(st.one_of(st.integers(0, 40), st.integers(0, 100_000)), max_size=60)


@given(st.dictionaries(st.integers(1, 3), _TIMES))
def test_pauses_are_those_of_a_loop(channels: dict[int, set[int]]) -> None:
    samples = sorted((channel, time, 1.0, 0) for channel, times in channels.items() for time in times)
    expected = []
    for channel, of_channel in groupby(samples, lambda one: one[0]):
        both = [(a[1], b[1]) for a, b in pairwise(list(of_channel))]
        if len(both) < 20:
            continue
        distances = sorted(b - a for a, b in both)
        usual = 5 * (distances[ceil(0.9 * len(distances)) - 1] / 1e6)
        expected += [(channel, usual, a, b) for a, b in both if (b - a) / 1e6 > usual]
        expected.append((channel, usual, both[-1][1], NEVER))
    found = pauses(columns(samples))
    assert list(zip(*(column.tolist() for column in found.values()), strict=True)) == expected


@pytest.mark.parametrize("n", [20, 21])
def test_it_takes_twenty_distances(n: int) -> None:
    assert len(pauses(columns([(1, second, 1.0, 0) for second in range(n)]))["from_time"]) == (n == 21)
