"""Creates a tag list from an OPC UA server's address space: variables, units, ranges, and what cannot be logged."""

from __future__ import annotations

import csv
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from asyncua import Client, ua

from ingest.config.sources import ChannelKind, OpcuaSource, OpcuaTag
from ingest.errors import SourceError
from ingest.opcua.browse import Browser, local
from ingest.opcua.channel_names import legal_name, unique_names
from ingest.opcua.definitions import Definitions
from ingest.opcua.engineering_units import units_and_ranges
from ingest.opcua.namespaces import Namespaces, read_namespaces
from ingest.opcua.session import close, connect
from ingest.opcua.structure import why_not

Progress: TypeAlias = Callable[[int], None]

_IDS = ua.ObjectIds
# Built-in types and their abstract supertypes (OPC 10000-6, 5.1.2); all others are subtypes of these.
_KINDS: dict[int, ChannelKind | None] = {
    _IDS.Boolean: "discrete",
    _IDS.Enumeration: "discrete",
    **dict.fromkeys(
        (
            *(_IDS.SByte, _IDS.Byte, _IDS.Int16, _IDS.UInt16, _IDS.Int32, _IDS.UInt32, _IDS.Int64, _IDS.UInt64),
            *(_IDS.Float, _IDS.Double, _IDS.Number, _IDS.Integer, _IDS.UInteger),
        ),
        "analog",
    ),
    **dict.fromkeys(
        (
            *(
                _IDS.String,
                _IDS.DateTime,
                _IDS.Guid,
                _IDS.ByteString,
                _IDS.XmlElement,
                _IDS.NodeId,
                _IDS.ExpandedNodeId,
            ),
            *(_IDS.StatusCode, _IDS.QualifiedName, _IDS.LocalizedText),
        ),
        "text",
    ),
    **dict.fromkeys((_IDS.Structure, _IDS.DataValue, _IDS.DiagnosticInfo)),  # not supported
}
_ANY = ua.NodeId(_IDS.BaseDataType)
_ATTRIBUTES = tuple(getattr(ua.AttributeIds, name) for name in ("DataType", "ValueRank", "AccessLevel", "Description"))
_MAX_MEMBERS = 10_000  # of one structure
ARRAY = "an array: the column index reads an element"
STRUCTURE = "a structure: the column member reads a member"
MATRIX = "an array of several dimensions: only those of one can be read"
COLUMNS = ("name", "address", "member", "kind", "unit", "lo", "hi", "description")


@dataclass(frozen=True, slots=True)
class SkippedVariable:
    """A variable that cannot be logged."""

    name: str
    address: str
    reason: str
    elements: int | None = None  # of an array with a configured element; None: not known


@dataclass(slots=True)
class Discovered:
    """The variables of a server, in its own order."""

    tags: list[OpcuaTag] = field(default_factory=list)
    skipped: list[SkippedVariable] = field(default_factory=list)
    # By node id and member, also those of ``source.tags``; a structure itself has no member.
    by_node: dict[tuple[Any, str], OpcuaTag | SkippedVariable] = field(default_factory=dict)
    namespaces: Namespaces = field(default_factory=Namespaces, compare=False)


@dataclass(slots=True)
class _Variable:
    node: Any
    path: str
    place: tuple[int, ...]  # in the tree
    properties: dict[str, Any] = field(default_factory=dict)  # browse name → node id
    data_type: Any = None
    scalar: bool | None = None  # None: depends on the value
    description: str = ""
    reason: str = ""  # for skipping it
    member: str = ""  # it is this member of the node's value
    elements: int | None = None  # of the array that it is

    @property
    def key(self) -> tuple[Any, str]:
        return self.node, self.member


