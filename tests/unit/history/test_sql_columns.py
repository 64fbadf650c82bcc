"""Samples that are put in order, and together; and how much is read, or computed, at a time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import chain, groupby, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.codec import row_groups
from history.codec.row_groups import joined_parts
from history.sql.kernels import columns as kernel_columns
from history.sql.kernels.columns import by_channels
from history.sql.sources import portion as sql_portion
from history.sql.sources.portion import Day, by_channel, split_days, unknown_size
from history.sql.sources.scan import Hours
from tests.unit.history.sql_samples import Sample, columns

_PIECE = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 90), st.just(1.0), st.just(0)),
    max_size=12,
    unique_by=lambda one: one[:2],
).map(sorted)
_DAYS = [date(2025, 3, day) for day in (9, 10, 11)]


@given(st.lists(_PIECE, max_size=6), st.integers(1, 30))
def test_pieces_become_whole_channels_in_order(pieces: list[list[Sample]], rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "_SAMPLES", rows)
        computed = list(joined_parts(by_channel(map(columns, pieces))))
    expected = sorted((channel, time) for piece in pieces for channel, time, _, _ in piece)
    assert [row for part in computed for row in zip(part.channel.tolist(), part.time.tolist(), strict=True)] == expected
    for one, other in pairwise(computed):
        assert one.channel[-1] != other.channel[0]
        assert len(one) + len(other) > rows or len(np.unique(other.channel)) > 1


@given(_PIECE, st.integers(0, 30), st.integers(1, 100))
def test_kernel_has_so_few_channels_that_their_means_fit(samples: list[Sample], buckets: int, most: int) -> None:
    """Each channel may have a mean in each bucket, however few samples it has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_columns, "_MEANS", most)
        given_samples = list(by_channels(lambda some: some, buckets)([columns(samples), columns(samples)]))
    read = [list(zip(some.channel.tolist(), some.time.tolist(), strict=True)) for some in given_samples]
    assert list(chain(*read)) == [(channel, time) for channel, time, _, _ in samples] * 2
    channels = [{channel for channel, _ in some} for some in read]
    assert all(len(some) == 1 or len(some) * buckets <= most for some in channels)
    assert sum(map(len, channels)) == 2 * len({channel for channel, *_ in samples})


@given(st.lists(st.frozensets(st.integers(1, 9)), min_size=3, max_size=3), st.integers(1, 400_000), st.booleans())
def test_days_are_divided_by_channels(live: list[frozenset[int]], limit: int, in_parts: bool) -> None:
    """Of a channel with too many samples, by days, if it may be so."""
    days = [Day(Hours(one, range(24)), [], dict.fromkeys(of, 86_400), {}) for one, of in zip(_DAYS, live, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_portion, "_AT_A_TIME", limit)
        computed = list(split_days(days, in_parts=in_parts))
    channels = [{number for day in some for number in day.live} for some in computed]
    read = [
        (one, day.hours.day) for some, of in zip(computed, channels, strict=True) for one in sorted(of) for day in some
    ]
    assert [number for number, _ in groupby(read, lambda one: one[0])] == sorted({*live[0], *live[1], *live[2]})
    assert len(set(read)) == len(read)
    for day, of in zip(_DAYS, live, strict=True):
        assert {number for number, one in read if one == day} >= of
    for some, of_some in zip(computed, channels, strict=True):
        samples = sum(86_400 * len(day.live) for day in some)
        assert samples <= limit or len(of_some) <= 1
        assert samples <= limit or not in_parts or len(some) == 1 or not all(of_some <= one for one in live)
        assert len(some) == len(days) or (in_parts and len(of_some) <= 1)


def test_hours_to_come_take_no_space() -> None:
    """A day of a hundred channels is read at once before it begins, and in portions when it is over."""
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    sizes = [unknown_size(Hours(day, range(24))) for day in (tomorrow, _DAYS[0])]
    to_come, past = (Day(Hours(_DAYS[0], range(24)), [], dict.fromkeys(range(100), size), {}) for size in sizes)
    assert len(list(split_days([to_come], in_parts=False))) == 1
    assert len(list(split_days([past], in_parts=False))) == 10
