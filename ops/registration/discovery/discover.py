"""Creates a tag list from an OPC UA server's address space: variables, units, ranges, and what cannot be logged."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import Any, TextIO, TypeAlias

from asyncua import Client, ua

from core.config.addresses import node_address
from core.config.addresses.value_path import Indexes
from core.config.sources import ChannelKind, OpcuaSource, OpcuaTag
from core.config.tags import write_rows
from core.errors import SourceError
from core.opcua.browse import Browser
from core.opcua.namespaces import Namespaces, read_namespaces
from core.opcua.service import chunks
from core.opcua.session import close, connect
from ops.registration.discovery.channel_names import legal_name, plain, unique_names
from ops.registration.discovery.variable import KINDS, Variable, members_of

Progress: TypeAlias = Callable[[int], None]

_IDS = ua.ObjectIds
_ANY_TYPE = ua.NodeId(_IDS.BaseDataType)
_ATTRIBUTES = tuple(getattr(ua.AttributeIds, name) for name in ("DataType", "ValueRank", "AccessLevel", "Description"))
_VARIABLES = 5000  # whose attributes are in memory at a time
_STRUCTURE = "a structure: the column member reads a member"
COLUMNS = ("name", "address", "member", "kind", "unit", "lo", "hi", "description")


@dataclass(frozen=True, slots=True)
class SkippedVariable:
    """A variable that cannot be logged."""

    name: str
    address: str
    reason: str
    dimensions: int = 0  # of an array whose elements the column index reads
    lengths: Indexes = ()  # of an array with a configured element; empty: not known
    is_seen: bool = True  # False: the server did not say what it is


@dataclass(slots=True, repr=False)  # asyncio.run forms the representation of a result
class Discovered:
    """The variables of a server, in its own order."""

    tags: list[OpcuaTag] = field(default_factory=list)
    skipped: list[SkippedVariable] = field(default_factory=list)
    not_seen: list[SkippedVariable] = field(default_factory=list)  # with it, the tags may not be all
    # By node id and member, also those of ``source.tags``; a structure itself has no member.
    by_node: dict[tuple[Any, str], OpcuaTag | SkippedVariable] = field(default_factory=dict)
    namespaces: Namespaces = field(default_factory=Namespaces, compare=False)


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
        configured = _configured(source.tags, namespaces)
        elsewhere = await _elsewhere(browser, configured, {v.node for v in variables})
        all_variables = [*variables, *elsewhere]
        await _attributes(browser, all_variables)
        for variable in all_variables:
            if fault := node_address.fault(namespaces.address(variable.node)):
                variable.reason = f"{fault}, which a tag list cannot have"
        kinds = await _kinds(browser, all_variables)
        await _lengths(
            browser, [v for v in all_variables if v.dimensions and any(t.path for t in configured.get(v.node, ()))]
        )
        members = await members_of(browser, all_variables, kinds, configured)
        units = await units_and_ranges(browser, {v.node: v.properties for v in all_variables if not v.reason})
    finally:
        await close(client, source.time_out)
    discovered = Discovered(namespaces=namespaces)
    variables = [
        listed for variable in variables for listed in (variable, *members.get(variable.node, ())) if listed.is_listed
    ]
    all_variables = [
        variable_or_member
        for variable in all_variables
        for variable_or_member in (variable, *members.get(variable.node, ()))
    ]
    addresses = {variable.node: namespaces.address(variable.node) for variable in all_variables}
    names = unique_names((v.key, v.path, addresses[v.node]) for v in all_variables if v.is_listed)
    for address, status in sorted((namespaces.address(node), status) for node, status in browser.refused):
        discovered.not_seen.append(SkippedVariable("", address, f"not all below it can be browsed: {status}"))
    for variable in all_variables:
        name, address = names.get(variable.key, names[variable.node, ""]), addresses[variable.node]
        if variable.reason:
            dimensions = 0 if variable.is_structure else variable.dimensions
            discovered.by_node[variable.key] = SkippedVariable(
                name, address, variable.reason, dimensions, variable.lengths, variable.is_seen
            )
            continue
        unit, lo, hi = ("", None, None) if variable.member else units[variable.node]
        kind = kinds[variable.key]
        counts = kind == "analog" and is_counter(name, unit, variable.built_in)
        discovered.by_node[variable.key] = OpcuaTag(
            name=name,
            address=address,
            member=variable.member,
            kind="counter" if counts else kind,
            unit=unit,
            lo=lo,
            hi=hi,
            description=variable.description,
        )
    for result in (discovered.by_node[variable.key] for variable in variables if variable.reason != _STRUCTURE):
        if isinstance(result, OpcuaTag):
            discovered.tags.append(result)
        else:
            (discovered.skipped if result.is_seen else discovered.not_seen).append(result)
    return discovered


def write_tag_list(tags: list[OpcuaTag], file: TextIO) -> None:
    """The tags as a CSV file for ``plant.toml``."""
    columns = [name for name in COLUMNS if name != "member" or any(tag.member for tag in tags)]
    write_rows(file, columns, ({name: getattr(tag, name) for name in columns} for tag in tags))


async def _connect(source: OpcuaSource, pki: Path) -> Client:
    """Connect to the first of the source's servers that accepts it. Raises SourceError."""
    refused = []
    for address in source.servers:
        try:
            return await connect(source.at(address), pki)
        except SourceError as error:
            refused.append(f"{address}: {error}" if source.addresses else str(error))
    raise SourceError("; ".join(refused))


