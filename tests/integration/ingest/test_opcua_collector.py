"""The OPC UA collector against servers that are not ours and asyncua's, secured and not, and against silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.config.sources import OpcuaSource, OpcuaTag
from ingest.opcua.collector import Collector
from ingest.status import SourceStatus
from ops.certificates import trust
from ops.registration.discovery.discover import discover
from simulator.opcua_server import OpcuaServer
from simulator.tags import SimTag
from tests.memory_appender import MemoryAppender
from tests.peers import opcua_tags, peer
from tests.ports import free_port
from tests.waiting import running, until

SERVERS = ("milo", "node-opcua", "open62541")


@asynccontextmanager
async def collecting(
    address: str,
    tags: list[OpcuaTag],
    pki: Path,
    spool: MemoryAppender | None = None,
    backfill_spool: MemoryAppender | None = None,
    stands_by: Callable[[], bool] = lambda: False,
    **options: Any,
) -> AsyncIterator[tuple[MemoryAppender, SourceStatus]]:
    fast = {"publishing_interval": 0.1, "time_out": 5.0, "backoff_min": 0.05, "backoff_max": 0.5, "keep_alive": 1.0}
    source = OpcuaSource.model_validate(
        {"name": "ua", "kind": "opcua", "address": address, **fast, **options, "tags": tags}
    )
    status = SourceStatus(1, "ua", "opcua", address, len(tags))
    spool = MemoryAppender() if spool is None else spool
    backfill_spool = MemoryAppender() if backfill_spool is None else backfill_spool
    ids = {t.name: i for i, t in enumerate(tags)}
    async with running(Collector(source, ids, status, spool, pki, backfill_spool, stands_by=stands_by).run()):
        yield spool, status


@asynccontextmanager
async def simulated_server(
    tags: Sequence[SimTag], folder: Path, port: int, **options: Any
) -> AsyncIterator[OpcuaServer]:
    """The simulator's server, not secured."""
    server = OpcuaServer(list(tags), folder, secure=False, **options)
    await server.start("127.0.0.1", port)
    try:
        yield server
    finally:
        await server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
async def test_everything_a_foreign_server_publishes_is_stored(name: str, tmp_path: Path) -> None:
    """Sign & encrypt; every value from the first one seen up to one seen everywhere, exactly once, and nothing else."""
    tags = opcua_tags(name, 100)
    async with peer(name, tmp_path / "peer", 100, "200") as server:
        address = f"opc.tcp://127.0.0.1:{server.port}"
        async with collecting(address, tags, tmp_path / "pki", accept=["wrong-host"]) as (spool, status):
            await until(lambda: "is not trusted" in status.reason)
            assert not spool.samples(0), "nothing before somebody trusts the server"
            trust(tmp_path / "pki", "ua")
            numbers = [i for i, t in enumerate(tags) if t.kind != "text"]
            await spool.until(lambda: min(len(spool.samples(i)) for i in numbers) >= 20)
        truth = server.published()
        for i, t in enumerate(tags):
            if t.kind == "text":
                stored: dict[int, tuple[object, object]] = {
                    e.time: (e.text, e.status) for e in spool.events("text") if e.channel_id == i
                }
            else:
                rows = spool.samples(i)
                assert len({time for time, _, _ in rows}) == len(rows)
                stored = {time: (value, s) for time, value, s in rows}
            times = sorted(time for channel, time in truth if channel == t.name)
            first = next(time for time in times if time in stored)
            between = [time for time in times if first <= time <= max(stored)]
            # A value that is older than the gap before the first connection is stored again, after it.
            ends = [gap.to_time for gap in spool.gaps() if gap.to_time is not None]
            stated = {end + number for end in ends for number in (1, 2)} - set(between)
            assert [time for time in sorted(stored) if time >= first and time not in stated] == between
            for time in between:
                assert stored[time] == truth[t.name, time]
        assert status.missed == status.decode_errors == 0


@pytest.mark.slow
async def test_bad_node_affects_only_itself(tmp_path: Path) -> None:
    tags = [
        OpcuaTag(name="good", address="ns=1;s=Double0"),
        OpcuaTag(name="unknown", address="ns=1;s=nobody"),
        OpcuaTag(name="malformed", address="ns=1;g=not-a-guid"),
        OpcuaTag(name="also-good", address="ns=1;s=Int320"),
    ]
    async with peer("node-opcua", tmp_path / "peer", 5, "200") as server:
        address = f"opc.tcp://127.0.0.1:{server.port}"
        async with collecting(address, tags, tmp_path / "pki", insecure=True) as (spool, status):
            await spool.until(lambda: len(spool.samples(0)) >= 3 and len(spool.samples(3)) >= 3)
            assert status.state == "degraded"
            assert status.bad_channels == {"unknown": "BadNodeIdUnknown", "malformed": "BadNodeIdInvalid"}
            assert {e.channel_id for e in spool.events("channel_state")} == {1, 2}


TAGS = [SimTag("unit/a", "a", opcua="Double", period=0.1), SimTag("unit/b", "b", opcua="Boolean", period=0.1)]
OURS = [OpcuaTag(name="a", address="ns=2;s=unit.a"), OpcuaTag(name="b", address="ns=2;s=unit.b")]


