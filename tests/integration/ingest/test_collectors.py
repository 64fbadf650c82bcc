"""A collector process follows the configuration: what differs is applied, and nobody else notices."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import snapshot
from core.config.model import HealthOptions, Plant
from core.config.sources import ModbusSource, ModbusTag, OpcuaSource, OpcuaTag
from core.errors import OperationError
from core.registry import Registry
from core.timestamps import now_us
from ingest.modbus.collector import Collector as ModbusCollector
from ingest.run.collectors import Collectors
from ingest.spool.append import Spool
from ops import health
from tests import children
from tests.integration.ingest.test_opcua_recovery import serving
from tests.modbus_wire import good_response, misbehaving_device
from tests.ports import free_ports
from tests.spooling import Spooled
from tests.waiting import PATIENCE, until

A = OpcuaTag(name="a", address="ns=2;s=unit.a")
B = OpcuaTag(name="b", address="ns=2;s=unit.b", alarm_hi=0.5)
C = OpcuaTag(name="c", address="ns=2;s=unit.a")
REGISTRY = Registry(
    {"one": 1, "two": 2, "plc": 3}, {"one": {"a": 11, "b": 12}, "two": {"c": 13}, "plc": {"r": 14, "r2": 15}}
)


def opcua(name: str, address: str, tags: Sequence[OpcuaTag], **options: object) -> OpcuaSource:
    fast = {"publishing_interval": 0.1, "backoff_min": 0.05, "backoff_max": 0.5, "keep_alive": 1.0, "queue_size": 1000}
    given = {"name": name, "kind": "opcua", "address": address, "insecure": True, **fast, **options}
    return OpcuaSource.model_validate({**given, "tags": list(tags)})


@asynccontextmanager
async def collecting(state: Path) -> AsyncIterator[tuple[Collectors, Spooled]]:
    spool = Spool(state / "spool" / "opcua.sqlite", 1024**3)
    backfill_spool = Spool(state / "spool" / "opcua.backfill.sqlite", 1024**3)
    collectors = Collectors(state, spool, backfill_spool)
    try:
        yield collectors, Spooled(state / "spool" / "opcua.sqlite")
    finally:
        await collectors.stop(PATIENCE)
        await spool.close()
        await backfill_spool.close()


def states(collectors: Collectors) -> dict[str, str]:
    return {status.name: status.state for status in collectors.statuses()}


@pytest.mark.slow
async def test_a_source_is_edited_added_and_removed_beside_another(tmp_path: Path) -> None:
    async with serving(tmp_path / "server") as server, collecting(tmp_path) as (collectors, spooled):
        one, two = opcua("one", server.address, [A]), opcua("two", server.address, [C])
        await collectors.configure([one], REGISTRY)
        await until(lambda: states(collectors) == {"one": "connected"})
        writing = asyncio.create_task(server.write(300, 0.01))
        await collectors.configure([one, two], REGISTRY)
        await until(lambda: states(collectors) == {"one": "connected", "two": "connected"})
        await collectors.configure([opcua("one", server.address, [A, B]), two], REGISTRY)
        await until(lambda: bool(spooled.values(12)))
        await collectors.configure([opcua("one", server.address, [A, B])], REGISTRY)
        assert states(collectors) == {"one": "connected"}
        await collectors.configure([opcua("one", server.address, [B, A])], REGISTRY)
        await writing
        await until(lambda: [v for v in spooled.values(11) if v] == server.written)
        assert spooled.gaps() == []
        assert [source for source, _ in spooled.events("restart")] == [1, 2], "each was started once"
        assert [status.reconnects for status in collectors.statuses()] == [0]


@pytest.mark.slow
async def test_reconnecting_one_source_leaves_others_alone(tmp_path: Path) -> None:
    """A changed option of the session costs a new one; the subscription is handed over, so no value is lost."""
    async with serving(tmp_path / "server") as server, collecting(tmp_path) as (collectors, spooled):
        two = opcua("two", server.address, [C])
        await collectors.configure([opcua("one", server.address, [A]), two], REGISTRY)
        await until(lambda: set(states(collectors).values()) == {"connected"})
        writing = asyncio.create_task(server.write(200, 0.01))
        await collectors.configure([opcua("one", server.address, [A], publish_requests=5), two], REGISTRY)
        await writing
        await until(lambda: [v for v in spooled.values(11) if v] == server.written)
        await until(lambda: [v for v in spooled.values(13) if v] == server.written)
        assert [source for source, _ in spooled.events("restart")] == [1, 2, 1]
        await until(lambda: spooled.gaps() == [])


async def test_unregistered_configuration_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path / "server") as server, collecting(tmp_path) as (collectors, _):
        await collectors.configure([opcua("one", server.address, [A])], REGISTRY)
        await until(lambda: states(collectors) == {"one": "connected"})
        stranger = OpcuaTag(name="stranger", address="ns=2;s=unit.b")
        with pytest.raises(OperationError, match="channel stranger is not registered"):
            await collectors.configure([opcua("one", server.address, [A, stranger])], REGISTRY)
        with pytest.raises(OperationError, match="source three is not registered"):
            await collectors.configure([opcua("three", server.address, [A])], REGISTRY)
        assert states(collectors) == {"one": "connected"}


async def test_changed_alarm_limits_apply_while_running(tmp_path: Path) -> None:
    """An alarm goes on where its limit stays as it was, and ends where its limit is taken away."""
    async with serving(tmp_path / "server") as server, collecting(tmp_path) as (collectors, spooled):
        watched = replace(A, alarm_hi=5.0)
        await collectors.configure([opcua("one", server.address, [watched])], REGISTRY)
        await until(lambda: states(collectors) == {"one": "connected"})
        await server.write(10)
        await until(lambda: len(spooled.events("alarm")) == 1)
        await collectors.configure([opcua("one", server.address, [B, watched])], REGISTRY)
        await server.write(10)
        await until(lambda: [v for v in spooled.values(11) if v] == server.written)
        assert len(spooled.events("alarm")) == 1, "it is the same alarm"
        (evaluator,) = collectors.evaluators()
        assert evaluator.summary()["medium"] == 1
        await collectors.configure([opcua("one", server.address, [B, A])], REGISTRY)
        await until(lambda: len(spooled.events("alarm")) == 2)
        assert evaluator.summary()["medium"] == 0
        assert not any(note.startswith("alarm:") for note in evaluator.notes)


async def test_a_removed_source_leaves_no_open_gap(tmp_path: Path) -> None:
    async with serving(tmp_path / "server") as server, collecting(tmp_path) as (collectors, spooled):
        await collectors.configure([opcua("one", server.address, [A])], REGISTRY)
        await until(lambda: states(collectors) == {"one": "connected"})
        await server.server.refuse(True)
        await until(lambda: states(collectors) == {"one": "disconnected"})
        await until(lambda: [gap.to_time for gap in spooled.gaps()] == [None])
        await collectors.configure([], REGISTRY)
        assert [gap.reason for gap in spooled.gaps() if gap.to_time is None] == []


def put_in_force(state: Path, sources: Sequence[OpcuaSource | ModbusSource], port: int) -> int:
    plant = Plant.model_validate({"name": "demo", "health": HealthOptions(port=port), "sources": tuple(sources)})
    return snapshot.save(state, state / "plant.toml", {}, plant).number


@asynccontextmanager
async def process(kind: str, state: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    async with children.running("ingest", kind, "--state", state) as running:
        yield running
        running.terminate()
        async with asyncio.timeout(PATIENCE):
            assert await running.wait() == 0


@pytest.mark.slow
async def test_sighup_applies_what_is_in_force(tmp_path: Path) -> None:
    port = free_ports(3)
    REGISTRY.save(tmp_path / "registry.json")

    async def in_force(number: int) -> bool:
        found = await asyncio.to_thread(health.fetch, "collector-opcua", HealthOptions(port=port), tmp_path)
        return found is not None and found["configuration"] == number and found["ready"]

    async with serving(tmp_path / "server") as server:
        first = put_in_force(tmp_path, [opcua("one", server.address, [A])], port)
        spooled = Spooled(tmp_path / "spool" / "opcua.sqlite")
        async with process("opcua", tmp_path) as running:
            await until(lambda: in_force(first))
            writing = asyncio.create_task(server.write(200, 0.01))
            second = put_in_force(tmp_path, [opcua("one", server.address, [A, B])], port)
            assert second == first + 1
            running.send_signal(signal.SIGHUP)
            await until(lambda: in_force(second))
            (tmp_path / "registry.json").rename(tmp_path / "away.json")
            put_in_force(tmp_path, [opcua("one", server.address, [B])], port)
            running.send_signal(signal.SIGHUP)  # what can't be applied changes nothing
            await writing
            await until(lambda: [v for v in spooled.values(11) if v] == server.written)
            assert spooled.gaps() == []


async def test_edited_modbus_source_leaves_others_running(tmp_path: Path) -> None:
    async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number))]) as port:

        def source(name: str, *registers: str) -> ModbusSource:
            tags = [ModbusTag(name=r, address=f"holding:{i}", type="uint16") for i, r in enumerate(registers)]
            given = {"name": name, "kind": "modbus", "address": f"tcp://127.0.0.1:{port}", "poll_interval": 0.5}
            return ModbusSource.model_validate({**given, "tags": tags})

        health_port = free_ports(3)
        REGISTRY.save(tmp_path / "registry.json")
        put_in_force(tmp_path, [source("one", "a"), source("plc", "r")], health_port)
        spooled = Spooled(tmp_path / "spool" / "modbus.sqlite")
        async with process("modbus", tmp_path) as running:
            await until(lambda: len(spooled.values(11)) > 1 and len(spooled.values(14)) > 1)
            start = now_us()
            put_in_force(tmp_path, [source("one", "a"), source("plc", "r", "r2")], health_port)
            running.send_signal(signal.SIGHUP)
            await until(lambda: len(spooled.values(15)) > 1)
            assert [gap for gap in spooled.gaps() if gap.reason != "poll_missed"] == []  # that is of a busy machine
            assert [source for source, event in spooled.events("restart") if event.time > start] == []


async def test_an_unexpected_error_is_shown_by_its_first_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: object) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(int, "x"))

    monkeypatch.setattr(ModbusCollector, "run", fail)
    spool = Spool(tmp_path / "modbus.sqlite", 2**24)
    collectors = Collectors(tmp_path, spool, spool)
    tag = ModbusTag(name="r", address="holding:0")
    plc = ModbusSource(name="plc", kind="modbus", address="tcp://127.0.0.1:1", tags=(tag,))
    await collectors.configure([plc], REGISTRY)
    await until(lambda: collectors.statuses()[0].reason)
    assert collectors.statuses()[0].reason.startswith("ValueError: invalid literal for int()")
    await collectors.stop(PATIENCE)
    await spool.close()