async def _variables(browser: Browser) -> list[Variable]:
    """All variables, level by level. Properties belong to their variable, other children are variables themselves."""
    classes = ua.NodeClass.Object | ua.NodeClass.Variable
    visited = {ua.NodeId(_IDS.ObjectsFolder), ua.NodeId(_IDS.Server)}
    variables: list[Variable] = []
    level: list[tuple[Any, str, tuple[int, ...], Variable | None]] = [(ua.NodeId(_IDS.ObjectsFolder), "", (), None)]
    while level:
        below: list[tuple[Any, str, tuple[int, ...], Variable | None]] = []
        answers = await browser.children([node for node, *_ in level], int(classes))
        for (_, path, position, parent), references in zip(level, answers, strict=True):
            for number, reference in enumerate(references):
                node = reference.node
                if node is None:
                    continue
                if parent is not None and reference.is_property:
                    if reference.name in UNIT_AND_RANGE:
                        parent.properties = {reference.name: node, **parent.properties}
                    continue
                if node in visited:
                    continue
                visited.add(node)
                name = f"{path}/{legal_name(reference.name)}".lstrip("/")
                variable = None
                if reference.is_variable and node.NamespaceIndex:  # 0: defined by OPC UA
                    variable = Variable(node, name, (*position, number))
                    variables.append(variable)
                below.append((node, name, (*position, number), variable))
        level = below
    return sorted(variables, key=lambda v: v.position)


def _configured(tags: Iterable[OpcuaTag], namespaces: Namespaces) -> dict[Any, list[OpcuaTag]]:
    """The tags of each node."""
    by_node: dict[Any, list[OpcuaTag]] = {}
    for tag in tags:
        with suppress(SourceError):  # no such namespace
            by_node.setdefault(namespaces.node_id(tag.address), []).append(tag)
    return by_node


async def _elsewhere(
    browser: Browser, configured: Mapping[Any, Sequence[OpcuaTag]], browsed: Container[Any]
) -> list[Variable]:
    """The nodes of tags that were not browsed, with their properties."""
    nodes = {node: tags[0].name for node, tags in configured.items() if node not in browsed}
    variables = [Variable(node, name, ()) for node, name in nodes.items()]
    refused = list(browser.refused)
    for variable, references in zip(
        variables, await browser.children(list(nodes), int(ua.NodeClass.Variable)), strict=True
    ):
        variable.properties = {
            reference.name: reference.node
            for reference in reversed(references)
            if reference.is_property and reference.node
        }
    browser.refused[:] = refused  # why such a node cannot be read is told with the node
    return variables


