"""Rows read of a row group are those of all its columns, whatever its statistics leave out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.samples import Samples, joined, slices
from history.archive.sample_file import OWN_GROUP, SampleWriter
from history.codec import row_groups

NAN, OTHER_NAN, MINUS_ZERO = 0x7FF8000000000000, 0x7FF8000000000ABC, 0x8000000000000000


def bits(value: float) -> int:
    return int(np.float64(value).view(np.uint64))


_VALUES = st.one_of(
    st.lists(st.sampled_from([NAN, OTHER_NAN, MINUS_ZERO, 0, bits(1.5), bits(float("inf"))]), min_size=1, max_size=6),
    st.lists(st.integers(-300, 300).map(lambda n: bits(n / 100)), min_size=1, max_size=40),
    st.lists(st.integers(-30, 30).map(lambda n: bits(float(np.float32(n / 10)))), min_size=20, max_size=40),
    st.integers(1, 40).map(lambda n: [bits(12.5)] * n),
    st.lists(st.floats(width=64).map(bits), min_size=1, max_size=40),
)
_CHANNEL = st.tuples(_VALUES, st.lists(st.sampled_from([0, 0, 0x80050000, 0x40000000]), min_size=1, max_size=2))


def parquet_of(channels: list[tuple[list[int], list[int]]], own: int = OWN_GROUP) -> pq.ParquetFile:
    """``own``: samples of a channel that has row groups of its own."""
    sink = pa.BufferOutputStream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("history.archive.sample_file.OWN_GROUP", own)
        _write(SampleWriter(sink, {}), channels)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()))


def _write(writer: SampleWriter, channels: list[tuple[list[int], list[int]]]) -> None:
    for number, one in enumerate(channels, 1):
        writer.write(samples_of(number, one))
    writer.close()


def samples_of(number: int, of_channel: tuple[list[int], list[int]]) -> Samples:
    values, statuses = of_channel
    n = len(values)
    status = np.resize(np.array(statuses, np.uint32), n)
    channel, time = np.full(n, number, np.int32), np.arange(n, dtype=np.int64) * 1_000_000
    return Samples(channel, time, np.array(values, np.uint64).view(np.float64), status)


def assert_same(samples: Samples, expected: Samples) -> None:
    for name in ("channel", "time", "bits", "status"):
        assert np.array_equal(getattr(samples, name), getattr(expected, name)), name


@given(
    st.lists(_CHANNEL, min_size=1, max_size=3),
    st.integers(-1, 41),
    st.integers(-1, 41),
    st.booleans(),
    st.sampled_from([1, OWN_GROUP]),
    st.sampled_from([1, 7, 100]),
    st.integers(1, 4),
)
def test_groups_are_read_as_all_their_columns_say(
    channels: list[tuple[list[int], list[int]]],
    first: int,
    last: int,
    checked: bool,
    own: int,
    rows: int,
    together: int,
) -> None:
    parquet = parquet_of(channels, own)
    bounds = first * 1_000_000, max(first, last) * 1_000_000
    groups = range(parquet.num_row_groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_groups, "_DECODED_ROWS", rows)
        found = list(row_groups.read(parquet, groups, ("value", "status"), bounds, checked=checked))
        whole = [row_groups.samples_of(some) for some in slices(found, together)]
    every = joined(map(samples_of, range(1, len(channels) + 1), channels))
    unchecked = row_groups.joined_parts(row_groups.read(parquet, groups, row_groups.VALUES, None, checked=False))
    assert_same(joined(unchecked), every)
    expected = every.part((every.time >= bounds[0]) & (every.time < bounds[1]))
    if not len(expected):
        assert found == []
        return
    assert [one.channels for one in found] == [
        (one.channel[0], one.channel[-1]) for one in map(row_groups.samples_of, slices(found, 1))
    ]
    assert_same(joined(whole), expected)


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        ([bits(1.25), bits(2.5)], ["time", "scaled"]),
        ([bits(1.25)] * 2, ["time"]),
        ([NAN, OTHER_NAN], ["time", "unscaled"]),
    ],
)
def test_only_what_differs_is_read(values: list[int], columns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = parquet_of([(values, [0])])
    read, asked = parquet.iter_batches, list[list[str]]()

    def observed(rows: int, groups: list[int], names: list[str], **options: bool) -> Iterator[pa.RecordBatch]:
        asked.append(names)
        return read(rows, groups, names, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(parquet, "iter_batches", observed)
    found = list(row_groups.read(parquet, [0], ("value", "status"), (0, 9_000_000), checked=True))
    assert row_groups.samples_of(found).bits.tolist() == values
    assert list(row_groups.read(parquet, [0], ("value", "status"), (9_000_000, 99_000_000), checked=True)) == []
    assert asked == [columns]
