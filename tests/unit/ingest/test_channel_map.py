"""One value for many channels: the same as a value for each, and short where channels are written down."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.channel_map import ChannelMap, from_ranges, to_ranges

CHANNELS = st.sets(st.integers(-1, 9), max_size=8)


def array(channels: set[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(sorted(channels), np.int32)


@given(st.lists(st.tuples(st.sampled_from(["update", "pop", "retain"]), CHANNELS, st.integers(0, 3)), max_size=30))
def test_channel_map_behaves_like_a_dictionary(story: list[tuple[str, set[int], int]]) -> None:
    shared: ChannelMap[int] = ChannelMap()
    each: dict[int, int] = {}
    for word, channels, value in story:
        if word == "update":
            shared.update([(value, array(channels))])
            each |= dict.fromkeys(channels, value)
        elif word == "pop":
            taken = {channel: had for had, some in shared.pop(array(channels)) for channel in some.tolist()}
            assert taken == {channel: each.pop(channel) for channel in channels & each.keys()}
        else:
            shared.retain([had for had, _ in shared.items() if had >= value])
            each = {channel: had for channel, had in each.items() if had >= value}
        assert {channel: had for had, some in shared.items() for channel in some.tolist()} == each
        assert shared.channels.tolist() == sorted(each) and len(shared) == len(each)
        assert [shared.get(channel) for channel in range(-1, 10)] == [each.get(channel) for channel in range(-1, 10)]
        assert shared.has(array(channels)).tolist() == [channel in each for channel in sorted(channels)]


def test_channel_map_drops_unused_values() -> None:
    shared: ChannelMap[int] = ChannelMap()
    for value in range(1000):
        shared.update([(value, np.arange(3, dtype=np.int32))])
    assert shared.get(2) == 999 and len(shared._values) < 100


@given(st.sets(st.integers(0, 60)))
def test_ranges_cover_exactly_the_channels(channels: set[int]) -> None:
    assert from_ranges(to_ranges(channels)).tolist() == sorted(channels)


def test_consecutive_channels_are_one_range() -> None:
    assert to_ranges([*range(7, 20_000), 30_000]) == [7, 19_999, 30_000, 30_000]


@pytest.mark.parametrize(
    "ranges", ["[1]", "[2, 1]", "[1, 5, 5, 6]", "[0, 4611686018427387904]", "[0, 2097152]", "[[1]]", '["a", 1]']
)
def test_invalid_ranges_are_refused(ranges: str) -> None:
    with pytest.raises(ValueError):
        from_ranges(json.loads(ranges))
