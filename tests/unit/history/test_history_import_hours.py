"""``plantlog source import-history``: the samples of a file by whole hours, however they are mixed in it."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.samples import Samples
from core.timestamps import HOUR_US
from history.imports.portion import ImportPortion
from history.imports.whole_hours import HourCounts, hour_keys, regroup

Sample = tuple[int, int]  # channel, hour


def portion_of(samples: list[Sample], first_line: int) -> ImportPortion:
    """Each with the line as its value."""
    channel, hour = (np.array(column, np.int64) for column in zip(*samples, strict=True))
    line = np.arange(first_line, first_line + len(samples))
    time = hour * HOUR_US + line
    return ImportPortion(
        Samples(channel.astype(np.int32), time, line.astype(np.float64), np.zeros(len(line), np.uint32)), line, 0
    )


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 3)), min_size=1, max_size=8), max_size=8),
    st.integers(1, 40),
)
def test_each_sample_is_in_one_part_and_whole_hours_are_together(files: list[list[Sample]], at_once: int) -> None:
    counts, portions, line = HourCounts(), [], 1
    for samples in files:
        portions.append(portion_of(samples, line))
        counts.add(portions[-1])
        line += len(samples)
    parts = [part for part in regroup(portions, counts, at_once) if len(part.portion)]
    assert sorted(number for part in parts for number in part.portion.line.tolist()) == list(range(1, line))
    keys = [set(hour_keys(part.portion).tolist()) for part in parts]
    for place, part in enumerate(parts):
        if part.is_whole:
            assert not any(keys[place] & other for number, other in enumerate(keys) if number != place)
    if sum(map(len, files)) <= at_once:
        assert all(part.is_whole for part in parts)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-30, 60)), min_size=1, max_size=20))
def test_channels_and_days_before_a_limit(samples: list[Sample]) -> None:
    counts = HourCounts()
    for number, sample in enumerate(samples):
        counts.add(portion_of([sample], number))
    limits = [np.iinfo(np.int64).min, 0, 48 * HOUR_US]
    expected = {(channel, hour // 24) for channel, hour in samples if hour * HOUR_US < limits[channel]}
    days = [(channel, date(1970, 1, 1) + timedelta(days=day)) for channel, day in sorted(expected)]
    assert counts.days_before(np.array(limits, np.int64)) == days
