"""Recovery of an OPC UA collector from a lost connection, process, message or subscription: servers over real sockets.

A collector that is killed is one whose spool is frozen as it is at that moment: what was durable then, and its notes,
are all that the next one has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import pytest
from asyncua import ua
from asyncua.common.utils import ServiceError

from core.batch import GapBatch, SampleBatch
from core.config.sources import OpcuaTag
from core.timestamps import now_us
from ingest.opcua.subscription.clocks import ClockSkew
from ingest.status import SourceStatus
from lab.chaos.machines.member import WallClock
from simulator.opcua_server import OpcuaServer
from simulator.tags import SimTag
from tests.integration.ingest.test_opcua_collector import collecting, simulated_server
from tests.memory_appender import MemoryAppender
from tests.peers import Peer, opcua_tags
from tests.ports import free_port
from tests.waiting import until

TAGS = [
    SimTag("unit/a", "a", opcua="Double", period=0.1),
    SimTag("unit/b", "b", opcua="Boolean", period=0.1),
    SimTag("unit/mode", "c", "text", opcua="String"),
]
OURS = [
    OpcuaTag(name="a", address="ns=2;s=unit.a"),
    OpcuaTag(name="b", address="ns=2;s=unit.b"),
    OpcuaTag(name="mode", address="ns=2;s=unit.mode", kind="text"),
]
OPTIONS: dict[str, Any] = {"insecure": True, "time_out": 2.0, "queue_size": 1000}


class Server:
    """The simulator's server, and a clock of its own: every value has another time."""

    def __init__(self, server: OpcuaServer, port: int) -> None:
        self.server = server
        self.address = f"opc.tcp://127.0.0.1:{port}/"
        self.written: list[float] = []

    async def write(self, count: int, pause: float = 0.02) -> None:
        """Publish ``count`` more values of channel 0."""
        for _ in range(count):
            value = float(len(self.written) + 1)
            self.written.append(value)
            await self.server.write(0, value, now_us(), 0)
            await asyncio.sleep(pause)

    async def cut_off(self, status: SourceStatus) -> None:
        """Cut the connection, and accept none, until the collector has noticed."""
        await self.server.refuse(True)
        await until(lambda: status.state == "disconnected")

    async def lose(self, loss: Literal["sent again", "gone"]) -> None:
        """Publish values until a message with some of them is lost."""
        transit = self.server.transit
        lost, transit.loss = transit.lost, loss
        while transit.lost == lost:
            await self.write(10)
        transit.loss = "no"


@asynccontextmanager
async def serving(folder: Path, history: int | None = None) -> AsyncIterator[Server]:
    port = free_port()
    async with simulated_server(TAGS, folder, port, history=history) as server:
        for tag, value in enumerate((0.0, False, "")):
            await server.write(tag, value, now_us(), 0)
        yield Server(server, port)


@asynccontextmanager
async def connected(
    folder: Path,
    tags: Sequence[OpcuaTag] = OURS,
    *,
    history: int | None = None,
    state: str = "connected",
    **options: Any,
) -> AsyncIterator[tuple[Server, MemoryAppender, SourceStatus]]:
    """A server, and a collector whose source is in this state."""
    async with (
        serving(folder, history) as server,
        collecting(server.address, [*tags], folder / "pki", **{**OPTIONS, **options}) as (spool, status),
    ):
        await until(lambda: status.state == state)
        yield server, spool, status


def values(*spool: MemoryAppender) -> list[float]:
    """Values of channel 0, each (time, value) once, without the server's first one, 0."""
    rows = {(time, value) for k in spool for time, value, _ in k.samples(0)}
    return sorted(value for _, value in rows if value)


def lasting(spool: MemoryAppender) -> list[str]:
    """Reasons of gaps in which something is missing."""
    return [gap.reason for gap in spool.gaps() if gap.to_time is None or gap.to_time > gap.from_time]


