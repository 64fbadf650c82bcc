"""Values that are no plain numbers: text forms, integers that a float64 can't hold, and types that can't be stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from asyncua import ua

from core.config.sources import ChannelKind, OpcuaTag
from core.timestamps import now_us
from tests.asyncua_server import unsecured
from tests.integration.ingest.test_opcua_collector import SERVERS, collecting
from tests.memory_appender import MemoryAppender
from tests.opcua_history import backfilled
from tests.peers import peer
from tests.waiting import until

V = ua.VariantType
KINDS: tuple[ChannelKind, ...] = ("analog", "text")
LARGE = 2**53 + 1
VALUES: dict[str, Any] = {
    "text": ua.Variant(ua.LocalizedText("läuft", "de"), V.LocalizedText),
    "exact": ua.Variant(LARGE, V.Int64),
    "large": ua.Variant(LARGE, V.UInt64),
    "array": ua.Variant([1.0, 2.0], V.Double),
    "name": ua.Variant(ua.QualifiedName("Level", 1), V.QualifiedName),
    "good": ua.Variant(1.0, V.Double),
}
TAGS = [
    OpcuaTag(name=name, address=f"ns=2;s={name}", kind="text" if name in {"text", "exact"} else "analog")
    for name in VALUES
]


# Type → value, as a number and as text; the same as in tests/peers/opcua-server.c
SCALARS: dict[str, tuple[Any, float | None, str]] = {
    "Boolean": (True, 1.0, "true"),
    "SByte": (-5, -5.0, "-5"),
    "Byte": (200, 200.0, "200"),
    "Int16": (-300, -300.0, "-300"),
    "UInt16": (60_000, 60_000.0, "60000"),
    "Int32": (-70_000, -70_000.0, "-70000"),
    "UInt32": (4_000_000_000, 4e9, "4000000000"),
    "Int64": (-LARGE, -(2.0**53), str(-LARGE)),
    "UInt64": (2**64 - 1, 2.0**64, str(2**64 - 1)),
    "Float": (1.5, 1.5, "1.5"),
    "Double": (0.1, 0.1, "0.1"),
    "String": ("läuft", None, "läuft"),
    "DateTime": (datetime(2026, 3, 9, 12, tzinfo=UTC), None, "2026-03-09T12:00:00Z"),
    "Guid": (UUID(int=7), None, "00000000-0000-0000-0000-000000000007"),
    "ByteString": (b"\x0a\xff", None, "0aff"),
    "NodeId": (ua.NodeId("x", 1), None, "ns=1;s=x"),
    "StatusCode": (ua.StatusCode(ua.StatusCodes.BadCommunicationError), None, "0x80050000"),
    "QualifiedName": (ua.QualifiedName("Level", 1), None, "1:Level"),
    "LocalizedText": (ua.LocalizedText("läuft", "de"), None, "läuft"),
}
# Type, of the standard's variables that every server has → node id
STANDARD = {
    "Boolean": "i=2994",
    "Byte": "i=2267",
    "Enumeration": "i=2259",
    "DateTime": "i=2257",
    "LocalizedText": "i=2993",
}


@asynccontextmanager
async def serving(
    values: Mapping[str, Any] = VALUES, historized: bool = False
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    server, address = await unsecured("urn:types")
    nodes = {}
    for name, value in values.items():
        nodes[name] = await server.nodes.objects.add_variable(ua.NodeId(name, 2), f"2:{name}", value)
    async with server:
        for node in nodes.values() if historized else ():
            await server.historize_node_data_change(node, period=None, count=1000)
        yield address, nodes


async def stores_each_scalar(address: str, prefix: str, pki: Path) -> None:
    """Each type as a number and as text; what has no number is named."""
    tags = [OpcuaTag(name=f"{name}.{kind}", address=f"{prefix}{name}", kind=kind) for name in SCALARS for kind in KINDS]
    texts = {2 * i + 1: text for i, (_, _, text) in enumerate(SCALARS.values())}
    numbers = {2 * i: number for i, (_, number, _) in enumerate(SCALARS.values()) if number is not None}
    async with collecting(address, tags, pki, insecure=True, time_out=30.0) as (spool, status):
        await spool.until(lambda: {e.channel_id for e in spool.events("text")} >= texts.keys())
        await spool.until(lambda: all(spool.samples(i) for i in numbers))
        await until(lambda: status.state == "degraded")
    assert {c: e.text for e in spool.events("text") if (c := e.channel_id) in texts} == texts
    assert {i: spool.samples(i)[0][1] for i in numbers} == numbers
    assert {tags[e.channel_id or 0].name for e in spool.events("rounded")} == {"Int64.analog", "UInt64.analog"}
    assert status.bad_channels == {
        f"{name}.analog": f'a {name}, which is not a number: set kind = "text"'
        for name, (_, number, _) in SCALARS.items()
        if number is None
    }


@pytest.mark.slow
async def test_each_scalar_type_is_stored(tmp_path: Path) -> None:
    async with serving({name: ua.Variant(value, V[name]) for name, (value, _, _) in SCALARS.items()}) as (address, _):
        await stores_each_scalar(address, "ns=2;s=", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["open62541"])
async def test_each_scalar_type_of_a_foreign_server_is_stored(name: str, tmp_path: Path) -> None:
    async with peer(name, tmp_path / "peer", 0, "0") as server:
        await stores_each_scalar(f"opc.tcp://127.0.0.1:{server.port}", "ns=1;s=Scalar", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
async def test_standard_variables_of_foreign_servers_are_stored(name: str, tmp_path: Path) -> None:
    """Also an enumeration, which is an Int32, and localized texts in an array."""
    texts = ("DateTime", "LocalizedText", "Element")
    tags = [
        *(OpcuaTag(name=t, address=a, kind="text" if t in texts else "discrete") for t, a in STANDARD.items()),
        OpcuaTag(name="Element", address="i=7612", index="1", kind="text"),
    ]
    async with (
        peer(name, tmp_path / "peer", 1, "200") as server,
        collecting(f"opc.tcp://127.0.0.1:{server.port}", tags, tmp_path / "pki", insecure=True, time_out=30.0) as (
            spool,
            status,
        ),
    ):
        await spool.until(lambda: all(spool.samples(i) for i in range(3)))
        await spool.until(lambda: {e.channel_id for e in spool.events("text")} == {3, 4, 5})
        assert not status.bad_channels
    assert spool.samples(2)[0][1] == 0, "running"
    found = {tags[e.channel_id or 0].name: e.text for e in spool.events("text")}
    assert found["Element"] == "Failed"
    assert found["LocalizedText"] == ""
    assert datetime.fromisoformat(found["DateTime"] or "").tzinfo is UTC


async def test_rounded_integers_from_history_are_reported(tmp_path: Path) -> None:
    tags, begin = [OpcuaTag(name="large", address="ns=2;s=large")], now_us()
    async with serving({"large": ua.Variant(1, V.Int64)}, historized=True) as (address, nodes):
        for value in (LARGE, LARGE + 2, 2):
            await nodes["large"].write_value(ua.Variant(value, V.Int64))
        found = await backfilled(address, tags, tmp_path, begin)
    assert [v for _, v, _ in found.samples(0)][-3:] == [float(LARGE), float(LARGE + 2), 2.0]
    assert [e.channel_id for e in found.events("rounded")] == [0], "once"


async def test_non_numeric_values_are_handled_by_type(tmp_path: Path) -> None:
    async with serving() as (address, nodes):
        options: dict[str, Any] = {"insecure": True, "backfill": False}
        first = MemoryAppender()
        async with collecting(address, TAGS, tmp_path / "pki", spool=first, **options) as (spool, status):
            await spool.until(lambda: bool(spool.samples(5)))
            for n in range(1, 6):
                await nodes["array"].write_value(ua.Variant([float(n)], V.Double))
                await nodes["large"].write_value(ua.Variant(LARGE + 2 * n, V.UInt64))
                await nodes["exact"].write_value(ua.Variant(LARGE + n, V.Int64))
                seen = len(spool.samples(2))
                await spool.until(lambda seen=seen: len(spool.samples(2)) > seen)  # type: ignore[misc]
            texts = {c: [e.text for e in spool.events("text") if e.channel_id == c] for c in (0, 1)}
            assert texts == {0: ["läuft"], 1: [str(LARGE + n) for n in range(6)]}
            assert [e.channel_id for e in spool.events("rounded")] == [2], "once"
            assert not spool.samples(3)
            assert status.state == "degraded"
            assert status.bad_channels == {
                "array": "an array of Double: the column index reads an element",
                "name": 'a QualifiedName, which is not a number: set kind = "text"',
            }
            assert sorted((g.channel_ids, g.reason, g.to_time) for g in spool.gaps()) == [
                ((3,), "undecodable", None),
                ((4,), "undecodable", None),
            ]
            assert sorted(e.channel_id or 0 for e in spool.events("channel_state")) == [3, 4], "once each"
        second = MemoryAppender(first.notes)
        async with collecting(address, TAGS, tmp_path / "pki", spool=second, **options) as (spool, status):
            await until(lambda: status.state == "degraded")
            assert set(status.bad_channels) == {"array", "name"}, "known from before"
            await nodes["array"].write_value(ua.Variant(7.0, V.Double))
            await spool.until(lambda: any(e.text == "good" for e in spool.events("channel_state")))
            assert [v for _, v, _ in spool.samples(3)] == [7.0]
            (gap,) = [g for g in spool.gaps() if g.channel_ids == (3,)]
            assert gap.to_time == spool.samples(3)[0][0]
            assert set(status.bad_channels) == {"name"}
