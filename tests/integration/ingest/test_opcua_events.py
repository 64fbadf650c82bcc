"""Events and conditions of foreign servers: each event on record once, and the alarm list as the server has it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from asyncua import Client, ua

from core.config.model import AlarmOptions
from core.config.sources import OpcuaSource, OpcuaTag
from core.errors import OperationError
from core.timestamps import now_us
from ingest.alarms.operator_api import AlarmCommand, CommandAction, OperatorApi
from ingest.event_rows import event_id
from ingest.opcua.collector import Collector
from ingest.opcua.events import event_requests
from ingest.status import SourceStatus
from tests.asyncua_server import unsecured
from tests.memory_appender import MemoryAppender
from tests.peers import KINDS, Peer, peer
from tests.waiting import PATIENCE, running, until

# RefreshStartEventType and RefreshEndEventType are none of the plant; node-opcua keeps audit events to itself.
_NOT_RECORDED = {"ns=0;i=2787", "ns=0;i=2788", "ns=0;i=8944"}
COUNT = 15  # channels: Double0 to Double2
_SERVERS = pytest.mark.parametrize("name", ["conditions", "milo", "open62541-conditions"])
_OPTIONS = {"publishing_interval": 0.1, "time_out": 30.0, "backoff_min": 0.05, "backoff_max": 0.5, "keep_alive": 1.0}


class Watch:
    """A collector, what it recorded, and what an operator sees."""

    def __init__(self, address: str, pki: Path, spool: MemoryAppender, options: dict[str, Any]) -> None:
        source = OpcuaSource.model_validate(
            {"name": "ua", "kind": "opcua", "address": address, "notifiers": ["i=2253"], **_OPTIONS, **options}
        )
        self.spool = spool
        self.status = SourceStatus(1, "ua", "opcua", address, len(source.tags))
        ids = {tag.name: number for number, tag in enumerate(source.tags, 1)}
        self.collector = Collector(source, ids, self.status, spool, pki, MemoryAppender())
        self.operator = OperatorApi(list, AlarmOptions(), lambda: [self.collector.conditions])

    def listed(self) -> dict[tuple[str, str], str]:
        """State by channel and name."""
        return {(alarm["channel"], alarm["limit"]): alarm["state"] for alarm in self.operator.alarms()}

    def alarms(self, name: str) -> list[tuple[str, str]]:
        """Actions on a condition, each with the state behind it."""
        return [
            (e.detail["action"], e.detail["state"]) for e in self.spool.events("alarm") if e.detail["limit"] == name
        ]

    async def shows(self, **states: str) -> None:
        """Wait until the list has these conditions, and no others."""
        await until(lambda: {name: state for (_, name), state in self.listed().items()} == states, show=self.listed)

    async def do(self, action: CommandAction, channel: str, limit: str | None = None, why: str = "") -> list[str]:
        outcome = await self.operator.execute(AlarmCommand(action, channel, "ann", limit, why, 60.0))
        return outcome.lines(action, channel, limit)


@asynccontextmanager
async def watching(
    address: str, folder: Path, spool: MemoryAppender | None = None, **options: Any
) -> AsyncIterator[Watch]:
    options = {"insecure": True, "tags": [], **options}
    watch = Watch(address, folder / "pki", MemoryAppender() if spool is None else spool, options)
    async with running(watch.collector.run()):
        yield watch


def tags(name: str) -> list[OpcuaTag]:
    """The variable of the first conditions."""
    return [OpcuaTag(name="tank/level", address=f"{KINDS[name].node}Double0")]


@asynccontextmanager
async def plant(name: str, folder: Path, **options: Any) -> AsyncIterator[tuple[Peer, Watch]]:
    """A server and a collector that has refreshed its conditions."""
    async with (
        peer(name, folder / "peer", COUNT, "0") as server,
        watching(f"opc.tcp://127.0.0.1:{server.port}", folder, tags=tags(name), **options) as watch,
    ):
        await until(lambda: watch.status.state == "connected")
        yield server, watch


def raised_by(server: Peer) -> set[str]:
    """The ids of all events of a server, by its own log."""
    lines = map(json.loads, (server.folder / "events.jsonl").read_text().splitlines())
    return {line["id"] for line in lines if line["type"] not in _NOT_RECORDED}


def recorded(*spool: MemoryAppender) -> Counter[str]:
    """Number of different rows of each event."""
    events = {
        (event_id(1, event), event.time): event.detail["event_id"]
        for one in spool
        for kind in ("alarm", "server_event", "events_missing")
        for event in one.events(kind)
        if "event_id" in event.detail
    }
    return Counter(events.values())


async def all_recorded(server: Peer, *spool: MemoryAppender) -> None:
    """Wait until each event of the server is on record, once, and nothing else."""
    await until(
        lambda: recorded(*spool).keys() == raised_by(server), show=lambda: raised_by(server) - recorded(*spool).keys()
    )
    assert set(recorded(*spool).values()) == {1}


@pytest.mark.slow
@_SERVERS
async def test_conditions_of_a_server_are_in_the_alarm_list(name: str, tmp_path: Path) -> None:
    """Two conditions of one source, one of a variable that is no channel."""
    async with plant(name, tmp_path) as (server, watch):
        start = now_us()
        await server.tell("high 0")
        await server.tell("high 1")
        await watch.shows(Limit0="unacknowledged_active", Limit1="unacknowledged_active")
        assert {channel.replace("1:", "") for channel, _ in watch.listed()} == {"tank/level", "ua/Double1"}
        await server.tell("hot 0")
        await watch.shows(Limit0="unacknowledged_active", Hot0="unacknowledged_active", Limit1="unacknowledged_active")
        [limit, *_] = watch.spool.events("alarm")
        assert limit.channel_id == 1
        assert limit.detail["priority"] == "low"
        assert limit.detail["source_name"].endswith("Double0")
        assert limit.detail["message"]
        assert start <= limit.time <= now_us()
        assert watch.collector.conditions.summary()["low"] == 3
        await server.tell("required 1")
        await server.tell("simple 3")
        await all_recorded(server, watch.spool)
        simple = [e for e in watch.spool.events("server_event") if e.detail["event_type"] == "i=2041"]
        assert [(e.text, e.detail["severity"]) for e in simple] == [(f"event {k}", 100) for k in (1, 2, 3)]
        assert all(start <= e.time <= now_us() for e in simple)
        assert watch.spool.events("events_missing") == []
        await until(lambda: not watch.status.remarks)


@pytest.mark.slow
@_SERVERS
async def test_acknowledged_on_the_server(name: str, tmp_path: Path) -> None:
    """By plantlog, and by another client."""
    async with plant(name, tmp_path) as (server, watch):
        with pytest.raises(OperationError, match="no channel matches tank/level with alarm limit Limit0; legal"):
            await watch.do("ack", "tank/level", "Limit0")
        await server.tell("high 0")
        await watch.shows(Limit0="unacknowledged_active")
        with pytest.raises(OperationError, match="here it can only be acknowledged"):
            await watch.do("shelve", "tank/*", "Limit0", "test")
        [alarm] = watch.collector.conditions.listed()
        assert await watch.do("ack", "tank/*", why="seen") == ["tank/level Limit0: acknowledged on the server"]
        await watch.shows(Limit0="acknowledged_active")
        [listed] = watch.operator.alarms()
        assert listed["acknowledged_by"].endswith("ann: seen")
        with pytest.raises(OperationError, match="is acknowledged_active"):
            await watch.do("ack", "tank/level")
        stale = r"newer state .*\(BadEventIdUnknown\)|already \(BadConditionBranchAlreadyAcked\)"
        with pytest.raises(OperationError, match=stale):
            await watch.collector.conditions.send_acknowledgement(alarm, "again")
        await server.tell("normal 0")
        await watch.shows()
        assert watch.alarms("Limit0") == [
            ("raised", "unacknowledged_active"),
            ("acknowledged", "acknowledged_active"),
            ("returned", "normal"),
        ]
        await server.tell("high 1")
        await watch.shows(Limit1="unacknowledged_active")
        [alarm] = watch.collector.conditions.listed()
        async with Client(f"opc.tcp://127.0.0.1:{server.port}", timeout=PATIENCE) as client:
            arguments = ua.Variant(bytes.fromhex(alarm.event_id)), ua.Variant(ua.LocalizedText("by the panel", "en"))
            await client.get_node(f"{KINDS[name].node}Limit1").call_method(ua.NodeId(9111), *arguments)
        await watch.shows(Limit1="acknowledged_active")
        [listed] = watch.operator.alarms()
        assert "by the panel" in listed["acknowledged_by"]
        await all_recorded(server, watch.spool)
        await server.tell("high 2")
        await watch.shows(Limit1="acknowledged_active", Limit2="unacknowledged_active")
        await server.kill()
        await until(lambda: watch.status.state == "disconnected")
        with pytest.raises(OperationError, match="source ua is not connected"):
            await watch.do("ack", "ua/*")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["milo", "open62541-conditions"])
async def test_server_that_restarts_has_no_alarms(name: str, tmp_path: Path) -> None:
    async with plant(name, tmp_path) as (server, watch):
        await server.tell("high 0")
        await server.tell("high 1")
        await watch.shows(Limit0="unacknowledged_active", Limit1="unacknowledged_active")
        await server.kill()
        await server.start()
        await watch.shows()
        assert watch.alarms("Limit1") == [("raised", "unacknowledged_active"), ("returned", "normal")]
        assert "no longer reported" in watch.spool.events("alarm")[-1].detail["why"]
        assert [event.text for event in watch.spool.events("events_missing")] == ["subscription lost"]
        await server.tell("high 1")
        await watch.shows(Limit1="unacknowledged_active")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conditions", "open62541-conditions"])
async def test_flood_of_events_is_recorded_once_in_small_messages(name: str, tmp_path: Path) -> None:
    async with plant(name, tmp_path) as (server, watch):
        for _ in range(4):
            await server.tell("simple 1000")
            await server.tell("high 0")
            await server.tell("normal 0")
        await all_recorded(server, watch.spool)
        assert len(recorded(watch.spool)) > 4000
        assert watch.spool.events("events_missing") == []
        largest = max(len(batch.events) for batch in watch.spool.batches if hasattr(batch, "events"))
        assert largest <= 100


@pytest.mark.slow
async def test_notifier_that_the_server_rejects_is_shown(tmp_path: Path) -> None:
    async with plant("conditions", tmp_path, notifiers=["ns=1;s=Area", "ns=1;s=Nothing"]) as (server, watch):
        await until(lambda: watch.status.remarks.get("notifiers") == "the server sends no events of ns=1;s=Nothing")
        await server.tell("high 0")
        await watch.shows(Limit0="unacknowledged_active")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["open62541"])
async def test_overflow_of_a_foreign_servers_event_queue(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queued events are recorded, and that others are missing; the next events are recorded again.

    Debian builds open62541 without UA_ENABLE_SUBSCRIPTIONS_ALARMS_CONDITIONS: it has plain events only, and neither
    ConditionId nor ConditionRefresh.
    """
    monkeypatch.setattr(event_requests, "QUEUE_SIZE", 10)
    async with (
        peer(name, tmp_path / "peer", 0, "0") as server,
        watching(f"opc.tcp://127.0.0.1:{server.port}", tmp_path, tags=[]) as watch,
    ):
        await until(lambda: "does not refresh" in watch.status.remarks.get("conditions", ""))
        await server.tell("events 50")
        await watch.spool.until(lambda: bool(watch.spool.events("events_missing")))
        await server.tell("events 3")
        await watch.spool.until(lambda: len(watch.spool.events("server_event")) == 13)
    [missing] = watch.spool.events("events_missing")
    assert missing.text == "the server's event queue was full"
    severities = [e.detail["severity"] for e in watch.spool.events("server_event")]
    assert severities == [*range(41, 51), 1, 2, 3], "the newest ten, and what came later"


