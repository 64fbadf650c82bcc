"""Increments: added up exactly and in the key's order, kept in the spool, held within the time limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.batch import MOST_COUNTED, CountBatch
from ingest.errors import SpoolCorrupt
from ingest.spool.format import SpooledBatch, decode, encode
from ingest.writer.counts import MINUTE_US, Counts, added_up, columns, of_events, of_quality
from ingest.writer.group import TimeLimits, assemble
from ingest.writer.pieces import divide, whole
from ingest.writer.quarantine import came
from ingest.writer.quarantine import columns as quarantine_columns
from tests.samples import T0, Increment, count_batch

LIMITS = TimeLimits(future=86400.0, oldest=3650 * 86400.0)
_TYPES = st.sampled_from(["pulses.n", "alarms.high", "alarms.High", "alarms.höher", "\U0001f514", "￿", ""])
_NEAR = st.integers(-3 * MINUTE_US, 3 * MINUTE_US)
_FAR = st.integers(-(2**62), 2**62) | _NEAR  # beyond what a group has, so that one number does not hold the key
_INT32 = st.integers(-(2**31), 2**31 - 1)


def increments(times: st.SearchStrategy[int], channels: st.SearchStrategy[int]) -> st.SearchStrategy[list[Increment]]:
    return st.lists(st.tuples(times, _TYPES, channels, st.integers(0, MOST_COUNTED)), min_size=1, max_size=40)


def rows(counts: Counts | CountBatch) -> Iterator[tuple[int, str, int, int]]:
    """(µs, type, channel, n)."""
    names = [counts.types[i] for i in counts.type.tolist()]
    yield from zip(counts.time.tolist(), names, counts.channel_id.tolist(), counts.n.tolist(), strict=True)


@given(
    st.lists(increments(_NEAR, st.integers(0, 3)), max_size=5) | st.lists(increments(_FAR, _INT32), max_size=5),
    st.sampled_from([MINUTE_US, 1]),
)
def test_sums_are_exact_and_in_the_keys_order(batches: list[list[Increment]], step: int) -> None:
    expected: Counter[tuple[int, str, int]] = Counter()
    for time, kind, channel, n in (row for some in batches for row in some):
        expected[(T0 + time) // step * step, kind, channel] += n
    found = list(rows(added_up([count_batch(some) for some in batches], step)))
    keys = [row[:3] for row in found]
    assert keys == sorted(expected, key=lambda key: (key[0], key[1].encode(), key[2]))
    assert {row[:3]: row[3] for row in found} == dict(expected)


@given(st.lists(increments(_NEAR, st.integers(0, 3)), min_size=1, max_size=4))
def test_what_is_added_up_twice_is_the_same(batches: list[list[Increment]]) -> None:
    """As the writer does it: the group's batches, then these with its events and samples."""
    at_once = added_up([count_batch(some) for some in batches])
    in_turn = added_up([added_up([count_batch(some)]) for some in batches])
    assert list(rows(at_once)) == list(rows(in_turn))
    assert columns(at_once) == columns(in_turn)


def test_sums_beyond_doubles_are_exact() -> None:
    some = count_batch([(0, "a", 0, MOST_COUNTED)] * 2_000_000 + [(0, "a", 0, 1)])
    assert list(rows(added_up([some]))) == [(T0 // MINUTE_US * MINUTE_US, "a", 0, 2_000_000 * MOST_COUNTED + 1)]


@given(st.lists(st.tuples(st.integers(0, 2**60), _TYPES, _INT32)))
def test_events_are_one_increment_each(events: list[tuple[int, str, int]]) -> None:
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": np.array([2], np.int32)}, "a type that is none of the 2"),
        ({"type": np.array([-1], np.int32)}, "a type that is none of the 2"),
        ({"n": np.array([-1], np.int64)}, "a count that is not between 0 and 10000000000"),
        ({"n": np.array([MOST_COUNTED + 1], np.int64)}, "a count that is not between"),
        ({"n": np.array([1.0])}, "column n is float64, not int64"),
        ({"n": np.ones(2, np.int64)}, "columns of unequal length: type 1, channel_id 1, time 1, n 2"),
        ({"types": ("a", "a")}, "a type stands there twice"),
        ({"digest": 7}, "the digest 7 is not a negative 64-bit number"),
    ],
)
def test_what_is_no_batch_of_counts_is_named(change: dict[str, object], words: str) -> None:
    one = np.zeros(1, np.int32)
    legal: dict[str, object] = {"types": ("a", "b"), "type": one, "channel_id": one, "time": np.zeros(1, np.int64)}
    legal["n"] = np.ones(1, np.int64)
    CountBatch(1, T0, **legal)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        CountBatch(1, T0, **{**legal, **change})  # type: ignore[arg-type]


