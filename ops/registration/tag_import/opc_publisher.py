"""Nodes of Azure's OPC Publisher: ``publishednodes.json``.

The form is that of "Configuration Schema" in the documentation of OPC Publisher (Azure/Industrial-IoT,
docs/opc-publisher/readme.md): a list of entries with an EndpointUrl, options of the connection, and OpcNodes. Each
connection becomes a source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core.config.addresses import node_address
from core.config.addresses.value_path import INDEX_PATTERN
from core.config.sources import SecurityPolicy
from core.errors import OperationError
from ops.registration.tag_import.imported import Imported, ImportedSource, NotImported, read_json

_POLICIES: tuple[SecurityPolicy, ...] = ("Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss")
_DEFAULT_INTERVAL = 1000  # ms, of publishing and sampling
_CONNECTION = (
    *("EndpointUrl", "UseSecurity", "EndpointSecurityMode", "EndpointSecurityPolicy"),
    *("OpcAuthenticationMode", "OpcAuthenticationUsername", "OpcAuthenticationPassword", "UserName"),
)
_READ_OF_ENTRY = (*_CONNECTION, "OpcNodes", "NodeId", "DataSetPublishingInterval", "DataSetSamplingInterval")
_READ_OF_NODE = (
    *("Id", "ExpandedNodeId", "DisplayName", "DataSetFieldId", "OpcSamplingInterval", "OpcPublishingInterval"),
    *("DeadbandType", "DeadbandValue", "DataChangeTrigger", "AttributeId", "IndexRange", "Identifier"),
)


def read(path: Path, name: str) -> Imported:
    """A source for each connection: ``name``, or NAME-1, NAME-2. Raises OperationError for another kind of file."""
    entries = read_json(path)
    if not all(isinstance(entry, dict) and "EndpointUrl" in entry for entry in entries):
        raise OperationError(f"{path} is no publishednodes.json: that is a list of objects with an EndpointUrl")
    imported = Imported()
    connections: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for number, entry in enumerate(entries):
        key = json.dumps([entry.get(option) for option in _CONNECTION], sort_keys=True)
        connections.setdefault(key, []).append((f"{path}: [{number}]", entry))
    for number, same in enumerate(connections.values(), 1):
        source = ImportedSource(name if len(connections) == 1 else f"{name}-{number}", "opcua")
        imported.sources.append(source)
        _set_connection(source, *same[0], imported)
        for location, entry in same:
            for unknown in sorted(set(entry) - set(_READ_OF_ENTRY)):
                imported.drop(location, f"{unknown}, which plantlog does not have")
            for where, node in _nodes(location, entry):
                _add(source, where, node, entry, imported)
    return imported


def is_published_nodes(path: Path) -> bool:
    """Return whether it is a list, which the files of other products are not."""
    return isinstance(read_json(path), list)


def _set_connection(source: ImportedSource, location: str, entry: Mapping[str, Any], imported: Imported) -> None:
    source.options["address"] = str(entry["EndpointUrl"])
    mode, policy = entry.get("EndpointSecurityMode"), str(entry.get("EndpointSecurityPolicy") or "").split("#")[-1]
    if mode == "None" or (mode is None and entry.get("UseSecurity") is False):
        source.options["insecure"] = True
    elif mode is None and "UseSecurity" not in entry:
        imported.drop(location, "a connection without a word on security: plantlog encrypts unless insecure = true")
    elif mode == "Sign":
        imported.drop(location, "EndpointSecurityMode 'Sign': plantlog signs and encrypts")
    if policy in _POLICIES:
        source.options["security"] = policy
    elif policy and "insecure" not in source.options:
        imported.drop(location, f"EndpointSecurityPolicy {policy!r}: the default Basic256Sha256 is used")
    authentication = entry.get("OpcAuthenticationMode", "Anonymous")
    if authentication == "UsernamePassword":
        user = entry.get("OpcAuthenticationUsername") or entry.get("UserName")
        if user:
            source.options["username"] = str(user)
        imported.drop(location, "the password: write it to a file, and name that in password_file")
    elif authentication != "Anonymous":
        imported.drop(location, f"OpcAuthenticationMode {authentication!r}: the user is anonymous")


def _nodes(location: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The nodes with their locations; an old form of the file has a single one in NodeId."""
    if isinstance(entry.get("NodeId"), dict):
        yield f"{location}.NodeId", entry["NodeId"]
    nodes = entry.get("OpcNodes") or []
    for number, node in enumerate(nodes if isinstance(nodes, list) else [nodes]):
        yield f"{location}.OpcNodes[{number}]", node


