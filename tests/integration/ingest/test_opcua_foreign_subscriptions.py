"""Subscriptions of other clients that have an id which was ours before the server restarted, on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from asyncua import Client, ua

from core.config.sources import OpcuaTag
from core.opcua.service import call
from core.timestamps import now_us
from ingest.opcua import collector
from ops.certificates import trust
from simulator.opcua_server import OpcuaServer
from simulator.relay import Relay
from simulator.tags import SimTag
from tests.integration.ingest.test_opcua_collector import collecting, simulated_server
from tests.integration.ingest.test_opcua_recovery import OPTIONS, lasting
from tests.memory_appender import MemoryAppender
from tests.peers import opcua_tags, peer
from tests.ports import free_port
from tests.waiting import PATIENCE, until

Restart: TypeAlias = Literal["another start time", "the same start time", "the same start time, no GetMonitoredItems"]

TAGS = [SimTag(f"unit/{name}", name, opcua="Double", period=0.1) for name in "abcd"]
OURS = [OpcuaTag(name=name, address=f"ns=2;s=unit.{name}") for name in "ab"]
THEIRS = [replace(OURS[0], address="ns=2;s=unit.c"), replace(OURS[1], address="ns=2;s=unit.d")]
_FIRST = {"a": 100.0, "b": 200.0, "c": 300.0, "d": 400.0}


@asynccontextmanager
async def other_client(port: int, nodes: Sequence[str]) -> AsyncIterator[tuple[Client, int]]:
    """A client that monitors nodes with the client handles 0, 1, …, and the id of its subscription."""
    async with Client(f"opc.tcp://127.0.0.1:{port}/", timeout=PATIENCE) as client:
        request = ua.CreateSubscriptionRequest()
        request.Parameters.RequestedPublishingInterval = 100.0
        request.Parameters.RequestedLifetimeCount = 10_000
        request.Parameters.RequestedMaxKeepAliveCount = 10
        request.Parameters.PublishingEnabled = True
        number = (await call(client, request, ua.CreateSubscriptionResponse, PATIENCE)).Parameters.SubscriptionId
        items = ua.CreateMonitoredItemsRequest()
        items.Parameters.SubscriptionId = number
        items.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
        items.Parameters.ItemsToCreate = [
            ua.MonitoredItemCreateRequest(
                ItemToMonitor=ua.ReadValueId(ua.NodeId.from_string(node), ua.AttributeIds.Value),
                MonitoringMode=ua.MonitoringMode.Reporting,
                RequestedParameters=ua.MonitoringParameters(handle, 100.0, None, 100, True),
            )
            for handle, node in enumerate(nodes)
        ]
        answer = await call(client, items, ua.CreateMonitoredItemsResponse, PATIENCE)
        assert all(result.StatusCode.is_good() for result in answer.Results)
        yield client, number


async def is_theirs(client: Client, number: int) -> bool:
    """Return whether a subscription is still one of this client's session."""
    request = ua.SetPublishingModeRequest()
    request.Parameters.PublishingEnabled = True
    request.Parameters.SubscriptionIds = [number]
    answer = await call(client, request, ua.SetPublishingModeResponse, PATIENCE)
    return bool(answer.Parameters.Results[0].is_good())


