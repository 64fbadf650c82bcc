"""Subscriptions for events that are transferred, lost, silent or refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from asyncua import Client, ua
from asyncua.common.utils import ServiceError

from core import backoff
from core.opcua.service import call
from ingest.opcua.events import event_requests
from ops.certificates import trust
from simulator.relay import Relay
from tests.asyncua_server import unsecured
from tests.integration.ingest.test_opcua_events import COUNT, all_recorded, plant, tags, watching
from tests.memory_appender import MemoryAppender
from tests.peers import peer
from tests.ports import free_port
from tests.waiting import PATIENCE, until

_SERVERS_KILLED = pytest.mark.parametrize(  # killed: our process, instead of the connection
    ("name", "killed"),
    [("conditions", True), ("milo", False), ("open62541-conditions", False), ("open62541-conditions", True)],
)


@pytest.mark.slow
@_SERVERS_KILLED
async def test_refresh_finds_what_changed_without_the_subscription(name: str, killed: bool, tmp_path: Path) -> None:
    """Only open62541 transfers subscriptions of unsecured channels: with others, what is missing is on record."""
    relay, port = Relay(), free_port()
    address = f"opc.tcp://127.0.0.1:{port}"
    async with peer(name, tmp_path / "peer", COUNT, "0") as server:
        await relay.start(("127.0.0.1", port), ("127.0.0.1", server.port))

        async def change() -> None:
            await server.tell("normal 0")  # acknowledged: not retained any more, or only for confirmation
            await server.tell("high 2")

        async with watching(address, tmp_path, tags=tags(name)) as first:
            for k in range(2):
                await until(lambda: first.status.state == "connected")
                await server.tell(f"high {k}")
            await first.shows(Limit0="unacknowledged_active", Limit1="unacknowledged_active")
            await first.do("ack", "tank/level")
            await first.shows(Limit0="acknowledged_active", Limit1="unacknowledged_active")
            frozen = MemoryAppender(deepcopy(first.spool.notes))
            last = first
            if not killed:
                relay.refuse()
                await until(lambda: first.status.state == "disconnected")
                await change()
                await relay.accept()
                await first.shows(Limit1="unacknowledged_active", Limit2="unacknowledged_active")
        if killed:
            await change()
            async with watching(address, tmp_path, frozen, tags=tags(name)) as last:
                await last.shows(Limit1="unacknowledged_active", Limit2="unacknowledged_active")
        await relay.stop()
    assert last.alarms("Limit0")[-1] == ("returned", "normal")
    assert last.alarms("Limit2") == [("raised", "unacknowledged_active")]
    assert first.alarms("Limit1") == [("raised", "unacknowledged_active")], "it is not raised again"
    missing = [] if name == "open62541-conditions" else ["subscription lost"]
    assert [event.text for event in last.spool.events("events_missing")] == missing


@pytest.mark.slow
@_SERVERS_KILLED
async def test_transferred_subscription_loses_no_event(name: str, killed: bool, tmp_path: Path) -> None:
    relay, port = Relay(), free_port()
    address = f"opc.tcp://127.0.0.1:{port}"
    secured = name != "open62541-conditions"  # which is built without encryption
    # node-opcua names the machine.
    options: dict[str, Any] = {"tags": tags(name), "insecure": not secured, "accept": ["wrong-host"] if secured else []}
    async with peer(name, tmp_path / "peer", COUNT, "0") as server:
        await relay.start(("127.0.0.1", port), ("127.0.0.1", server.port))
        if secured:
            async with watching(address, tmp_path, **options) as watch:
                await until(lambda: "is not trusted" in watch.status.reason)
            trust(tmp_path / "pki", "ua")

        async def change() -> None:
            await server.tell("normal 0")
            await server.tell("simple 50")
            await server.tell("high 0")

        async with watching(address, tmp_path, **options) as first:
            await until(lambda: first.status.state == "connected")
            await server.tell("high 0")
            await first.shows(Limit0="unacknowledged_active")
            await first.do("ack", "tank/level")
            await first.shows(Limit0="acknowledged_active")
            await server.tell("simple 50")
            await all_recorded(server, first.spool)
            relay.refuse()
            await until(lambda: first.status.state == "disconnected")
            spool = [first.spool, MemoryAppender(deepcopy(first.spool.notes))]
            await change()
            if not killed:
                await relay.accept()
                await all_recorded(server, first.spool)
                await first.shows(Limit0="unacknowledged_active")
        last = first
        if killed:
            await relay.accept()
            async with watching(address, tmp_path, spool[1], **options) as last:
                await all_recorded(server, *spool)
                await last.shows(Limit0="unacknowledged_active")
        await relay.stop()
    assert last.alarms("Limit0")[-2:] == [("returned", "normal"), ("raised", "unacknowledged_active")]
    assert first.spool.events("events_missing") + last.spool.events("events_missing") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["milo"])
async def test_transfer_of_a_subscription_that_has_sent_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milo numbers the status for the old session like a message: a gap in the numbers, and no event is missing."""
    refresh, sent, relay, port = event_requests.refresh, asyncio.Event(), Relay(), free_port()

    async def late(client: Client, subscription_id: int, time_out: float) -> str:
        await sent.wait()
        return await refresh(client, subscription_id, time_out)

    monkeypatch.setattr(event_requests, "refresh", late)
    async with peer(name, tmp_path / "peer", COUNT, "0") as server:
        await relay.start(("127.0.0.1", port), ("127.0.0.1", server.port))
        options: dict[str, Any] = {"tags": tags(name), "insecure": False, "publish_requests": 50}
        address = f"opc.tcp://127.0.0.1:{port}"
        async with watching(address, tmp_path, **options) as watch:
            await until(lambda: "is not trusted" in watch.status.reason)
        trust(tmp_path / "pki", "ua")
        async with watching(address, tmp_path, **options) as watch:
            await watch.spool.until(lambda: bool(watch.spool.samples(1)))
            relay.refuse()
            await until(lambda: watch.status.state == "disconnected")
            await relay.accept()
            await until(lambda: watch.status.state == "connected")
            sent.set()
            await server.tell("high 0")
            await watch.shows(Limit0="unacknowledged_active")
            assert watch.spool.events("events_missing") == []
        await relay.stop()


