"""Pushed values whose timestamps repeat: one gap a channel, however often they advance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from ingest.gaps import Gaps
from ingest.push.repeated_times import RepeatedTimes
from ingest.status import SourceStatus
from tests.memory_appender import MemoryAppender
from tests.samples import T0, batch


class Source:
    """A push source and its steady clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = 0.0
        self.spool = MemoryAppender()
        monkeypatch.setattr("ingest.push.repeated_times.monotonic", lambda: self.clock)
        self.start()

    def start(self) -> None:
        self.status = SourceStatus(1, "edge", "push", "/", 2)
        self.gaps = Gaps(self.status, self.spool)
        self.repeated = RepeatedTimes(self.status, self.gaps)

    async def push(self, *samples: tuple[int, int, float], seconds: float = 1.0) -> None:
        """(channel, µs since T0, value) of a body, and the time until the next one."""
        await self.repeated.check(batch([(*sample, 0) for sample in samples]).samples)
        self.clock += seconds

    def recorded(self) -> Sequence[tuple[int, int, int | None]]:
        """(channel, from, to) of each gap, µs since T0."""
        gaps = [(gap.channel_ids, gap.from_time - T0, gap.to_time) for gap in self.spool.gaps()]
        return [(c, since, to and to - T0) for channels, since, to in gaps for c in channels or ()]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    return Source(monkeypatch)


async def test_frozen_timestamp_is_one_gap_until_time_has_gone_on_for_10_s(source: Source) -> None:
    for second in range(60):
        await source.push((1, 5, float(second)), (2, second, 7.0))
    assert source.recorded() == [(1, 5, None)]
    assert source.status.remarks["repeated"] == "values of 1 channel are lost because their timestamps repeat"
    for second in range(60, 75):
        await source.push((1, second, float(second)), (2, second, 7.0))
    assert source.recorded() == [(1, 5, 60)]
    assert source.status.remarks == {}


async def test_whole_seconds_at_10_hz_are_one_gap(source: Source) -> None:
    for tick in range(300):
        await source.push((1, tick // 10, float(tick)), seconds=0.1)
    assert source.recorded() == [(1, 0, None)]


async def test_whole_seconds_at_10_hz_in_bodies_of_a_minute_are_one_gap(source: Source) -> None:
    for minute in range(5):
        ticks = range(600 * minute + 3, 600 * minute + 603)
        await source.push(*((1, tick // 10, float(tick)) for tick in ticks), seconds=60.0)
    assert source.recorded() == [(1, 0, None)]


@pytest.mark.parametrize("value", [1.0, math.nan, -0.0])
async def test_what_comes_again_is_no_gap(source: Source, value: float) -> None:
    await source.push((1, 1, value), (1, 2, 2.0))
    await source.push((1, 1, value), (1, 2, 2.0), (1, 3, value), (1, 3, value))
    await source.push((1, 3, value))
    await source.push((1, 2, 9.0))  # of a sample before the last one, the writer knows
    assert source.recorded() == []


async def test_sample_between_others_of_a_body_is_a_gap_that_ends_with_the_next(source: Source) -> None:
    await source.push((1, 3, 3.0), (1, 2, 2.0), (1, 2, 2.5), (1, 1, 1.0), seconds=11.0)
    await source.push((1, 4, 4.0))
    assert source.recorded() == [(1, 2, 3)]


async def test_gap_goes_on_over_a_restart(source: Source) -> None:
    await source.push((1, 5, 1.0), (1, 5, 2.0))
    source.start()
    assert source.status.remarks
    await source.push((1, 5, 3.0), seconds=11.0)
    await source.push((1, 5, 4.0), seconds=11.0)
    assert source.recorded() == [(1, 5, None)]
    await source.push((1, 6, 4.0), seconds=11.0)
    await source.push((1, 7, 4.0))
    assert source.recorded() == [(1, 5, 6)]
    assert source.status.remarks == {}


async def test_gap_of_a_removed_channel_is_over(source: Source) -> None:
    await source.push((1, 5, 1.0), (1, 5, 2.0))
    await source.gaps.remove(T0 + 8, [1])
    await source.push((2, 9, 1.0))
    assert source.recorded() == [(1, 5, 8)]
    assert source.status.remarks == {}
