"""Whatever is packed comes back to the bit: values, times and statuses of every kind, late and replayed ones too."""

from __future__ import annotations

import itertools
import json
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from history.reading.reader import read
from tests.codec_samples import hours
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


async def _raw(owner: asyncpg.Connection[Any], channel: int) -> int:
    return int(await owner.fetchval("SELECT count(*) FROM plant.samples_raw WHERE channel_id = $1", channel))


async def _as_evidence(owner: asyncpg.Connection[Any], channel: int) -> list[Sample]:
    """Samples as seals, exports and the archive read them."""
    one = (await read(owner, [channel], DAY, NEXT_DAY))[channel]
    return list(zip((one.time - DAY_US).tolist(), one.bits.tolist(), one.status.tolist(), strict=True))


@pytest.mark.slow
@_SETTINGS
@given(hour=hours())
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
@given(hour=hours(), data=st.data())
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