async def _attributes(browser: Browser, variables: list[Variable]) -> None:
    """Data type, rank, access and description of each."""
    for portion in chunks(variables, _VARIABLES):
        attributes = [(v.node, attribute) for v in portion for attribute in _ATTRIBUTES]
        _set_attributes(portion, await browser.read(attributes, _status_and_value))


def _set_attributes(variables: Iterable[Variable], read: Iterable[tuple[str, Any]]) -> None:
    values, types = iter(read), dict[Any, Any]()
    for variable in variables:
        (status, data_type), (_, rank), (_, access), (_, description) = (next(values) for _ in _ATTRIBUTES)
        if status or data_type is None:
            variable.reason = (
                "the server has no such node"
                if status == "BadNodeIdUnknown"
                else f"its data type cannot be read: {status or 'Good'}"
            )
            variable.is_seen = status in ("", "BadNodeIdUnknown")
            continue
        variable.data_type = types.setdefault(data_type, data_type)
        dimensions = -2 if rank is None else rank
        variable.scalar = True if dimensions == -1 else None if dimensions in (-2, -3) else False
        if variable.scalar is False:
            variable.dimensions = max(dimensions, 1)
        elif access is not None and not int(access or 0) & 1:
            variable.reason = "it is not readable (AccessLevel)"
        variable.description = description or ""


def _status_and_value(data_value: Any) -> tuple[str, Any]:
    """The name of the status code unless it is Good, or the value if it is."""
    if not data_value.StatusCode.is_good():
        return str(data_value.StatusCode.name), None
    value = None if data_value.Value is None else data_value.Value.Value
    return "", plain(value.Text or "") if isinstance(value, ua.LocalizedText) else value


async def _kinds(browser: Browser, variables: list[Variable]) -> dict[tuple[Any, str], ChannelKind]:
    """The kind of each variable; those without one are skipped with the reason."""
    left = [v for v in variables if not v.reason]
    await _values(browser, [v for v in left if v.scalar is None or (v.data_type == _ANY_TYPE and not v.dimensions)])
    left = [v for v in left if not v.reason]
    above = await browser.ancestors({v.data_type for v in left}, _known)
    kinds: dict[tuple[Any, str], ChannelKind] = {}
    for variable in left:
        top = above[variable.data_type]
        kind = None if top is None else KINDS[top.Identifier]
        variable.built_in = 0 if top is None else top.Identifier
        variable.is_structure = top is not None and top.Identifier == _IDS.Structure
        if variable.dimensions:
            variable.set_array(variable.dimensions)
        elif variable.is_structure:
            variable.reason = _STRUCTURE
        elif kind is None:
            name = "of an unknown type" if top is None else ua.ObjectIdNames.get(top.Identifier, "")
            variable.reason = f"{name}: data type {variable.data_type.to_string()}"
        else:
            kinds[variable.key] = kind
    return kinds


async def _lengths(browser: Browser, arrays: list[Variable]) -> None:
    """Lengths of arrays."""
    shapes = await browser.read([(v.node, ua.AttributeIds.Value) for v in arrays], _shape)
    for variable, (lengths, _, _) in zip(arrays, shapes, strict=True):
        if lengths:
            variable.lengths = lengths
            variable.set_array(len(lengths))


async def _values(browser: Browser, variables: list[Variable]) -> None:
    """Read values to decide what type and rank leave open."""
    shapes = await browser.read([(v.node, ua.AttributeIds.Value) for v in variables], _shape)
    for variable, (lengths, built_in, status) in zip(variables, shapes, strict=True):
        if lengths:
            variable.dimensions = len(lengths)
        elif variable.data_type == _ANY_TYPE and built_in is None:
            variable.reason = f"its data type is abstract, and it has no value ({status})"
        elif variable.data_type == _ANY_TYPE:
            variable.data_type = ua.NodeId(built_in)


