"""Values that are no plain numbers: text forms, integers that a float64 can't hold, and types that can't be stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from asyncua import Server, ua

from ingest.config.sources import OpcuaTag
from tests.integration.test_opcua_collector import collecting
from tests.memory_appender import MemoryAppender
from tests.peers import free_port
from tests.waiting import until

V = ua.VariantType
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


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, dict[str, Any]]]:
    server = Server()
    await server.init()
    address = f"opc.tcp://127.0.0.1:{free_port()}/"
    server.set_endpoint(address)
    server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
    await server.register_namespace("urn:types")
    nodes = {}
    for name, value in VALUES.items():
        nodes[name] = await server.nodes.objects.add_variable(ua.NodeId(name, 2), f"2:{name}", value)
    async with server:
        yield address, nodes


async def test_non_numeric_values_are_handled_by_type(tmp_path: Path) -> None:
    async with serving() as (address, nodes):
        options: dict[str, Any] = {"insecure": True, "backfill": False}
        first = MemoryAppender()
        async with collecting(address, TAGS, tmp_path / "pki", kept=first, **options) as (kept, status):
            await kept.until(lambda: bool(kept.samples(5)))
            for n in range(1, 6):
                await nodes["array"].write_value(ua.Variant([float(n)], V.Double))
                await nodes["large"].write_value(ua.Variant(LARGE + 2 * n, V.UInt64))
                await nodes["exact"].write_value(ua.Variant(LARGE + n, V.Int64))
                seen = len(kept.samples(2))
                await kept.until(lambda seen=seen: len(kept.samples(2)) > seen)  # type: ignore[misc]
            texts = {c: [e.text for e in kept.events("text") if e.channel_id == c] for c in (0, 1)}
            assert texts == {0: ["läuft"], 1: [str(LARGE + n) for n in range(6)]}
            assert [e.channel_id for e in kept.events("rounded")] == [2], "once"
            assert not kept.samples(3)
            assert status.state == "degraded"
            assert status.bad_channels == {
                "array": "an array of Double",
                "name": 'a QualifiedName, which is not a number: set kind = "text"',
            }
            assert sorted((g.channel_ids, g.reason, g.to_time) for g in kept.gaps()) == [
                ((3,), "undecodable", None),
                ((4,), "undecodable", None),
            ]
            assert sorted(e.channel_id or 0 for e in kept.events("channel_state")) == [3, 4], "once each"
        second = MemoryAppender(first.notes)
        async with collecting(address, TAGS, tmp_path / "pki", kept=second, **options) as (kept, status):
            await until(lambda: status.state == "degraded")
            assert set(status.bad_channels) == {"array", "name"}, "known from before"
            await nodes["array"].write_value(ua.Variant(7.0, V.Double))
            await kept.until(lambda: any(e.text == "good" for e in kept.events("channel_state")))
            assert [v for _, v, _ in kept.samples(3)] == [7.0]
            (gap,) = [g for g in kept.gaps() if g.channel_ids == (3,)]
            assert gap.to_time == kept.samples(3)[0][0]
            assert set(status.bad_channels) == {"name"}
