"""One value for many channels: the same as a value for each, and short where channels are written down."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.by_channel import ByChannel, from_ranges, to_ranges

CHANNELS = st.sets(st.integers(-1, 9), max_size=8)


def array(channels: set[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(sorted(channels), np.int32)


@given(st.lists(st.tuples(st.sampled_from(["put", "take", "keep"]), CHANNELS, st.integers(0, 3)), max_size=30))
def test_it_is_a_dictionary_of_channels(story: list[tuple[str, set[int], int]]) -> None:
    shared: ByChannel[int] = ByChannel()
    each: dict[int, int] = {}
    for word, channels, value in story:
        if word == "put":
            shared.put([(value, array(channels))])
            each |= dict.fromkeys(channels, value)
        elif word == "take":
            taken = {channel: had for had, some in shared.take(array(channels)) for channel in some.tolist()}
            assert taken == {channel: each.pop(channel) for channel in channels & each.keys()}
        else:
            shared.keep([had for had, _ in shared.all() if had >= value])
            each = {channel: had for channel, had in each.items() if had >= value}
        assert {channel: had for had, some in shared.all() for channel in some.tolist()} == each
        assert shared.channels.tolist() == sorted(each) and len(shared) == len(each)
        assert [shared.get(channel) for channel in range(-1, 10)] == [each.get(channel) for channel in range(-1, 10)]
        assert shared.has(array(channels)).tolist() == [channel in each for channel in sorted(channels)]


def test_values_that_no_channel_has_any_more_are_forgotten() -> None:
    shared: ByChannel[int] = ByChannel()
    for value in range(1000):
        shared.put([(value, np.arange(3, dtype=np.int32))])
    assert shared.get(2) == 999 and len(shared._values) < 100


@given(st.sets(st.integers(0, 60)))
def test_ranges_are_the_channels(channels: set[int]) -> None:
    assert from_ranges(to_ranges(channels)).tolist() == sorted(channels)


def test_channels_in_a_row_are_as_long_as_one() -> None:
    assert to_ranges([*range(7, 20_000), 30_000]) == [7, 19_999, 30_000, 30_000]


@pytest.mark.parametrize("ranges", ["[1]", "[2, 1]", "[1, 5, 5, 6]", "[0, 4611686018427387904]", "[[1]]", '["a", 1]'])
def test_what_are_no_ranges_is_refused(ranges: str) -> None:
    with pytest.raises(ValueError):
        from_ranges(json.loads(ranges))