def _shape(data_value: Any) -> tuple[Indexes, int | None, str]:
    """The lengths of an array, at least one; the built-in type of a value, None if there is none; and the status."""
    variant, status = data_value.Value, str(data_value.StatusCode.name)
    if variant is None or (variant.Value is None and not variant.is_array):
        return (), None, status
    is_array = variant.is_array or isinstance(variant.Value, list)
    lengths = tuple(variant.Dimensions or ()) or (len(variant.Value or ()),) if is_array else ()
    return lengths, int(variant.VariantType.value), status


def _known(data_type: Any) -> bool:
    return data_type.NamespaceIndex == 0 and data_type.Identifier in KINDS


_INTEGERS = frozenset(
    (
        *(_IDS.Byte, _IDS.UInt16, _IDS.Int32, _IDS.UInt32, _IDS.Int64, _IDS.UInt64),
        *(_IDS.Integer, _IDS.UInteger),
    )
)
_ENERGIES = frozenset({"wh", "kwh", "mwh", "gwh", "varh", "kvarh", "mvarh", "vah", "kvah"})
_AMOUNTS = _ENERGIES | {"h", "s", "m³", "m3", "l", "t", "kg", "pcs", "gj", "mj"}
_WORDS = frozenset(
    {
        *("count", "counter", "counts", "cycles", "energy", "hours", "odometer", "pulses", "runtime", "starts"),
        *("total", "totalised", "totaliser", "totalized", "totalizer"),
    }
)


def is_counter(name: str, unit: str, data_type: int) -> bool:
    """Return whether a number with the last part of this ``name`` is likely to be a counter.

    Energies are; a name such as TotalFlow makes an amount a counter, or an integer without a unit. ``data_type``: the
    built-in type, or its abstract supertype (OPC 10000-6, 5.1.2).
    """
    unit = unit.strip().lower()
    if unit in _ENERGIES:
        return True
    words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", re.split(r"[/.]", name)[-1])}
    return bool(words & _WORDS) and (unit in _AMOUNTS if unit else data_type in _INTEGERS)


UnitAndRange: TypeAlias = tuple[str, float | None, float | None]  # unit, low and high end of the range

UNIT_AND_RANGE = ("EngineeringUnits", "EURange")  # properties
_UNECE = "http://www.opcfoundation.org/UA/units/un/cefact"


async def units_and_ranges(browser: Browser, properties: Mapping[Any, Mapping[str, Any]]) -> dict[Any, UnitAndRange]:
    """Units and ranges that the server has of each variable, by its properties (browse name → node id)."""
    properties_to_read = [
        (node, name, named[name]) for node, named in properties.items() for name in UNIT_AND_RANGE if name in named
    ]
    values = await browser.read([(node, ua.AttributeIds.Value) for _, _, node in properties_to_read], _unit_or_range)
    units: dict[Any, str] = {}
    ranges: dict[Any, tuple[float, float]] = {}
    for (node, name, _), value in zip(properties_to_read, values, strict=True):
        if name == "EngineeringUnits" and isinstance(value, str):
            units[node] = value
        elif name == "EURange" and isinstance(value, tuple):
            ranges[node] = value
    by_node: dict[Any, UnitAndRange] = {}
    for node in properties:
        lo, hi = ranges.get(node, (0.0, 0.0))
        by_node[node] = (units.get(node, ""), *((lo, hi) if lo < hi else (None, None)))  # unset ranges are 0 to 0
    return by_node


def _unit_or_range(data_value: Any) -> str | tuple[float, float] | None:
    read: Any = None if data_value.Value is None else data_value.Value.Value
    if hasattr(read, "DisplayName"):
        return intern(plain(read.DisplayName.Text or "") or _common_code(read))
    if hasattr(read, "Low") and math.isfinite(read.Low) and math.isfinite(read.High):
        return read.Low, read.High
    return None


def _common_code(unit: Any) -> str:
    """The UNECE code of a unit without a name, as CEL: the UnitId has its characters (OPC 10000-8, 5.6.4.3)."""
    if unit.NamespaceUri != _UNECE or not 0 < unit.UnitId < 1 << 24:
        return ""
    code = unit.UnitId.to_bytes(3, "big").lstrip(b"\0")
    return code.decode() if code.isalnum() else ""
