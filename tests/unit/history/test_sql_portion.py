"""Samples of a portion: by channel and time in each part, whatever days and files they are read in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from history.codec import row_groups
from history.codec.row_groups import Rows
from history.sql.sources.portion import SamplePortion
from tests.unit.history.sql_samples import Sample, columns

_DAY = 100


@dataclass(frozen=True)
class Day:
    """Row groups, without a file: each of one channel."""

    number: int
    groups: list[list[Sample]]
    is_amended: bool

    @property
    def channels(self) -> set[int]:
        return {group[0][0] for group in self.groups}

    @property
    def bounds(self) -> tuple[int, int]:
        return self.number * _DAY, (self.number + 1) * _DAY

    def read(self, names: Sequence[str]) -> Iterator[Rows]:
        yield from (Rows.of_samples(columns(group)) for group in self.groups)


def days(
    times: Sequence[set[tuple[int, int]]], size: int, amended: bool, others: set[tuple[int, int]], units: bool
) -> list[Day]:
    """``times``: channels and times of each day; ``others``: which of them are read last, in an amendment.

    ``units``: whether files have the channels of units, which lie between those of others; else they ascend.
    """
    computed = []
    for number, of_day in enumerate(times):
        groups = []
        for late in (False, True):
            for channel in sorted({one for one, _ in of_day}, key=lambda one: (units and one % 2, one)):
                chosen = sorted(t for one, t in of_day if one == channel and (amended and (one, t) in others) == late)
                rows = [(channel, number * _DAY + time, 1.0, 0) for time in chosen]
                groups += [rows[first : first + size] for first in range(0, len(rows), size)]
        computed.append(Day(number, groups, amended))
    return computed


_TIMES = st.sets(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=30)
_ONE = st.sets(st.tuples(st.just(1), st.integers(0, 30)), max_size=30)


@given(
    st.one_of(st.lists(_TIMES, min_size=1, max_size=3), st.lists(_ONE, min_size=1, max_size=3)),
    st.integers(1, 20),
    st.booleans(),
    _TIMES,
    st.integers(1, 20),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@example([{(1, 0), (2, 0), (3, 1)}], 5, False, set(), 20, False, False, True)
def test_samples_are_by_channel_and_time(
    times: list[set[tuple[int, int]]],
    size: int,
    amended: bool,
    late: set[tuple[int, int]],
    rows: int,
    in_parts: bool,
    live: bool,
    units: bool,
) -> None:
    stored = days(times, size, amended, late, units)
    others = [columns([(7, time, 1.0, 0) for time in range(5)])] if live else []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_SAMPLES", "_JOINED_ROWS"):
            patch.setattr(row_groups, name, rows)
        portion = SamplePortion(stored, others, (), in_parts)  # type: ignore[arg-type]
        computed = [one for one in portion.read() if len(one)]
    expected = [(one, number * _DAY + time) for number, of_day in enumerate(times) for one, time in of_day]
    expected += [(7, time) for time in range(5)] if live else []
    parts = [list(zip(part.channel.tolist(), part.time.tolist(), strict=True)) for part in computed]
    assert all(part == sorted(part) for part in parts)
    rows_in_order = [row for part in parts for row in part]
    assert (sorted(rows_in_order) if units else rows_in_order) == sorted(expected)
    channels = {one for one, _ in expected}
    for one, other in pairwise(computed):
        assert one.channel[-1] != other.channel[0] or (in_parts and len(channels) == 1)
    if in_parts and len(channels) == 1 and not (amended or live):
        assert all(len(part) <= max(rows, size) for part in computed)
