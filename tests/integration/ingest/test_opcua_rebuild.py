"""Subscriptions of a living session: one that falls silent, one without items, and tags that are removed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.timestamps import now_us
from tests.integration.ingest.test_opcua_collector import collecting, simulated_server
from tests.integration.ingest.test_opcua_live import IDS, configured, living
from tests.integration.ingest.test_opcua_recovery import OPTIONS, OURS, TAGS, connected, lasting, serving, values
from tests.memory_appender import MemoryAppender
from tests.ports import free_port
from tests.waiting import until


@pytest.mark.slow
async def test_silent_subscription_is_created_again_while_another_goes_on(tmp_path: Path) -> None:
    tags = [OURS[0], replace(OURS[1], interval=0.5)]
    options = {**OPTIONS, "time_out": 1.0}
    async with connected(tmp_path, tags, history=0, **options) as (server, spool, status):
        await spool.until(lambda: bool(spool.samples(0) and spool.samples(1)))
        subscriptions = server.server._subscriptions.subscriptions
        silent = next(n for n, s in subscriptions.items() if s.data.RevisedPublishingInterval == 500.0)

        async def nothing(_: Any = None) -> bool:
            return False

        subscriptions[silent].publish_results = nothing

        async def is_created_again() -> bool:
            await server.write(1)
            return silent not in subscriptions and len(subscriptions) == 2

        await until(is_created_again)
        before = len(spool.samples(1))
        await server.server.write(1, True, now_us(), 0)
        await spool.until(lambda: len(spool.samples(1)) > before and values(spool) == server.written)
        await until(lambda: status.open_gaps == 0)
        assert status.reconnects == 0
        assert {g.channel_ids for g in spool.gaps() if g.reason == "subscription_lost"} == {(1,)}


async def test_source_without_a_readable_tag_survives_a_restart_of_its_server(tmp_path: Path) -> None:
    """The nodes exist then, and are read."""
    port = free_port()
    address = f"opc.tcp://127.0.0.1:{port}/"
    async with collecting(address, OURS[:1], tmp_path / "pki", **OPTIONS) as (spool, status):
        async with simulated_server(TAGS[1:], tmp_path, port):
            await until(lambda: status.state == "degraded")
        await until(lambda: status.state == "disconnected")
        async with simulated_server(TAGS[1:], tmp_path, port):
            await until(lambda: status.state == "degraded")
        await until(lambda: status.state == "disconnected")
        async with simulated_server(TAGS, tmp_path, port) as server:
            await until(lambda: status.state == "connected")
            await server.write(0, 1.0, now_us(), 0)
            await spool.until(lambda: bool(values(spool)))


async def test_source_without_tags_stays_connected(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        spool = MemoryAppender()
        async with living(configured(server.address, []), tmp_path / "pki", spool) as (collector, status):
            await until(lambda: status.state == "connected" and bool(server.server._subscriptions.subscriptions))
            await server.server.forget()
            await until(lambda: status.reconnects == 1 and status.state == "connected")
            collector.configure(configured(server.address, OURS[:1]), IDS)
            await server.write(3)
            await spool.until(lambda: server.written[-1] in values(spool))
            assert status.reconnects == 1


async def test_what_a_removed_tag_loses_is_in_its_gap(tmp_path: Path) -> None:
    """Nothing is published any more for a channel without a tag."""
    slow = [replace(tag, interval=2.0) for tag in OURS[:2]]
    spool = MemoryAppender()
    async with serving(tmp_path, history=0) as server:
        async with living(configured(server.address, slow), tmp_path / "pki", spool) as (collector, status):
            await until(lambda: status.state == "connected")
            await server.write(1)
            await spool.until(lambda: values(spool) == server.written)
            times = []
            for number in range(5):
                times.append(now_us())
                await server.server.write(1, number % 2 == 0, times[-1], 0)
            collector.configure(configured(server.address, slow[:1]), IDS)
            await spool.until(lambda: "removed" in lasting(spool))
        stored = {time for time, *_ in spool.samples(1)}
        lost = [time for time in times if time not in stored]
        (gap,) = [gap for gap in spool.gaps() if gap.reason == "removed"]
        assert lost, "or all was published"
        assert gap.from_time <= min(lost)
        assert gap.to_time is not None
        assert gap.to_time >= max(lost)