def of_outage(spool: MemoryAppender, reason: str) -> tuple[int, int, int]:
    """Since when (µs) samples may be missing, the time of the last publication, and the end of the outage.

    These are two gaps, the last ones: a busy machine may have lost the server before. Before the end, no sample from
    after the publication came.
    """
    gaps = [g for g in spool.gaps() if g.reason == reason and g.channel_ids is None and g.to_time != g.from_time]
    *_, before, gap = sorted(gaps, key=attrgetter("from_time"))
    assert before.to_time == gap.from_time
    assert gap.to_time is not None
    recorded = [k for k, b in enumerate(spool.batches) if isinstance(b, GapBatch)]
    ended = next(k for k in recorded if gap.to_time in [g.to_time for g in spool.batches[k].gaps])  # type: ignore[union-attr]
    came = [b.samples.time.max() for b in spool.batches[:ended] if isinstance(b, SampleBatch)]
    assert max(came, default=0) <= gap.from_time, "the last value would hold"
    return before.from_time, gap.from_time, gap.to_time


async def more(spool: MemoryAppender) -> None:
    """Wait for some more samples of channel 0."""
    seen = len(spool.samples(0))
    await spool.until(lambda: len(spool.samples(0)) > seen + 5)


async def test_cut_connection_loses_nothing(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, spool, status):
        await server.write(10)
        for _ in range(3):
            await server.cut_off(status)
            assert status.open_gaps == 1
            await server.write(10)
            await server.server.refuse(False)
            await until(lambda: status.state == "connected")
            await server.write(10)
        await spool.until(lambda: values(spool) == server.written)
        await until(lambda: status.open_gaps == 0)
        assert len(spool.samples(0)) == len(set(spool.samples(0)))
        assert lasting(spool) == []
        assert status.open_gaps == 0


async def test_missing_message_is_republished(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, spool, status):
        await server.write(10)
        for _ in range(3):
            await server.lose("sent again")
            await server.write(10)
        await spool.until(lambda: values(spool) == server.written)
        assert (status.missed, status.reconnects, lasting(spool)) == (0, 0, [])


async def test_unavailable_message_is_a_gap(tmp_path: Path) -> None:
    backfill_spool = MemoryAppender()
    async with connected(tmp_path, backfill_spool=backfill_spool) as (server, spool, status):
        await server.write(20)
        start = now_us()
        await server.lose("gone")
        await server.write(10)
        await spool.until(lambda: server.written[-1] in values(spool) and status.missed >= 1)
        assert status.reconnects == 0
        lost = set(server.written) - set(values(spool))
        assert lost
        await spool.until(lambda: any(g.backfilled for g in spool.gaps()))
        gaps = [g for g in spool.gaps() if g.reason == "not_available"]
        assert min(g.from_time for g in gaps) <= start < max(g.to_time or 0 for g in gaps)
        newest_before = max(time for time, value, _ in spool.samples(0) if value < min(lost))
        assert [g for g in gaps if newest_before <= g.from_time <= start], "the last value does not hold"
        assert set(values(backfill_spool)) >= lost, "from the history"
        assert sorted(set(values(spool, backfill_spool))) == server.written


async def test_lost_samples_that_the_server_queued_late_are_in_a_gap(tmp_path: Path) -> None:
    late = 1_000_000  # µs, more than a publishing interval

    async def write(server: Server, count: int) -> dict[int, float]:
        """Values of channel 0 that are late, by time, while channel 1 is not."""
        written: dict[int, float] = {}
        for k in range(count):
            await server.server.write(1, k % 2 == 0, now_us(), 0)
            await server.server.write(0, float(k + 1), time := now_us() - late, 0)
            written[time] = float(k + 1)
            await asyncio.sleep(0.02)
        return written

    async with connected(tmp_path) as (server, spool, _status):
        written = await write(server, 40)
        server.server.transit.loss = "gone"
        while server.server.transit.lost < 2:  # the first may have values of channel 1 only
            written |= await write(server, 10)
        server.server.transit.loss = "no"
        written |= await write(server, 10)
        await spool.until(lambda: max(written) in {time for time, _, _ in spool.samples(0)})
        lost = written.keys() - {time for time, _, _ in spool.samples(0)}
        assert lost

        def in_gaps(time: int) -> bool:
            gaps = [gap for gap in spool.gaps() if gap.reason == "not_available"]
            return any(gap.from_time <= time <= (gap.to_time or 0) for gap in gaps)

        await spool.until(lambda: all(map(in_gaps, lost)))  # the server is asked for them again


