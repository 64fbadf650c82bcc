"""``discover`` against asyncua's server with all that variables can be, and with small operation limits."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from asyncua import Server, ua
from asyncua.server.internal_session import InternalSession

from core.config.load import load
from core.config.sources import OpcuaSource, OpcuaTag
from core.errors import OperationError, SourceError
from core.opcua.browse import Browser
from core.opcua.session import close, connect
from core.paths import State
from ops.cli.discover import discover as command
from ops.cli.discover import show_difference
from ops.registration.discovery.discover import Discovered, discover, write_tag_list
from tests.asyncua_server import unsecured
from tests.peers import peer
from tests.ports import free_port


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, Any, str]]:
    """An empty server: itself, the folder for nodes, its address."""
    server, address = await unsecured("urn:tests")
    folder = await server.nodes.objects.add_folder(ua.NodeId("plant", 2), "2:Plant")
    async with server:
        yield server, folder, address


async def discovered(address: str, pki: Path) -> Discovered:
    source = OpcuaSource(name="d", kind="opcua", address=address, insecure=True, time_out=30.0, tags=())
    return await discover(source, pki)


V = ua.VariantType
SCALARS: dict[str, tuple[Any, Any, str]] = {
    "Boolean": (True, V.Boolean, "discrete"),
    "SByte": (1, V.SByte, "analog"),
    "Byte": (1, V.Byte, "analog"),
    "Int16": (1, V.Int16, "analog"),
    "UInt16": (1, V.UInt16, "analog"),
    "Int32": (1, V.Int32, "analog"),
    "UInt32": (1, V.UInt32, "analog"),
    "Int64": (1, V.Int64, "analog"),
    "UInt64": (1, V.UInt64, "analog"),
    "Float": (1.0, V.Float, "analog"),
    "Double": (1.0, V.Double, "analog"),
    "String": ("x", V.String, "text"),
    "DateTime": (datetime(2026, 3, 9, tzinfo=UTC), V.DateTime, "text"),
    "Guid": (UUID(int=7), V.Guid, "text"),
    "ByteString": (b"x", V.ByteString, "text"),
    "NodeId": (ua.NodeId(5), V.NodeId, "text"),
    "StatusCode": (ua.StatusCode(0), V.StatusCode, "text"),
    "QualifiedName": (ua.QualifiedName("x", 1), V.QualifiedName, "text"),
    "LocalizedText": (ua.LocalizedText("x"), V.LocalizedText, "text"),
}


@pytest.mark.slow
async def test_discover_lists_every_scalar_and_subtype(tmp_path: Path) -> None:
    async with serving() as (_, folder, address):
        for name, (value, kind, _) in SCALARS.items():
            await folder.add_variable(ua.NodeId(name, 2), f"2:{name}", ua.Variant(value, kind))
        subtypes = {"Duration": 1.0, "UtcTime": datetime(2026, 3, 9, tzinfo=UTC)}
        for name, value in subtypes.items():
            await folder.add_variable(
                ua.NodeId(name, 2), f"2:{name}", value, datatype=ua.NodeId(getattr(ua.ObjectIds, name))
            )
        state = ua.NodeId(ua.ObjectIds.ServerState)  # an enumeration
        await folder.add_variable(ua.NodeId("Enum", 2), "2:Enum", ua.Variant(0, V.Int32), datatype=state)
        anything = ua.NodeId(ua.ObjectIds.BaseDataType)
        await folder.add_variable(ua.NodeId("Any", 2), "2:Any", ua.Variant(2.5, V.Double), datatype=anything)
        number = ua.NodeId(ua.ObjectIds.Number)
        await folder.add_variable(ua.NodeId("Number", 2), "2:Number", ua.Variant(2, V.UInt16), datatype=number)
        found = await discovered(address, tmp_path)
    assert {tag.name.removeprefix("Plant/"): tag.kind for tag in found.tags} == {
        **{name: kind for name, (_, _, kind) in SCALARS.items()},
        **{"Duration": "analog", "UtcTime": "text", "Enum": "discrete", "Any": "analog", "Number": "analog"},
    }
    assert not found.skipped


async def test_discover_names_skipped_nodes(tmp_path: Path) -> None:
    async with serving() as (_, folder, address):
        await folder.add_variable(ua.NodeId("array", 2), "2:array", [1.0, 2.0])
        await folder.add_variable(ua.NodeId("matrix", 2), "2:matrix", [[1.0, 2.0], [3.0, 4.0]])
        await folder.add_variable(ua.NodeId("range", 2), "2:range", ua.Range(Low=0, High=1))
        nothing = ua.Variant(None, V.Null)
        anything = ua.NodeId(ua.ObjectIds.BaseDataType)
        await folder.add_variable(ua.NodeId("empty", 2), "2:empty", nothing, datatype=anything)
        secret = await folder.add_variable(ua.NodeId("secret", 2), "2:secret", 1.0)
        await secret.write_attribute(ua.AttributeIds.AccessLevel, ua.DataValue(ua.Variant(0, V.Byte)))
        either = await folder.add_variable(ua.NodeId("either", 2), "2:either", [1.0])
        await either.write_attribute(ua.AttributeIds.ValueRank, ua.DataValue(ua.Variant(-2, V.Int32)))
        found = await discovered(address, tmp_path)
    assert not found.tags
    reasons = {node.address: node.reason for node in found.skipped}
    assert (
        reasons["nsu=urn:tests;s=array"]
        == reasons["nsu=urn:tests;s=either"]
        == "an array: the column index reads an element"
    )
    matrix = "an array of 2 dimensions: the column index reads an element, as in 0,0"
    assert reasons["nsu=urn:tests;s=matrix"] == matrix
    assert reasons["nsu=urn:tests;s=range"] == "the server has no DataTypeDefinition of Range"
    assert reasons["nsu=urn:tests;s=empty"].startswith("its data type is abstract, and it has no value")
    assert reasons["nsu=urn:tests;s=secret"] == "it is not readable (AccessLevel)"


async def test_discover_names_and_node_ids(tmp_path: Path) -> None:
    """All of it is legal for ``check``, and the same each time."""
    ids = ["s=a;b=c;i=5", "s= spaces = and ; ", "i=4294967295", "g=00000000-0000-0000-0000-000000000007", "b=AQID"]
    ids += ["s=x", "s=x ", "s= x", "s=a\rb\r\nc\n", "s=\u2028{x}"]
    async with serving() as (_, folder, address):
        for number, text in enumerate(ids):
            await folder.add_variable(ua.NodeId.from_string(f"ns=2;{text}"), f"2:odd{number}", 1.0)
        for number in (3, 1, 2):
            await folder.add_variable(ua.NodeId(f"twin{number}", 2), "2:twin", 1.0)
        await folder.add_variable(ua.NodeId("twin_2", 2), "2:twin_2", 1.0)
        await folder.add_variable(ua.NodeId("long", 2), "2:" + "x" * 400, 1.0)
        described = await folder.add_variable(ua.NodeId("dp", 2), "2:ΔP über 湯気/1", 1.0)
        description = ua.LocalizedText('Pressure\nover the  filter, "dirty"')
        await described.write_attribute(ua.AttributeIds.Description, ua.DataValue(ua.Variant(description)))
        await described.add_property(0, "EngineeringUnits", ua.EUInformation(DisplayName=ua.LocalizedText("mbar")))
        await described.add_property(0, "EURange", ua.Range(Low=-5, High=50))
        never = await folder.add_variable(ua.NodeId("never", 2), "2:never", 1.0)
        await never.add_property(0, "EURange", ua.Range(Low=float("nan"), High=0))
        found = await discovered(address, tmp_path)
        assert (await discovered(address, tmp_path)) == found
    by_address = {tag.address: tag for tag in found.tags}
    twins = {address: tag.name for address, tag in by_address.items() if "twin" in address}
    assert twins == {
        "nsu=urn:tests;s=twin1": "Plant/twin",
        "nsu=urn:tests;s=twin2": "Plant/twin_3",
        "nsu=urn:tests;s=twin3": "Plant/twin_4",
        "nsu=urn:tests;s=twin_2": "Plant/twin_2",
    }
    assert Counter(tag.name for tag in found.tags).most_common(1)[0][1] == 1
    dp = by_address["nsu=urn:tests;s=dp"]
    assert (dp.name, dp.unit, dp.lo, dp.hi) == ("Plant/ΔP_über_湯気_1", "mbar", -5, 50)
    assert dp.description == 'Pressure over the filter, "dirty"'
    assert by_address["nsu=urn:tests;s=never"].hi is None
    with (tmp_path / "tags.csv").open("w", newline="") as file:
        write_tag_list(found.tags, file)
    (tmp_path / "plant.toml").write_text(
        f'[plant]\nname = "p"\n[[source]]\nname = "d"\nkind = "opcua"\naddress = "{address}"\ntags = "tags.csv"\n'
    )
    (source,) = load(tmp_path / "plant.toml").sources
    assert {tag.address for tag in source.tags} == set(by_address)
    assert {f"nsu=urn:tests;{text}" for text in ids} < set(by_address)


async def test_node_ids_that_no_tag_list_can_have_are_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {"s=a\0b": "a NUL", "s=\udce4": "is not UTF-8"}
    made = tmp_path / "made.csv"
    async with serving() as (_, folder, address):
        for text in ("s=good ", *odd):
            variable = await folder.add_variable(ua.NodeId(text[2:], 2), "2:v\udcff", 1.0)
            description = ua.LocalizedText("\udcfc \0")
            await variable.write_attribute(ua.AttributeIds.Description, ua.DataValue(ua.Variant(description)))
        await asyncio.to_thread(command, address, True, made, None, State(tmp_path / "state"))
    assert made.read_text().splitlines()[1:] == ['Plant/v__2,"nsu=urn:tests;s=good ",analog,,,,\ufffd \ufffd']
    skipped = capsys.readouterr().err.splitlines()
    assert len(skipped) == len(odd) + 1
    for text, reason in odd.items():
        assert any(
            f";{text.encode('unicode_escape').decode()}: a node id" in line and reason in line for line in skipped
        )


async def test_discover_without_encryption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, made, state = tmp_path / "plant.toml", tmp_path / "made.csv", State(tmp_path / "state")
    async with serving() as (_, folder, address):
        await folder.add_variable(ua.NodeId("level", 2), "2:level", 1.0)
        file.write_text(f'[[source]]\nname = "mill"\nkind = "opcua"\naddress = "{address}"\ntags = "made.csv"\n')
        for source, way_out in ((address, "--insecure"), ("mill", "insecure = true under source mill")):
            message = rf"it offers no security\. To connect without encryption: {way_out}$"
            with pytest.raises(SourceError, match=message):
                await asyncio.to_thread(command, source, False, made, file, state)
        file.write_text(file.read_text() + "insecure = true\n")
        await asyncio.to_thread(command, "mill", False, made, file, state)
    assert "Plant/level,nsu=urn:tests;s=level," in made.read_text()
    assert "1 variables listed, 0 skipped" in capsys.readouterr().err


async def test_units_without_a_name_are_unece_codes(tmp_path: Path) -> None:
    """OPC 10000-8, 5.6.4.3."""
    uri = "http://www.opcfoundation.org/UA/units/un/cefact"
    units = {
        "named": ua.EUInformation(NamespaceUri=uri, UnitId=4408652, DisplayName=ua.LocalizedText("°C")),
        "coded": ua.EUInformation(NamespaceUri=uri, UnitId=4408652),
        "short": ua.EUInformation(NamespaceUri=uri, UnitId=0x5031),
        "unset": ua.EUInformation(NamespaceUri=uri, UnitId=-1),
        "other": ua.EUInformation(NamespaceUri="urn:own-units", UnitId=4408652),
    }
    async with serving() as (_, folder, address):
        for name, unit in units.items():
            variable = await folder.add_variable(ua.NodeId(name, 2), f"2:{name}", 1.0)
            await variable.add_property(0, "EngineeringUnits", unit)
        found = await discovered(address, tmp_path)
    reasons = {tag.name.removeprefix("Plant/"): tag.unit for tag in found.tags}
    assert reasons == {"named": "°C", "coded": "CEL", "short": "P1", "unset": "", "other": ""}


async def test_what_the_server_does_not_show_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is not compared: the exit code is 1."""
    browse = InternalSession.browse

    async def deny(session: InternalSession, parameters: Any) -> list[Any]:
        results: list[Any] = await browse(session, parameters)
        for node, result in zip(parameters.NodesToBrowse, results, strict=True):
            if node.NodeId.Identifier == "hidden":
                result.StatusCode, result.References = ua.StatusCode(ua.StatusCodes.BadUserAccessDenied), []
        return results

    monkeypatch.setattr(InternalSession, "browse", deny)
    file, state, reason = tmp_path / "plant.toml", State(tmp_path / "state"), "BadUserAccessDenied"
    async with serving() as (_, folder, address):
        await folder.add_variable(ua.NodeId("level", 2), "2:level", 1.0)
        hidden = await folder.add_folder(ua.NodeId("hidden", 2), "2:Hidden")
        await hidden.add_variable(ua.NodeId("secret", 2), "2:secret", 1.0)
        file.write_text(
            f'[[source]]\nname = "mill"\nkind = "opcua"\naddress = "{address}"\ntags = "mill.csv"\ninsecure = true\n'
        )
        assert not await asyncio.to_thread(command, "mill", False, tmp_path / "mill.csv", file, state)
        err = capsys.readouterr().err
        assert f"not seen: nsu=urn:tests;s=hidden: not all below it can be browsed: {reason}\n" in err
        assert "1 variables listed, 0 skipped, 1 not seen: the tag list is incomplete" in err
        assert await asyncio.to_thread(show_difference, "mill", False, file, state), "not the same"
        assert capsys.readouterr().out.splitlines() == [
            "not seen, and not compared:",
            f"  nsu=urn:tests;s=hidden: not all below it can be browsed: {reason}",
            "0 only on the server, 0 only in the tag list, 0 different, 1 the same, 1 not seen",
        ]


