"""Clocks of single channels: one that is slow is told, one whose value is old or came late once is not."""

from __future__ import annotations

import numpy as np

from ingest.batch import Event
from ingest.config.model import OpcuaSource, OpcuaTag
from ingest.opcua.tags import Tags
from ingest.opcua.tracking import Skew, Tracking

SECOND = 1_000_000
START = 1_790_000_000 * SECOND
TAGS = Tags(
    OpcuaSource(
        name="s",
        kind="opcua",
        address="opc.tcp://h:4840",
        tags=tuple(OpcuaTag(name=f"t{i}", address=f"ns=2;s=t{i}") for i in range(3)),
    ),
    {"t0": 10, "t1": 11, "t2": 12},
)


class Source:
    """What came of a source whose channels have clocks of their own, an interval after the other."""

    def __init__(self) -> None:
        self.tracking = Tracking(TAGS)
        self.skew = Skew(5.0, interval=0.0)
        self.now = START

    def interval(self, **behind: float) -> list[tuple[int | None, str | None]]:
        """Samples of channels so many seconds old; the events of their interval: (channel, text)."""
        for _ in range(4):
            self.now += SECOND
            places = np.array([int(name[1:]) for name in behind], np.uint32)
            times = np.array([self.now - round(s * SECOND) for s in behind.values()], np.int64)
            if (self.tracking.time[places] > 0).any():
                self.skew.seen("source", int(times.max()), self.now)
            self.tracking.timed(places, times, self.now)
            self.tracking.sampled(places, times)
        return [(e.channel_id, e.text) for e in self.events()]

    def events(self) -> list[Event]:
        return self.skew.events(self.tracking)


def test_a_slow_channel_is_told_once_and_when_it_is_right_again() -> None:
    source = Source()
    found = [source.interval(t0=0.1, t1=40) for _ in range(8)]
    assert [event for events in found for event in events] == [(11, "skewed")]
    assert source.interval(t0=0.1, t1=0.2) == [(11, "good")]
    assert source.interval(t0=0.1, t1=0.2) == []


def test_a_value_that_changed_long_ago_is_no_sign() -> None:
    source = Source()
    old = np.array([START - 86400 * SECOND], np.int64)
    for _ in range(10):
        source.tracking.timed(np.array([2], np.uint32), old, source.now)
        source.tracking.sampled(np.array([2], np.uint32), old)
        assert source.interval(t0=0.1) == []


def test_what_came_late_after_an_outage_is_no_sign() -> None:
    source = Source()
    for _ in range(5):
        assert source.interval(t0=0.1, t1=0.1) == []
        source.tracking.timed(np.array([1], np.uint32), np.array([source.now + 1 - 30 * SECOND]), source.now + SECOND)
        assert source.interval(t0=0.1, t1=60) == []


def test_a_source_whose_clock_is_off_as_a_whole_is_told_as_such() -> None:
    source = Source()
    found = [source.interval(t0=-60, t1=-60.5, t2=-59) for _ in range(6)]
    assert [event for events in found for event in events] == [(None, "skewed")]


def test_edited_tags_keep_what_is_known() -> None:
    source = Source()
    for _ in range(6):
        source.interval(t0=0.1, t1=40)
    source.tracking = Tracking(TAGS, source.tracking)
    assert source.interval(t0=0.1, t1=0.2) == [(11, "good")]
