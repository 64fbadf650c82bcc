"""Clocks of single channels: one that is slow is told, one whose value is old or came late once is not."""

from __future__ import annotations

import numpy as np
import pytest

from core.batch import Event
from core.config.sources import OpcuaSource, OpcuaTag
from core.timestamps import now_us
from ingest.gaps import Gaps
from ingest.opcua.subscription.clocks import ClockSkew
from ingest.opcua.subscription.source_times import SourceTimes
from ingest.opcua.subscription.tags import Tags
from ingest.opcua.subscription.tracking import ChannelTracking
from ingest.status import SourceStatus
from tests.memory_appender import MemoryAppender

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
    """Source whose channels have clocks of their own, an interval after the other."""

    def __init__(self) -> None:
        self.tracking = ChannelTracking(TAGS)
        self.skew = ClockSkew(5.0, interval=0.0)
        self.now = START

    def interval(self, **behind: float) -> list[tuple[int | None, str | None]]:
        """Samples of channels so many seconds old; the events of their interval: (channel, text)."""
        for _ in range(4):
            self.now += SECOND
            places = np.array([int(name[1:]) for name in behind], np.uint32)
            times = np.array([self.now - round(s * SECOND) for s in behind.values()], np.int64)
            if (self.tracking.time[places] > 0).any():
                self.skew.observe("source", int(times.max()), self.now)
            self.tracking.observe_clocks(places, times, self.now)
            self.tracking.record_samples(places, times)
        return [(e.channel_id, e.text) for e in self.events()]

    def events(self) -> list[Event]:
        return self.skew.events(self.tracking.clocks)


def test_clock_skew_of_a_channel_is_an_event_once_and_at_its_end() -> None:
    source = Source()
    found = [source.interval(t0=0.1, t1=40) for _ in range(8)]
    assert [event for events in found for event in events] == [(11, "skewed")]
    assert source.interval(t0=0.1, t1=0.2) == [(11, "good")]
    assert source.interval(t0=0.1, t1=0.2) == []


def test_old_source_timestamp_is_no_clock_skew() -> None:
    source = Source()
    old = np.array([START - 86400 * SECOND], np.int64)
    for _ in range(10):
        source.tracking.observe_clocks(np.array([2], np.uint32), old, source.now)
        source.tracking.record_samples(np.array([2], np.uint32), old)
        assert source.interval(t0=0.1) == []


def test_late_values_after_an_outage_are_no_clock_skew() -> None:
    source = Source()
    for _ in range(5):
        assert source.interval(t0=0.1, t1=0.1) == []
        source.tracking.observe_clocks(
            np.array([1], np.uint32), np.array([source.now + 1 - 30 * SECOND]), source.now + SECOND
        )
        assert source.interval(t0=0.1, t1=60) == []


def test_clock_skew_of_the_whole_source_is_one_event() -> None:
    source = Source()
    found = [source.interval(t0=-60, t1=-60.5, t2=-59) for _ in range(6)]
    assert [event for events in found for event in events] == [(None, "skewed")]


def test_edited_tags_keep_their_clock_state() -> None:
    source = Source()
    for _ in range(6):
        source.interval(t0=0.1, t1=40)
    source.tracking = ChannelTracking(TAGS, source.tracking)
    assert source.interval(t0=0.1, t1=0.2) == [(11, "good")]


def test_an_old_sample_shortens_no_gap() -> None:
    skew = ClockSkew(5.0)
    assert skew.sample_times(START) == (START, START)
    skew.observe_samples(START - 60 * SECOND, START, START)  # alone in its message
    assert skew.sample_times(START) == (START - 60 * SECOND, START)
    skew.observe_samples(START - SECOND, START, START)
    skew.observe_samples(START - 3600 * SECOND, START, START)
    assert skew.sample_times(START) == (START - SECOND, START)


@pytest.mark.parametrize("ahead", [-600 * SECOND, 600 * SECOND])
def test_sample_times_include_a_clock_that_is_not_the_servers(ahead: int) -> None:
    source = Source()
    for at in (START, START + SECOND):
        source.skew.observe_samples(at + ahead, at, at)
        source.events()  # an interval ends
        earliest, latest = source.skew.sample_times(at)
        assert earliest <= at + ahead <= latest
        assert latest - earliest == abs(ahead)


def test_samples_that_are_queued_late_begin_a_gap_earlier() -> None:
    source = Source()
    source.interval(t0=0.1)
    source.skew.observe_samples(START, START, START)
    published = START + SECOND
    late = np.array([published - 800_000, published + 1, published - 3600 * SECOND], np.int64)  # one has another clock
    source.skew.observe_late(late, published)
    assert source.skew.sample_times(published) == (published - 800_000, published)
    source.interval(t0=0.1)
    assert source.skew.sample_times(published) == (published - 800_000, published)
    source.interval(t0=0.1)
    assert source.skew.sample_times(published) == (published, published)


def test_an_idle_interval_keeps_how_late_samples_were() -> None:
    source = Source()
    source.skew.observe_late(np.array([START - 800_000], np.int64), START)
    for _ in range(3):
        source.events()  # without samples
    assert source.skew.sample_times(START) == (START - 800_000, START)


def test_messages_from_before_a_session_prove_nothing_of_the_clocks() -> None:
    """A server sends them again after an outage: another one begins and ends by what was known before."""
    now = now_us()
    skew = ClockSkew(1.0, note='{"server": 0.0, "source": 0.0}')
    skew.begin_session(now)
    for late in (40 * SECOND, 3 * SECOND):
        skew.observe_message(now - late, now)
        skew.observe_samples(now - late, now - late, now)
    assert skew.first_after(now) == (now, True)
    skew.observe_message(now, now + 3 * SECOND)
    assert skew.first_after(now)[1] is False, "its clock is behind"


async def test_gap_ends_with_the_values_that_a_server_begins_with_where_its_clock_was_set_forward() -> None:
    """They are from before the end of the outage, however much later the first message was published."""
    spool, clocks, hour = MemoryAppender(), ClockSkew(5.0), 3600 * SECOND
    gaps = Gaps(SourceStatus(1, "s", "opcua", "", 2), spool)
    times = SourceTimes(clocks, spool, gaps, 0, 5.0)
    ended = now_us()
    begin = ended - 60 * SECOND
    for clock in ("server", "source"):
        clocks.observe(clock, begin, begin)
    await gaps.open(begin, "disconnected", "")
    await gaps.close(times.end_outage(ended + hour, begin, "disconnected"))
    initial = np.array([ended - 2 * SECOND, ended - SECOND]) + hour
    arguments = np.arange(2, dtype=np.uint32), initial, np.full(2, begin), ended + hour + 3 * SECOND
    assert await times.prove_end(*arguments, ended + 3 * SECOND) == (begin, initial[1])
    await gaps.flush_or_raise()
    assert max(gap.to_time or 0 for gap in spool.gaps()) == initial[1]