TAG_LIST = """\
name,address,kind,unit,lo,hi,index
level,ns=2;s=level,analog,m,0,10,
also,nsu=urn:tests;s=level,counter,m,0,10,
numbered,ns=2;i=1001,,,,,
server_time,i=2258,text,,,,
element,nsu=urn:tests;s=array,,,,,1
whole,nsu=urn:tests;s=array,,,,,
not_an_array,nsu=urn:tests;s=level,analog,m,0,10,0
gone,nsu=urn:tests;s=gone,,,,,
elsewhere,nsu=urn:elsewhere;s=level,,,,,
pressure,nsu=urn:tests;s=pressure,,mbar,0,50,
state,nsu=urn:tests;s=state,analog,,,,
serial,nsu=urn:tests;s=serial,,,,,
beyond,nsu=urn:tests;s=array,,,,,2
cell,nsu=urn:tests;s=matrix,,,,,"1,2"
row,nsu=urn:tests;s=matrix,,,,,1
outside,nsu=urn:tests;s=matrix,,,,,"2,0"
"""


async def test_difference_of_tag_list_and_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, state = tmp_path / "plant.toml", State(tmp_path / "state")
    async with serving() as (_, folder, address):
        for name, value in {"level": 1.0, "pressure": 1.0, "state": True, "serial": "x", "new": 1.0}.items():
            variable = await folder.add_variable(ua.NodeId(name, 2), f"2:{name}", value)
            if name in ("level", "pressure"):
                unit = {"level": "m", "pressure": "bar"}[name]
                await variable.add_property(0, "EngineeringUnits", ua.EUInformation(DisplayName=ua.LocalizedText(unit)))
                await variable.add_property(0, "EURange", ua.Range(Low=0, High=10))
        await folder.add_variable(ua.NodeId(1001, 2), "2:numbered", 1.0)
        await folder.add_variable(ua.NodeId("array", 2), "2:array", [1.0, 2.0])
        await folder.add_variable(ua.NodeId("matrix", 2), "2:matrix", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        file.write_text(
            f'[[source]]\nname = "mill"\nkind = "opcua"\naddress = "{address}"\ntags = "mill.csv"\ninsecure = true\n'
            '[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:502"\ntags = "plc.csv"\n'
        )
        (tmp_path / "mill.csv").write_text(TAG_LIST)
        assert await asyncio.to_thread(show_difference, "mill", True, file, state)
        as_json = json.loads(capsys.readouterr().out)
        assert await asyncio.to_thread(show_difference, "mill", False, file, state)
        text = capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()
        (tmp_path / "mill.csv").unlink()
        await asyncio.to_thread(command, "mill", False, tmp_path / "mill.csv", file, state)
        capsys.readouterr()
        assert not await asyncio.to_thread(show_difference, "mill", False, file, state)
        assert capsys.readouterr().out == ("0 only on the server, 0 only in the tag list, 0 different, 6 the same\n"), (
            "what discover writes is the same"
        )
    for name, message in (
        ("plc", "source plc has kind modbus: only kind opcua can be browsed, as other devices have no list"),
        (address, "is an address: --diff needs the name of a source, which has a tag list"),
    ):
        with pytest.raises(OperationError, match=message):
            show_difference(name, False, file, state)
    assert text == [
        "only on the server:",
        "  Plant/new nsu=urn:tests;s=new: analog",
        "only in the tag list:",
        "  mill.csv:7: whole nsu=urn:tests;s=array: an array: the column index reads an element",
        "  mill.csv:8: not_an_array nsu=urn:tests;s=level: not an array, but the tag has an index",
        "  mill.csv:9: gone nsu=urn:tests;s=gone: the server has no such node",
        text[6],
        "  mill.csv:14: beyond nsu=urn:tests;s=array: the array has 2 elements, but the tag has index 2",
        "  mill.csv:16: row nsu=urn:tests;s=matrix: an array of 2 dimensions, but the tag has index 1",
        "  mill.csv:17: outside nsu=urn:tests;s=matrix: the array has 2 × 3 elements, but the tag has index 2,0",
        "different:",
        "  mill.csv:11: pressure: unit mbar, on the server bar; hi 50, on the server 10",
        "  mill.csv:12: state: kind analog, on the server discrete",
        "  mill.csv:13: serial: kind analog, on the server text",
        "1 only on the server, 7 only in the tag list, 3 different, 6 the same",
    ]
    assert text[6].startswith("  mill.csv:10: elsewhere nsu=urn:elsewhere;s=level: the server has no namespace")
    assert [tag["name"] for tag in as_json["only_server"]] == ["Plant/new"]
    assert [tag["line"] for tag in as_json["only_list"]] == [7, 8, 9, 10, 14, 16, 17]
    assert as_json["different"][0] == {
        "line": 11,
        "name": "pressure",
        "address": "nsu=urn:tests;s=pressure",
        "unit": {"list": "mbar", "server": "bar"},
        "hi": {"list": 50.0, "server": 10.0},
    }
    assert as_json["same"] == 6


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("opc.tcp://127.0.0.1:{port}", "nothing listens at opc.tcp://127.0.0.1:{port}"),
        ("opc.tcp://nobody.invalid:4840", "the host name of opc.tcp://nobody.invalid:4840 cannot be resolved"),
        (
            "tcp://127.0.0.1:502",
            "tcp://127.0.0.1:502 is a Modbus address",
        ),
        ("plc:4840", "has no OPC UA source plc:4840"),
    ],
)
def test_discover_of_what_cannot_be_browsed(tmp_path: Path, address: str, message: str) -> None:
    port = free_port()
    with pytest.raises((SourceError, OperationError)) as caught:
        command(address.format(port=port), True, None, None, State(tmp_path / "state"))
    assert message.format(port=port) in str(caught.value)