@given(st.binary(max_size=60), st.integers(-1, 3))
def test_a_body_that_is_no_batch_of_counts_is_corrupt(body: bytes, n: int) -> None:
    record = encode(count_batch([(0, "a", 0, 1)]))
    with pytest.raises(SpoolCorrupt):
        decode(replace(record, body=body, rows=n, crc32=crc32(body)))


def test_times_outside_the_limits_are_kept_out_with_their_own_time() -> None:
    day = 86_400_000_000
    some = [(0, "a", 0, 1), (2 * day + 7, "a", 3, 2), (2 * day + 7, "a", 3, 5), (-4000 * day, "b", 0, 4)]
    spooled = SpooledBatch(17, 0, 0, count_batch(some))
    group = assemble([(Path("push.sqlite"), [spooled])], LIMITS)
    assert list(rows(group.counts)) == [(T0 // MINUTE_US * MINUTE_US, "a", 0, 1)]
    assert group.quarantined == ()
    ((kept_out),) = [one.quarantined for one in group.counted]
    assert [(q.reason, q.time, q.channel_id) for q in kept_out] == [
        ("ancient", T0 - 4000 * day, 0),
        ("future", T0 + 2 * day + 7, 3),
    ]
    names = ("id", "reason", "source_id", "received_at", "channel_id", "time_us", "value", "status", "detail")
    back = [came(dict(zip(names, row, strict=True))) for row in zip(*quarantine_columns(kept_out), strict=True)]
    assert [list(rows(b)) for b in back if isinstance(b, CountBatch)] == [
        [(T0 - 4000 * day, "b", 0, 4)],
        [(T0 + 2 * day + 7, "a", 3, 7)],
    ]
    again = assemble([(Path("push.sqlite"), [SpooledBatch(18, 0, 0, count_batch(some))])], LIMITS)
    assert {q.id for q in kept_out}.isdisjoint(q.id for one in again.counted for q in one.quarantined)


def test_a_batch_that_came_twice_before_it_was_written_counts_once() -> None:
    one, other = count_batch([(0, "a", 0, 1)], digest=-5), count_batch([(0, "a", 0, 10)], digest=-6)
    spooled = [SpooledBatch(i, 0, 0, b) for i, b in enumerate((one, other, one))]
    group = assemble([(Path("push.sqlite"), spooled)], LIMITS)
    assert [row[3] for row in rows(group.counts)] == [11]
    assert [counted.fact for counted in group.counted] == [(1, -5), (1, -6)]


def test_a_batch_is_not_divided_but_written_with_care() -> None:
    batches = [SpooledBatch(i, 0, 0, count_batch([(0, "a", 0, 1)] * 100)) for i in range(2)]
    piece = whole(assemble([(Path("push.sqlite"), batches)], LIMITS))
    error = ValueError("no")
    first, second = divide(piece, LIMITS, error, poison=True)
    assert [len(one.group.counted) for one in (first, second)] == [1, 1]
    assert divide(first, LIMITS, error, poison=False) == [first], "more time would help, fewer rows can't be had"
    (careful,) = divide(first, LIMITS, error, poison=True)
    assert careful.careful
    assert [spooled.sequence for _, of_file in careful.complete for spooled in of_file] == [0]
    assert divide(careful, LIMITS, error, poison=True) == [careful]
