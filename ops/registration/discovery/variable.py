"""The variables that are discovered: what they are, and the members of those that are structures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any

from asyncua import ua

from core.config.addresses.value_path import Indexes, flat_index, parse, split
from core.config.sources import ChannelKind, OpcuaTag
from core.opcua.browse import Browser
from core.opcua.definitions import Definitions
from core.opcua.structure import NO_ARRAY, STRUCTURE, Field, Structure, locate, reads_element
from ops.registration.discovery.channel_names import legal_name

_IDS = ua.ObjectIds
# Built-in types and their abstract supertypes (OPC 10000-6, 5.1.2); all others are subtypes of these.
KINDS: dict[int, ChannelKind | None] = {
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
_MAX_MEMBERS = 10_000  # of one structure

_NO_PROPERTIES: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class Variable:
    """A variable, or a member of one. Those with a ``reason`` cannot be logged."""

    node: Any
    path: str
    position: tuple[int, ...]  # in the tree
    properties: Mapping[str, Any] = field(default_factory=lambda: _NO_PROPERTIES)  # browse name → node id
    data_type: Any = None
    built_in: int = 0  # of KINDS, which the data type is or is derived from
    scalar: bool | None = None  # None: depends on the value
    description: str = ""
    reason: str = ""  # for skipping it
    is_seen: bool = True  # False: it was not possible to read what it is
    member: str = ""  # it is this member of the node's value
    is_listed: bool = True  # False: the tag list has it
    is_structure: bool = False
    dimensions: int = 0  # of the array that it is
    lengths: Indexes = ()  # of the array, if known

    @property
    def key(self) -> tuple[Any, str]:
        """Node and member."""
        return self.node, self.member

    def set_array(self, dimensions: int) -> None:
        """Note that the variable is an array of so many dimensions."""
        dimensions_text = f" of {dimensions} dimensions" if dimensions > 1 else ""
        hint = reads_element(STRUCTURE if self.is_structure else _IDS.Double, dimensions)
        self.dimensions = dimensions
        self.reason = f"an array{' of structures' * self.is_structure}{dimensions_text}{hint}"


async def members_of(
    browser: Browser,
    variables: list[Variable],
    kinds: dict[tuple[Any, str], ChannelKind],
    configured: Mapping[Any, Sequence[OpcuaTag]],
) -> dict[Any, list[Variable]]:
    """The members of each structure and those of tags, by node, with their ``kinds``. Others get a reason."""
    structured = [variable for variable in variables if variable.is_structure]
    definitions = Definitions()
    await definitions.read(browser, {variable.data_type for variable in structured})
    by_node: dict[Any, list[Variable]] = {}
    for variable in structured:
        structure = definitions.structure(variable.data_type)
        if isinstance(structure, str):
            variable.reason = structure
            continue
        all_members = () if variable.dimensions else structure.members()
        listed = dict.fromkeys(name for name, _ in islice(all_members, _MAX_MEMBERS))
        of_tags = (tag.member for tag in configured.get(variable.node, ()) if tag.member)
        for number, member in enumerate(listed | dict.fromkeys(of_tags)):
            path, position = f"{variable.path}.{legal_name(member)}", (*variable.position, number)
            member_variable = Variable(variable.node, path, position, member=member, is_listed=member in listed)
            member_field = _field(variable, structure, member)
            member_variable.reason = member_field if isinstance(member_field, str) else member_field.why_not
            if isinstance(member_field, Field) and member_field.is_value:
                member_variable.dimensions = member_field.dimensions
                member_variable.built_in = member_field.type
                kinds[member_variable.key] = (
                    "discrete" if member_field.enumeration else KINDS[member_field.type] or "analog"
                )
            by_node.setdefault(variable.node, []).append(member_variable)
    return by_node


def _field(variable: Variable, structure: Structure, member: str) -> Field | str:
    """A member of the variable, or the reason why it can't be read."""
    try:
        element, path = split(parse(member))
    except ValueError:
        return "its name has a dot or a bracket"
    if member != member.strip() or not member.isprintable():
        return "its name has a blank at an end, or characters that cannot be printed"
    if element and not variable.dimensions:
        return NO_ARRAY
    if len(element) != variable.dimensions:
        return variable.reason
    if variable.lengths and flat_index(element, variable.lengths) is None:
        return f"the array has {lengths_text(variable.lengths)}, but the tag has member {member}"
    return locate(structure, path)


def lengths_text(lengths: Indexes) -> str:
    """The lengths of an array, for people."""
    return f"{' × '.join(map(str, lengths))} elements"