def _add(source: ImportedSource, location: str, node: Any, entry: Mapping[str, Any], imported: Imported) -> None:
    try:
        if not isinstance(node, dict):
            raise NotImported("it is no object")
        columns, dropped = _columns(node, entry)
        source.add(_path(node, columns["address"]), columns)
    except NotImported as reason:
        imported.leave_out(location, str(reason))
        return
    for setting in dropped:
        imported.drop(location, setting)


def _columns(node: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """The columns of the tag list, and the settings that are not carried over. Raises NotImported."""
    address = str(node.get("Id") or node.get("ExpandedNodeId") or node.get("Identifier") or "")
    try:
        node_address.parse(address)
    except ValueError:
        raise NotImported(f"the node id {address!r}, which is not as in nsu=http://vendor.com/line;s=Tank1") from None
    if "EventFilter" in node:
        raise NotImported("events, which are no variable")
    if str(node.get("AttributeId") or "Value") not in ("Value", "13"):
        raise NotImported(f"attribute {node['AttributeId']}: plantlog reads values")
    index = str(node.get("IndexRange") or "")
    if index and not re.fullmatch(INDEX_PATTERN, index):
        raise NotImported(f"IndexRange {index!r}: plantlog reads single elements, as in 3 or 1,2")
    columns = {"address": address, "index": index}
    dropped = [f"{name}, which plantlog does not have" for name in node if name not in (*_READ_OF_NODE, "EventFilter")]
    columns["interval"] = _interval(node, entry, dropped)
    kind, width = node.get("DeadbandType"), node.get("DeadbandValue") or 0
    if "," in index and width:
        dropped.append("DeadbandValue: every change of a matrix is stored")
    elif kind in ("Absolute", 1) or (kind is None and width):
        columns["deadband"] = str(width)
    elif kind not in (None, "None", 0):
        dropped.append(f"DeadbandType {kind!r}: every change is stored")
    if (trigger := node.get("DataChangeTrigger")) not in (None, "StatusValue", 1):
        dropped.append(f"DataChangeTrigger {trigger!r}: changes of value and status are stored")
    return columns, dropped


def _interval(node: Mapping[str, Any], entry: Mapping[str, Any], dropped: list[str]) -> str:
    """The shorter one of the intervals, so that no sample is lost. Raises NotImported."""
    publishing = node.get("OpcPublishingInterval", entry.get("DataSetPublishingInterval", _DEFAULT_INTERVAL))
    sampling = node.get("OpcSamplingInterval", entry.get("DataSetSamplingInterval", _DEFAULT_INTERVAL))
    for interval in (publishing, sampling):
        if isinstance(interval, bool) or not isinstance(interval, int | float):
            raise NotImported(f"the interval {interval!r}, which is no number of milliseconds")
    if sampling == -1:  # that of publishing (OPC 10000-4, 7.21)
        sampling = publishing
    if sampling == 0:
        raise NotImported("OpcSamplingInterval 0, the fastest of the server: plantlog needs an interval")
    if sampling != publishing:
        dropped.append(f"publishing every {publishing} ms and sampling every {sampling} ms: both get the shorter one")
    interval = min(sampling, publishing) or sampling
    return f"{interval}ms"


def _path(node: Mapping[str, Any], address: str) -> str:
    """The name of a channel: that of the node, or its identifier."""
    return str(node.get("DisplayName") or node.get("DataSetFieldId") or node_address.parse(address).identifier)
