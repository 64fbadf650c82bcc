"""Increments: added up exactly and in the key's order, kept in the spool, held within the time limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from core.batch import MAX_INCREMENT, CountBatch
from core.errors import SpoolCorrupt
from core.time_limits import TimeLimits
from core.timestamps import MINUTE_US
from ingest.spool.format import SpooledBatch, decode, encode, pack_integers, unpack_integers
from ingest.writer.bisect import bisect, undivided
from ingest.writer.transaction.counts import Counts, aggregate, columns, of_events, of_quality
from ingest.writer.transaction.group import assemble
from ingest.writer.transaction.quarantine import columns as quarantine_columns
from ingest.writer.transaction.quarantine import to_batch
from tests.samples import T0, Increment, count_batch

LIMITS = TimeLimits(future=86400.0, oldest=3650 * 86400.0)
_TYPES = st.sampled_from(["pulses.n", "alarms.high", "alarms.High", "alarms.höher", "\U0001f514", "￿", ""])
_NEAR = st.integers(-3 * MINUTE_US, 3 * MINUTE_US)
_FAR = st.integers(-(2**62), 2**62) | _NEAR  # beyond what a group has, so that one number does not hold the key
_INT32 = st.integers(-(2**31), 2**31 - 1)


def increments(times: st.SearchStrategy[int], channels: st.SearchStrategy[int]) -> st.SearchStrategy[list[Increment]]:
    return st.lists(st.tuples(times, _TYPES, channels, st.integers(0, MAX_INCREMENT)), min_size=1, max_size=40)


def rows(counts: Counts | CountBatch) -> Iterator[tuple[int, str, int, int]]:
    """(µs, type, channel, n)."""
    names = [counts.types[i] for i in counts.type.tolist()]
    yield from zip(counts.time.tolist(), names, counts.channel_id.tolist(), counts.n.tolist(), strict=True)


@given(
    st.lists(increments(_NEAR, st.integers(0, 3)), max_size=5)
    | st.lists(increments(st.integers(0, MINUTE_US), st.just(0)), max_size=5)
    | st.lists(increments(_FAR, _INT32), max_size=5),
    st.sampled_from([MINUTE_US, 1]),
)
def test_count_sums_are_exact_and_sorted_by_key(batches: list[list[Increment]], step: int) -> None:
    expected: Counter[tuple[int, str, int]] = Counter()
    for time, kind, channel, n in (row for some in batches for row in some):
        expected[(T0 + time) // step * step, kind, channel] += n
    found = list(rows(aggregate([count_batch(some) for some in batches], step)))
    keys = [row[:3] for row in found]
    assert keys == sorted(expected, key=lambda key: (key[0], key[1].encode(), key[2]))
    assert {row[:3]: row[3] for row in found} == dict(expected)


@given(st.lists(increments(_NEAR, st.integers(0, 3)), min_size=1, max_size=4))
def test_count_sums_do_not_depend_on_grouping(batches: list[list[Increment]]) -> None:
    """As the writer does it: the group's batches, then these with its events and samples."""
    at_once = aggregate([count_batch(some) for some in batches])
    in_turn = aggregate([aggregate([count_batch(some)]) for some in batches])
    assert list(rows(at_once)) == list(rows(in_turn))
    assert columns(at_once) == columns(in_turn)


def test_count_sums_beyond_double_precision_are_exact() -> None:
    some = count_batch([(0, "a", 0, MAX_INCREMENT)] * 1_000_000 + [(0, "a", 0, 1)])
    assert list(rows(aggregate([some]))) == [(T0 // MINUTE_US * MINUTE_US, "a", 0, 1_000_000 * MAX_INCREMENT + 1)]


@given(st.lists(st.tuples(st.integers(0, 2**60), _TYPES, _INT32)))
def test_each_event_is_one_increment(events: list[tuple[int, str, int]]) -> None:
    assert [row[:3] for row in rows(of_events(events))] == events
    assert set(of_events(events).n.tolist()) <= {1}


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_samples_count_by_the_severity_of_their_status(statuses: list[int]) -> None:
    n = len(statuses)
    found = rows(of_quality(np.arange(n, dtype=np.int32), np.arange(n), np.array(statuses, np.uint32)))
    names = {1: "uncertain_quality", 2: "bad_quality", 3: "bad_quality"}  # OPC 10000-4, 7.39
    assert list(found) == [(i, names[s >> 30], i, 1) for i, s in enumerate(statuses) if s >> 30]


@given(increments(_FAR, _INT32), st.none() | st.integers(-(2**63), -1))
def test_counts_come_back_from_the_spool(some: list[Increment], digest: int | None) -> None:
    stored = count_batch(some, digest=digest)
    read = decode(encode(stored))
    assert isinstance(read, CountBatch)
    assert list(rows(read)) == list(rows(stored))
    assert (read.source_id, read.received_at, read.digest) == (stored.source_id, stored.received_at, digest)
    assert encode(read) == encode(stored)


@given(st.data(), st.sampled_from([np.int32, np.int64]))
def test_count_columns_round_trip_in_narrow_types(data: st.DataObject, dtype: type[np.int32 | np.int64]) -> None:
    legal = np.iinfo(dtype)
    low = data.draw(st.integers(int(legal.min), int(legal.max)))
    span = data.draw(st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**63]))
    values = data.draw(st.lists(st.integers(low, min(low + span, int(legal.max))), min_size=1, max_size=20))
    column: NDArray[Any] = np.array(values, dtype)
    form, stored = pack_integers(column)
    assert len(stored) == len(values) * form[1]
    assert form[1] <= next((width for width in (0, 1, 2, 4) if max(values) - min(values) < 256**width), 8)
    back = unpack_integers(form, memoryview(stored), len(values), dtype)
    assert (back.dtype, back.tolist()) == (column.dtype, values)