@asynccontextmanager
async def held_back(patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """No subscription for events is created within the block."""
    create, may = event_requests.create_subscription, asyncio.Event()

    async def late(*arguments: Any) -> Any:
        await may.wait()
        return await create(*arguments)

    patch.setattr(event_requests, "create_subscription", late)
    yield
    may.set()


@pytest.mark.slow
async def test_lost_event_subscription_is_created_again_while_samples_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client takes it over (OPC 10000-4, 5.14.7): what happens until there is a new one is found by refresh."""
    async with plant("open62541-conditions", tmp_path) as (server, watch):
        await server.tell("high 0")
        await watch.shows(Limit0="unacknowledged_active")
        of_events, of_channels = (
            [s.id for s in watch.collector._subscriptions if bool(s.event_items) is wanted] for wanted in (True, False)
        )
        async with held_back(monkeypatch), Client(f"opc.tcp://127.0.0.1:{server.port}", timeout=PATIENCE) as client:
            request = ua.TransferSubscriptionsRequest()
            request.Parameters.SubscriptionIds = of_events
            answer = await call(client, request, ua.TransferSubscriptionsResponse, 30.0)
            assert answer.Parameters.Results[0].StatusCode.is_good()
            await watch.spool.until(lambda: bool(watch.spool.events("events_missing")))
            before = len(watch.spool.samples(1))
            await server.tell("hot 0")
            await server.tell("burst 1")
            await watch.spool.until(lambda: len(watch.spool.samples(1)) > before)
            assert watch.listed().keys() == {("tank/level", "Limit0")}
        await watch.shows(Limit0="unacknowledged_active", Hot0="unacknowledged_active")
        assert await watch.do("ack", "tank/level", "Hot0") == ["tank/level Hot0: acknowledged on the server"]
        await watch.shows(Limit0="unacknowledged_active", Hot0="acknowledged_active")
        assert [s.id for s in watch.collector._subscriptions if not s.event_items] == of_channels
        assert (watch.status.reconnects, watch.status.state) == (0, "connected")
        assert [event.text for event in watch.spool.events("events_missing")] == ["subscription lost"]
        assert not [gap for gap in watch.spool.gaps() if gap.to_time != gap.from_time]


async def test_silent_event_subscription_is_created_again(tmp_path: Path) -> None:
    """Events come again; the subscription of the samples is the same."""
    server, address = await unsecured()
    async with server:
        variable = await server.nodes.objects.add_variable(ua.NodeId("Double0", 1), "Double0", 0.0)
        spool = MemoryAppender()
        async with watching(address, tmp_path, spool, tags=tags("open62541-conditions"), time_out=1.0) as watch:
            await until(lambda: watch.status.state == "connected" and bool(spool.samples(1)))
            running = server.iserver.subscription_service.subscriptions
            (of_events,) = (s.id for s in watch.collector._subscriptions if s.event_items)
            (of_channels,) = running.keys() - {of_events}
            await running[of_events].stop()
            await spool.until(lambda: bool(spool.events("events_missing")))
            await until(lambda: any(s.event_items for s in watch.collector._subscriptions))
            await variable.write_value(1.0)
            await spool.until(lambda: len(spool.samples(1)) > 1)
            await (await server.get_event_generator()).trigger(message="pump started")
            await spool.until(lambda: bool(spool.events("server_event")))
            assert {s.id for s in watch.collector._subscriptions if not s.event_items} == {of_channels}
            assert (watch.status.reconnects, len(spool.events("events_missing"))) == (0, 1)


async def test_samples_come_where_the_server_refuses_a_subscription_for_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may allow a single subscription; it is asked again later."""
    monkeypatch.setattr(backoff, "REFUSED", (0.2, 0.2))
    server, address = await unsecured()
    async with server:
        await server.nodes.objects.add_variable(ua.NodeId("Double0", 1), "Double0", 0.0)
        service = server.iserver.subscription_service
        create = service.create_subscription

        async def only_one(*arguments: Any, **named: Any) -> Any:
            if service.subscriptions:
                raise ServiceError(ua.StatusCodes.BadTooManySubscriptions)
            return await create(*arguments, **named)

        service.create_subscription = only_one
        spool = MemoryAppender()
        async with watching(address, tmp_path, spool, tags=tags("open62541-conditions")) as watch:
            refused = "the server refuses a subscription for events: BadTooManySubscriptions"
            await until(lambda: watch.status.remarks.get("notifiers") == refused and bool(spool.samples(1)))
            service.create_subscription = create
            await until(lambda: "notifiers" not in watch.status.remarks)
            await (await server.get_event_generator()).trigger(message="pump started")
            await spool.until(lambda: bool(spool.events("server_event")))
            assert (watch.status.reconnects, watch.status.state) == (0, "connected")
