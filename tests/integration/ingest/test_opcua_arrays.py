"""Elements of arrays as channels, against servers that apply an IndexRange and asyncua's, which sends whole arrays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asyncua import Server, ua

from core.config.sources import OpcuaTag
from core.timestamps import now_us
from tests.asyncua_server import unsecured
from tests.integration.ingest.test_opcua_collector import collecting
from tests.memory_appender import MemoryAppender
from tests.opcua_history import backfilled
from tests.peers import KINDS, peer
from tests.waiting import until

V = ua.VariantType
OPTIONS: dict[str, Any] = {"insecure": True, "time_out": 30.0}
NO_DATA = ua.StatusCodes.BadIndexRangeNoData


@asynccontextmanager
async def serving(values: dict[str, Any]) -> AsyncIterator[tuple[str, Server, dict[str, Any]]]:
    server, address = await unsecured("urn:arrays", transfers=True)
    nodes = {}
    for number, (name, value) in enumerate(values.items()):
        nodes[name] = await server.nodes.objects.add_variable(ua.NodeId(name, 2), f"2:n{number}", value)
    async with server:
        yield address, server, nodes


def elements(count: int, address: str, **more: Any) -> list[OpcuaTag]:
    return [OpcuaTag(name=f"e{index}", address=address, index=str(index), **more) for index in range(count)]


def values(spool: MemoryAppender, channel: int) -> list[float]:
    return [value for _, value, status in spool.samples(channel) if status < 0x8000_0000]


def missing(index: str) -> str:
    first = ",".join("0" for _ in index.split(","))
    return f"the array has no element {index}; the first one has index {first}"


def states(spool: MemoryAppender, channel: int) -> list[str | None]:
    return [e.text for e in spool.events("channel_state") if e.channel_id == channel]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["node-opcua", "open62541"])
async def test_elements_on_a_server_with_index_ranges(name: str, tmp_path: Path) -> None:
    array = f"{KINDS[name].node}Array"
    tags = [
        *elements(5, array),
        OpcuaTag(name="text", address=array, index="1", kind="text"),
        OpcuaTag(name="whole", address=array),
        OpcuaTag(name="scalar", address=f"{KINDS[name].node}Double0", index="0"),
        OpcuaTag(name="standard", address="i=2255", index="0", kind="text"),
    ]
    async with (
        peer(name, tmp_path / "peer", 5, "100") as server,
        collecting(f"opc.tcp://127.0.0.1:{server.port}", tags, tmp_path / "pki", **OPTIONS) as (spool, status),
    ):
        await spool.until(lambda: min(len(spool.samples(i)) for i in range(4)) >= 5)
        await spool.until(lambda: {5, 8} <= {e.channel_id for e in spool.events("text")})
        await until(lambda: {"whole", "scalar"} <= status.bad_channels.keys())
        await until(lambda: "e4" in status.bad_channels)
    for k in range(4):
        rounds = [value - k / 4 for value in values(spool, k)]
        assert rounds == sorted(set(rounds)), "each value once"
        assert all(value == int(value) for value in rounds)
    times = [{time: value for time, value, _ in spool.samples(k)} for k in range(4)]
    for time in set(times[0]) & set(times[3]):
        assert times[3][time] == times[0][time] + 0.75
    assert not values(spool, 4), "the array ends before it"
    assert {e.text for e in spool.events("text") if e.channel_id == 8} == {"http://opcfoundation.org/UA/"}
    assert all(float(e.text or 0) % 1 == 0.25 for e in spool.events("text") if e.channel_id == 5)
    assert status.bad_channels["whole"] == "an array of Double: the column index reads an element"
    assert status.bad_channels["e4"] == "the array has no element 4; the first one has index 0"
    assert status.bad_channels.keys() == {"whole", "scalar", "e4"}


@pytest.mark.slow
async def test_elements_on_a_server_that_sends_whole_arrays(tmp_path: Path) -> None:
    """One sample of each with each notification; where the array became shorter, Bad ones."""
    tags = [
        *elements(4, "ns=2;s=array"),
        OpcuaTag(name="name", address="ns=2;s=names", index="1", kind="text"),
        OpcuaTag(name="scalar", address="ns=2;s=scalar", index="0"),
    ]
    begin = {"array": [1.0, 2.0, 3.0], "names": ["a", "b"], "scalar": 5.0}
    async with (
        serving(begin) as (address, _, nodes),
        collecting(address, tags, tmp_path / "pki", **OPTIONS) as (spool, status),
    ):
        await spool.until(lambda: all(spool.samples(i) for i in range(4)))
        for n in range(1, 6):
            await nodes["array"].write_value(ua.Variant([1.0, 2.0, 3.0 + n], V.Double))
            await spool.until(lambda n=n: all(len(spool.samples(i)) > n for i in range(4)))  # type: ignore[misc]
        await nodes["array"].write_value(ua.Variant([9.0], V.Double))
        await spool.until(lambda: all(len(spool.samples(i)) > 6 for i in range(4)))
        assert values(spool, 0) == [1.0] * 6 + [9.0]
        assert values(spool, 1) == [2.0] * 6
        assert values(spool, 2) == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        assert {state for _, _, state in spool.samples(3)} == {NO_DATA}
        assert spool.samples(1)[-1][2] == spool.samples(2)[-1][2] == NO_DATA
        assert [e.text for e in spool.events("text") if e.channel_id == 4] == ["b"]
        bad = {
            "scalar": "a Double, not an array: clear the column index",
            **{f"e{k}": f"the array has no element {k}; the first one has index 0" for k in (1, 2, 3)},
        }
        await until(lambda: status.bad_channels == bad and status.state == "degraded")
        await nodes["array"].write_value(ua.Variant([1.0, 2.0, 3.0, 4.0], V.Double))
        await until(lambda: status.bad_channels.keys() == {"scalar"})
        await spool.until(lambda: len(states(spool, 3)) == 2)
        assert (states(spool, 3), states(spool, 2), states(spool, 0)) == (["bad", "good"], ["bad", "good"], [])
        await nodes["scalar"].write_value(ua.Variant([6.0], V.Double))
        await until(lambda: not status.bad_channels)
        await spool.until(lambda: values(spool, 5) == [6.0])


@pytest.mark.slow
async def test_elements_of_a_matrix_whose_dimensions_change(tmp_path: Path) -> None:
    """Elements that the matrix lacks are Bad, an index of other dimensions is a gap; the tags beside them go on."""
    node, scalar = "ns=2;s=matrix", OpcuaTag(name="scalar", address="ns=2;s=scalar")
    tags = [
        scalar,
        *(OpcuaTag(name=f"e{i}", address=node, index=i.replace(".", ",")) for i in ("0.2", "1.0", "2.1", "1", "0.0.1")),
    ]
    begin = {"scalar": 1.0, "matrix": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]}
    async with (
        serving(begin) as (address, server, nodes),
        collecting(address, tags, tmp_path / "pki", **OPTIONS) as (spool, status),
    ):

        async def shown(matrix: Any, expected: dict[str, str]) -> None:
            await nodes["matrix"].write_value(ua.Variant(matrix, V.Double))
            await until(lambda: status.bad_channels == expected)

        others = {
            "e1": "an array of 2 dimensions: an element has an index of 2 numbers, as in 0,0",
            "e0.0.1": "an array of Double of 2 dimensions: an element has an index of 2 numbers, as in 0,0",
        }
        await until(lambda: status.bad_channels == {"e2.1": missing("2,1"), **others})
        await spool.until(lambda: [values(spool, k) for k in range(6)] == [[1.0], [3.0], [4.0], [], [], []])
        subscriptions = server.iserver.subscription_service.subscriptions.values()
        assert sum(len(s.monitored_item_srv._monitored_items) for s in subscriptions) == 2, "one for the matrix"
        await shown([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], {"e0.2": missing("0,2"), **others})
        await spool.until(lambda: values(spool, 3) == [6.0])
        cube = "an array of Double of 3 dimensions: an element has an index of 3 numbers, as in 0,0,0"
        await shown([[[1.0, 7.0]], [[3.0, 4.0]]], {"e1": others["e1"], **dict.fromkeys(("e0.2", "e1.0", "e2.1"), cube)})
        await spool.until(lambda: values(spool, 5) == [7.0])
        row = "an array of Double: an element has an index of 1 number, as in 0"
        every = ("e0.2", "e1.0", "e2.1", "e0.0.1")
        await shown([8.0, 9.0], {"e1": others["e1"], **dict.fromkeys(every, row)})
        await shown([[1.0] * 3] * 3, others)
        await nodes["scalar"].write_value(2.0)
        await spool.until(lambda: values(spool, 0) == [1.0, 2.0])
    bad = [[status for _, _, status in spool.samples(k) if status] for k in range(4)]
    assert bad == [[], [NO_DATA], [], [NO_DATA]]
    closed = {c for gap in spool.gaps() if gap.reason == "undecodable" and gap.to_time for c in gap.channel_ids or ()}
    assert closed == {1, 2, 3}, "those that had no value for a while"


async def test_node_id_that_ends_like_an_element_is_a_node_id(tmp_path: Path) -> None:
    """As those of Siemens controllers do."""
    array, element = '"DB"."arr"', '"DB"."arr"[1]'
    tags = [
        OpcuaTag(name="node", address=f"ns=2;s={element}"),
        OpcuaTag(name="element", address=f"ns=2;s={array}", index="1"),
        OpcuaTag(name="missing", address=f"ns=2;s={array}[2]"),
    ]
    async with (
        serving({array: [10.0, 11.0, 12.0], element: 20.0}) as (address, _, _),
        collecting(address, tags, tmp_path / "pki", **OPTIONS) as (spool, status),
    ):
        await until(lambda: status.state == "degraded")
        await spool.until(lambda: bool(spool.samples(0) and spool.samples(1)))
    assert (values(spool, 0), values(spool, 1)) == ([20.0], [11.0])
    assert status.bad_channels == {"missing": "BadNodeIdUnknown"}


async def test_elements_are_read_from_history(tmp_path: Path) -> None:
    tags, begin = [*elements(3, "ns=2;s=array"), OpcuaTag(name="whole", address="ns=2;s=array")], now_us()
    tags += [OpcuaTag(name=f"m{k}", address="ns=2;s=matrix", index=f"{k},0") for k in (1, 2)]
    async with serving({"array": [0.0, 0.5], "matrix": [[0.0], [0.5]]}) as (address, server, nodes):
        await server.historize_node_data_change([nodes["array"], nodes["matrix"]], period=None, count=1000)
        for n in range(1, 6):
            await nodes["array"].write_value(ua.Variant([float(n), n + 0.5], V.Double))
            await nodes["matrix"].write_value(ua.Variant([[float(n)], [n + 0.5]], V.Double))
        found = await backfilled(address, tags, tmp_path, begin)
    assert values(found, 0)[-5:] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert values(found, 1)[-5:] == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert {status for _, _, status in found.samples(2)} == {NO_DATA}
    assert not found.samples(3)
    assert values(found, 4)[-5:] == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert {status for _, _, status in found.samples(5)} == {NO_DATA}


@pytest.mark.parametrize("killed", [False, True])
async def test_changed_index_is_another_quantity(killed: bool, tmp_path: Path) -> None:
    before, after = elements(1, "ns=2;s=array"), [replace(elements(1, "ns=2;s=array")[0], index="1")]
    async with serving({"array": [1.0, 2.0]}) as (address, _, nodes):
        async with collecting(address, before, tmp_path / "pki", **OPTIONS) as (spool, status):
            await spool.until(lambda: bool(spool.samples(0)))
            await until(lambda: status.state == "connected")
            notes = deepcopy(spool.notes) if killed else spool.notes
        async with collecting(address, after, tmp_path / "pki", MemoryAppender(notes), **OPTIONS) as (spool, _):
            await nodes["array"].write_value(ua.Variant([1.0, 3.0], V.Double))
            await spool.until(lambda: 3.0 in values(spool, 0))
    assert set(values(spool, 0)) <= {2.0, 3.0}
