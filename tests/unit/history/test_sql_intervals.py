"""Pauses and intervals of samples are those of a loop, however the samples of a channel are divided."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.sql.kernels.columns import NEVER
from history.sql.kernels.intervals import SampleIntervals, pauses
from tests.unit.history.sql_samples import Sample, columns, parts

BAD = 0x80000000
_SAMPLES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(-40, 40), st.just(1.0), st.sampled_from([0, 0, BAD, 0x40000000])),
    max_size=40,
    unique_by=lambda one: one[:2],
).map(sorted)
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
    computed = pauses(columns(samples))
    assert list(zip(*(column.tolist() for column in computed.values()), strict=True)) == expected


@pytest.mark.parametrize("n", [20, 21])
def test_it_takes_twenty_distances(n: int) -> None:
    assert len(pauses(columns([(1, second, 1.0, 0) for second in range(n)]))["from_time"]) == (n == 21)


@given(_SAMPLES, st.integers(2, 90), st.one_of(st.none(), st.integers(1, 41)))
def test_intervals_are_those_of_a_loop(samples: list[Sample], pause: int, size: int | None) -> None:
    made = map(SampleIntervals(pause).compute, parts(samples, size))
    columns = [{name: column.tolist() for name, column in one.items()} for one in made]
    rows = [dict(zip(one, row, strict=True)) for one in columns for row in zip(*one.values(), strict=True)]
    counts, good = Counter[int](), Counter[int]()
    for row in rows:
        counts[row["channel_id"]] += row["samples"]
        good[row["channel_id"]] += row["not_bad"]
    assert counts == Counter(channel for channel, *_ in samples)
    assert +good == Counter(channel for channel, _, _, status in samples if not status & BAD)
    spans = [(row["channel_id"], row["first_time"], row["last_time"]) for row in rows]
    between = {((a, last), (b, first)) for (a, _, last), (b, first, _) in pairwise(spans) if a == b}
    computed = {(one[:2], two[:2]) for one, two in pairwise(samples) if one[0] == two[0] and two[1] - one[1] >= pause}
    assert {(one, two) for one, two in between if two[1] - one[1] >= pause} == computed
    edges = {(channel, time) for channel, *both in spans for time in both}
    assert edges <= {sample[:2] for sample in samples}
