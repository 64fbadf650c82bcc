"""Whatever is packed comes back to the bit: values, times and statuses of every kind, late and replayed ones too."""

from __future__ import annotations

import io
import itertools
import json
from typing import Any

import asyncpg
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ingest.writer.copy_stream import HEADER, TRAILER
from ops.evidence.reader import read
from ops.history_import.packed_hour import COLUMNS as PACKED_COLUMNS
from ops.history_import.packed_hour import copy_row, pack
from tests.sample_tables import (
    DAY,
    DAY_US,
    HOUR_US,
    NEXT_DAY,
    Sample,
    bits,
    compress,
    copy,
    samples_between,
    samples_in_view,
)

_channels = itertools.count(1)
_SETTINGS = settings(
    max_examples=70, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
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
    """So many values' bits: of one kind as channels have them, or of all."""

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
    """So many times of one hour, ascending, in µs."""

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
def _hour(draw: st.DrawFn) -> list[Sample]:
    n = draw(st.one_of(st.just(1), st.integers(2, 80)))
    return list(zip(draw(_times(n)), draw(_values(n)), draw(_statuses(n)), strict=True))


async def _raw(owner: asyncpg.Connection[Any], channel: int) -> int:
    return int(await owner.fetchval("SELECT count(*) FROM plant.samples_raw WHERE channel_id = $1", channel))


async def _as_evidence(owner: asyncpg.Connection[Any], channel: int) -> list[Sample]:
    """What seals, exports and the archive read."""
    [one] = await read(owner, [channel], DAY, NEXT_DAY)
    return list(zip((one.time - DAY_US).tolist(), one.value.tolist(), one.status.tolist(), strict=True))


@pytest.mark.slow
@_SETTINGS
@given(hour=_hour())
@example(hour=[(0, 0, 0), (253, 0, 0)])  # 0.000253 * 1e6 > 253
async def test_packed_hour_round_trips_to_the_bit(owner: asyncpg.Connection[Any], hour: list[Sample]) -> None:
    channel = next(_channels)
    await copy(owner, channel, hour)
    await compress(owner)
    assert await _raw(owner, channel) == 0
    assert await samples_in_view(owner, channel) == hour
    assert await samples_between(owner, channel, 0, HOUR_US) == hour
    assert await _as_evidence(owner, channel) == hour
    first, last = hour[len(hour) // 3][0], hour[-1][0]
    assert await samples_between(owner, channel, first, last) == [s for s in hour if first <= s[0] < last]


_ROW = """
SELECT p.start, p.step, float8send(p.base), float8send(p.divisor), p.n, p.unit, p.status, p.single,
       array_send(p.t0), array_send(p.t1), array_send(p.t2), array_send(p.t3),
       array_send(p.v0), array_send(p.v1), array_send(p.v2), array_send(p.v3),
       array_send(p.float4s), array_send(p.float8s), array_send(p.statuses)
FROM plant.samples_packed AS p WHERE p.channel_id = $1
"""


@pytest.mark.slow
@_SETTINGS
@given(hour=_hour())
@example(hour=[(i * 253, bits(1.5), 0) for i in range(4000)])
@example(hour=[(i * 1_000_000, bits(i / 10), 0) for i in range(3600)])
async def test_import_packs_as_the_database_does(owner: asyncpg.Connection[Any], hour: list[Sample]) -> None:
    of_database, of_import = next(_channels), next(_channels)
    await copy(owner, of_database, hour)
    await compress(owner)
    time, value, status = zip(*hour, strict=True)
    packed = pack(
        of_import,
        DAY_US,
        np.array(time, np.int64) + DAY_US,
        np.array(value, np.uint64).view(np.float64),
        np.array(status, np.uint32).view(np.int32),
    )
    stream = io.BytesIO(HEADER + copy_row(packed) + TRAILER)
    await owner.copy_to_table(
        "samples_packed", schema_name="plant", source=stream, columns=PACKED_COLUMNS, format="binary"
    )
    [row] = await owner.fetch(_ROW, of_database)
    assert await owner.fetch(_ROW, of_import) == [row]


async def test_replay_of_a_sample_on_a_bound(owner: asyncpg.Connection[Any]) -> None:
    """Each is found again where it is packed, whatever its time is as seconds in floating point."""
    channel = next(_channels)
    hour = [(i * 253, bits(1.5), 0) for i in range(4000)]
    await copy(owner, channel, hour)
    await compress(owner)
    await copy(owner, channel, hour[::97])
    assert await samples_in_view(owner, channel) == hour
    for first, last in ((0, 253), (253 * 7, 253 * 11), (253 * 2999, 253 * 3001)):
        assert await samples_between(owner, channel, first, last) == [s for s in hour if first <= s[0] < last]


@pytest.mark.slow
@_SETTINGS
@given(hour=_hour(), data=st.data())
async def test_late_replayed_and_differing_samples(
    owner: asyncpg.Connection[Any], hour: list[Sample], data: st.DataObject
) -> None:
    channel = next(_channels)
    places = range(len(hour))
    first = data.draw(st.sets(st.sampled_from(places), min_size=1))
    again = data.draw(st.sets(st.sampled_from(places)))
    other = {i: data.draw(st.sampled_from([(hour[i][1] ^ 1, hour[i][2]), (hour[i][1], hour[i][2] ^ 0x400)]))
             for i in again & first if data.draw(st.booleans())}  # fmt: skip
    await copy(owner, channel, [hour[i] for i in sorted(first)])
    await compress(owner)
    late = (set(places) - first) | again
    if late:
        await copy(owner, channel, [(hour[i][0], *other.get(i, hour[i][1:])) for i in sorted(late)])
    assert await samples_in_view(owner, channel) == hour
    assert await samples_between(owner, channel, 0, HOUR_US) == hour
    assert await _as_evidence(owner, channel) == hour
    for _ in range(2):
        await compress(owner)
        assert await _raw(owner, channel) == 0
        assert await samples_in_view(owner, channel) == hour
        if other:  # replayed once more, a conflict is on record already
            await copy(owner, channel, [(hour[i][0], *other[i]) for i in sorted(other)])
    await compress(owner)
    events = await owner.fetch("SELECT * FROM plant.event WHERE channel_id = $1 AND type = 'conflict'", channel)
    refused = [json.loads(event["detail"]).get("refused", 1) for event in events]
    assert sum(refused) == len(other)
    assert len(events) <= 24, "one an hour"