@pytest.mark.parametrize(
    ("form", "words"),
    [((0, 3), "3 bytes per value"), ((2**31 - 1, 1), "out of range"), ((-(2**31) - 2, 1), "out of range")],
)
def test_unknown_count_encoding_is_refused(form: tuple[int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unpack_integers(form, memoryview(b"\1\1\1"), 1 if form[1] == 3 else 3, np.int32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": np.array([2], np.int32)}, "type index out of range: there are 2 types"),
        ({"type": np.array([-1], np.int32)}, "type index out of range: there are 2 types"),
        ({"n": np.array([-1], np.int64)}, "count out of range: 0 to 10000000000"),
        ({"n": np.array([MAX_INCREMENT + 1], np.int64)}, "count out of range"),
        ({"n": np.array([1.0])}, "column n is float64, not int64"),
        ({"n": np.ones(2, np.int64)}, "columns of unequal length: type 1, channel_id 1, time 1, n 2"),
        ({"types": ("a", "a")}, "duplicate type"),
        ({"digest": 7}, "the digest 7 is not a negative 64-bit number"),
    ],
)
def test_invalid_count_batch_is_named(change: dict[str, object], words: str) -> None:
    one = np.zeros(1, np.int32)
    legal: dict[str, object] = {"types": ("a", "b"), "type": one, "channel_id": one, "time": np.zeros(1, np.int64)}
    legal["n"] = np.ones(1, np.int64)
    CountBatch(1, T0, **legal)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        CountBatch(1, T0, **{**legal, **change})  # type: ignore[arg-type]


@given(st.binary(max_size=60), st.integers(-1, 3))
def test_invalid_count_body_is_corrupt(body: bytes, n: int) -> None:
    record = encode(count_batch([(0, "a", 0, 1)]))
    with pytest.raises(SpoolCorrupt):
        decode(replace(record, body=body, rows=n, crc32=crc32(body)))


def test_counts_outside_time_limits_are_quarantined_with_their_time() -> None:
    day = 86_400_000_000
    some = [(0, "a", 0, 1), (2 * day + 7, "a", 3, 2), (2 * day + 7, "a", 3, 5), (-4000 * day, "b", 0, 4)]
    spooled = SpooledBatch(17, 0, 0, count_batch(some))
    group = assemble([(Path("push.sqlite"), [spooled])], LIMITS)
    assert list(rows(group.counts)) == [(T0 // MINUTE_US * MINUTE_US, "a", 0, 1)]
    assert group.quarantined == ()
    ((kept_out),) = [counted.quarantined for counted in group.counted]
    assert [(q.reason, q.time, q.channel_id) for q in kept_out] == [
        ("ancient", T0 - 4000 * day, 0),
        ("future", T0 + 2 * day + 7, 3),
    ]
    names = ("id", "reason", "source_id", "received_at", "channel_id", "time_us", "value", "status", "detail")
    back = [to_batch(dict(zip(names, row, strict=True))) for row in zip(*quarantine_columns(kept_out), strict=True)]
    assert [list(rows(b)) for b in back if isinstance(b, CountBatch)] == [
        [(T0 - 4000 * day, "b", 0, 4)],
        [(T0 + 2 * day + 7, "a", 3, 7)],
    ]
    again = assemble([(Path("push.sqlite"), [SpooledBatch(18, 0, 0, count_batch(some))])], LIMITS)
    assert {q.id for q in kept_out}.isdisjoint(q.id for counted in again.counted for q in counted.quarantined)


def test_repeated_batch_counts_once() -> None:
    one, other = count_batch([(0, "a", 0, 1)], digest=-5), count_batch([(0, "a", 0, 10)], digest=-6)
    spooled = [SpooledBatch(i, 0, 0, b) for i, b in enumerate((one, other, one))]
    group = assemble([(Path("push.sqlite"), spooled)], LIMITS)
    assert [row[3] for row in rows(group.counts)] == [11]
    assert [counted.key for counted in group.counted] == [(1, -5), (1, -6)]


def test_count_batch_is_not_split() -> None:
    batches = [SpooledBatch(i, 0, 0, count_batch([(0, "a", 0, 1)] * 100)) for i in range(2)]
    piece = undivided(assemble([(Path("push.sqlite"), batches)], LIMITS))
    error = ValueError("no")
    first, second = bisect(piece, LIMITS, error, poison=True)
    assert [len(one.group.counted) for one in (first, second)] == [1, 1]
    assert bisect(first, LIMITS, error, poison=False) == [first], "more time would help, fewer rows can't be had"
    (isolate_bad_rows,) = bisect(first, LIMITS, error, poison=True)
    assert isolate_bad_rows.isolate_bad_rows
    assert [spooled.sequence for _, of_file in isolate_bad_rows.complete for spooled in of_file] == [0]
    assert bisect(isolate_bad_rows, LIMITS, error, poison=True) == [isolate_bad_rows]