async def discover(source: OpcuaSource, pki: Path, progress: Progress = lambda _: None) -> Discovered:
    """All variables below Objects except those of the Server object. ``progress`` is called with the number of nodes.

    The nodes of ``source.tags`` that are elsewhere, or whose parents hide them, are looked up one by one.

    Raises SourceError, ua.UaError, OSError or TimeoutError.
    """
    client = await _connect(source, pki)
    try:
        browser = Browser(client, source.time_out, progress)
        await browser.prepare()
        namespaces = await read_namespaces(client, source.time_out)
        variables = await _variables(browser)
        elsewhere = await _elsewhere(browser, source.tags, namespaces, {v.node for v in variables})
        every = [*variables, *elsewhere]
        await _attributes(browser, every)
        kinds = await _kinds(browser, every)
        await _elements(browser, every, {tag.address for tag in source.tags if tag.index is not None}, namespaces)
        members = await _members(browser, every, kinds)
        units = await units_and_ranges(browser, {v.node: v.properties for v in every if not v.reason})
    finally:
        await close(client, source.time_out)
    found = Discovered(namespaces=namespaces)
    variables = [one for variable in variables for one in (variable, *members.get(variable.node, ()))]
    every = [one for variable in every for one in (variable, *members.get(variable.node, ()))]
    addresses = {variable.node: namespaces.address(variable.node) for variable in every}
    names = unique_names((v.key, v.path, addresses[v.node]) for v in every)
    for address, status in sorted((namespaces.address(node), status) for node, status in browser.refused):
        found.skipped.append(SkippedVariable("", address, f"its children cannot be browsed: {status}"))
    for variable in every:
        name, address = names[variable.key], addresses[variable.node]
        if variable.reason:
            found.by_node[variable.key] = SkippedVariable(name, address, variable.reason, variable.elements)
            continue
        unit, lo, hi = ("", None, None) if variable.member else units[variable.node]
        found.by_node[variable.key] = OpcuaTag(
            name=name,
            address=address,
            member=variable.member,
            kind=kinds[variable.key],
            unit=unit,
            lo=lo,
            hi=hi,
            description=variable.description,
        )
    for one in (found.by_node[variable.key] for variable in variables if variable.reason != STRUCTURE):
        (found.tags if isinstance(one, OpcuaTag) else found.skipped).append(one)  # type: ignore[arg-type]
    return found


def write_tag_list(tags: list[OpcuaTag], file: TextIO) -> None:
    """The tags as a CSV file for ``plant.toml``."""
    columns = [name for name in COLUMNS if name != "member" or any(tag.member for tag in tags)]
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    for tag in tags:
        writer.writerow({name: "" if (cell := getattr(tag, name)) is None else cell for name in columns})


async def _connect(source: OpcuaSource, pki: Path) -> Client:
    """Connect to the first of the source's servers that accepts it. Raises SourceError."""
    refused = []
    for address in source.servers:
        try:
            return await connect(source.at(address), pki)
        except SourceError as error:
            refused.append(f"{address}: {error}" if source.addresses else str(error))
    raise SourceError("; ".join(refused))


async def _variables(browser: Browser) -> list[_Variable]:
    """All variables, level by level. Properties belong to their variable, other children are variables themselves."""
    classes = ua.NodeClass.Object | ua.NodeClass.Variable
    seen = {ua.NodeId(_IDS.ObjectsFolder), ua.NodeId(_IDS.Server)}
    found: list[_Variable] = []
    level: list[tuple[Any, str, tuple[int, ...], _Variable | None]] = [(ua.NodeId(_IDS.ObjectsFolder), "", (), None)]
    while level:
        below: list[tuple[Any, str, tuple[int, ...], _Variable | None]] = []
        answers = await browser.children([node for node, *_ in level], int(classes))
        for (_, path, place, parent), references in zip(level, answers, strict=True):
            for number, reference in enumerate(references):
                node = local(reference.NodeId)
                if node is None:
                    continue
                if parent is not None and reference.ReferenceTypeId.Identifier == _IDS.HasProperty:
                    parent.properties.setdefault(reference.BrowseName.Name or "", node)
                    continue
                if node in seen:
                    continue
                seen.add(node)
                name = f"{path}/{legal_name(reference.BrowseName.Name or '')}".lstrip("/")
                variable = None
                if reference.NodeClass == ua.NodeClass.Variable and node.NamespaceIndex:  # 0: defined by OPC UA
                    variable = _Variable(node, name, (*place, number))
                    found.append(variable)
                below.append((node, name, (*place, number), variable))
        level = below
    return sorted(found, key=lambda v: v.place)


async def _elsewhere(
    browser: Browser, tags: Iterable[OpcuaTag], namespaces: Namespaces, browsed: Container[Any]
) -> list[_Variable]:
    """The nodes of ``tags`` that were not browsed, with their properties."""
    nodes: dict[Any, str] = {}
    for tag in tags:
        with suppress(SourceError):  # no such namespace
            if (node := namespaces.node_id(tag.address)) not in browsed:
                nodes.setdefault(node, tag.name)
    found = [_Variable(node, name, ()) for node, name in nodes.items()]
    refused = list(browser.refused)
    for variable, references in zip(
        found, await browser.children(list(nodes), int(ua.NodeClass.Variable)), strict=True
    ):
        for reference in references:
            if reference.ReferenceTypeId.Identifier == _IDS.HasProperty:
                variable.properties.setdefault(reference.BrowseName.Name or "", local(reference.NodeId))
    browser.refused[:] = refused  # why such a node cannot be read is told with the node
    return found


