"""Members of structures as channels, by the definitions of servers of several makes, also where those change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from asyncua import Server, ua
from asyncua.common.structures104 import make_structure, new_struct, new_struct_field
from asyncua.ua.ua_binary import struct_to_binary

from core.config.sources import OpcuaSource, OpcuaTag
from core.config.templates import TagLocation
from core.timestamps import now_us
from ops.registration.discovery.compare import compare
from ops.registration.discovery.discover import discover
from tests.asyncua_server import unsecured
from tests.integration.ingest.test_opcua_collector import collecting
from tests.integration.ops.test_opcua_discover import discovered
from tests.memory_appender import MemoryAppender
from tests.opcua_history import backfilled
from tests.waiting import until

V = ua.VariantType
OPTIONS: dict[str, Any] = {"insecure": True, "time_out": 30.0}
NODE = "ns=2;s=drive"
TAGS = [
    OpcuaTag(name="speed", address=NODE, member="Motor.Speed"),
    OpcuaTag(name="name", address=NODE, member="Motor.Name", kind="text"),
    OpcuaTag(name="torque", address=NODE, member="Torque"),
    OpcuaTag(name="temperature", address=NODE, member="Temperatures", index="1"),
    OpcuaTag(name="third", address=NODE, member="Temperatures", index="2"),
]
ABSENT, NO_ELEMENT, BAD_TYPE, BAD_DECODING = 0x80B10000, 0x80370000, 0x80740000, 0x80070000
MOTOR = [("Speed", ua.ObjectIds.Double), ("Name", ua.ObjectIds.String)]


class Drive:
    """A server with a variable that is a structure with another one in it, and the values that it gets."""

    def __init__(self, server: Server, address: str) -> None:
        self.server = server
        self.address = address

    async def define(self, motor: Sequence[tuple[str, int]] = MOTOR, *, with_arrays: bool = True) -> None:
        """Make the data types anew. ``with_arrays``: Temperatures and Axes are arrays."""
        fields = [new_struct_field(name, ua.NodeId(kind)) for name, kind in motor]
        inside, _ = await new_struct(self.server, 2, "Motor", fields)
        self._motor = await self._class(inside, "Motor")
        fields = [
            new_struct_field("On", ua.VariantType.Boolean),
            new_struct_field("Motor", inside),
            new_struct_field("Torque", ua.VariantType.Float, optional=True),
            new_struct_field("Temperatures", ua.VariantType.Double, array=with_arrays),
            new_struct_field("Axes", inside, array=with_arrays),
        ]
        self.data_type, _ = await new_struct(self.server, 2, "Drive", fields)
        self._drive = await self._class(self.data_type, "Drive")

    async def _class(self, data_type: Any, name: str) -> Any:
        definition = await data_type.read_data_type_definition()
        made = make_structure(data_type.nodeid, name, definition)[name]
        ua.register_extension_object(name, definition.DefaultEncodingId, made, data_type.nodeid)
        return made

    def value(self, torque: float | None = None, temperatures: Sequence[float] = (20.0, 21.0), **motor: Any) -> Any:
        return ua.Variant(self._made(torque, temperatures, (), **motor), V.ExtensionObject)

    def value_without_arrays(self, temperature: float, speed: float) -> Any:
        motor, axis = self._motor(Speed=speed, Name="m"), self._motor(Speed=speed, Name="a")
        made = self._drive(On=True, Motor=motor, Torque=None, Temperatures=temperature, Axes=axis)
        return ua.Variant(made, V.ExtensionObject)

    def values(self, *speeds: Sequence[float]) -> Any:
        """An array of drives, with the speeds of the axes of each."""
        made = [self._made(None, (), of, Speed=10.0 * n, Name=f"n{n}") for n, of in enumerate(speeds)]
        return ua.Variant(made, V.ExtensionObject, is_array=True)

    def _made(self, torque: float | None, temperatures: Sequence[float], speeds: Sequence[float], **motor: Any) -> Any:
        axes = [self._motor(Speed=speed, Name=f"of {speed}") for speed in speeds]
        motors, numbers = self._motor(**motor), list(temperatures)
        return self._drive(On=True, Motor=motors, Torque=torque, Temperatures=numbers, Axes=axes)

    async def add(self, value: Any) -> None:
        self.node = await self.server.nodes.objects.add_variable(
            ua.NodeId("drive", 2), "2:drive", value, datatype=self.data_type.nodeid
        )

    async def changed(self, value: Any) -> None:
        """The variable has the data type that was defined last."""
        await self.node.write_attribute(ua.AttributeIds.DataType, ua.DataValue(ua.Variant(self.data_type.nodeid)))
        await self.node.write_value(value)


@asynccontextmanager
async def serving() -> AsyncIterator[Drive]:
    server, address = await unsecured("urn:structures", transfers=True)
    drive = Drive(server, address)
    await drive.define()
    await drive.add(drive.value(Speed=1.0, Name="a"))
    async with server:
        yield drive


def values(spool: MemoryAppender, channel: int) -> list[float]:
    return [value for _, value, status in spool.samples(channel) if status < 0x8000_0000]


def texts(spool: MemoryAppender, channel: int) -> list[str | None]:
    return [e.text for e in spool.events("text") if e.channel_id == channel]


async def test_members_of_one_item(tmp_path: Path) -> None:
    """One sample of each with each notification, with its time; what a value does not have is Bad."""
    async with serving() as drive, collecting(drive.address, TAGS, tmp_path / "pki", **OPTIONS) as (spool, status):
        await spool.until(lambda: bool(spool.samples(4)))
        assert status.bad_channels == {"third": "the array has no element 2; the first one has index 0"}
        for n in range(2, 6):
            await drive.node.write_value(drive.value(n / 2, [20.0, 20.0 + n, 5.0], Speed=float(n), Name=f"n{n}"))
            await spool.until(lambda n=n: len(spool.samples(4)) == n)  # type: ignore[misc]
        subscriptions = drive.server.iserver.subscription_service.subscriptions.values()
        assert [len(s.monitored_item_srv._monitored_items) for s in subscriptions] == [1]
        assert not status.bad_channels
    assert values(spool, 0) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert texts(spool, 1) == ["a", "n2", "n3", "n4", "n5"]
    assert values(spool, 2) == [1.0, 1.5, 2.0, 2.5]
    assert values(spool, 3) == [21.0, 22.0, 23.0, 24.0, 25.0]
    assert [spool.samples(channel)[0][2] for channel in (2, 4)] == [ABSENT, NO_ELEMENT]
    times = [[time for time, *_ in spool.samples(channel)] for channel in (0, 2, 3, 4)]
    assert times == [times[0]] * 4


async def test_text_that_stays_while_other_members_change_is_stored_once(tmp_path: Path) -> None:
    async with serving() as drive, collecting(drive.address, TAGS, tmp_path / "pki", **OPTIONS) as (spool, _):
        await spool.until(lambda: bool(spool.samples(0)))
        for n in range(2, 12):
            name = "b" if n == 7 else "a"
            await drive.node.write_value(drive.value(Speed=float(n), Name=name))
            await spool.until(lambda n=n: len(spool.samples(0)) == n)  # type: ignore[misc]
            await spool.until(lambda: spool.events("text")[-1].text == name)  # noqa: B023
    found = texts(spool, 1)
    assert [a for a, b in pairwise([*found, None]) if a != b] == ["a", "b", "a"]
    assert len(found) < 11


async def test_members_of_elements(tmp_path: Path) -> None:
    """Of an array of structures, and of arrays within; one that is not there is Bad, and the others go on."""
    paths: list[tuple[str, str | None]] = [
        *(("[0].Motor.Speed", None), ("[1].Axes[1].Speed", None), ("[1].Axes[0].Name", None), ("[2].On", None)),
        *(("On", None), ("[1].Axes[0].Torque", None), ("[1].Motor[0].Speed", None), ("", "1"), ("[0,1].On", None)),
        ("[0].Axes", "0"),
    ]
    tags = [
        OpcuaTag(
            name=f"t{n}", address="ns=2;s=drives", member=m, index=i, kind="text" if m.endswith("Name") else "analog"
        )
        for n, (m, i) in enumerate(paths)
    ]
    element = "an array of structures: the column member reads a member of an element, as in [0].Speed"
    bad = {
        "t4": element,
        "t5": "the structure Motor has no member Torque; it has Speed, Name",
        "t6": "Motor is a structure, not an array",
        "t7": element,
        "t8": "an array of structures: an element has an index of 1 number, as in 0",
        "t9": "a structure: the column member names one of its members: Speed, Name",
    }
    gone = {
        "t1": "an array has no such element as in [1].Axes[1].Speed; the first one has index 0",
        "t3": "an array has no such element as in [2].On; the first one has index 0",
    }
    async with serving() as drive:
        node = await drive.server.nodes.objects.add_variable(
            ua.NodeId("drives", 2), "2:drives", drive.values([], [1.0, 2.0]), datatype=drive.data_type.nodeid
        )
        await drive.server.historize_node_data_change(node, period=None, count=1000)
        begin = now_us()
        async with collecting(drive.address, tags, tmp_path / "pki", **OPTIONS) as (spool, status):
            await until(lambda: status.bad_channels == {**bad, "t3": gone["t3"]})
            await node.write_value(drive.values([], [3.0]))
            await until(lambda: status.bad_channels == bad | gone)
            await node.write_value(drive.values([], [4.0, 5.0], []))
            await until(lambda: status.bad_channels == bad)
            await node.write_value(drive.value(Speed=7.0))
            no_array = "a structure, not an array: the column member begins with the name of a member"
            await until(lambda: status.bad_channels.get("t0") == no_array)
            assert "t4" not in status.bad_channels
            await node.write_value(drive.values([], [6.0, 7.0], []))
            await until(lambda: status.bad_channels == bad)
        history = await backfilled(drive.address, tags[:4], tmp_path, begin)
    assert values(spool, 0) == [0.0] * 4
    assert values(spool, 1) == [2.0, 5.0, 7.0]
    assert texts(spool, 2) == ["of 1.0", "of 3.0", "of 4.0", "of 6.0"]
    assert values(spool, 3) == [1.0, 1.0]
    assert values(spool, 4) == [1.0]
    assert [status for _, _, status in spool.samples(1)] == [0, NO_ELEMENT, 0, 0]
    assert values(history, 1)[-2:] == [5.0, 7.0]
    assert (texts(history, 2)[-2:], values(history, 3)[-2:]) == (["of 4.0", "of 6.0"], [1.0, 1.0])


async def test_tags_that_cannot_be_read_do_not_touch_others(tmp_path: Path) -> None:
    tags = [
        *TAGS[:1],
        OpcuaTag(name="gone", address=NODE, member="Motor.Current"),
        OpcuaTag(name="whole", address=NODE),
        OpcuaTag(name="text", address=NODE, member="Motor.Name"),
        OpcuaTag(name="plain", address="i=2256", member="State"),
        OpcuaTag(name="number", address="i=2259", member="State"),
        OpcuaTag(name="none", address="ns=2;s=none", member="State"),
    ]
    async with serving() as drive, collecting(drive.address, tags, tmp_path / "pki", **OPTIONS) as (spool, status):
        await spool.until(lambda: bool(spool.samples(0)))
        await until(lambda: len(status.bad_channels) >= 6)
        await drive.node.write_value(drive.value(Speed=2.0, Name="b"))
        await spool.until(lambda: values(spool, 0) == [1.0, 2.0])
        bad = dict(status.bad_channels)
    assert bad == {
        "plain": "the server has no DataTypeDefinition of ServerStatusDataType",
        "gone": "the structure Motor has no member Current; it has Speed, Name",
        "whole": "a structure: the column member reads a member",
        "text": 'a String, which is not a number: set kind = "text"',
        "number": "a Int32, not a structure: clear the column member",
        "none": "BadNodeIdUnknown",
    }


async def test_changed_structure_is_read_by_its_new_definition(tmp_path: Path) -> None:
    """While the session lives: the first values are Bad, then the definition is read again. None is wrong."""
    motor = [("Current", ua.ObjectIds.Double), ("Speed", ua.ObjectIds.Double)]
    async with serving() as drive, collecting(drive.address, TAGS, tmp_path / "pki", **OPTIONS) as (spool, status):
        await spool.until(lambda: bool(spool.samples(4)))
        await drive.define(motor)
        n = 100.0
        await drive.changed(drive.value(Current=-1.0, Speed=n))
        while n not in values(spool, 0):
            n += 1
            seen = len(spool.samples(0))
            await drive.node.write_value(drive.value(Current=-1.0, Speed=n))
            await spool.until(lambda seen=seen: len(spool.samples(0)) > seen)  # type: ignore[misc]
        await until(lambda: status.bad_channels.keys() == {"name", "third"})
    assert status.bad_channels["name"] == "the structure Motor has no member Name; it has Current, Speed"
    assert {value for value in values(spool, 0) if value < 100} == {1.0}
    assert spool.samples(0)[1][2] == spool.samples(3)[1][2] == BAD_TYPE
    assert set(values(spool, 3)) == {21.0}


async def test_arrays_that_the_structure_no_longer_has(tmp_path: Path) -> None:
    """Their elements are Bad, then named; the members beside them are read by the new definition."""
    tags = [
        OpcuaTag(name="on", address=NODE, member="On"),
        OpcuaTag(name="temperature", address=NODE, member="Temperatures", index="1"),
        OpcuaTag(name="axis", address=NODE, member="Axes[0].Speed"),
        OpcuaTag(name="speed", address=NODE, member="Motor.Speed"),
    ]
    async with serving() as drive, collecting(drive.address, tags, tmp_path / "pki", **OPTIONS) as (spool, status):
        await until(lambda: status.bad_channels.keys() == {"axis"})
        await drive.define(with_arrays=False)
        n = 100.0
        await drive.changed(drive.value_without_arrays(50.0, n))
        while n not in values(spool, 3):
            n += 1
            seen = len(spool.samples(0))
            await drive.node.write_value(drive.value_without_arrays(50.0, n))
            await spool.until(lambda seen=seen: len(spool.samples(0)) > seen)  # type: ignore[misc]
        await until(
            lambda: (
                status.bad_channels
                == {
                    "temperature": "a Double, not an array: clear the column index",
                    "axis": "Axes is a structure, not an array",
                }
            )
        )
    assert set(values(spool, 1)) == {21.0}
    assert spool.samples(0)[1][2] in (BAD_TYPE, BAD_DECODING)


async def test_value_that_does_not_fit_its_definition_is_bad(tmp_path: Path) -> None:
    """The definition is read once again, which changes nothing."""
    async with serving() as drive, collecting(drive.address, TAGS[:3], tmp_path / "pki", **OPTIONS) as (spool, status):
        await spool.until(lambda: bool(spool.samples(2)))
        good = drive.value(Speed=2.0, Name="b")
        encoding = (await drive.data_type.read_data_type_definition()).DefaultEncodingId
        longer = ua.ExtensionObject(TypeId=encoding, Body=bytes(struct_to_binary(good.Value)) + b"\0")
        await drive.node.write_value(ua.Variant(longer, V.ExtensionObject))
        await spool.until(lambda: len(spool.samples(0)) == 2)
        reason = "the value does not fit the data type that the server describes"
        assert status.bad_channels == dict.fromkeys(("speed", "name", "torque"), reason)
        await drive.node.write_value(good)
        await spool.until(lambda: len(spool.samples(0)) == 3)
        assert not status.bad_channels
    assert [status for _, _, status in spool.samples(0)] == [0, BAD_DECODING, 0]
    assert values(spool, 0) == [1.0, 2.0]
    assert texts(spool, 1) == ["a", None, "b"]


async def test_members_are_read_from_history(tmp_path: Path) -> None:
    begin = now_us()
    async with serving() as drive:
        await drive.server.historize_node_data_change(drive.node, period=None, count=1000)
        for n in range(1, 6):
            await drive.node.write_value(drive.value(temperatures=[0.0, n + 0.5], Speed=float(n), Name=f"n{n}"))
        found = await backfilled(drive.address, TAGS, tmp_path, begin)
    assert values(found, 0)[-5:] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert texts(found, 1)[-5:] == ["n1", "n2", "n3", "n4", "n5"]
    assert values(found, 3)[-5:] == [1.5, 2.5, 3.5, 4.5, 5.5]
    assert {status for _, _, status in found.samples(2)} == {ABSENT}


@pytest.mark.parametrize("killed", [False, True])
async def test_members_continue_after_a_restart(killed: bool, tmp_path: Path) -> None:
    """With another tag list, too: removed and changed members. Values in the server's queue are kept."""
    after = [
        *TAGS[:2],
        OpcuaTag(name="torque", address=NODE, member="Motor.Speed"),
        OpcuaTag(name="on", address=NODE, member="On", kind="discrete"),
    ]
    async with serving() as drive:
        async with collecting(drive.address, TAGS, tmp_path / "pki", **OPTIONS) as (spool, status):
            await spool.until(lambda: bool(spool.samples(4)))
            await until(lambda: status.state == "degraded")
            notes = deepcopy(spool.notes) if killed else spool.notes
        await drive.node.write_value(drive.value(102.0, Speed=2.0, Name="b"))
        again = MemoryAppender(notes)
        async with collecting(drive.address, after, tmp_path / "pki", again, **OPTIONS) as (spool, status):
            n = 2
            while 1.0 not in values(spool, 3) or values(spool, 2)[-1] >= 100:
                n += 1
                await drive.node.write_value(drive.value(100.0 + n, Speed=float(n), Name=f"n{n}"))
                await spool.until(lambda n=n: float(n) in values(spool, 0))  # type: ignore[misc]
            assert not status.bad_channels
    first = int(values(spool, 0)[0])  # 1: what was not acknowledged comes again
    assert first <= 2
    assert values(spool, 0) == [float(k) for k in range(first, n + 1)], "the members beside it miss nothing"
    assert texts(spool, 1)[-n + 2 :] == [f"n{k}" for k in range(3, n + 1)]
    former = [value for value in values(spool, 2) if value >= 100]
    assert former == [102.0 + k for k in range(len(former))]
    assert values(spool, 2)[len(former) :] == values(spool, 0)[-len(values(spool, 2)) + len(former) :]
    assert set(values(spool, 3)) <= {21.0, 1.0}
    assert not spool.samples(4)


