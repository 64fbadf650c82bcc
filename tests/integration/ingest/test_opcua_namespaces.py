"""Addresses with a namespace URI, against servers whose namespaces have other indices after a restart or update."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from asyncua import Server, ua

from core import backoff
from core.config.sources import OpcuaSource, OpcuaTag
from core.timestamps import now_us, utc
from ops.registration.discovery.discover import discover
from simulator.opcua_server import NAMESPACE
from tests.asyncua_server import unsecured
from tests.integration.ingest.test_opcua_collector import SERVERS, collecting, simulated_server
from tests.integration.ingest.test_opcua_recovery import OPTIONS, TAGS
from tests.memory_appender import MemoryAppender
from tests.peers import peer
from tests.ports import free_port
from tests.waiting import until

LINE, OTHER = "http://vendor.com/line;1", "http://vendor.com/other"
BY_URI = OpcuaTag(name="uri", address="nsu=http://vendor.com/line%3B1;s=Level")
BY_INDEX = OpcuaTag(name="index", address="ns=2;s=Level")
LEVELS = {LINE: 1.0, OTHER: 2.0}


@asynccontextmanager
async def serving(port: int, uris: Sequence[str]) -> AsyncIterator[tuple[Server, str]]:
    """A server with a variable Level in each of these namespaces, in this order."""
    server, address = await unsecured(port=port)
    for uri in uris:
        await add_level(server, uri)
    async with server:
        yield server, address


async def add_level(server: Server, uri: str) -> None:
    index = await server.register_namespace(uri)
    await server.nodes.objects.add_variable(ua.NodeId("Level", index), f"{index}:Level{index}", LEVELS[uri])


def values(spool: MemoryAppender, channel: int) -> list[float]:
    return [value for _, value, _ in spool.samples(channel)]


@pytest.mark.slow
async def test_index_that_shifts_while_the_collector_is_down_reads_no_other_variable(tmp_path: Path) -> None:
    port, tags, pki = free_port(), [BY_URI, BY_INDEX], tmp_path / "pki"
    async with (
        serving(port, [LINE, OTHER]) as (_, address),
        collecting(address, tags, pki, insecure=True) as (first, status),
    ):
        await until(lambda: status.state == "connected")
        await first.until(lambda: bool(first.samples(0) and first.samples(1)))
        killed = MemoryAppender(deepcopy(first.notes))
    async with (
        serving(port, [OTHER, LINE]) as (_, address),
        collecting(address, tags, pki, killed, insecure=True) as (second, _),
    ):
        await second.until(lambda: bool(second.samples(0) and second.samples(1)))
    assert values(first, 0) == values(second, 0) == [LEVELS[LINE]], "a URI reads the same variable"
    assert (values(first, 1), values(second, 1)) == ([LEVELS[LINE]], [LEVELS[OTHER]]), "an index reads what is there"


@pytest.mark.slow
async def test_index_that_shifts_with_a_restart_reads_no_other_variable(tmp_path: Path) -> None:
    port = free_port()
    tags = [BY_URI, BY_INDEX]
    async with collecting(f"opc.tcp://127.0.0.1:{port}/", tags, tmp_path / "pki", insecure=True) as (spool, status):
        async with serving(port, [LINE, OTHER]):
            await spool.until(lambda: bool(spool.samples(0) and spool.samples(1)))
        await until(lambda: status.state == "disconnected")
        async with serving(port, [OTHER, LINE]):
            await spool.until(lambda: len(spool.samples(0)) > 1 and len(spool.samples(1)) > 1)
    assert values(spool, 0) == [LEVELS[LINE], LEVELS[LINE]]
    assert values(spool, 1) == [LEVELS[LINE], LEVELS[OTHER]]


@pytest.mark.parametrize("killed", [False, True])
async def test_kept_subscription_is_not_continued_under_another_index(killed: bool, tmp_path: Path) -> None:
    """The server still has the items; what they queued is of another variable. The history has the right one."""
    port, pki, tags = free_port(), tmp_path / "pki", [OpcuaTag(name="a", address=f"nsu={NAMESPACE};s=unit.a")]
    first, second, backfill = MemoryAppender(), MemoryAppender(), MemoryAppender()
    address = f"opc.tcp://127.0.0.1:{port}/"
    async with simulated_server(TAGS, tmp_path, port) as server:

        async def shift() -> None:
            """Writes 7 to the variable that now has the old index, and 70 to the one that is meant."""
            inner = server._server
            assert inner is not None
            array = inner.get_node(ua.NodeId(ua.ObjectIds.Server_NamespaceArray))
            uris = await array.read_value()
            await array.write_value([*uris[:2], OTHER, NAMESPACE])
            meant = await inner.nodes.objects.add_variable(ua.NodeId("unit.a", 3), "3:a", 0.0)
            server._history.historize(meant.nodeid)
            for k in range(5):
                await server.write(0, 7.0, now_us(), 0)
                time = utc(now_us())
                data = ua.DataValue(ua.Variant(70.0 + k), ua.StatusCode(0), time, time)
                await inner.iserver.aspace.write_attribute_value(meant.nodeid, ua.AttributeIds.Value, data)
                server._history.published(meant.nodeid, data)

        async with collecting(address, tags, pki, first, backfill, **OPTIONS) as (spool, status):
            await until(lambda: status.state == "connected")
            await server.write(0, 1.0, now_us(), 0)
            await spool.until(lambda: 1.0 in values(spool, 0))
            await until(lambda: status.open_gaps == 0)
            if not killed:
                await server.refuse(True)
                await until(lambda: status.state == "disconnected")
                await shift()
                await server.refuse(False)
                await spool.until(lambda: any(g.backfilled for g in spool.gaps()))
                second = spool
        if killed:
            await shift()
            second = MemoryAppender(deepcopy(first.notes))
            async with collecting(address, tags, pki, second, backfill, **OPTIONS) as (spool, status):
                await spool.until(lambda: any(g.backfilled for g in spool.gaps()))
        found = values(first, 0) + values(second, 0) + values(backfill, 0)
        assert 7.0 not in found
        assert {70.0, 71.0, 72.0, 73.0, 74.0} <= set(found)
        assert 74.0 in values(second, 0)


async def test_missing_namespace_affects_only_its_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "REFUSED", (0.2, 0.4))
    async with (
        serving(free_port(), [OTHER]) as (server, address),
        collecting(address, [BY_URI, BY_INDEX], tmp_path / "pki", insecure=True) as (spool, status),
    ):
        await until(lambda: status.state == "degraded")
        uris = await server.get_namespace_array()
        assert status.bad_channels == {
            "uri": f"the server has no namespace http://vendor.com/line%3B1; it has {', '.join(uris)}"
        }
        await spool.until(lambda: values(spool, 1) == [LEVELS[OTHER]])
        (gap,) = spool.gaps()
        assert (gap.channel_ids, gap.reason, gap.detail) == ((0,), "refused", status.bad_channels["uri"])
        await add_level(server, LINE)
        await until(lambda: status.state == "connected")
        await spool.until(lambda: values(spool, 0) == [LEVELS[LINE]])
        assert status.reconnects == 0


async def test_only_missing_namespaces_leave_the_session_alive(tmp_path: Path) -> None:
    async with (
        serving(free_port(), [OTHER]) as (_, address),
        collecting(address, [BY_URI], tmp_path / "pki", insecure=True, keep_alive=0.2, time_out=1.0) as (spool, status),
    ):
        await until(lambda: status.state == "degraded")
        note = "opcua:1:"
        await spool.until(lambda: any(name.startswith(note) for name in spool.notes))
        first = {name: text for name, text in spool.notes.items() if name.startswith(note)}
        await spool.until(lambda: {n: t for n, t in spool.notes.items() if n.startswith(note)} != first)
        assert (status.state, status.reconnects) == ("degraded", 0)


async def test_two_channels_read_one_node(tmp_path: Path) -> None:
    """By the same address, and by both notations: each has every value."""
    tags = [BY_URI, BY_INDEX, OpcuaTag(name="again", address=BY_INDEX.address)]
    async with (
        serving(free_port(), [LINE]) as (server, address),
        collecting(address, tags, tmp_path / "pki", insecure=True) as (spool, status),
    ):
        await until(lambda: status.state == "connected")
        await spool.until(lambda: all(spool.samples(i) for i in range(3)))
        for value in (3.0, 4.0, 5.0):
            await server.get_node(BY_INDEX.address).write_value(value)
            await spool.until(lambda value=value: all(values(spool, i)[-1] == value for i in range(3)))  # type: ignore[misc]
        assert spool.samples(0) == spool.samples(1) == spool.samples(2)
        assert not status.bad_channels


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
async def test_discovered_addresses_have_uris_and_are_read(name: str, tmp_path: Path) -> None:
    async with peer(name, tmp_path / "peer", 20, "100") as server:
        options: dict[str, Any] = {"insecure": True, "time_out": 30.0}
        address = f"opc.tcp://127.0.0.1:{server.port}"
        source = OpcuaSource(name="d", kind="opcua", address=address, tags=(), **options)
        found = [tag for tag in (await discover(source, tmp_path)).tags if tag.address.endswith("0")]
        names = [tag.name.rpartition("/")[2] for tag in found]
        assert {"Double0", "Int320", "Boolean0", "String0"} <= set(names)
        assert all(tag.address.startswith("nsu=") for tag in found)
        async with collecting(address, found, tmp_path / "pki", **options) as (spool, status):
            numbers = [i for i, tag in enumerate(found) if tag.kind != "text"]
            await spool.until(lambda: min(len(spool.samples(i)) for i in numbers) >= 5)
            assert not status.bad_channels
        truth = server.published()
        for i in numbers:
            assert all((names[i], time) in truth for time, _, _ in spool.samples(i)[1:])
