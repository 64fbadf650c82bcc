"""Definitions of structured data types (OPC 10000-3, 5.8.3 and 8.49), read from a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from asyncua import ua
from asyncua.ua.ua_binary import nodeid_to_binary

from core.errors import SourceError
from core.opcua.binary import FieldReader
from core.opcua.browse import Browser
from core.opcua.structure import STRUCTURE, Field, Structure
from core.opcua.text import node_id

_IDS = ua.ObjectIds
_ATTRIBUTES = (ua.AttributeIds.DataTypeDefinition, ua.AttributeIds.IsAbstract, ua.AttributeIds.BrowseName)
_ENUMERATED, _VARIANT = 6, 24  # the built-in types of enumerations, and of what may have several types
# Types that fields have themselves or as the nearest supertype → the built-in type of which they are encoded
_BUILT_IN = {
    **{number: number for number in range(1, 26)},
    **dict.fromkeys((_IDS.Number, _IDS.Integer, _IDS.UInteger), _VARIANT),
    _IDS.Enumeration: _ENUMERATED,
}
_FORMS: Mapping[int, Literal["plain", "optional", "union"]] = {0: "plain", 1: "optional", 2: "union"}
_MAX_TYPES = 5000  # a server that generates data types on request never ends

_Read: TypeAlias = (
    tuple[str, Any] | str | None
)  # name and StructureDefinition; the reason why there is none; None: any type


class Definitions:
    """Structured data types of a session, and those within them. Equal objects have read the same."""

    def __init__(self) -> None:
        self._tops: dict[Any, int] = {}  # type → key in _BUILT_IN; 0: unknown
        self._read: dict[Any, _Read] = {}  # structured types
        self._structures: dict[Any, Structure | str] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definitions) and (self._tops, self._read) == (other._tops, other._read)

    __hash__ = None  # type: ignore[assignment]

    async def read(self, browser: Browser, types: Iterable[Any]) -> None:
        """Read the unknown ones of these types, and of all types within them.

        Raises ua.UaError, OSError, TimeoutError or SourceError.
        """
        unread = set(types) - self._tops.keys()
        try:
            while unread:
                unread = await self._read_level(browser, unread) - self._tops.keys()
                if len(self._tops) + len(unread) > _MAX_TYPES:
                    raise SourceError(f"more than {_MAX_TYPES:,} data types are within structures")
        finally:
            self._link()

    async def _read_level(self, browser: Browser, types: set[Any]) -> set[Any]:
        """Read the definitions of these types. Returns the types within."""
        ancestors = await browser.ancestors(types, _is_built_in)
        tops = {data_type: 0 if top is None else int(top.Identifier) for data_type, top in ancestors.items()}
        structured = [data_type for data_type, top in tops.items() if top == STRUCTURE]
        attributes = [(data_type, attribute) for data_type in structured for attribute in _ATTRIBUTES]
        values = iter(await browser.read(attributes, _itself))
        self._read |= {
            data_type: _definition(data_type, *(next(values) for _ in _ATTRIBUTES)) for data_type in structured
        }
        self._tops |= tops
        await self._read_encodings(browser, structured)
        return {field.DataType for data_type in structured for field in _fields(self._read[data_type])}

    async def _read_encodings(self, browser: Browser, types: Iterable[Any]) -> None:
        """Read the encoding nodes of types whose definition, from some servers, does not name them."""
        definitions = {data_type: read[1] for data_type in types if isinstance(read := self._read[data_type], tuple)}
        unknown = [data_type for data_type, definition in definitions.items() if definition.DefaultEncodingId.is_null()]
        for data_type, encoding in zip(unknown, await browser.binary_encodings(unknown), strict=True):
            if encoding is None:
                self._read[data_type] = f"the server does not say how {definitions[data_type]} is encoded"
            else:
                definitions[data_type].DefaultEncodingId = encoding

    def structure(self, data_type: Any) -> Structure | str:
        """A data type that was read, or the reason why it cannot be decoded."""
        if self._tops.get(data_type) != STRUCTURE:
            return f"no structure, but of data type {data_type.to_string()}: clear the column member"
        return self._structures[data_type]

    def _link(self) -> None:
        """Make structures of the definitions. One that contains an undecodable structure is undecodable itself."""
        self._structures = {data_type: _empty(read) for data_type, read in self._read.items()}
        undecodable = -1
        while undecodable != (
            undecodable := sum(isinstance(structure, str) for structure in self._structures.values())
        ):
            for data_type, structure in self._structures.items():
                if isinstance(structure, Structure):
                    reasons = ((field.Name, self._why_not(field)) for field in _fields(self._read[data_type]))
                    for name, reason in (pair for pair in reasons if pair[1]):
                        self._structures[data_type] = f"the structure {structure.name} has {name}, {reason}"
        for data_type, structure in self._structures.items():
            if isinstance(structure, Structure):
                structure.fields = [self._field(field) for field in _fields(self._read[data_type])]

    def _why_not(self, field: Any) -> str:
        """Reason why a field cannot be decoded; empty: it can."""
        if not self._tops.get(field.DataType):
            return f"which is of an unknown data type, {field.DataType.to_string()}"
        if field.ValueRank != -1 and field.ValueRank < 1:
            return f"which may be an array or not (ValueRank {field.ValueRank})"
        if self._read.get(field.DataType) is None:
            return ""
        inside = self._structures[field.DataType]
        return inside if isinstance(inside, str) else ""

    def _field(self, field: Any) -> Field:
        inside = self._structures[field.DataType] if self._read.get(field.DataType) is not None else None
        assert not isinstance(inside, str)
        top = self._tops[field.DataType]
        dimensions, is_optional = max(field.ValueRank, 0), bool(field.IsOptional)
        return Field(field.Name or "", _BUILT_IN[top], inside, dimensions, is_optional, top == _IDS.Enumeration)


def _definition(data_type: Any, definition: Any, abstract: Any, name: Any) -> _Read:
    """Definition of a type, from the DataValues of :data:`_ATTRIBUTES`."""
    if data_type == ua.NodeId(STRUCTURE) or _value(abstract):
        return None
    read = _value(definition)
    shown = getattr(_value(name), "Name", None) or data_type.to_string()
    if not isinstance(read, ua.StructureDefinition):
        status = "" if definition.StatusCode.is_good() else f" ({definition.StatusCode.name})"
        return f"the server has no DataTypeDefinition of {shown}{status}"
    if int(read.StructureType) not in _FORMS:
        return f"the structure {shown} may contain subtypes of what it is defined of, which is not supported"
    return shown, read


def _itself(data_value: Any) -> Any:
    return data_value


def _value(data_value: Any) -> Any:
    return None if data_value.Value is None or not data_value.StatusCode.is_good() else data_value.Value.Value


def _empty(read: _Read) -> Structure | str:
    if read is None:
        return "a structure of any type, which is not supported"
    if isinstance(read, str):
        return read
    name, definition = read
    encoding = node_id(FieldReader(bytes(nodeid_to_binary(definition.DefaultEncodingId))))
    return Structure(name, encoding, _FORMS[int(definition.StructureType)])


def _fields(read: _Read) -> Iterable[Any]:
    return (read[1].Fields or ()) if isinstance(read, tuple) else ()


def _is_built_in(data_type: Any) -> bool:
    return data_type.NamespaceIndex == 0 and data_type.Identifier in _BUILT_IN
