"""Samples refuse columns that would be stored wrong, and keep each sample whole and to the bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.samples import NO_SAMPLES, Samples, joined

Row = tuple[int, int, int, int]  # channel, time, the value's bits, status
ROWS = st.lists(
    st.tuples(
        st.integers(-3, 3),
        st.integers(-3, 3),
        st.sampled_from([0, 1 << 63, 0x7FF8_0000_0000_0000, 0x7FF8_0000_0000_0ABC, 0x3FF0_0000_0000_0000]),
        st.sampled_from([0, 0x8005_0000]),
    ),
    max_size=30,
)


def samples_of(rows: list[Row]) -> Samples:
    channel, time, bits, status = zip(*rows, strict=True) if rows else ((), (), (), ())
    value = np.array(bits, np.uint64).view(np.float64)
    return Samples(np.array(channel, np.int32), np.array(time, np.int64), value, np.array(status, np.uint32))


def rows_of(samples: Samples) -> list[Row]:
    columns = samples.channel, samples.time, samples.bits, samples.status
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_unequal_columns_are_named() -> None:
    with pytest.raises(ValueError, match="channel 2, time 1"):
        Samples(np.zeros(2, np.int32), np.zeros(1, np.int64), np.zeros(2), np.zeros(2, np.uint32))


def test_wrong_dtype_is_named() -> None:
    with pytest.raises(ValueError, match="column status is int64, not uint32"):
        Samples(np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.int64))


@given(st.lists(ROWS, max_size=4))
def test_samples_are_sorted_as_rows_are(parts: list[list[Row]]) -> None:
    """Samples of the same channel and time stay in their order: the writer keeps the first of them."""
    whole = joined(samples_of(part) for part in parts)
    rows = [row for part in parts for row in part]
    assert rows_of(whole) == rows
    ordered = sorted(rows, key=lambda row: row[:2])
    assert rows_of(whole.sorted()) == ordered
    assert whole.sorted().repeats().tolist() == [
        place > 0 and row[:2] == ordered[place - 1][:2] for place, row in enumerate(ordered)
    ]
    by_channel = list(whole.sorted().by_channel())
    assert [channel for channel, _ in by_channel] == sorted({row[0] for row in rows})
    assert all(row[0] == channel for channel, of in by_channel for row in rows_of(of))
    assert rows_of(joined(of for _, of in by_channel)) == ordered


def test_samples_are_selected_by_slice_mask_and_indices() -> None:
    samples = samples_of([(1, time, 0, 0) for time in range(5)])
    for which in (slice(1, 3), np.array([False, True, True, False, False]), np.array([1, 2])):
        assert samples.part(which).time.tolist() == [1, 2]
    assert not len(NO_SAMPLES.sorted()) and not list(NO_SAMPLES.by_channel())
