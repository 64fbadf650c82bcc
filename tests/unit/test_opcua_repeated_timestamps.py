"""A source timestamp that stands still: repeats are dropped, conflicts told now and then; nothing else is touched."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingest.opcua.repeated_timestamps import RepeatedTimestamps
from tests.unit.test_opcua_clocks import TAGS

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from([0.0, -0.0, 1.5, float("nan")])))


def columns(rows: list[tuple[int, int, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.array([row[0] for row in rows], np.uint32),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.float64),
        np.zeros(len(rows), np.uint32),
    )


def bits(value: float) -> bytes:
    return np.float64(value).tobytes()


@given(st.lists(st.tuples(ROWS, st.booleans()), max_size=8))
def test_only_conflicting_repeats_are_kept_out(
    messages: list[tuple[list[tuple[int, int, float]], bool]],
) -> None:
    standing = RepeatedTimestamps(TAGS)
    on_disk: set[tuple[int, int]] = set()
    for rows, durable in messages:
        found = columns(rows)
        keep, _ = standing.filter(*found, arrival=9)
        kept = [row for row, k in zip(rows, [True] * len(rows) if keep is None else keep, strict=True) if k]
        for row in rows:
            if row not in kept and not any(row is k for k in kept):
                assert row[:2] in on_disk, "it is nowhere"
        if durable:
            standing.stored(*columns(kept))
            on_disk |= {row[:2] for row in kept}


def test_repeated_conflicts_are_events_at_each_power_of_two() -> None:
    standing = RepeatedTimestamps(TAGS)
    standing.stored(*columns([(1, 7, 0.5), (1, 7, 0.75)]))
    told = []
    for n in range(1, 101):
        keep, events = standing.filter(*columns([(1, 7, float(n)), (0, n, 1.0)]), arrival=1000 + n)
        assert keep is not None
        assert keep.tolist() == [False, True]
        told += [(e.channel_id, e.detail["refused"], e.detail["kept_value"], e.detail["refused_value"]) for e in events]
    assert told == [(11, n, "0.5", f"{n}.0") for n in (1, 2, 4, 8, 16, 32, 64)]
    assert standing.filter(*columns([(1, 7, 0.5)]), arrival=2000)[1] == [], "an exact repeat"
    standing.stored(*columns([(1, 8, 2.0)]))
    assert standing.filter(*columns([(1, 8, 3.0)]), arrival=3000)[1][0].detail["refused"] == 1


def test_a_conflict_at_a_time_after_the_year_9999_is_told() -> None:
    standing, time = RepeatedTimestamps(TAGS), 2**59  # µs, as a source timestamp of 64 bits can say
    standing.stored(*columns([(1, time, 0.5)]))
    (event,) = standing.filter(*columns([(1, time, 0.75)]), arrival=1000)[1]
    assert event.detail["at"] == str(time)
