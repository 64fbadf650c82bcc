"""Browse an OPC UA server into a tag list: its variables, with unit and range where it tells them."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any, TextIO

from asyncua import Client, ua

from ingest.config.model import ChannelKind, OpcuaSource, OpcuaTag
from ingest.opcua.session import close, connect

_KINDS: dict[int, ChannelKind] = {
    ua.ObjectIds.Boolean: "discrete",
    ua.ObjectIds.String: "text",
    **dict.fromkeys(
        (
            *(ua.ObjectIds.SByte, ua.ObjectIds.Byte, ua.ObjectIds.Int16, ua.ObjectIds.UInt16, ua.ObjectIds.Int32),
            *(ua.ObjectIds.UInt32, ua.ObjectIds.Int64, ua.ObjectIds.UInt64, ua.ObjectIds.Float, ua.ObjectIds.Double),
        ),
        "analog",
    ),
}
_COLUMNS = ("name", "address", "kind", "unit", "lo", "hi", "description")


async def discover(source: OpcuaSource, pki: Path) -> list[OpcuaTag]:
    """Every variable below Objects, but the server's own, whose data type a channel can hold. Raises SourceError."""
    client = await connect(source, pki)
    try:
        tags: list[OpcuaTag] = []
        await _browse(client, client.nodes.objects, "", tags, set())
        return tags
    finally:
        await close(client, source.time_out)


def write_tag_list(tags: list[OpcuaTag], file: TextIO) -> None:
    """The tags as a CSV that ``plant.toml`` can name."""
    writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for tag in tags:
        row = tag.model_dump(include=set(_COLUMNS))
        writer.writerow({name: "" if row[name] is None else row[name] for name in _COLUMNS})


async def _browse(client: Client, node: Any, path: str, tags: list[OpcuaTag], seen: set[Any]) -> None:
    for child in await node.get_children_descriptions():
        if child.NodeId in seen or child.NodeId == ua.NodeId(ua.ObjectIds.Server):
            continue
        seen.add(child.NodeId)
        # What a channel's name may not hold becomes an underscore.
        name = f"{path}/{re.sub(r'[^A-Za-z0-9_.%-]+', '_', child.BrowseName.Name)}".lstrip("/")
        if child.NodeClass == ua.NodeClass.Variable:
            tag = await _tag(client.get_node(child.NodeId), name)
            if tag is not None:
                tags.append(tag)
        elif child.NodeClass == ua.NodeClass.Object:
            await _browse(client, client.get_node(child.NodeId), name, tags, seen)


async def _tag(node: Any, name: str) -> OpcuaTag | None:
    data_type = await node.read_data_type()
    kind = _KINDS.get(data_type.Identifier) if data_type.NamespaceIndex == 0 else None
    if kind is None:
        return None
    unit, lo, hi = "", None, None
    for described in await node.get_properties():
        browse_name = (await described.read_browse_name()).Name
        if browse_name == "EngineeringUnits":
            unit = (await described.read_value()).DisplayName.Text or ""
        elif browse_name == "EURange":
            limits = await described.read_value()
            lo, hi = limits.Low, limits.High
    return OpcuaTag(name=name, address=node.nodeid.to_string(), kind=kind, unit=unit, lo=lo, hi=hi)
