"""Bins of samples are those of a loop, however the samples of a channel are divided."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import reduce
from itertools import pairwise
from operator import and_
from statistics import median, pvariance
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import OperationError
from ops.sql.bins import BINS, Bins
from ops.sql.scan import Scan
from tests.unit.sql_samples import parts

BAD = 0x80000000
_VALUES = st.sampled_from([1.0, 2.5, -0.0, 1e-60, 1e60, float("nan"), float("inf"), -7.25])
_SAMPLES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(-40, 40), _VALUES, st.sampled_from([0, 0, BAD, 0x40000000])),
    max_size=40,
    unique_by=lambda one: one[:2],
).map(sorted)


def outer_of(bins: Bins, bucket: int, time: int) -> int:
    """The bin of ``outer_step`` that a sample is in; if bins are not parted, that of its bin."""
    if bins.outer_step % bins.step == 0:
        return (bucket - bins.origin) // bins.outer_step
    return max((time - bins.origin) // bins.outer_step, (bins.since - bins.origin) // bins.outer_step - 1)


def merged(batches: list[Any], bins: Bins) -> dict[tuple[int, int, int], dict[str, Any]]:
    """Bins, of which each batch may have a part, by channel and begin."""
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    for batch in batches:
        plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns]
        for row in pa.RecordBatch.from_arrays(plain, batch.schema.names).to_pylist():
            outer = outer_of(bins, row["bucket"], row["first_time"])
            one = found.setdefault((row["channel_id"], row["bucket"], outer), row)
            if one is row:
                continue
            assert not (one["whole"] or row["whole"])
            for name in ("samples", "not_bad", "good", "good_values"):
                one[name] += row[name]
            one["good_sum"] = (one["good_sum"] or 0.0) + (row["good_sum"] or 0.0)
            one["last_time"] = row["last_time"]
            if row["good"]:
                one |= {name: row[name] for name in ("last_good", "last_good_time")}
    return found


def spans_of(batch: Any) -> list[tuple[int, int, int]]:
    """Channel, first and last time of each row."""
    times = [batch.column(name).cast(pa.int64()).to_pylist() for name in ("first_time", "last_time")]
    return list(zip(batch.column("channel_id").to_pylist(), *times, strict=True))


@given(
    _SAMPLES,
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(-9, 9),
    st.integers(2, 90),
    st.sampled_from([0, 0, 30, 90]),
    st.one_of(st.none(), st.integers(1, 41)),
)
def test_bins_are_those_of_a_loop(
    samples: list[tuple[int, int, float, int]],
    step: int,
    outer_step: int,
    origin: int,
    pause: int,
    carry: int,
    size: int | None,
) -> None:
    since = -40 + carry
    bins = Bins(BINS, since, 41, step, outer_step, origin, pause, carry)
    assert bins.bounds == (-40, 41)
    batches = [bins.of(one) for one in parts(samples, size)]
    found = merged(batches, bins)
    expected = defaultdict[tuple[int, int, int], list[tuple[int, float, int]]](list)
    for channel, time, value, status in samples:
        bucket = max((time - origin) // step, (since - origin) // step - 1) * step + origin
        expected[channel, bucket, outer_of(bins, bucket, time)].append((time, value, status))
    assert found.keys() == expected.keys()
    for key, of_bin in expected.items():
        row = found[key]
        not_bad = [(time, value) for time, value, status in of_bin if not status & BAD]
        good = [(time, 0.0 if abs(value) < 1e-50 else value) for time, value in not_bad if abs(value) < 1e50]
        assert (row["samples"], row["not_bad"], row["good"]) == (len(of_bin), len(not_bad), len(good))
        assert (row["first_time"], row["last_time"]) == (of_bin[0][0], of_bin[-1][0])
        values = [value for _, value in good]
        assert (row["good_sum"] or 0.0) == sum(values)
        if row["whole"] and good:
            assert (row["low"], row["high"], row["middle"]) == (min(values), max(values), median(values))
            assert math.isclose(row["variance"], pvariance(values), rel_tol=1e-9, abs_tol=1e-9)
        assert row["good_values"] == ([] if row["whole"] else values)
        assert (row["last_good_time"], row["last_good"]) == (good[-1] if good else (None, None))
        parameters = {
            "since": since,
            "until": 41,
            "step": step,
            "outer_step": outer_step,
            "origin": origin,
            "pause": pause,
            "carry": carry,
        }
        assert parameters.items() <= row.items()
    times = [one[:2] for one in samples]
    pauses = {(one, two) for one, two in pairwise(times) if one[0] == two[0] and two[1] - one[1] >= pause}
    spans = sorted(span for batch in batches for span in spans_of(batch))
    between = {((a, last), (b, first)) for (a, _, last), (b, first, _) in pairwise(spans) if a == b}
    assert {(one, two) for one, two in between if two[1] - one[1] >= pause} == pauses


def test_bins_need_to_be_known() -> None:
    known = {"since": 5, "until": 17, "step": -3, "outer_step": 1, "pause": 1, "carry": 0}
    condition = reduce(and_, (ds.field(name) == value for name, value in known.items()))
    with pytest.raises(OperationError, match="sample_bins: origin: found no constant; legal: a number"):
        Bins.wanted(Scan(BINS, condition))
    with pytest.raises(OperationError, match="sample_bins: step: found -3 µs; legal: more than 0"):
        Bins.wanted(Scan(BINS, condition & (ds.field("origin") == -1)))
    with pytest.raises(OperationError, match="since: found no constant"):
        Bins.wanted(Scan(BINS, None))
