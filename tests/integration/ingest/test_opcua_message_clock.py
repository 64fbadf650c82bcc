"""Outages of a server whose messages have another clock than its samples, or one that a restart sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from core.timestamps import now_us
from ingest.status import SourceStatus
from tests.integration.ingest.test_opcua_collector import collecting
from tests.integration.ingest.test_opcua_recovery import OPTIONS, OURS, Server, connected, serving
from tests.memory_appender import MemoryAppender
from tests.waiting import until

_SECOND = 1_000_000
_IN_2024 = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass
class MessageClock:
    """The clock of the times in asyncua's messages: ResponseHeader.Timestamp and PublishTime."""

    ahead: timedelta = timedelta()
    stands: bool = False

    def now(self, zone: tzinfo | None = None) -> datetime:
        return _IN_2024 if self.stands else datetime.now(zone) + self.ahead


class Samples:
    """Written values, by time (µs)."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.written: dict[int, float] = {}

    async def write(self, count: int, ahead: int = 0) -> None:
        for _ in range(count):
            time, value = now_us() + ahead, float(len(self.written) + 1)
            self.written[time] = value
            await self._server.server.write(0, value, time, 0)
            await asyncio.sleep(0.02)

    def lost(self, spool: MemoryAppender) -> list[int]:
        stored = {time for time, *_ in spool.samples(0)}
        return [time for time in self.written if time not in stored]

    async def stored(self, spool: MemoryAppender) -> None:
        """Wait until the newest one is on disk."""
        newest = [*self.written][-1]
        await spool.until(lambda: newest in {time for time, *_ in spool.samples(0)})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MessageClock:
    clock = MessageClock()
    monkeypatch.setattr("asyncua.ua.uaprotocol_auto.datetime", clock)
    return clock


def since_2024() -> timedelta:
    """Difference of a clock that is in 2024 now."""
    return _IN_2024 - datetime.now(UTC)


_HOUR = timedelta(hours=1)
_STEPS: Mapping[str, tuple[MessageClock, timedelta | None]] = {  # at first, and what it is ahead after the restart
    "an hour back": (MessageClock(), -_HOUR),
    "an hour forward": (MessageClock(), _HOUR),
    "two seconds back": (MessageClock(), timedelta(seconds=-2)),
    "corrected forward": (MessageClock(-_HOUR), timedelta()),
    "corrected back": (MessageClock(_HOUR), timedelta()),
    "an hour behind": (MessageClock(-_HOUR), -_HOUR),
    "an hour ahead": (MessageClock(_HOUR), _HOUR),
    "each start in 2024": (MessageClock(), None),
    "stands": (MessageClock(stands=True), timedelta()),
}


def check_gaps(spool: MemoryAppender, samples: Samples, first_after: int) -> None:
    """Every lost sample is in a gap, and gaps are not longer than the outage."""
    gaps = [
        (g.from_time, g.to_time or 0) for g in spool.gaps() if g.reason == "disconnected" and g.to_time != g.from_time
    ]
    lost = samples.lost(spool)
    assert len(lost) >= 5, "or nothing was lost"
    assert [time for time in lost if not any(begin <= time <= end for begin, end in gaps)] == []
    assert max(end for _, end in gaps) <= first_after + _SECOND, "no gap is over good data"
    assert min(begin for begin, _ in gaps) >= min(lost) - 35 * _SECOND


async def outage(server: Server, samples: Samples, spool: MemoryAppender, status: SourceStatus, ahead: int = 0) -> int:
    """A restart, in which samples are lost. Returns the time (µs) of the first sample after it."""
    await until(lambda: status.state == "disconnected")
    await samples.write(20)
    await samples.write(1, ahead)  # the server begins with it
    await server.server.forget()
    await until(lambda: status.state == "connected")
    first = now_us() + ahead
    await samples.write(20, ahead)
    await samples.stored(spool)
    return first


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Server, Samples, MemoryAppender, SourceStatus]]:
    """A server without history, and a collector that has stored its samples."""
    async with connected(folder, OURS[:1], history=0) as (server, spool, status):
        samples = Samples(server)
        await samples.write(30)
        await samples.stored(spool)
        yield server, samples, spool, status


@pytest.mark.parametrize("step", _STEPS)
async def test_outage_is_a_gap_whatever_the_clock_of_messages(step: str, clock: MessageClock, tmp_path: Path) -> None:
    first, ahead = _STEPS[step]
    clock.stands = first.stands
    clock.ahead = since_2024() if ahead is None else first.ahead
    async with running(tmp_path) as (server, samples, spool, status):
        await server.server.refuse(True)
        clock.ahead = since_2024() if ahead is None else ahead
        check_gaps(spool, samples, await outage(server, samples, spool, status))


async def test_gap_lasts_until_the_first_sample_where_the_clock_of_samples_was_set_forward(
    clock: MessageClock, tmp_path: Path
) -> None:
    async with running(tmp_path) as (server, samples, spool, status):
        await server.server.refuse(True)
        clock.ahead = _HOUR
        first = await outage(server, samples, spool, status, ahead=round(_HOUR.total_seconds() * 1e6))
        check_gaps(spool, samples, first)
        assert max(gap.to_time or 0 for gap in spool.gaps()) >= first - _SECOND


async def test_old_value_of_another_channel_ends_no_gap_where_the_clock_was_set_forward(
    clock: MessageClock, tmp_path: Path
) -> None:
    """The server begins with it, and goes on for a while before it is reached again."""
    us = round(_HOUR.total_seconds() * 1e6)
    async with connected(tmp_path, OURS[:2], history=0) as (server, spool, status):
        samples = Samples(server)
        await samples.write(30)
        await samples.stored(spool)
        await server.cut_off(status)
        await samples.write(5)
        clock.ahead = _HOUR
        await server.server.write(1, True, now_us() + us, 0)
        await samples.write(20, us)
        await server.server.forget()
        await until(lambda: status.state == "connected")
        first = now_us() + us
        await samples.write(20, us)
        await samples.stored(spool)
        check_gaps(spool, samples, first)


@pytest.mark.parametrize("ahead", [-_HOUR, _HOUR])
async def test_next_process_knows_the_clocks(ahead: timedelta, clock: MessageClock, tmp_path: Path) -> None:
    """Samples have the clock of the messages, which is wrong: the gap of a killed process has it, too."""
    clock.ahead, us = ahead, round(ahead.total_seconds() * 1e6)
    async with serving(tmp_path, history=0) as server:
        samples = Samples(server)
        async with collecting(server.address, OURS[:1], tmp_path / "pki", **OPTIONS) as (spool, status):
            await until(lambda: status.state == "connected")
            await samples.write(30, us)
            await samples.stored(spool)
            second = MemoryAppender(spool.notes)
            stored = set(spool.samples(0))
        await samples.write(20, us)
        await server.server.forget()
        async with collecting(server.address, OURS[:1], tmp_path / "pki", spool=second, **OPTIONS) as (_, status):
            await until(lambda: status.state == "connected")
            first = now_us() + us
            await samples.write(20, us)
            await samples.stored(second)
        lost = set(samples.lost(second)) - {time for time, *_ in stored}
        gaps = [(g.from_time, g.to_time or 0) for g in second.gaps() if g.to_time != g.from_time]
        assert len(lost) >= 5
        assert [time for time in lost if not any(begin <= time <= end for begin, end in gaps)] == []
        assert max(end for _, end in gaps) <= first + _SECOND


@pytest.mark.parametrize("set_at_the_end", [False, True])
async def test_outage_is_a_gap_by_both_clocks_where_that_of_samples_was_set_back(
    set_at_the_end: bool, clock: MessageClock, tmp_path: Path
) -> None:
    """Values lost before the clock was set, after it and in the next outage have other times."""
    back = round(-_HOUR.total_seconds() * 1e6)
    async with running(tmp_path) as (server, samples, spool, status):
        begins = []
        for ahead in (0 if set_at_the_end else back, back):
            begins.append(now_us())
            await server.server.refuse(True)
            clock.ahead = -_HOUR
            await until(lambda: status.state == "disconnected")
            await samples.write(20, ahead)
            await samples.write(1, back)  # the server begins with it
            await server.server.forget()
            await until(lambda: status.state == "connected")
            await samples.write(20, back)
            await samples.stored(spool)
        await until(lambda: status.open_gaps == 0)
        lost = samples.lost(spool)
        assert len(lost) >= 30, "or nothing was lost"
        gaps = [(g.from_time, g.to_time or 0) for g in spool.gaps() if g.to_time != g.from_time]
        assert [time for time in lost if not any(begin <= time <= end for begin, end in gaps)] == []
        first, second = begins
        took = now_us() - first
        spans = [(first, first + took), (first + back, second + back), (second + back, second + back + took)]
        outside = [
            gap for gap in gaps if not any(a - 35 * _SECOND <= gap[0] and gap[1] <= b + _SECOND for a, b in spans)
        ]
        assert outside == [], "no gap is longer than an outage"