async def test_discover_respects_server_limits(tmp_path: Path) -> None:
    """Few nodes a call, few references an answer: all is found nevertheless."""
    async with serving() as (server, folder, address):
        limits = "Server_ServerCapabilities_OperationLimits_MaxNodesPer"
        for service in ("Browse", "Read"):
            node = server.get_node(ua.NodeId(getattr(ua.ObjectIds, f"{limits}{service}")))
            await node.write_value(ua.Variant(7, V.UInt32))
        for number in range(300):
            await folder.add_variable(ua.NodeId(f"v{number}", 2), f"2:v{number}", float(number))
        found = await discovered(address, tmp_path)
    assert [tag.name for tag in found.tags] == [f"Plant/v{number}" for number in range(300)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["node-opcua", "open62541"])
async def test_discover_on_a_foreign_server(name: str, tmp_path: Path) -> None:
    """Also by pieces of ten references at most, which continuation points connect."""
    async with peer(name, tmp_path / "peer", 1000, "10000") as server:
        address = f"opc.tcp://127.0.0.1:{server.port}"
        found = await discovered(address, tmp_path)
        source = OpcuaSource(name="d", kind="opcua", address=address, insecure=True, time_out=30.0, tags=())
        client = await connect(source, tmp_path)
        try:
            browser = Browser(client, 30.0, lambda _: None, max_references=10)
            (children,) = await browser.children([ua.NodeId(ua.ObjectIds.ObjectsFolder)], 0)
        finally:
            await close(client, 5.0)
    ours = [tag for tag in found.tags if ";s=" in tag.address and ";s=Scalar" not in tag.address and not tag.member]
    assert Counter(tag.kind for tag in ours) == {"analog": 600, "discrete": 200, "text": 200}
    assert len({child.node for child in children}) == len(children) > 1000


def test_discover_prints_csv() -> None:
    file = io.StringIO()
    write_tag_list([OpcuaTag(name="a", address="ns=1;s=x,y", unit="%")], file)
    assert file.getvalue() == 'name,address,kind,unit,lo,hi,description\na,"ns=1;s=x,y",analog,%,,,\n'
    file = io.StringIO()
    write_tag_list([OpcuaTag(name="a", address="ns=1;s=x", member="Speed")], file)
    assert file.getvalue() == "name,address,member,kind,unit,lo,hi,description\na,ns=1;s=x,Speed,analog,,,,\n"