async def test_half_created_subscriptions_hide_no_gap(tmp_path: Path) -> None:
    backfill_spool = MemoryAppender()
    async with (
        serving(tmp_path) as server,
        collecting(
            server.address, OURS, tmp_path / "pki", backfill_spool=backfill_spool, backfill=False, **OPTIONS
        ) as (spool, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(10)
        await spool.until(lambda: values(spool) == server.written)
        subscriptions = server.server._subscriptions
        cuts: list[asyncio.Task[None]] = []

        async def cut() -> None:
            await server.server.refuse(True)
            await server.server.refuse(False)

        async def half(params: Any) -> Any:
            made = await type(subscriptions).create_monitored_items(subscriptions, params)
            if len(cuts) < 2:
                cuts.append(asyncio.create_task(cut()))
                await asyncio.Event().wait()
            return made

        await server.cut_off(status)
        subscriptions.create_monitored_items = half
        lost_from = now_us()
        await server.write(20, 0.0)
        lost = list(server.written[10:])
        await server.server.forget()
        await server.server.refuse(False)
        await until(lambda: status.state == "connected")
        assert len(cuts) == 2
        await server.write(5)
        await spool.until(lambda: server.written[-1] in values(spool))
        assert set(lost[:-1]).isdisjoint(values(spool)), "or there was no loss"
        assert of_outage(spool, "disconnected")[0] <= lost_from
        assert len(subscriptions.subscriptions) == 1


async def test_a_server_that_takes_fewer_publish_requests_gets_fewer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serving(tmp_path) as server:
        subscriptions = server.server._subscriptions
        requests: list[int] = []

        def publish(acks: Any) -> Any:
            requests.append(len(requests))
            if len(requests) in (2, 3):
                raise ServiceError(ua.StatusCodes.BadTooManyPublishRequests)
            return type(subscriptions).publish(subscriptions, acks)

        subscriptions.publish = publish
        async with collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (spool, status):
            await until(lambda: status.state == "connected")
            await until(lambda: len(requests) >= 3)
            await server.write(30)
            await spool.until(lambda: values(spool) == server.written)
            assert (status.missed, status.reconnects, lasting(spool)) == (0, 0, [])
    assert "the server limits publish requests to 1" in caplog.text


async def test_overflow_is_a_gap_of_only_that_channel(tmp_path: Path) -> None:
    async with connected(tmp_path, queue_size=5) as (server, spool, _status):
        await server.write(5, 0.15)
        await spool.until(lambda: values(spool) == server.written)
        spool.full = True
        await server.write(100)
        spool.full = False
        await spool.until(lambda: server.written[-1] in values(spool) and 6.0 in values(spool))

        def each_lost_one_is_in_a_gap() -> bool:
            times = {value: time for time, value, _ in spool.samples(0)}
            spans = [(g.from_time, g.to_time or 0) for g in spool.gaps() if g.reason == "overflow"]
            return all(
                any(
                    start <= max(time for v, time in times.items() if v < value)
                    and min(time for v, time in times.items() if v > value) <= end
                    for start, end in spans
                )
                for value in set(server.written) - set(times)
            )

        await spool.until(each_lost_one_is_in_a_gap)
        assert set(server.written) - set(values(spool)), "or nothing overflowed"
        assert {g.channel_ids for g in spool.gaps()} == {(0,)}


async def test_silence_of_a_channel_is_a_gap_where_it_is_told_to_be(tmp_path: Path) -> None:
    tags = [replace(OURS[0], stale_after=0.5), OURS[1]]
    async with connected(tmp_path, tags) as (server, spool, status):
        await server.write(3)
        await spool.until(lambda: values(spool) == server.written)
        last = max(time for time, _, _ in spool.samples(0))
        await until(lambda: status.open_gaps == 1)
        await server.write(1)
        await until(lambda: status.open_gaps == 0)
        (gap,) = [g for g in spool.gaps() if g.reason == "stale" and g.from_time == last]
        assert gap.channel_ids == (0,)
        assert gap.to_time is not None


async def test_bad_text_keeps_its_status_code(tmp_path: Path) -> None:
    async with connected(tmp_path) as (server, spool, _status):
        await server.server.write(2, "", now_us(), 0x80050000)
        await spool.until(lambda: 0x80050000 in [e.status for e in spool.events("text")])
        assert [e.text for e in spool.events("text") if e.status] == [None]
        assert not spool.samples(2)


@pytest.mark.parametrize("server_timestamp", [True, False])
async def test_frozen_source_timestamp(tmp_path: Path, server_timestamp: bool) -> None:
    """While the server's timestamp moves, no value is lost; without it, that is one gap, and few events."""
    async with connected(tmp_path) as (server, spool, status):
        await spool.until(lambda: bool(spool.samples(0)))
        time, before = now_us(), len(spool.samples(0))
        for n in range(1, 21):
            await server.server.write(0, float(n), time, 0, now_us() if server_timestamp else 0)
            await asyncio.sleep(0.05)
        if server_timestamp:
            await spool.until(lambda: spool.samples(0)[-1][1] == 20.0)
            samples = spool.samples(0)[before:]
            assert [value for _, value, _ in samples] == [float(n) for n in range(1, 21)]
            assert samples == sorted(samples) and samples[0][0] == time
            assert [event.text for event in spool.events("time_source")] == ["server"]
            assert not spool.events("conflict") and not spool.gaps()
            return
        await spool.until(lambda: any(event.detail["refused"] >= 16 for event in spool.events("conflict")))
        assert [value for _, value, _ in spool.samples(0)[before:]] == [1.0]
        assert {event.text for event in spool.events("conflict")} == {"time stands still"}
        assert len(spool.events("conflict")) <= 5
        [gap] = [gap for gap in spool.gaps() if gap.reason == "time_stands_still"]
        assert (gap.from_time, gap.to_time, gap.channel_ids) == (time, None, (0,))
        await until(lambda: "1 channel are" in status.remarks.get("repeated", ""))


async def test_clock_skew_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.opcua.subscription.receive.ClockSkew", partial(ClockSkew, interval=0.5))
    async with connected(tmp_path, skew_limit=60.0) as (server, spool, _status):
        for ahead, text in ((0, "good"), (600_000_000, "skewed"), (0, "good")):

            async def noticed(ahead: int = ahead, text: str = text) -> bool:
                skews = [event.text for event in spool.events("clock_skew")]
                if skews[-1:] == [text] or not (ahead or skews):
                    return True
                await server.server.write(0, now_us() % 97 / 97, now_us() + ahead, 0)
                return False

            await until(noticed, every=0.1)
            await server.write(2)
        assert [e.text for e in spool.events("clock_skew")] == ["skewed", "good"]
        skewed = spool.events("clock_skew")[0].detail
        assert skewed["clock"] == "source"
        assert 550 < skewed["ahead_seconds"] <= 600


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [-600, 0, 600])
async def test_gap_has_the_clock_of_its_samples(tmp_path: Path, ahead: int) -> None:
    """The server is killed, and its clock is wrong by more than that takes."""
    clock = WallClock(tmp_path)
    clock.set(ahead)
    server = Peer("simulator", tmp_path / "peer", 20, "100", environment=clock.environment)
    tags = [tag for tag in opcua_tags("simulator", 20) if tag.kind == "analog"]
    address = f"opc.tcp://127.0.0.1:{server.port}"
    try:
        await server.start()
        async with collecting(address, tags, tmp_path / "pki", **OPTIONS) as (spool, status):
            await spool.until(lambda: len(spool.samples(0)) > 10)
            await server.kill()
            await until(lambda: status.state == "disconnected")
            await server.start()
            await until(lambda: status.open_gaps == 0 and [g for g in spool.gaps() if g.to_time])
            since, _, end = of_outage(spool, "disconnected")
            await spool.until(lambda: max(time for time, *_ in spool.samples(0)) > end)
            times = {time for time, *_ in spool.samples(0)}
    finally:
        await server.kill()
    published = {time for name, time in server.published() if name == tags[0].name}
    missing = {time for time in published - times if min(times) < time < max(times)}
    gaps = [(gap.from_time, gap.to_time or max(times)) for gap in spool.gaps() if gap.channel_ids is None]
    assert {time for time in missing if not any(begin <= time <= end for begin, end in gaps)} == set()
    assert [time for time in times if time <= since]