async def test_restarted_server_is_reconnected(tmp_path: Path) -> None:
    port = free_port()
    async with collecting(f"opc.tcp://127.0.0.1:{port}/", OURS, tmp_path / "pki", insecure=True) as (spool, status):
        for start in range(2):
            async with simulated_server(TAGS, tmp_path, port) as server:
                await until(lambda: status.state == "connected")
                for n in range(5):
                    await server.write(0, start * 100 + n, 1_790_000_000_000_000 + start * 1000 + n, 0)
                await spool.until(lambda start=start: any(v == start * 100 + 4 for _, v, _ in spool.samples(0)))  # type: ignore[misc]
            await until(lambda: status.state != "connected")
        values = dict.fromkeys(v for _, v, _ in spool.samples(0) if v)  # the last one may be stated again
        assert [v for v in values if v < 100] == [1, 2, 3, 4]
        assert status.reconnects == 1
        await until(lambda: "nothing listens" in spool.events("source_state")[-1].detail["reason"])
        assert spool.events("source_state")[-1].text == "disconnected"


async def test_returning_server_is_found_at_once(tmp_path: Path) -> None:
    port = free_port()
    options: dict[str, Any] = {"insecure": True, "backoff_min": 600.0, "backoff_max": 600.0}
    async with collecting(f"opc.tcp://127.0.0.1:{port}/", OURS, tmp_path / "pki", **options) as (_, status):
        await until(lambda: "nothing listens" in status.reason)  # its next attempt would be later than a test waits
        async with simulated_server(TAGS, tmp_path, port):
            await until(lambda: status.state == "connected")


async def test_server_that_ended_a_short_session_is_found_at_once_when_it_returns(tmp_path: Path) -> None:
    port = free_port()
    options: dict[str, Any] = {"insecure": True, "backoff_min": 600.0, "backoff_max": 600.0}
    async with (
        simulated_server(TAGS, tmp_path, port) as server,
        collecting(f"opc.tcp://127.0.0.1:{port}/", OURS, tmp_path / "pki", **options) as (_, status),
    ):
        await until(lambda: status.state == "connected")
        await server.stop()
        await until(lambda: "nothing listens" in status.reason)
        async with simulated_server(TAGS, tmp_path, port):
            await until(lambda: status.state == "connected")


async def test_collector_ends_on_request_despite_a_broken_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_: Collector) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("broken")

    monkeypatch.setattr(Collector, "_watch", breaks)
    port = free_port()
    spool = MemoryAppender()
    async with simulated_server(TAGS, tmp_path, port):
        address = f"opc.tcp://127.0.0.1:{port}/"
        async with collecting(address, OURS, tmp_path / "pki", spool, insecure=True) as (_, status):
            await until(lambda: status.state == "connected")
    assert "stopped:1" in spool.notes


async def test_silence_ends_the_session(tmp_path: Path) -> None:
    """The connection stays open, nothing comes: the keep-alive watchdog notices, and another session begins."""
    port = free_port()
    address = f"opc.tcp://127.0.0.1:{port}/"
    options: dict[str, Any] = {"insecure": True, "time_out": 0.5}
    async with (
        simulated_server(TAGS, tmp_path, port) as server,
        collecting(address, OURS, tmp_path / "pki", **options) as (spool, status),
    ):
        await spool.until(lambda: bool(spool.samples(0)))
        server.pause(True)
        await until(lambda: status.state != "connected")
        server.pause(False)
        await until(lambda: status.reconnects >= 1 and status.state == "connected")
        await server.write(0, 42.0, 1_790_000_000_000_000, 0)
        await spool.until(lambda: any(v == 42.0 for _, v, _ in spool.samples(0)))


async def test_messages_are_acknowledged_only_when_durable(tmp_path: Path) -> None:
    """While the spool is full nothing is taken; what the server queued meanwhile arrives when there is room."""
    port = free_port()
    async with (
        simulated_server(TAGS, tmp_path, port) as server,
        collecting(f"opc.tcp://127.0.0.1:{port}/", OURS, tmp_path / "pki", insecure=True) as (spool, _),
    ):
        await spool.until(lambda: bool(spool.samples(0)))
        spool.full = True
        for n in range(1, 31):
            await server.write(0, float(n), 1_790_000_000_000_000 + n, 0)
            await asyncio.sleep(0.05)
        assert not any(v == 30 for _, v, _ in spool.samples(0))
        spool.full = False
        await spool.until(lambda: sum(v > 0 for _, v, _ in spool.samples(0)) >= 30)
        assert sorted(v for _, v, _ in spool.samples(0) if v) == [float(n) for n in range(1, 31)]


async def test_discover_finds_what_the_simulator_serves(tmp_path: Path) -> None:
    tags = [
        SimTag("unit/level", "a", unit="m", lo=0, hi=8, opcua="Double"),
        SimTag("unit/sub/running", "b", "discrete", opcua="Boolean"),
        SimTag("unit/mode", "c", "text", opcua="String"),
    ]
    port = free_port()
    source = OpcuaSource(name="ua", kind="opcua", address=f"opc.tcp://127.0.0.1:{port}/", insecure=True, tags=())
    async with simulated_server(tags, tmp_path, port):
        found = (await discover(source, tmp_path / "pki")).tags
    assert [(t.name, t.address, t.kind, t.unit, t.lo, t.hi) for t in found] == [
        ("Plant/unit/level", "nsu=urn:plantlog:simulator:plant;s=unit.level", "analog", "m", 0, 8),
        ("Plant/unit/sub/running", "nsu=urn:plantlog:simulator:plant;s=unit.sub.running", "discrete", "", None, None),
        ("Plant/unit/mode", "nsu=urn:plantlog:simulator:plant;s=unit.mode", "text", "", None, None),
    ]