async def test_discover_lists_members(tmp_path: Path) -> None:
    async with serving() as drive:
        found = await discovered(drive.address, tmp_path)
    address = "nsu=urn:structures;s=drive"
    assert [(tag.name, tag.address, tag.member, tag.kind) for tag in found.tags] == [
        ("drive.On", address, "On", "discrete"),
        ("drive.Motor.Speed", address, "Motor.Speed", "analog"),
        ("drive.Motor.Name", address, "Motor.Name", "text"),
        ("drive.Torque", address, "Torque", "analog"),
    ]
    assert [(node.name, node.reason) for node in found.skipped] == [
        ("drive.Temperatures", "an array of Double: the column index reads an element"),
        ("drive.Axes", "an array of structures: the column member reads a member of an element, as in Axes[0].Speed"),
    ]


async def test_difference_of_members_of_elements(tmp_path: Path) -> None:
    paths: dict[str, tuple[str | None, str]] = {
        "[1].Motor.Speed": (None, ""),
        "[1].Axes[0].Speed": (None, ""),
        "[0].Temperatures": ("1", ""),
        "[2].On": (None, "the array has 2 elements, but the tag has member [2].On"),
        "[0].Axes[0].On": (None, "the structure Motor has no member On; it has Speed, Name"),
        "[0].Motor.Speed": ("1", "not an array, but the tag has an index"),
        "[1].Temperatures": ("0,0", "an array of 1 dimension, but the tag has index 0,0"),
        "On": (None, "an array of structures: the column member reads a member of an element, as in [0].Speed"),
        "[0,1].On": (None, "an array of structures: the column member reads a member of an element, as in [0].Speed"),
    }
    async with serving() as drive:
        await drive.server.nodes.objects.add_variable(
            ua.NodeId("drives", 2), "2:drives", drive.values([], [1.0]), datatype=drive.data_type.nodeid
        )
        tags = tuple(
            OpcuaTag(name=f"t{n}", address="ns=2;s=drives", member=member, index=index)
            for n, (member, (index, _)) in enumerate(paths.items())
        )
        source = OpcuaSource(name="s", kind="opcua", address=drive.address, insecure=True, time_out=30.0, tags=tags)
        found = await discover(source, tmp_path / "pki")
    comparison = compare([(tag, TagLocation(line)) for line, tag in enumerate(tags)], found)
    assert {difference.tag.member: difference.reason for difference in comparison.only_list} == {
        member: reason for member, (_, reason) in paths.items() if reason
    }
    assert (comparison.same, comparison.different) == (3, [])
    assert not [tag for tag in found.tags if tag.address.endswith("=drives")], "elements are not listed"
    assert [node.reason for node in found.skipped if node.name == "drives"] == [paths["On"][1]]
