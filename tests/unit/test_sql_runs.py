"""Runs of equal values are those of a loop, however the samples are divided into batches."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import OperationError
from ops.archive.sample_file import TIME
from ops.sql.columns import Columns, columns_in
from ops.sql.runs import RUNS, Runs, calm, lengths
from ops.sql.samples import IN_ORDER
from ops.sql.scan import Scan

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


def columns(samples: list[tuple[int, int, float, int]]) -> Columns:
    channel, time, value, status = zip(*samples, strict=True)
    arrays = [pa.array(channel, pa.int32()), pa.array(time, TIME), pa.array(value), pa.array(status, pa.int32())]
    return columns_in(pa.RecordBatch.from_arrays(arrays, schema=IN_ORDER))


def found_by(runs: Runs, samples: list[tuple[int, int, float, int]], size: int) -> list[pa.RecordBatch]:
    """``size``: of the parts that samples are in."""
    return list(runs.joined(runs.of(columns(samples[k : k + size])) for k in range(0, len(samples), size)))


@given(_SAMPLES, st.integers(-50, 50), st.integers(-50, 50), st.integers(0, 30), st.integers(1, 41))
def test_runs_are_those_of_a_loop(
    samples: list[tuple[int, int, float, int]], since: int, until: int, least: int, size: int
) -> None:
    runs = Runs(since, until, least)
    found = [
        (row["channel_id"], row["value"], row["from_time"], row["next_time"], row["number"])
        for part in found_by(runs, samples, size)
        for row in part.set_column(2, "from_time", part.column("from_time").cast(pa.int64()))
        .set_column(3, "next_time", part.column("next_time").cast(pa.int64()))
        .to_pylist()
    ]
    good = [
        (channel, time, 0.0 if abs(value) < 1e-50 else value)
        for channel, time, value, status in samples
        if status >= 0 and abs(value) < 1e50 and since <= time < until
    ]
    expected = []
    for channel, of_channel in groupby(good, lambda one: one[0]):
        begins = [next(same)[1:] for _, same in groupby(of_channel, lambda one: one[2])]
        ends = [time for time, _ in begins[1:]]
        for number, ((begin, value), end) in enumerate(zip(begins, [*ends, None], strict=True), 1):
            if end is None or number == 1 or end - begin >= least:
                expected.append((channel, value, begin, end, number))
    assert found == expected


def test_samples_of_one_channel_after_another_in_batches_of_their_own() -> None:
    samples = [(1, 0, 5.0, 0), (1, 1, 5.0, 0), (1, 2, 5.0, 0), (2, 0, 5.0, 0)]
    rows = [row for part in found_by(Runs(0, 10, 0), samples, 1) for row in part.select([0, 1]).to_pylist()]
    assert rows == [{"channel_id": 1, "value": 5.0}, {"channel_id": 2, "value": 5.0}]


def test_runs_need_to_be_known() -> None:
    with pytest.raises(OperationError, match="value_runs: until: found no constant; legal: a number"):
        Runs.wanted(Scan(RUNS, (ds.field("since") == 5) & (ds.field("least") == 0)))


def test_channels_are_calm_by_the_mean_length_of_their_runs() -> None:
    samples = [(1, 0, 5.0, 0), (1, 6, 6.0, 0), (2, 0, 5.0, 0), (2, 3, 6.0, 0), (2, 4, 5.0, 0), (3, 11, 5.0, 0)]
    batches = found_by(Runs(0, 20, 9), samples, 2)
    assert calm(batches, 20, 9) == [1, 3]  # 10, 20 / 3 and 9 on average
    assert calm(batches, 20, 10) == [1]


def test_lengths_are_those_of_ended_runs() -> None:
    samples = [(1, 0, 5.0, 0), (1, 6, 6.0, 0), (1, 7, 6.0, 0), (1, 9, 5.0, 0)]
    assert lengths(found_by(Runs(0, 20, 0), samples, 3)) == [6, 3]
    assert lengths(found_by(Runs(0, 20, 0), [], 1)) == []