@pytest.mark.slow
async def test_overflow_of_milos_event_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_requests, "QUEUE_SIZE", 10)
    async with plant("milo", tmp_path) as (server, watch):
        await server.tell("simple 50")
        await server.tell("simple 1")
        await watch.spool.until(
            lambda: [e.text for e in watch.spool.events("server_event")][-2:] == ["event 50", "event 51"]
        )
        missing = {event.text for event in watch.spool.events("events_missing")}
        assert missing == {"the server's event queue was full"}


async def test_server_without_conditions(tmp_path: Path) -> None:
    """Fields that an event lacks are left out; an overflow of its queue is on record."""
    server, address = await unsecured()
    async with server, watching(address, tmp_path, tags=[]) as watch:
        await until(lambda: "does not refresh" in watch.status.remarks.get("conditions", ""))
        generator = await server.get_event_generator()
        generator.event.Severity = 900
        await generator.trigger(message="pump started")
        overflow = await server.get_event_generator(ua.ObjectIds.EventQueueOverflowEventType)
        await overflow.trigger(message="overflow")
        await watch.spool.until(lambda: bool(watch.spool.events("events_missing")))
        [event] = watch.spool.events("server_event")
        assert event.text == "pump started"
        assert event.detail.keys() == {
            "event_id",
            "event_type",
            "source_node",
            "source_name",
            "receive_time",
            "message",
            "severity",
        }
        assert [e.text for e in watch.spool.events("events_missing")] == ["the server's event queue was full"]
        assert watch.listed() == {}
