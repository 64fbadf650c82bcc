"""A source timestamp that stands still: repeats are dropped, conflicts told now and then; nothing else is touched."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingest.opcua.standing import Standing
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
def test_only_what_the_table_would_refuse_is_kept_out(
    messages: list[tuple[list[tuple[int, int, float]], bool]],
) -> None:
    standing = Standing(TAGS)
    on_disk: set[tuple[int, int]] = set()
    for rows, durable in messages:
        found = columns(rows)
        keep, _ = standing.apart(*found, arrival=9)
        kept = [row for row, k in zip(rows, [True] * len(rows) if keep is None else keep, strict=True) if k]
        for row in rows:
            if row not in kept and not any(row is k for k in kept):
                assert row[:2] in on_disk, "it is nowhere"
        if durable:
            standing.stored(*columns(kept))
            on_disk |= {row[:2] for row in kept}


def test_a_conflict_is_told_at_each_power_of_two() -> None:
    standing = Standing(TAGS)
    standing.stored(*columns([(1, 7, 0.5), (1, 7, 0.75)]))
    told = []
    for n in range(1, 101):
        keep, events = standing.apart(*columns([(1, 7, float(n)), (0, n, 1.0)]), arrival=1000 + n)
        assert keep is not None
        assert keep.tolist() == [False, True]
        told += [(e.channel_id, e.detail["refused"], e.detail["kept_value"], e.detail["refused_value"]) for e in events]
    assert told == [(11, n, "0.5", f"{n}.0") for n in (1, 2, 4, 8, 16, 32, 64)]
    assert standing.apart(*columns([(1, 7, 0.5)]), arrival=2000)[1] == [], "an exact repeat"
    standing.stored(*columns([(1, 8, 2.0)]))
    assert standing.apart(*columns([(1, 8, 3.0)]), arrival=3000)[1][0].detail["refused"] == 1
