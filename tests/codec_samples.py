"""Samples of every kind, for the tests of the codec: values, times and statuses as channels have them, or by chance."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

HOUR_US = 3_600_000_000
Hour = list[tuple[int, int, int]]  # µs since its beginning, the value's 64 bits, StatusCode


def bits(value: float) -> int:
    """The 64 bits of a double."""
    return int(np.float64(value).view(np.uint64))


_SPECIAL = (
    0x7FF8000000000000,  # NaN
    0x7FF8000000000ABC,  # NaN with a payload
    0xFFF8DEADBEEF0001,
    0x7FF0000000000001,  # a signalling one
    0x7FF0000000000000,  # infinities
    0xFFF0000000000000,
    0x8000000000000000,  # -0
    0x0000000000000000,
    0x0000000000000001,  # the least denormal
    0x800FFFFFFFFFFFFF,
    0x7FEFFFFFFFFFFFFF,  # the greatest
    bits(2.0**53),
    bits(2.0**53 + 2),
    bits(-(2.0**63)),
    bits(9007199254740991.0),
    bits(1e15 / 3),
    bits(0.1 + 0.2),
    bits(float(np.float32(3.3))),
    bits(float(np.finfo(np.float32).smallest_subnormal)),
    bits(1e39),
)
_STATUSES = (0, 0x80050000, 0x40000000, 0x800A0000, 0x00000400, 0xFFFFFFFF)


def _values(n: int) -> st.SearchStrategy[list[int]]:
    """Bits of n values: of one kind as channels have them, or of all."""

    def of(kind: st.SearchStrategy[int]) -> st.SearchStrategy[list[int]]:
        return st.lists(kind, min_size=n, max_size=n)

    def decimal(digits: int, most: int) -> st.SearchStrategy[int]:
        return st.integers(-most, most).map(lambda number: bits(number / 10**digits))

    decimals = st.tuples(st.integers(0, 10), st.sampled_from([3, 200, 50_000, 10**7, 2**33, 2**53])).flatmap(
        lambda kind: st.one_of(of(decimal(*kind)), of(st.one_of(*[decimal(*kind)] * 20, st.sampled_from(_SPECIAL))))
    )
    singles = st.floats(width=32).map(bits)
    rounded = st.integers(-30_000, 30_000).map(lambda number: bits(float(np.float32(number / 100))))
    return st.one_of(
        decimals,
        of(singles),
        of(rounded),
        of(st.one_of(*[rounded] * 20, st.sampled_from(_SPECIAL))),
        of(st.integers(0, 2**64 - 1)),
        of(st.sampled_from(_SPECIAL)),
        st.sampled_from(_SPECIAL).map(lambda value: [value] * n),
    )


def _times(n: int) -> st.SearchStrategy[list[int]]:
    """n times of one hour, ascending, in µs."""

    def spread(kind: tuple[int, int, int]) -> st.SearchStrategy[list[int]]:
        start, step, jitter = kind
        noise = st.lists(st.integers(0, jitter), min_size=n, max_size=n)
        return noise.map(lambda of: [start + i * step + of[i] for i in range(n)])

    limit = HOUR_US // n - 1
    regular = st.tuples(st.integers(0, 1000), st.integers(1, limit), st.just(0))
    jittered = st.tuples(st.integers(0, 1000), st.integers(2000, limit - 1000), st.sampled_from([9, 999])).map(
        lambda kind: (kind[0], kind[1] // 2000 * 2000, kind[2])
    )
    irregular = st.lists(st.integers(0, HOUR_US - 1), min_size=n, max_size=n, unique=True).map(sorted)
    seconds = st.lists(st.integers(0, 3599), min_size=n, max_size=n, unique=True).map(
        lambda of: [second * 1_000_000 for second in sorted(of)]
    )
    return st.one_of(irregular, seconds, regular.flatmap(spread), jittered.flatmap(spread))


def _statuses(n: int) -> st.SearchStrategy[list[int]]:
    one = st.sampled_from(_STATUSES)
    return st.one_of(one.map(lambda status: [status] * n), st.lists(one, min_size=n, max_size=n))


@st.composite
def hours(draw: st.DrawFn) -> Hour:
    """The samples of an hour of a channel, by time."""
    n = draw(st.one_of(st.just(1), st.integers(2, 80)))
    return list(zip(draw(_times(n)), draw(_values(n)), draw(_statuses(n)), strict=True))