async def _attributes(browser: Browser, variables: list[_Variable]) -> None:
    """Data type, rank, access and description of each."""
    values = iter(await browser.read([(v.node, attribute) for v in variables for attribute in _ATTRIBUTES]))
    for variable in variables:
        data_type, rank, access, description = (next(values) for _ in _ATTRIBUTES)
        if not data_type.StatusCode.is_good() or data_type.Value is None:
            status = data_type.StatusCode.name
            unknown = status == "BadNodeIdUnknown"
            variable.reason = "the server has no such node" if unknown else f"its data type cannot be read: {status}"
            continue
        variable.data_type = data_type.Value.Value
        dimensions = rank.Value.Value if rank.StatusCode.is_good() and rank.Value is not None else -2
        variable.scalar = True if dimensions == -1 else None if dimensions in (-2, -3) else False
        if variable.scalar is False:
            variable.reason = MATRIX if dimensions > 1 else ARRAY
        elif access.StatusCode.is_good() and access.Value is not None and not int(access.Value.Value or 0) & 1:
            variable.reason = "it is not readable (AccessLevel)"
        if description.StatusCode.is_good() and description.Value is not None:
            variable.description = " ".join((getattr(description.Value.Value, "Text", None) or "").split())


async def _kinds(browser: Browser, variables: list[_Variable]) -> dict[tuple[Any, str], ChannelKind]:
    """The kind of each variable; those without one are skipped with the reason."""
    left = [v for v in variables if not v.reason]
    await _values(browser, [v for v in left if v.scalar is None or v.data_type == _ANY])
    left = [v for v in left if not v.reason]
    above = await browser.ancestors({v.data_type for v in left}, _known)
    kinds: dict[tuple[Any, str], ChannelKind] = {}
    for variable in left:
        top = above[variable.data_type]
        kind = None if top is None else _KINDS[top.Identifier]
        if top is not None and top.Identifier == _IDS.Structure:
            variable.reason = STRUCTURE
        elif kind is None:
            name = "of an unknown type" if top is None else ua.ObjectIdNames.get(top.Identifier, "")
            variable.reason = f"{name}: data type {variable.data_type.to_string()}"
        else:
            kinds[variable.key] = kind
    return kinds


async def _members(
    browser: Browser, variables: list[_Variable], kinds: dict[tuple[Any, str], ChannelKind]
) -> dict[Any, list[_Variable]]:
    """The members of each structure, by its node, with their ``kinds``. One without is skipped with the reason."""
    structured = [variable for variable in variables if variable.reason == STRUCTURE]
    definitions = Definitions()
    await definitions.read(browser, {variable.data_type for variable in structured})
    found: dict[Any, list[_Variable]] = {}
    for variable in structured:
        structure = definitions.structure(variable.data_type)
        if isinstance(structure, str):
            variable.reason = structure
            continue
        for number, (member, of) in enumerate(islice(structure.members(), _MAX_MEMBERS)):
            path, place = f"{variable.path}.{legal_name(member)}", (*variable.place, number)
            one = _Variable(variable.node, path, place, member=member)
            one.reason = ARRAY if of.dimensions == 1 and of.is_value else why_not(structure, member, None)
            if not one.reason:
                kinds[one.key] = "discrete" if of.enumeration else _KINDS[of.type] or "analog"
            found.setdefault(variable.node, []).append(one)
    return found


async def _elements(
    browser: Browser, variables: list[_Variable], addresses: Iterable[str], namespaces: Namespaces
) -> None:
    """How many elements those of ``addresses`` have that are arrays."""
    nodes = set()
    for address in addresses:
        with suppress(SourceError):  # no such namespace
            nodes.add(namespaces.node_id(address))
    arrays = [v for v in variables if v.node in nodes and v.reason == ARRAY]
    values = await browser.read([(v.node, ua.AttributeIds.Value) for v in arrays])
    for variable, value in zip(arrays, values, strict=True):
        if value.Value is None or not isinstance(value.Value.Value, list):
            continue
        if len(value.Value.Dimensions or ()) > 1:
            variable.reason = MATRIX
        variable.elements = len(value.Value.Value)


async def _values(browser: Browser, variables: list[_Variable]) -> None:
    """Read values to decide what type and rank leave open."""
    values = await browser.read([(v.node, ua.AttributeIds.Value) for v in variables])
    for variable, value in zip(variables, values, strict=True):
        variant = value.Value
        if variant is not None and (variant.is_array or isinstance(variant.Value, list)):
            variable.reason = MATRIX if len(variant.Dimensions or ()) > 1 else ARRAY
        elif variable.data_type == _ANY and (variant is None or variant.Value is None):
            variable.reason = f"its data type is abstract, and it has no value ({value.StatusCode.name})"
        elif variable.data_type == _ANY:
            number = variant.VariantType.value
            variable.data_type = ua.NodeId(_IDS.Structure if number == _IDS.Structure else number)


def _known(data_type: Any) -> bool:
    return data_type.NamespaceIndex == 0 and data_type.Identifier in _KINDS
