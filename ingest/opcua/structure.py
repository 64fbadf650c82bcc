"""Structured data types as a server defines them (OPC 10000-3, 8.48 and 8.49): which members can be read, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from ingest.errors import DecodeError
from ingest.opcua.binary import SIZES, Reader
from ingest.opcua.text import FORMS

STRUCTURE = 22  # the built-in type of a nested structure, and of an extension object of any type
NUMBERS = dict(zip(range(1, 12), "?bBhHiIqQfd", strict=True))  # built-in type → format of ``struct``
_NAMES = ("Boolean", "SByte", "Byte", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double")
_OTHERS = {STRUCTURE: "structure", 23: "DataValue", 24: "Variant", 25: "DiagnosticInfo"}
_TYPE_NAMES = dict(enumerate(_NAMES, 1)) | {kind: name for kind, (name, _) in FORMS.items()} | _OTHERS
_MAX_DEPTH = 16  # of structures in structures
_SHOWN = 20  # members in a reason


def type_name(encoding: int) -> str:
    """Type name of a variant with this encoding byte."""
    kind = encoding & 0x3F
    name = _TYPE_NAMES.get(kind, "an unknown type")
    if encoding & 0x80:
        return f"an array of {name}{'s' if kind == STRUCTURE else ''}"
    if encoding == STRUCTURE:
        return "a structure: the column member reads a member"
    return f"a variant of encoding 0x{encoding:02X}" if encoding > STRUCTURE else f"a {name}"


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a structure."""

    name: str
    type: int  # built-in type
    structure: Structure | None = None  # if the type is STRUCTURE; None: an extension object of any type
    dimensions: int = 0  # 0: no array
    optional: bool = False
    enumeration: bool = False  # of which only the number is encoded

    @property
    def what(self) -> str:
        """Its type, for people."""
        if not self.dimensions:
            return f"a {_TYPE_NAMES[self.type]}"
        many = f" of {self.dimensions} dimensions" if self.dimensions > 1 else ""
        return f"{type_name(self.type | 0x80)}{many}"

    @property
    def is_value(self) -> bool:
        """Whether it is a number or has a text form, or its elements are and have."""
        return self.type in NUMBERS or self.type in FORMS

    @property
    def size(self) -> int | None:
        """Bytes; None: it depends on the value."""
        if self.dimensions:
            return None
        return self.structure.size if self.structure else SIZES.get(self.type)


@dataclass(slots=True, eq=False)
class Structure:
    """A structured data type. One may contain itself, within an array or an optional field."""

    name: str
    encoding: str = ""  # node id of its binary encoding
    form: Literal["plain", "optional", "union"] = "plain"
    fields: list[Field] = field(default_factory=list)
    _size: int | None = -1  # -1: not known yet

    @property
    def size(self) -> int | None:
        """Bytes of each value; None: it depends on the value."""
        if self._size == -1:
            self._size = None  # of one that contains itself
            sizes = [one.size for one in self.fields]
            if self.form == "plain" and None not in sizes:
                self._size = sum(filter(None, sizes))
        return self._size

    def members(self, path: str = "", depth: int = 0) -> Iterator[tuple[str, Field]]:
        """(path, field) of everything below that is no structure, in order."""
        for one in self.fields:
            name = f"{path}{one.name}"
            if one.structure is None or one.dimensions:
                yield name, one
            elif depth < _MAX_DEPTH:
                yield from one.structure.members(f"{name}.", depth + 1)


def why_not(structure: Structure, member: str, index: int | None) -> str:
    """Why a member (names, separated by dots) cannot be a channel; empty: it can."""
    inside: Structure | None = structure
    found: Field | None = None
    for name in member.split("."):
        if inside is None:
            assert found is not None
            return f"{found.name} is {found.what}, which has no member {name}"
        found = next((one for one in inside.fields if one.name == name), None)
        if found is None:
            return f"the structure {inside.name} has no member {name}; it has {_listed(inside)}"
        inside = None if found.dimensions else found.structure
    assert found is not None
    if inside is not None:
        return f"a structure: the column member names one of its members: {_listed(inside)}"
    if not found.is_value or found.dimensions > 1:
        return found.what
    if found.dimensions:
        return "" if index is not None else f"{found.what}: the column index reads an element"
    return "" if index is None else f"{found.what}, not an array: clear the column index"


def _listed(structure: Structure) -> str:
    names = [one.name for one in structure.fields]
    more = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def union_field(reader: Reader, fields: int) -> int:
    """Read which field a union has, from 1; 0: none (OPC 10000-6, 5.2.8). Raises DecodeError."""
    switch = reader.uint32()
    if switch > fields:
        raise DecodeError(f"a union of {fields} fields has number {switch}")
    return switch


def fields_there(reader: Reader, fields: Sequence[Field]) -> list[bool]:
    """Read whether the value has each field: a mask has a bit for each optional one (OPC 10000-6, 5.2.7).

    Raises DecodeError.
    """
    mask = reader.uint32()
    found = []
    for one in fields:
        found.append(not one.optional or bool(mask & 1))
        mask >>= one.optional
    if mask:
        raise DecodeError(f"a structure of {len(fields)} fields has others")
    return found


def skip(reader: Reader, one: Field, depth: int = 0) -> None:
    """Skip a field. Raises DecodeError."""
    size = one.structure.size if one.structure else SIZES.get(one.type)
    count = 1
    if one.dimensions == 1:
        count = reader.count(1 if size is None else size)
    elif one.dimensions:  # the lengths, then all elements (OPC 10000-6, 5.2.5)
        count = prod(max(reader.int32(), 0) for _ in range(reader.count(4)))
    if size is not None:
        reader.skip(count * size)
        return
    if depth > _MAX_DEPTH or count > len(reader.body):
        raise DecodeError(f"{count} structures in {len(reader.body)} bytes, {depth} deep")
    for _ in range(count):
        if one.structure is None:
            reader.built_in(one.type)
            continue
        fields: Sequence[Field] = one.structure.fields
        if one.structure.form == "union":
            switch = union_field(reader, len(fields))
            fields = fields[max(switch - 1, 0) : switch]
        elif one.structure.form == "optional":
            fields = [part for part, is_there in zip(fields, fields_there(reader, fields), strict=True) if is_there]
        for part in fields:
            skip(reader, part, depth + 1)