class Plant:
    """A server behind a relay for each of its clients; subscription ids begin at the same number after each start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._running = AsyncExitStack()
        self._rounds = 0
        self.server: OpcuaServer

    async def start(self, restart: Restart | None = None) -> None:
        """Start it, or another one in its place."""
        before = None if restart is None else await self._start_time().read_value()
        await self._running.aclose()
        self.server = await self._running.enter_async_context(simulated_server(TAGS, self._folder, self._port))
        if restart in ("the same start time", "the same start time, no GetMonitoredItems"):
            await self._start_time().write_value(before)
        if restart == "the same start time, no GetMonitoredItems":
            await self._without_get_monitored_items()
        await self.write()

    async def stop(self) -> None:
        await self._running.aclose()

    @asynccontextmanager
    async def relayed(self) -> AsyncIterator[tuple[Relay, str]]:
        """A relay, and the address that it has."""
        relay, port = Relay(), free_port()
        await relay.start(("127.0.0.1", port), ("127.0.0.1", self._port))
        yield relay, f"opc.tcp://127.0.0.1:{port}/"
        await relay.stop()

    async def write(self) -> dict[str, float]:
        """The next value of every variable."""
        self._rounds += 1
        values = {name: first + self._rounds for name, first in _FIRST.items()}
        for place, value in enumerate(values.values()):
            await self.server.write(place, value, now_us(), 0)
        return values

    def other_client(self) -> AbstractAsyncContextManager[tuple[Client, int]]:
        """A client that monitors c and d."""
        return other_client(self._port, [tag.address for tag in THEIRS])

    def _start_time(self) -> Any:
        assert self.server._server is not None
        return self.server._server.get_node(ua.NodeId(ua.ObjectIds.Server_ServerStatus_StartTime))

    async def _without_get_monitored_items(self) -> None:
        assert self.server._server is not None
        await self.server._server.get_node(ua.NodeId(ua.ObjectIds.Server_GetMonitoredItems)).delete()

    def subscriptions(self) -> dict[int, Any]:
        """By id."""
        return dict(self.server._subscriptions.subscriptions)


@asynccontextmanager
async def plant(folder: Path) -> AsyncIterator[Plant]:
    running = Plant(folder)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def values(spool: MemoryAppender, channel: int) -> set[float]:
    return {value for _, value, _ in spool.samples(channel)}


@pytest.mark.parametrize("restart", Restart.__args__)  # type: ignore[attr-defined]
async def test_subscription_of_another_client_is_not_taken_for_ours(restart: Restart, tmp_path: Path) -> None:
    """It has the same id and the same client handles; where StartTime says so, it is not even transferred."""
    async with (
        plant(tmp_path) as server,
        server.relayed() as (relay, address),
        collecting(address, OURS, tmp_path / "pki", backfill=False, **OPTIONS) as (spool, status),
    ):
        await spool.until(lambda: bool(spool.samples(0) and spool.samples(1)))
        (ours,) = server.subscriptions()
        relay.refuse()
        await until(lambda: status.state == "disconnected")
        await server.start(restart)
        async with server.other_client() as (_, theirs):
            assert theirs == ours, "or there is no clash"
            session = server.subscriptions()[theirs].session_id
            await relay.accept()
            await until(lambda: status.state == "connected")
            latest = await server.write()
            await spool.until(lambda: latest["a"] in values(spool, 0) and latest["b"] in values(spool, 1))
            await until(lambda: status.open_gaps == 0)
            assert theirs in server.subscriptions(), "it is not deleted"
            if restart == "another start time":
                assert server.subscriptions()[theirs].session_id == session
            assert len(server.subscriptions()) == 2
    assert {value // 100 for value in values(spool, 0)} == {1.0}
    assert {value // 100 for value in values(spool, 1)} == {2.0}
    assert "disconnected" in lasting(spool), "the gap stands"


async def test_two_collectors_of_a_restarted_server_keep_apart(tmp_path: Path) -> None:
    """Both have the channels 0 and 1, of other variables, and the one that comes second gets the other one's id."""
    async with (
        plant(tmp_path) as server,
        server.relayed() as (one, first),
        server.relayed() as (another, second),
        collecting(first, OURS, tmp_path / "first", backfill=False, **OPTIONS) as (spool, status),
    ):
        await spool.until(lambda: bool(spool.samples(0)))
        async with collecting(second, THEIRS, tmp_path / "second", backfill=False, **OPTIONS) as (other, other_status):
            await other.until(lambda: bool(other.samples(0)))
            for relay in (one, another):
                relay.refuse()
            await until(lambda: status.state == other_status.state == "disconnected")
            await server.start("another start time")
            await another.accept()
            await until(lambda: other_status.state == "connected")
            await one.accept()
            await until(lambda: status.state == "connected")
            latest = await server.write()
            await until(lambda: latest["a"] in values(spool, 0) and latest["b"] in values(spool, 1))
            await until(lambda: latest["c"] in values(other, 0) and latest["d"] in values(other, 1))
            assert status.reconnects == other_status.reconnects == 1
            assert len(server.subscriptions()) == 2
    assert [{v // 100 for v in values(k, c)} for k in (spool, other) for c in (0, 1)] == [{1.0}, {2.0}, {3.0}, {4.0}]
    assert "disconnected" in lasting(spool)
    assert "disconnected" in lasting(other)


@pytest.mark.slow
@pytest.mark.parametrize("same_start", [False, True])
@pytest.mark.parametrize("name", ["open62541", "milo"])
async def test_subscription_of_another_client_of_a_foreign_server(
    name: str, same_start: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on servers of others, also if the one that was restarted said that it was not."""
    tags = opcua_tags(name, 10)
    ours, theirs = [tags[0], tags[2]], [tags[5].address, tags[7].address]
    relay, port = Relay(), free_port()
    if same_start:

        async def at_midnight(*_: object) -> int:
            return now_us() // 86_400_000_000 * 86_400_000_000

        monkeypatch.setattr(collector, "server_start", at_midnight)
    options: dict[str, Any] = {"backfill": False, "accept": ["wrong-host"], **OPTIONS, "insecure": False}
    options["time_out"] = 30.0
    async with peer(name, tmp_path / "peer", 10, "100") as server:
        await relay.start(("127.0.0.1", port), ("127.0.0.1", server.port))
        async with collecting(f"opc.tcp://127.0.0.1:{port}", ours, tmp_path / "pki", **options) as (spool, status):
            await until(lambda: "is not trusted" in status.reason)
            trust(tmp_path / "pki", "ua")
            await spool.until(lambda: bool(spool.samples(0) and spool.samples(1)))
            relay.refuse()
            await until(lambda: status.state == "disconnected")
            await server.kill()
            await server.start()
            async with other_client(server.port, theirs) as (client, number):
                await relay.accept()
                await until(lambda: status.state == "connected")
                before = len(spool.samples(0)), len(spool.samples(1))
                await spool.until(
                    lambda: len(spool.samples(0)) > before[0] + 3 and len(spool.samples(1)) > before[1] + 3
                )
                await until(lambda: status.open_gaps == 0)
                if not same_start:
                    assert await is_theirs(client, number)
        await relay.stop()
        published = server.published()
    for channel, tag in enumerate(ours):
        stored = {(tag.name, time): (value, status) for time, value, status in spool.samples(channel)}
        assert stored.items() <= published.items(), "only values of its own variable"
    assert "disconnected" in lasting(spool), "the gap stands"
