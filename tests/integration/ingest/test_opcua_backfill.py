"""Gaps of an OPC UA source that are read from the server's history."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asyncua import Client, ua

from core.config.sources import OpcuaSource, OpcuaTag
from core.timestamps import microseconds, now_us
from ingest.opcua.recovery.history import read_history
from tests.asyncua_server import unsecured
from tests.integration.ingest.test_opcua_collector import collecting
from tests.integration.ingest.test_opcua_recovery import OPTIONS, OURS, connected, of_outage, serving, values
from tests.memory_appender import MemoryAppender
from tests.waiting import until


async def test_lost_subscription_is_backfilled_from_history(tmp_path: Path) -> None:
    backfill_spool = MemoryAppender()
    async with connected(tmp_path, backfill_spool=backfill_spool) as (server, spool, status):
        await server.write(20)
        await server.cut_off(status)
        await server.write(1500, 0.0)
        await server.server.write(2, "RUNNING", now_us(), 0)
        await server.server.forget()
        await until(lambda: status.state == "connected")
        await server.write(20)
        await spool.until(lambda: server.written[-1] in values(spool))
        assert len(values(spool)) < 1000, "or nothing was lost"
        await spool.until(lambda: [g.backfilled for g in spool.gaps()] == [True, True])
        of_outage(spool, "disconnected")
        assert sorted(set(values(spool, backfill_spool))) == server.written, "read in several parts"
        assert "RUNNING" in [e.text for e in backfill_spool.events("text")]
        assert "backfill:1" not in spool.notes


async def test_values_unsent_at_a_server_crash_stay_a_gap(tmp_path: Path) -> None:
    backfill_spool = MemoryAppender()
    async with connected(tmp_path, backfill_spool=backfill_spool) as (server, spool, status):
        await server.write(20)
        await server.cut_off(status)
        await server.write(20)
        began = datetime.now(UTC)
        assert server.server._server is not None
        start_time = server.server._server.get_node(ua.ObjectIds.Server_ServerStatus_StartTime)
        await start_time.write_value(began)
        await server.write(20)
        await server.server.forget()
        await until(lambda: status.state == "connected")
        await spool.until(lambda: any(g.backfilled for g in spool.gaps()))
        assert sorted(set(values(spool, backfill_spool))) == server.written
        remains = [g for g in spool.gaps() if g.detail == "not in the history"]
        (before,) = [g for g in remains if g.channel_ids is None]
        assert sum(len(g.channel_ids or ()) for g in remains) == len(OURS)
        for gap in remains:
            assert gap is before or (gap.from_time, gap.to_time) == (before.to_time, microseconds(began))
            assert not gap.backfilled


async def test_server_without_history_backfills_nothing(tmp_path: Path) -> None:
    """It was started anew, and one tag is refused: neither says that anything was filled."""
    tags = [*OURS, OpcuaTag(name="unknown", address="ns=2;s=nobody")]
    async with connected(tmp_path, tags, history=0, state="degraded") as (server, spool, status):
        await server.write(5)
        await server.cut_off(status)
        await server.write(5)
        assert server.server._server is not None
        start_time = server.server._server.get_node(ua.ObjectIds.Server_ServerStatus_StartTime)
        await start_time.write_value(datetime.now(UTC))
        await server.server.forget()
        await until(lambda: status.state == "degraded")
        await spool.until(lambda: "backfill:1" in spool.notes)
        await spool.until(lambda: "backfill:1" not in spool.notes)
        assert not [gap for gap in spool.gaps() if gap.backfilled]
        of_outage(spool, "disconnected")


async def test_time_beyond_the_history_stays_a_gap(tmp_path: Path) -> None:
    """The server's history holds 2,000 values of a node."""
    backfill_spool = MemoryAppender()
    async with connected(tmp_path, backfill_spool=backfill_spool) as (server, spool, status):
        await server.write(20)
        await server.cut_off(status)
        await server.write(3000, 0.0)
        await server.server.forget()
        await until(lambda: status.state == "connected")
        await spool.until(lambda: any(g.backfilled for g in spool.gaps()))
        assert len(values(backfill_spool)) >= 1990
        remains = [g for g in spool.gaps() if g.channel_ids is not None and 0 in g.channel_ids]
        before, gap = sorted(remains, key=attrgetter("from_time"))
        assert not before.backfilled
        assert not gap.backfilled
        oldest = min(time for time, _, _ in backfill_spool.samples(0))
        assert (before.to_time, gap.to_time) == (gap.from_time, oldest)


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
        async with collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (spool, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await spool.until(lambda: values(spool) == server.written)
            await server.server.forget()
            await until(lambda: status.reconnects >= 4)
            await until(lambda: status.state == "connected")
            before = status.reconnects
            await server.write(20)
            await spool.until(lambda: server.written[-1] in values(spool))
            assert status.reconnects == before
            assert not any(gap.backfilled for gap in spool.gaps())


@pytest.mark.parametrize("count", [1000, 2500])
async def test_history_that_is_cut_without_a_word_is_read_to_its_end(count: int) -> None:
    """asyncua's server sends as many values as are requested, and no continuation point where there are more."""
    server, address = await unsecured("urn:history")
    node = await server.nodes.objects.add_variable(ua.NodeId("t0", 2), "2:t0", 0.0)
    start = datetime(2026, 9, 21, tzinfo=UTC)
    async with server:
        await server.historize_node_data_change(node, period=None, count=0)
        history = server.iserver.history_manager.storage
        for n in range(count):
            value = ua.DataValue(ua.Variant(float(n)), SourceTimestamp=start + timedelta(seconds=n))
            await history.save_node_value(node.nodeid, value)
        async with Client(address) as client:
            tags = (OpcuaTag(name="t", address="ns=2;s=t0"),)
            source = OpcuaSource(name="s", kind="opcua", address=address, tags=tags)
            begin, end = microseconds(start), microseconds(start + timedelta(seconds=count + 10))
            pages = [page async for page in read_history(client, source, {0: node.nodeid}, begin, end)]
    runs = [run for page in pages if page.change for run in page.change.value]
    assert np.concatenate(runs).tolist() == [float(n) for n in range(count)]
    assert all(page.change is not None for page in pages)
