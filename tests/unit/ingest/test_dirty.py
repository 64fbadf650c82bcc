"""Dirty rows cover every sample's minute, list few channels, and stay few."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core.samples import Samples
from ingest.writer.transaction.dirty import dirty

MINUTE = 60_000_000


def columns(samples: set[tuple[int, int]]) -> Samples:
    channel, time = (np.array(column) for column in zip(*sorted(samples), strict=True))
    n = len(samples)
    return Samples(channel.astype(np.int32), time.astype(np.int64), np.zeros(n), np.zeros(n, np.uint32))


def grid(channels: range, minutes: range) -> set[tuple[int, int]]:
    return {(channel, minute * MINUTE + 7) for channel in channels for minute in minutes}


def test_live_data_are_one_dirty_row() -> None:
    assert dirty(columns(grid(range(1, 20_001), range(5, 6)))) == [(5 * MINUTE, 6 * MINUTE, None)]
    assert dirty(columns(grid(range(1, 20_001), range(5, 7)))) == [(5 * MINUTE, 7 * MINUTE, None)]
    assert dirty(columns(grid(range(1, 4), range(5, 6)))) == [(5 * MINUTE, 6 * MINUTE, [1, 2, 3])]


def test_one_late_sample_makes_no_other_channel_dirty() -> None:
    live, late = grid(range(1, 1001), range(500, 501)), grid(range(7, 8), range(3, 4))
    assert dirty(columns(live | late)) == [(500 * MINUTE, 501 * MINUTE, None), (3 * MINUTE, 4 * MINUTE, [7])]


def test_backfill_is_one_dirty_row() -> None:
    assert dirty(columns(grid(range(7, 9), range(0, 10_000)))) == [(0, 10_000 * MINUTE, [7, 8])]
    far = grid(range(7, 8), range(0, 1)) | grid(range(8, 9), range(61, 62)) | grid(range(9, 10), range(121, 122))
    assert dirty(columns(far)) == [(0, MINUTE, [7]), (61 * MINUTE, 122 * MINUTE, [8, 9])]


def test_channels_of_other_minutes_are_not_refreshed() -> None:
    """10,000 channels of one push, a line a second."""
    rows = dirty(columns({(channel, channel * 1_000_000) for channel in range(1, 10_001)}))
    assert sum((end - begin) // MINUTE * len(ids or ()) for begin, end, ids in rows) < 6 * 10_000
    assert len(rows) < 50


@given(st.sets(st.tuples(st.integers(1, 400), st.integers(0, 500 * MINUTE)), min_size=1, max_size=600), st.booleans())
def test_every_sample_is_covered_by_a_dirty_range(samples: set[tuple[int, int]], crowded: bool) -> None:
    if crowded:
        samples = samples | grid(range(1, 301), range(100, 103))
    rows = dirty(columns(samples))
    for channel, time in samples:
        assert any(begin <= time < end and (ids is None or channel in ids) for begin, end, ids in rows)
    for begin, end, ids in rows:
        assert begin % MINUTE == end % MINUTE == 0
        assert ids is None or (len(set(ids)) == len(ids) and set(ids) <= {channel for channel, _ in samples})
