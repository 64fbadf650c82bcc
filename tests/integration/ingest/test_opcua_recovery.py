"""What an OPC UA collector does about a lost connection, process, message or subscription: servers over real sockets.

A collector that is killed is one whose spool is frozen as it is at that moment: what was durable then, and its notes,
are all that the next one has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from asyncua import ua
from asyncua.common.utils import ServiceError
from asyncua.server.subscription_service import SubscriptionService

from core.batch import GapBatch, SampleBatch
from core.config.sources import OpcuaTag
from core.timestamps import microseconds, now_us
from ingest.appender import Notes
from ingest.opcua.subscription.source_times import ClockSkew
from ingest.opcua.subscription.subscriptions import Subscriptions
from lab.chaos.machines.member import WallClock
from ops.certificates import trust
from simulator.opcua_server import OpcuaServer
from simulator.relay import Relay
from simulator.tags import SimTag
from tests.integration.ingest.test_opcua_collector import collecting, simulated_server
from tests.memory_appender import MemoryAppender
from tests.peers import Peer, free_port, opcua_tags, peer
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


def values(*kept: MemoryAppender) -> list[float]:
    """Of channel 0, each (time, value) once; 0 is what the server begins with."""
    rows = {(time, value) for k in kept for time, value, _ in k.samples(0)}
    return sorted(value for _, value in rows if value)


def lasting(kept: MemoryAppender) -> list[str]:
    """Reasons of gaps in which something is missing."""
    return [gap.reason for gap in kept.gaps() if gap.to_time is None or gap.to_time > gap.from_time]


def of_outage(kept: MemoryAppender, reason: str) -> tuple[int, int, int]:
    """Since when (µs) samples may be missing, the time of the last publication, and the end of the outage.

    These are two gaps. Before the end, no sample from after the publication came.
    """
    gaps = [g for g in kept.gaps() if g.reason == reason and g.channel_ids is None and g.to_time != g.from_time]
    before, gap = sorted(gaps, key=attrgetter("from_time"))
    assert before.to_time == gap.from_time
    assert gap.to_time is not None
    recorded = [k for k, b in enumerate(kept.batches) if isinstance(b, GapBatch)]
    ended = next(k for k in recorded if gap.to_time in [g.to_time for g in kept.batches[k].gaps])  # type: ignore[union-attr]
    came = [b.samples.time.max() for b in kept.batches[:ended] if isinstance(b, SampleBatch)]
    assert max(came, default=0) <= gap.from_time, "the last value would hold"
    return before.from_time, gap.from_time, gap.to_time


async def more(kept: MemoryAppender) -> None:
    """Wait for some more samples of channel 0."""
    seen = len(kept.samples(0))
    await kept.until(lambda: len(kept.samples(0)) > seen + 5)


async def test_cut_connection_loses_nothing(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(10)
        for _ in range(3):
            await server.server.refuse(True)
            await until(lambda: status.state == "disconnected")
            assert status.open_gaps == 1
            await server.write(10)
            await server.server.refuse(False)
            await until(lambda: status.state == "connected")
            await server.write(10)
        await kept.until(lambda: values(kept) == server.written)
        await until(lambda: status.open_gaps == 0)
        assert len(kept.samples(0)) == len(set(kept.samples(0)))
        assert lasting(kept) == []
        assert status.open_gaps == 0


async def test_kill_during_transfer_loses_no_subscription(tmp_path: Path) -> None:
    """No item is made or deleted, so at no moment it is unknown which ones the server has."""
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        facts: list[str] = []
        note = kept.note

        async def noted(notes: Notes) -> None:
            facts.append(notes.get("opcua:1") or "")
            await note(notes)

        kept.note = noted  # type: ignore[method-assign]
        await server.server.refuse(True)
        await until(lambda: status.state == "disconnected")
        await server.server.refuse(False)
        await until(lambda: status.state == "connected" and status.open_gaps == 0)
    assert any(facts)
    assert not [skews for skews in facts if '"changing": true' in skews]


async def test_killed_collector_continues_its_subscription(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        spools = [MemoryAppender()]
        for _ in range(4):
            async with collecting(server.address, OURS, tmp_path / "pki", kept=spools[-1], **OPTIONS) as (kept, status):
                await until(lambda status=status: status.state == "connected")
                await server.write(20, 0.013)
                await until(lambda status=status: status.open_gaps == 0)
                frozen = MemoryAppender(deepcopy(kept.notes))  # killed now
                frozen.batches = list(kept.batches)
            spools[-1] = frozen
            spools.append(MemoryAppender(deepcopy(frozen.notes)))
            await server.write(20)
        async with collecting(server.address, OURS, tmp_path / "pki", kept=spools[-1], **OPTIONS):
            await spools[-1].until(lambda: values(*spools) == server.written and not lasting(spools[-1]))
        assert [reason for k in spools for reason in lasting(k)] == []
        assert [[g.reason for g in k.gaps()] for k in spools] == [[], *([["killed"]] * 4)]


async def test_killed_collector_stores_no_value_a_second_time_under_another_time(tmp_path: Path) -> None:
    """The source timestamps are whole seconds: values within a second take the server's, the first one does not."""
    second = (now_us() // 1_000_000 - 60) * 1_000_000
    async with simulated_server(TAGS, tmp_path, port := free_port()) as server:

        async def write(value: int, after: int, milliseconds: int) -> None:
            source = second + after * 1_000_000
            await server.write(0, value, source, 0, source + milliseconds * 1000)

        address = f"opc.tcp://127.0.0.1:{port}/"
        async with collecting(address, OURS[:1], tmp_path / "pki", insecure=True) as (kept, status):
            await until(lambda: status.state == "connected" and status.open_gaps == 0)
            for value, after, milliseconds in ((1, 0, 10), (2, 0, 500), (3, 1, 10)):
                await write(value, after, milliseconds)
                await kept.until(lambda value=value: any(v == value for _, v, _ in kept.samples(0)))  # type: ignore[misc]
            killed = MemoryAppender(deepcopy(kept.notes))
        async with collecting(address, OURS[:1], tmp_path / "pki", killed, insecure=True):
            await write(4, 1, 500)
            await killed.until(lambda: any(v == 4 for _, v, _ in killed.samples(0)))
    stored = {(time - second, value) for time, value, _ in kept.samples(0) + killed.samples(0) if value}
    assert stored == {(0, 1), (500_000, 2), (1_000_000, 3), (1_500_000, 4)}


async def test_no_sample_is_later_than_the_begin_of_the_gap_of_a_killed_collector(tmp_path: Path) -> None:
    """The note of a subscription does not say when the last notification was published that is stored with it."""
    async with serving(tmp_path, history=0) as server:
        async with collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (kept, status):
            await until(lambda: status.state == "connected")
            await server.write(20)
            await kept.until(lambda: values(kept) == server.written)
            second = MemoryAppender(deepcopy(kept.notes))
            newest = max(time for time, *_ in kept.samples(0))
        await server.server.forget()
        async with collecting(server.address, OURS, tmp_path / "pki", kept=second, **OPTIONS) as (_, status):
            await until(lambda: status.state == "connected" and status.open_gaps == 0)
        begin, published, _ = of_outage(second, "killed")
        assert begin <= newest <= published


async def test_stopped_collector_hands_its_subscription_to_the_next(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with collecting(server.address, OURS, tmp_path / "pki", kept=first, **OPTIONS) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
        await server.write(10)
        second = MemoryAppender(first.notes)
        async with collecting(server.address, OURS, tmp_path / "pki", kept=second, **OPTIONS):
            await second.until(lambda: values(first, second) == server.written and not lasting(second))
        assert [gap.reason for gap in second.gaps()] == ["stopped"]
        assert lasting(second) == []


@pytest.mark.parametrize("subscriptions", (1, 2))
async def test_dead_transferred_subscriptions_are_recreated(
    subscriptions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As asyncua's own server does it: it says Good, and publishes to the session before. What that costs is a gap, but
    not one that lasts until a keep-alive is missed."""
    options = {**OPTIONS, "keep_alive": 600.0, "lifetime": 3600.0}
    tags = OURS if subscriptions == 1 else [OURS[0], replace(OURS[1], interval=0.5), OURS[2]]
    stock = SubscriptionService.transfer_subscriptions
    monkeypatch.setattr("simulator.subscriptions.Subscriptions.transfer_subscriptions", stock)
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with collecting(server.address, tags, tmp_path / "pki", kept=first, **options) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
        second = MemoryAppender(first.notes)
        async with collecting(server.address, tags, tmp_path / "pki", kept=second, **options) as (_, status):
            await until(lambda: status.state == "connected")
            assert status.open_gaps == 1, "nothing has come yet"
            assert [gap.detail for gap in second.gaps()] == ["plantlog was stopped"]
            await server.write(10)
            lost = list(server.written)
            await until(lambda: status.open_gaps == 0)
            await until(lambda: status.state == "connected")
            await server.write(10)
            await second.until(lambda: server.written[-1] in values(second))
        assert set(server.written) - set(lost) <= set(values(second))
        assert set(lasting(second)) == {"stopped"}


async def test_quiet_transferred_subscription_is_not_lost(tmp_path: Path) -> None:
    """It publishes nothing of its own until its keep-alive is due, in ten minutes."""
    options = {**OPTIONS, "keep_alive": 600.0, "lifetime": 3600.0}
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with collecting(server.address, OURS, tmp_path / "pki", kept=first, **options) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await first.until(lambda: values(first) == server.written)
        second = MemoryAppender(first.notes)
        async with collecting(server.address, OURS, tmp_path / "pki", kept=second, **options) as (_, status):
            await until(lambda: status.state == "connected" and status.open_gaps == 0)
            (subscription,) = server.server._subscriptions.subscriptions.values()
            await until(lambda: len(subscription.monitored_item_srv._monitored_items) == len(OURS))
            await server.write(10)
            await second.until(lambda: values(first, second) == server.written)
        assert (status.reconnects, lasting(second)) == (0, [])
        came = [b.samples.channel for b in second.batches if isinstance(b, SampleBatch)]
        assert set(np.concatenate(came).tolist()) == {0}


async def test_missing_message_is_republished(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(10)
        for _ in range(3):
            await server.lose("sent again")
            await server.write(10)
        await kept.until(lambda: values(kept) == server.written)
        assert (status.missed, status.reconnects, lasting(kept)) == (0, 0, [])


async def test_unavailable_message_is_a_gap(tmp_path: Path) -> None:
    backfill_spool = MemoryAppender()
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", backfill_spool=backfill_spool, **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(20)
        start = now_us()
        await server.lose("gone")
        await server.write(10)
        await kept.until(lambda: server.written[-1] in values(kept) and status.missed >= 1)
        assert status.reconnects == 0
        lost = set(server.written) - set(values(kept))
        assert lost
        await kept.until(lambda: any(g.backfilled for g in kept.gaps()))
        gaps = [g for g in kept.gaps() if g.reason == "not_available"]
        assert min(g.from_time for g in gaps) <= start < max(g.to_time or 0 for g in gaps)
        newest_before = max(time for time, value, _ in kept.samples(0) if value < min(lost))
        assert [g for g in gaps if newest_before <= g.from_time <= start], "the last value does not hold"
        assert set(values(backfill_spool)) >= lost, "from the history"
        assert sorted(set(values(kept, backfill_spool))) == server.written


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

    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        written = await write(server, 40)
        server.server.transit.loss = "gone"
        while server.server.transit.lost < 2:  # the first may have values of channel 1 only
            written |= await write(server, 10)
        server.server.transit.loss = "no"
        written |= await write(server, 10)
        await kept.until(lambda: max(written) in {time for time, _, _ in kept.samples(0)})
        lost = written.keys() - {time for time, _, _ in kept.samples(0)}
        assert lost

        def in_gaps(time: int) -> bool:
            gaps = [gap for gap in kept.gaps() if gap.reason == "not_available"]
            return any(gap.from_time <= time <= (gap.to_time or 0) for gap in gaps)

        await kept.until(lambda: all(map(in_gaps, lost)))  # the server is asked for them again


async def test_lost_subscription_is_backfilled_from_history(tmp_path: Path) -> None:
    backfill_spool = MemoryAppender()
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", backfill_spool=backfill_spool, **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(20)
        await server.server.refuse(True)
        await until(lambda: status.state == "disconnected")
        await server.write(1500, 0.0)
        await server.server.write(2, "RUNNING", now_us(), 0)
        await server.server.forget()
        await until(lambda: status.state == "connected")
        await server.write(20)
        await kept.until(lambda: server.written[-1] in values(kept))
        assert len(values(kept)) < 1000, "or nothing was lost"
        await kept.until(lambda: [g.backfilled for g in kept.gaps()] == [True, True])
        of_outage(kept, "disconnected")
        assert sorted(set(values(kept, backfill_spool))) == server.written, "read in several parts"
        assert "RUNNING" in [e.text for e in backfill_spool.events("text")]
        assert "backfill:1" not in kept.notes


async def test_values_unsent_at_a_server_crash_stay_a_gap(tmp_path: Path) -> None:
    backfill_spool = MemoryAppender()
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", backfill_spool=backfill_spool, **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(20)
        await server.server.refuse(True)
        await until(lambda: status.state == "disconnected")
        await server.write(20)
        began = datetime.now(UTC)
        assert server.server._server is not None
        start_time = server.server._server.get_node(ua.ObjectIds.Server_ServerStatus_StartTime)
        await start_time.write_value(began)
        await server.write(20)
        await server.server.forget()
        await until(lambda: status.state == "connected")
        await kept.until(lambda: any(g.backfilled for g in kept.gaps()))
        assert sorted(set(values(kept, backfill_spool))) == server.written
        remains = [g for g in kept.gaps() if g.detail == "not in the history"]
        (before,) = [g for g in remains if g.channel_ids is None]
        assert sum(len(g.channel_ids or ()) for g in remains) == len(OURS)
        for gap in remains:
            assert gap is before or (gap.from_time, gap.to_time) == (before.to_time, microseconds(began))
            assert not gap.backfilled


async def test_killed_before_new_subscriptions_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outage is over then by what is on disk, and no subscription is known that has published since."""
    frozen: list[MemoryAppender] = []
    async with serving(tmp_path, history=0) as server:
        async with collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (first, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await first.until(lambda: values(first) == server.written)

            async def complete(_: Subscriptions) -> None:
                frozen.append(MemoryAppender(deepcopy(first.notes)))
                await asyncio.Event().wait()

            with monkeypatch.context() as patch:
                patch.setattr(Subscriptions, "complete", complete)
                await server.server.forget()
                await until(lambda: bool(frozen))
        begin = now_us()
        await server.write(10)
        end = now_us()
        async with collecting(server.address, OURS, tmp_path / "pki", kept=frozen[0], **OPTIONS) as (second, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await second.until(lambda: server.written[-1] in values(second))
    ended = max(gap.to_time or 0 for gap in first.gaps() if gap.reason == "disconnected")
    (gap,) = [gap for gap in second.gaps() if gap.reason == "killed"]
    assert gap.from_time <= ended, "nothing is between the outage and what follows"
    assert gap.channel_ids is None
    assert gap.to_time is not None
    assert gap.from_time <= begin
    assert gap.to_time >= end


async def test_server_without_history_backfills_nothing(tmp_path: Path) -> None:
    """It was started anew, and one tag is refused: neither says that anything was filled."""
    tags = [*OURS, OpcuaTag(name="unknown", address="ns=2;s=nobody")]
    async with (
        serving(tmp_path, history=0) as server,
        collecting(server.address, tags, tmp_path / "pki", **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "degraded")
        await server.write(5)
        await server.server.refuse(True)
        await until(lambda: status.state == "disconnected")
        await server.write(5)
        assert server.server._server is not None
        start_time = server.server._server.get_node(ua.ObjectIds.Server_ServerStatus_StartTime)
        await start_time.write_value(datetime.now(UTC))
        await server.server.forget()
        await until(lambda: status.state == "degraded")
        await kept.until(lambda: "backfill:1" in kept.notes)
        await kept.until(lambda: "backfill:1" not in kept.notes)
        assert not [gap for gap in kept.gaps() if gap.backfilled]
        of_outage(kept, "disconnected")


async def test_time_beyond_the_history_stays_a_gap(tmp_path: Path) -> None:
    """The server's history holds 2,000 values of a node."""
    backfill_spool = MemoryAppender()
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", backfill_spool=backfill_spool, **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(20)
        await server.server.refuse(True)
        await until(lambda: status.state == "disconnected")
        await server.write(3000, 0.0)
        await server.server.forget()
        await until(lambda: status.state == "connected")
        await kept.until(lambda: any(g.backfilled for g in kept.gaps()))
        assert len(values(backfill_spool)) >= 1990
        remains = [g for g in kept.gaps() if g.channel_ids is not None and 0 in g.channel_ids]
        before, gap = sorted(remains, key=attrgetter("from_time"))
        assert not before.backfilled
        assert not gap.backfilled
        oldest = min(time for time, _, _ in backfill_spool.samples(0))
        assert (before.to_time, gap.to_time) == (gap.from_time, oldest)


async def test_half_created_subscriptions_hide_no_gap(tmp_path: Path) -> None:
    backfill_spool = MemoryAppender()
    async with (
        serving(tmp_path) as server,
        collecting(
            server.address, OURS, tmp_path / "pki", backfill_spool=backfill_spool, backfill=False, **OPTIONS
        ) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(10)
        await kept.until(lambda: values(kept) == server.written)
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

        await server.server.refuse(True)
        await until(lambda: status.state == "disconnected")
        subscriptions.create_monitored_items = half
        lost_from = now_us()
        await server.write(20, 0.0)
        lost = list(server.written[10:])
        await server.server.forget()
        await server.server.refuse(False)
        await until(lambda: status.state == "connected")
        assert len(cuts) == 2
        await server.write(5)
        await kept.until(lambda: server.written[-1] in values(kept))
        assert set(lost[:-1]).isdisjoint(values(kept)), "or there was no loss"
        assert of_outage(kept, "disconnected")[0] <= lost_from
        assert len(subscriptions.subscriptions) == 1


async def test_server_that_closes_the_session_on_history_read_is_read_live(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        cuts: list[asyncio.Task[None]] = []

        async def cut() -> None:
            await server.server.refuse(True)
            await server.server.refuse(False)

        async def ends_it(details: Any, value: Any) -> Any:
            cuts.append(asyncio.create_task(cut()))
            await asyncio.Event().wait()

        server.server._history._read_history = ends_it  # type: ignore[assignment]
        async with collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (kept, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await kept.until(lambda: values(kept) == server.written)
            await server.server.forget()
            await until(lambda: status.reconnects >= 4)
            await until(lambda: status.state == "connected")
            before = status.reconnects
            await server.write(20)
            await kept.until(lambda: server.written[-1] in values(kept))
            assert status.reconnects == before
            assert not any(gap.backfilled for gap in kept.gaps())


async def test_a_server_that_takes_fewer_publish_requests_gets_fewer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serving(tmp_path) as server:
        subscriptions = server.server._subscriptions
        asked: list[int] = []

        def publish(acks: Any) -> Any:
            asked.append(len(asked))
            if len(asked) in (2, 3):
                raise ServiceError(ua.StatusCodes.BadTooManyPublishRequests)
            return type(subscriptions).publish(subscriptions, acks)

        subscriptions.publish = publish
        async with collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (kept, status):
            await until(lambda: status.state == "connected")
            await until(lambda: len(asked) >= 3)
            await server.write(30)
            await kept.until(lambda: values(kept) == server.written)
            assert (status.missed, status.reconnects, lasting(kept)) == (0, 0, [])
    assert "the server limits publish requests to 1" in caplog.text


async def test_overflow_is_a_gap_of_only_that_channel(tmp_path: Path) -> None:
    options = {**OPTIONS, "queue_size": 5}
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", **options) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(5, 0.15)
        await kept.until(lambda: values(kept) == server.written)
        kept.full = True
        await server.write(100)
        kept.full = False
        await kept.until(lambda: server.written[-1] in values(kept) and 6.0 in values(kept))

        def each_lost_one_is_in_a_gap() -> bool:
            times = {value: time for time, value, _ in kept.samples(0)}
            spans = [(g.from_time, g.to_time or 0) for g in kept.gaps() if g.reason == "overflow"]
            return all(
                any(
                    start <= max(time for v, time in times.items() if v < value)
                    and min(time for v, time in times.items() if v > value) <= end
                    for start, end in spans
                )
                for value in set(server.written) - set(times)
            )

        await kept.until(each_lost_one_is_in_a_gap)
        assert set(server.written) - set(values(kept)), "or nothing overflowed"
        assert {g.channel_ids for g in kept.gaps()} == {(0,)}


async def test_channel_moved_to_another_node(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with collecting(server.address, OURS, tmp_path / "pki", kept=first, **OPTIONS) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(5)
            await first.until(lambda: values(first) == server.written)
        second = MemoryAppender(first.notes)
        swapped = [replace(OURS[1], name="a"), replace(OURS[0], name="b")]
        async with collecting(server.address, swapped, tmp_path / "pki", kept=second, **OPTIONS) as (_, status):
            await until(lambda: status.state == "connected")
            await second.until(lambda: 0.0 in [v for _, v, _ in second.samples(0)])  # what the other node begins with
            swapped_at = now_us()
            await server.write(5)
            await second.until(lambda: server.written[-1] in [v for _, v, _ in second.samples(1)])
            await until(lambda: status.open_gaps == 0)
        assert {v for t, v, _ in second.samples(0) if t > swapped_at} <= {0.0, 1.0}
        assert len(server.server._subscriptions.subscriptions) == 1
        moved = [g.channel_ids or () for g in second.gaps() if g.reason == "stopped"]
        assert sorted(chain.from_iterable(moved)) == [0, 1], "nothing is sampled between the items of two nodes"


async def test_silence_of_a_channel_is_a_gap_where_it_is_told_to_be(tmp_path: Path) -> None:
    tags = [replace(OURS[0], stale_after=0.5), OURS[1]]
    async with (
        serving(tmp_path) as server,
        collecting(server.address, tags, tmp_path / "pki", **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.write(3)
        await kept.until(lambda: values(kept) == server.written)
        last = max(time for time, _, _ in kept.samples(0))
        await until(lambda: status.open_gaps == 1)
        await server.write(1)
        await until(lambda: status.open_gaps == 0)
        (gap,) = [g for g in kept.gaps() if g.reason == "stale" and g.from_time == last]
        assert gap.channel_ids == (0,)
        assert gap.to_time is not None


async def test_bad_text_keeps_its_status_code(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await server.server.write(2, "", now_us(), 0x80050000)
        await kept.until(lambda: 0x80050000 in [e.status for e in kept.events("text")])
        assert [e.text for e in kept.events("text") if e.status] == [None]
        assert not kept.samples(2)


@pytest.mark.parametrize("server_timestamp", [True, False])
async def test_frozen_source_timestamp(tmp_path: Path, server_timestamp: bool) -> None:
    """While the server's timestamp moves, no value is lost; without it, that is one gap, and few events."""
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        await kept.until(lambda: bool(kept.samples(0)))
        time, before = now_us(), len(kept.samples(0))
        for n in range(1, 21):
            await server.server.write(0, float(n), time, 0, now_us() if server_timestamp else 0)
            await asyncio.sleep(0.05)
        if server_timestamp:
            await kept.until(lambda: kept.samples(0)[-1][1] == 20.0)
            samples = kept.samples(0)[before:]
            assert [value for _, value, _ in samples] == [float(n) for n in range(1, 21)]
            assert samples == sorted(samples) and samples[0][0] == time
            assert [event.text for event in kept.events("time_source")] == ["server"]
            assert not kept.events("conflict") and not kept.gaps()
            return
        await kept.until(lambda: any(event.detail["refused"] >= 16 for event in kept.events("conflict")))
        assert [value for _, value, _ in kept.samples(0)[before:]] == [1.0]
        assert {event.text for event in kept.events("conflict")} == {"time stands still"}
        assert len(kept.events("conflict")) <= 5
        [gap] = [gap for gap in kept.gaps() if gap.reason == "time_stands_still"]
        assert (gap.from_time, gap.to_time, gap.channel_ids) == (time, None, (0,))
        await until(lambda: "1 channel are" in status.remarks.get("repeated", ""))


async def test_clock_skew_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.opcua.subscription.receive.ClockSkew", partial(ClockSkew, interval=0.5))
    async with (
        serving(tmp_path) as server,
        collecting(server.address, OURS, tmp_path / "pki", **OPTIONS, skew_limit=60.0) as (kept, status),
    ):
        await until(lambda: status.state == "connected")
        for ahead, text in ((0, "good"), (600_000_000, "skewed"), (0, "good")):

            async def noticed(ahead: int = ahead, text: str = text) -> bool:
                skews = [event.text for event in kept.events("clock_skew")]
                if skews[-1:] == [text] or not (ahead or skews):
                    return True
                await server.server.write(0, now_us() % 97 / 97, now_us() + ahead, 0)
                return False

            await until(noticed, every=0.1)
            await server.write(2)
        assert [e.text for e in kept.events("clock_skew")] == ["skewed", "good"]
        skewed = kept.events("clock_skew")[0].detail
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
        async with collecting(address, tags, tmp_path / "pki", **OPTIONS) as (kept, status):
            await kept.until(lambda: len(kept.samples(0)) > 10)
            await server.kill()
            await until(lambda: status.state == "disconnected")
            await server.start()
            await until(lambda: status.open_gaps == 0 and [g for g in kept.gaps() if g.to_time])
            begin, _, end = of_outage(kept, "disconnected")
            await kept.until(lambda: max(time for time, *_ in kept.samples(0)) > end)
            times = {time for time, *_ in kept.samples(0)}
    finally:
        await server.kill()
    published = {time for name, time in server.published() if name == tags[0].name}
    missing = {time for time in published - times if min(times) < time < max(times)}
    assert {time for time in missing if not begin <= time <= end} == set()
    assert [time for time in times if time <= begin]


@pytest.mark.slow
@pytest.mark.parametrize("name", ("node-opcua", "open62541", "milo"))
async def test_foreign_server_transfers_its_subscription(name: str, tmp_path: Path) -> None:
    """Connections cut and collectors killed, again and again; each value once, whatever was republished.

    They hand anonymous users' subscriptions over on a secured channel only (OPC 10000-4, 5.14.7.1).
    """
    # node-opcua names the machine, not 127.0.0.1. A busy machine may be silent for longer than the short time-out.
    options = {**OPTIONS, "insecure": False, "accept": ["wrong-host"], "time_out": 30.0}
    tags = [tag for tag in opcua_tags(name, 100) if tag.kind != "text"]
    port = free_port()
    relay = Relay()
    async with peer(name, tmp_path / "peer", 100, "200") as server:
        await relay.start(("127.0.0.1", port), ("127.0.0.1", server.port))
        address = f"opc.tcp://127.0.0.1:{port}"
        async with collecting(address, tags, tmp_path / "pki", **options) as (_, status):
            await until(lambda: "is not trusted" in status.reason)
        trust(tmp_path / "pki", "ua")
        spools = [MemoryAppender()]
        for _ in range(2):
            async with collecting(address, tags, tmp_path / "pki", kept=spools[-1], **options) as (kept, status):
                await until(lambda status=status: status.state == "connected")
                await more(kept)
                relay.refuse()
                await until(lambda status=status: status.state == "disconnected")
                await relay.accept()
                await until(lambda status=status: status.state == "connected")
                await more(kept)
                await until(lambda status=status: status.open_gaps == 0)
                frozen = MemoryAppender(deepcopy(kept.notes))
                frozen.batches = list(kept.batches)
            spools[-1] = frozen
            spools.append(MemoryAppender(deepcopy(frozen.notes)))
        async with collecting(address, tags, tmp_path / "pki", kept=spools[-1], **options) as (_, status):
            await spools[-1].until(lambda: len(spools[-1].samples(len(tags) - 1)) > 10)
            await until(lambda: status.open_gaps == 0)
        await relay.stop()
        truth = server.published()
    assert [reason for k in spools for reason in lasting(k)] == [], [k.gaps() for k in spools]
    for i, tag in enumerate(tags):
        stored = {time: value for k in spools for time, value, _ in k.samples(i)}
        times = sorted(time for channel, time in truth if channel == tag.name)
        first = next(time for time in times if time in stored)
        between = [time for time in times if first <= time <= max(stored)]
        assert sorted(time for time in stored if time >= first) == between
        assert all(truth[tag.name, time][0] == stored[time] for time in between)
